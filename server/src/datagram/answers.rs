//! Answers: messages cut into datagrams, and their way out.
//!
//! ```text
//! out.buf   | frame | replies | frame | replies | ...     an answer of one datagram is sent so
//! ```
//!
//! Where: behind the execution of a message. What clients of one burst are answered lies one behind
//! the other, so that the kernel takes it as one.
//! Invariant: each datagram of an answer has the request's number, its own and the total, and no
//! more bytes than `Way::datagram_bytes_max`. What the system does not take is dropped and
//! counted.

use net::Tally;
use protocol::udp::{HEADER_BYTES, Header};

use crate::datapath::{Letters, Outgoing};
use crate::execute::budget::Budget;
use crate::limits::{ANSWERS_MAX, OUT_BYTES_MAX};
use crate::out::{Mark, Out};
use crate::turn::TurnState;

/// Answers that are to be sent.
#[derive(Debug)]
pub(super) struct Answers<P> {
    all: Vec<Answer<P>>,
    reply_bytes_max: usize,
}

/// One message, which stands in the turn's replies.
#[derive(Clone, Copy, Debug)]
struct Answer<P> {
    peer: P,
    id: u16,
    /// Behind the room for a frame.
    from: Mark,
    to: Mark,
}

/// The way back to those who asked.
#[derive(Debug)]
pub(super) struct Way<O> {
    pub(super) out: O,
    /// The most bytes that a datagram carries, the frame included.
    pub(super) datagram_bytes_max: usize,
}

impl<P: Copy> Answers<P> {
    pub(super) fn new(reply_bytes_max: usize) -> Answers<P> {
        Answers { all: Vec::with_capacity(ANSWERS_MAX), reply_bytes_max }
    }

    /// Begins an answer at the end of `out`, with room for a frame. Where its replies begin.
    #[inline]
    pub(super) fn begin(&self, out: &mut Out) -> Mark {
        out.buf.extend_from_slice(&[0; HEADER_BYTES]);
        out.mark()
    }

    /// What may be done for a message whose answer begins here.
    #[inline]
    pub(super) fn budget(&self, from: Mark, out: &Out) -> Budget {
        Budget::of_message(from, out.pinned_bytes(), self.reply_bytes_max)
    }

    /// The most bytes that the replies of one message may have.
    pub(super) fn reply_bytes_max(&self) -> usize {
        self.reply_bytes_max
    }

    /// Adds the answer that stands in `out` since `from`. Nothing answers nothing.
    #[inline]
    pub(super) fn add(&mut self, peer: &P, id: u16, from: Mark, out: &mut Out) {
        let to = out.mark();
        if from == to {
            return take_back(from, out);
        }
        self.all.push(Answer { peer: *peer, id, from, to });
    }

    /// So many, or as much as a connection's turn replies at most, that they are to be sent before
    /// more is executed.
    #[inline]
    pub(super) fn are_enough(&self, out: &Out) -> bool {
        self.all.len() >= ANSWERS_MAX || Budget::new(u32::MAX, OUT_BYTES_MAX).is_spent(out)
    }

    /// Sends them all, and empties the turn's replies.
    pub(super) fn send<O: Outgoing<Peer = P>>(&mut self, way: &mut Way<O>, turn: &mut TurnState) {
        let TurnState { out, calls, context, .. } = turn;
        let payload_bytes = way.datagram_bytes_max - HEADER_BYTES;
        // The frames of answers of one datagram stand before them.
        for answer in &self.all {
            if answer.bytes(out) <= payload_bytes {
                let frame = answer.frame(0, 1);
                let at = answer.from.text - HEADER_BYTES;
                out.buf[at..at + HEADER_BYTES].copy_from_slice(&frame);
            }
        }
        let (mut tally, mut bytes_sent) = (Tally::default(), 0);
        let mut letters = way.out.open();
        for answer in &self.all {
            let bytes = answer.bytes(out);
            let (parts, from) = match bytes <= payload_bytes {
                true => (1, Mark { text: answer.from.text - HEADER_BYTES, ..answer.from }),
                false => (bytes.div_ceil(payload_bytes), answer.from),
            };
            bytes_sent += bytes + parts * HEADER_BYTES;
            let mut rest = Pieces { all: out.pieces(from, answer.to), first: &[] };
            for number in 0..parts {
                let frame = answer.frame(number, parts);
                let head = if parts == 1 { &[][..] } else { &frame };
                let part_bytes = if parts == 1 { usize::MAX } else { payload_bytes };
                let before = rest.clone();
                if !letters.add(&answer.peer, head, rest.take(part_bytes)) {
                    tally += letters.post_or_drop(calls);
                    rest = before;
                    letters.add(&answer.peer, head, rest.take(part_bytes));
                }
            }
        }
        tally += letters.post_or_drop(calls);
        drop(letters);
        let unsent = tally.full + tally.too_long + tally.refused;
        context.counters.udp_sent.add(tally.sent as u64);
        context.counters.udp_unsent.add(unsent as u64);
        context.counters.bytes_written.add(bytes_sent as u64);
        self.all.clear();
        out.clear();
    }

    /// Memory that it takes.
    pub(super) fn held_bytes(&self) -> usize {
        self.all.capacity() * size_of::<Answer<P>>()
    }
}

/// Takes back an answer of which nothing may be sent.
pub(super) fn take_back(from: Mark, out: &mut Out) {
    out.truncate(Mark { text: from.text - HEADER_BYTES, ..from });
}

impl<P> Answer<P> {
    /// Bytes of the replies.
    fn bytes(&self, out: &Out) -> usize {
        out.bytes_between(self.from, self.to)
    }

    /// The frame of a datagram. An answer has fewer datagrams than a frame can number.
    fn frame(&self, number: usize, total: usize) -> [u8; HEADER_BYTES] {
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        let total = u16::try_from(total).unwrap_or(u16::MAX);
        Header { id: self.id, number, total, flow: 0 }.bytes()
    }
}

/// The bytes of an answer that are not in any datagram yet.
#[derive(Clone)]
struct Pieces<'o, P> {
    all: P,
    /// What the last datagram left of a piece.
    first: &'o [u8],
}

impl<'o, P: Iterator<Item = &'o [u8]>> Pieces<'o, P> {
    /// The next `bytes` bytes.
    fn take(&mut self, bytes: usize) -> impl Iterator<Item = &'o [u8]> {
        let mut left = bytes;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let piece = match std::mem::take(&mut self.first) {
                [] => self.all.next()?,
                first => first,
            };
            let (now, later) = piece.split_at(left.min(piece.len()));
            self.first = later;
            left -= now.len();
            Some(now)
        })
    }
}
