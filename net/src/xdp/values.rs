//! Tests of values sent in place: a port at one end of a link, kernel sockets at the other end.
//!
//! Where: in separate network namespaces, which need root.
//! Invariant: a client gets each value as it was at `add`, even if the value's chunk is overwritten
//! afterwards. Each reference is released, and the kernel finds no descriptor invalid.
#![allow(unsafe_code, reason = "fills chunks as the store does")]

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use memory::arena::{Arena, VALUE_AT};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use testing::namespace::{Namespace, Veth, WIRE, pair};

use super::tests::{LIMIT, answer, assert_all_chunks, await_that, client, wanted};
use super::*;
use crate::Calls;

pub(super) const VALUES: Values =
    Values { memory_bytes_max: 1 << 20, in_place_min: 100, keeps: false };

/// A part of a value, to which the test has a reference.
struct Part {
    arena: Arc<Arena>,
    chunk: u32,
    bytes: usize,
}

impl Part {
    fn new(arena: &Arc<Arena>, seed: u8, bytes: usize) -> Part {
        let chunk = arena.take().expect("room for values");
        let part = Part { arena: Arc::clone(arena), chunk, bytes };
        let text: Vec<u8> = (0..=255).cycle().skip(seed.into()).step_by(7).take(bytes).collect();
        // SAFETY: the chunk was taken just now, and has room for `bytes` bytes.
        unsafe { part.at().copy_from(text.as_ptr(), bytes) };
        part
    }

