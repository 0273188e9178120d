//! Tests of answers when the system refuses some of their datagrams.
//!
//! Where: `Answers::send` with an `Outgoing` that refuses datagrams at random.
//! Invariant: the parts of an answer that are sent are its first parts, without a gap and
//! unchanged. Each part is sent or counted as not sent.

use std::sync::Arc;

use net::{Calls, Tally};
use protocol::udp::{HEADER_BYTES, Header};
use testing::Random;

use super::answers::{Answers, SendPath};
use super::tests::turn;
use crate::datapath::{Outgoing, SendBatch};

/// Maximum number of bytes of a datagram, including the memcached UDP header.
const DATAGRAM_BYTES: usize = 100;

/// An outgoing path that records the datagrams that were sent.
struct Refusing {
    random: Random,
    /// On average one of `one_in` datagrams is refused, even if there is room.
    one_in: u32,
    sent: Vec<(u8, Vec<u8>)>,
}

struct Plan<'a> {
    path: &'a mut Refusing,
    datagrams: Vec<(u8, Vec<u8>)>,
}

impl Outgoing for Refusing {
    type Peer = u8;
    type SendBatch<'a> = Plan<'a>;

    fn open(&mut self) -> Plan<'_> {
        Plan { path: self, datagrams: Vec::new() }
    }
}

impl<'a> SendBatch<'a, u8> for Plan<'_> {
    fn add(&mut self, to: &'a u8, head: &[u8], mut pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        if self.path.random.number(self.path.one_in) == 0 {
            // A real batch may consume some pieces before it finds that there is no room.
            let taken = self.path.random.index(3);
            pieces.by_ref().take(taken).for_each(drop);
            return false;
        }
        let mut datagram = head.to_vec();
        pieces.for_each(|piece| datagram.extend_from_slice(piece));
        self.datagrams.push((*to, datagram));
        true
    }

    fn post_or_drop(&mut self, _: &Calls) -> Tally {
        let sent = self.datagrams.len();
        self.path.sent.append(&mut self.datagrams);
        Tally { sent, ..Tally::default() }
    }
}

#[test]
fn an_answer_ends_where_a_part_of_it_has_no_room() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut turn = turn();
        let counters = Arc::clone(&turn.counters);
        let mut answers = Answers::new(1 << 20);
        let peers: Vec<u8> = (0..12).collect();
        let (mut made, mut parts) = (Vec::new(), 0);
        for peer in &peers {
            let bytes = 1 + random.index(1000);
            let reply: Vec<u8> = (0..bytes).map(|_| random.number(256).to_le_bytes()[0]).collect();
            let from = answers.begin(&mut turn.out);
            turn.out.buf.extend_from_slice(&reply);
            answers.add(
                (peer, u16::from(*peer)),
                (from, bytes),
                DATAGRAM_BYTES - HEADER_BYTES,
                &mut turn.out,
            );
            parts += bytes.div_ceil(DATAGRAM_BYTES - HEADER_BYTES);
            made.push(reply);
        }
        let out =
            Refusing { random: Random::new(seed), one_in: 2 + random.number(8), sent: Vec::new() };
        let mut path = SendPath { out, datagram_bytes_max: DATAGRAM_BYTES };
        answers.send(&mut path, &mut turn);
        let mut arrived: Vec<(u16, Vec<u8>)> = vec![(0, Vec::new()); peers.len()];
        for (to, datagram) in &path.out.sent {
            let (header, part) = Header::read(datagram).unwrap();
            assert_eq!(header.id, u16::from(*to), "seed {seed}");
            let (next, bytes) = &mut arrived[usize::from(*to)];
            assert_eq!(header.number, *next, "seed {seed}: no part is left out before another");
            *next += 1;
            bytes.extend_from_slice(part);
        }
        for ((_, bytes), reply) in arrived.iter().zip(&made) {
            assert!(reply.starts_with(bytes), "seed {seed}");
        }
        assert_eq!(counters.udp_sent.get(), path.out.sent.len() as u64, "seed {seed}");
        let unsent = (parts - path.out.sent.len()) as u64;
        assert_eq!(counters.udp_unsent.get(), unsent, "seed {seed}");
        assert!(turn.out.is_empty());
    }
}