    fn at(&self) -> *mut u8 {
        self.arena.at(self.chunk).wrapping_add(VALUE_AT)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a chunk with a reference is not written to after it was filled.
        unsafe { std::slice::from_raw_parts(self.at(), self.bytes) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.arena.release(self.chunk);
    }
}

pub(super) fn open_on(end: &Namespace, mode: Mode, keeps: bool) -> Opened {
    let values = Some(Values { keeps, ..VALUES });
    let wanted = OpenOptions { values, chunks: 2048, ..wanted(mode) };
    end.on(|| open(&wanted)).unwrap_or_else(|refused| panic!("{refused}"))
}

/// Sends a request from a client. Returns the index of the receiving port, and the peer to answer.
pub(super) fn request_from(client: &UdpSocket, ports: &mut [Port]) -> (usize, Peer) {
    client.send(b"?").unwrap();
    let mut found = None;
    await_that(|| {
        for (number, port) in ports.iter_mut().enumerate() {
            let _ = port.inbox.receive(&Calls::default());
            found = port.inbox.datagrams().last().map(|one| (number, *one.peer)).or(found);
            port.inbox.release();
        }
        found.is_some()
    });
    found.unwrap()
}

/// Waits until all datagrams have left, and asserts that no chunk and no reference is lost.
pub(super) fn assert_at_rest(port: &mut Port) {
    await_that(|| {
        port.outbox.post_or_drop(&Calls::default());
        port.outbox.in_transmission() == 0
    });
    assert_eq!(port.chunks().values, 0);
    assert_all_chunks(port);
    assert_eq!(port.meter().read().unwrap().invalid, 0);
}

#[test]
fn values_arrive_as_they_lie_by_each_queue_over_both_families() {
    let cases =
        [(Mode::Native, 1500, false), (Mode::Native, 9000, true), (Mode::Generic, 1500, true)];
    for (mode, mtu, keeps) in cases {
        let Some([near, far]) = pair(Veth { queues: 2, mtu }) else { return };
        let Opened { mut ports, watch, arena } = open_on(&far, mode, keeps);
        let all = arena.free();
        assert_eq!(all as usize * arena.chunk_bytes(), VALUES.memory_bytes_max);
        assert_eq!(watch.facts().value_bytes, VALUES.memory_bytes_max);
        assert!(watch.facts().sends_in_place, "{mode:?}");
        let part_bytes = arena.chunk_bytes() - VALUE_AT;
        let parts = [1, 2, 3].map(|seed| Part::new(&arena, seed, part_bytes));
        let room = mtu as usize - 48 - 40;
        // In generic mode all datagrams arrive in one queue.
        let mut used = [false, mode == Mode::Generic];
        let deadline = Instant::now() + LIMIT;
        while used.contains(&false) {
            assert!(Instant::now() < deadline, "a queue is never used: {used:?}");
            for to in [IpAddr::from(far.v4), far.v6.into()] {
                let client = client(&near, to);
                let (number, peer) = request_from(&client, &mut ports);
                used[number] = true;
                // The payloads are: one part, cut to a packet's length; the end of one part and the
                // beginning of another part; pieces of three parts.
                let first = &parts[0].bytes()[..room.min(part_bytes)];
                let [_, b, c] = &parts;
                let two = [
                    &parts[0].bytes()[part_bytes - 503..],
                    &b.bytes()[..part_bytes.min(room - 503)],
                ];
                let rest = &c.bytes()[..part_bytes.min((room - 1003).saturating_sub(part_bytes))];
                let three = [&parts[0].bytes()[3..1006], b.bytes(), rest];
                let mut payloads = vec![vec![first], two.to_vec()];
                payloads.extend((mtu == 9000).then_some(three.to_vec()));
                for payload in payloads {
                    assert!(ports[number].outbox.add(&peer, b"headline", payload.iter().copied()));
                    let tally = ports[number].outbox.post_or_drop(&Calls::default());
                    let bytes: usize = payload.iter().map(|it| it.len()).sum();
                    assert_eq!((tally.sent, tally.in_place_bytes), (1, bytes));
                    let expected = [b"headline", &payload.concat()[..]].concat();
                    assert!(answer(&client) == expected, "{to}, {mode:?}, {mtu}");
                }
            }
        }
        ports.iter_mut().for_each(assert_at_rest);
        drop(parts);
        assert_eq!(arena.free(), all);
    }
}

#[test]
fn a_value_is_sent_as_it_was_though_it_is_overwritten_while_the_link_is_down() {
    const DATAGRAMS: u32 = 1000;
    for (mode, keeps) in [(Mode::Native, true), (Mode::Generic, false)] {
        let Some([near, far]) = pair(Veth::default()) else { return };
        let Opened { mut ports, arena, .. } = open_on(&far, mode, keeps);
        let (all, client) = (arena.free(), client(&near, far.v6));
        set_socket_recv_buffer_size_force(&client, 64 << 20).unwrap();
        let (_, peer) = request_from(&client, &mut ports);
        let (port, calls) = (&mut ports[0], Calls::default());
        let value = Part::new(&arena, 9, 1200);
        let text = value.bytes().to_vec();
        far.ip(&format!("link set {WIRE} down"));
        for number in 0..DATAGRAMS {
            assert!(port.outbox.add(&peer, &number.to_be_bytes(), [value.bytes()]));
        }
        port.outbox.post_or_drop(&calls);
        assert_eq!((port.chunks().values, port.outbox.waiting()), (1000, 2000));
        assert!(port.inbox.queue().is_unsettled());
        drop(value);
        for seed in 0..3 {
            let room =
                (0..all).map_while(|_| (arena.free() > 0).then(|| Part::new(&arena, seed, 1200)));
            assert_eq!(room.collect::<Vec<_>>().len(), all as usize - 1);
        }
        far.ip(&format!("link set {WIRE} up"));
        // Datagrams that are sent before the client's end is ready are lost.
        let (mut arrived, mut last) = (0, None);
        client.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2000];
        await_that(|| {
            port.outbox.post_or_drop(&calls);
            while let Ok(bytes) = client.recv(&mut buffer) {
                let (number, value) = buffer[..bytes].split_first_chunk().unwrap();
                let number = u32::from_be_bytes(*number);
                assert!(last < Some(number) && number < DATAGRAMS && value == text, "{mode:?}");
                (arrived, last) = (arrived + 1, Some(number));
            }
            port.outbox.waiting() == 0
        });
        assert!(arrived > 0, "{mode:?}");
        assert_at_rest(port);
        assert_eq!(arena.free(), all);
    }
}

#[test]
fn references_come_back_when_a_port_is_closed_while_values_wait() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let Opened { mut ports, arena, .. } = open_on(&far, Mode::Any, true);
    let (all, client) = (arena.free(), client(&near, far.v4));
    let (_, peer) = request_from(&client, &mut ports);
    let values = [1, 2, 3].map(|seed| Part::new(&arena, seed, 500));
    far.ip(&format!("link set {WIRE} down"));
    for value in values.iter().cycle().take(100) {
        assert!(ports[0].outbox.add(&peer, b"", [value.bytes()]));
    }
    ports[0].outbox.post_or_drop(&Calls::default());
    drop(values);
    assert_eq!((arena.free(), ports[0].chunks().values), (all - 3, 100));
    drop(ports);
    assert_eq!(arena.free(), all);
}
