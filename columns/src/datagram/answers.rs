//! Splits answers into datagrams and sends them.
//!
//! ```text
//! out.buf   | header | replies | header | replies | ...   answers of one datagram each
//! ```
//!
//! Where: after the execution of a message. The answers to a burst are consecutive in memory, so
//! that the kernel takes them as one burst.
//! Invariant: each datagram of an answer has the request's id, the datagram's number and the number
//! of all datagrams, and at most `SendPath::datagram_bytes_max` bytes. A datagram that the system
//! refuses is dropped and counted.

use net::Tally;
use protocol::udp::{HEADER_BYTES, Header};

use crate::budget::Budget;
use crate::datapath::{Outgoing, SendBatch};
use crate::executor::Executor;
use crate::limits::{ANSWERS_MAX, OUT_BYTES_MAX};
use crate::out::{Mark, Out, Pieces};
use crate::turn::TurnState;

#[derive(Debug)]
pub(super) struct Answers<P> {
    all: Vec<Answer<P>>,
    reply_bytes_max: usize,
}

/// One answer, whose bytes are in the turn's replies.
#[derive(Clone, Copy, Debug)]
struct Answer<P> {
    peer: P,
    id: u16,
    /// The start of the replies, which follow the space for a header.
    from: Mark,
    to: Mark,
    bytes: usize,
}

/// The path by which answers are sent, and the limit on their datagrams.
#[derive(Debug)]
pub(super) struct SendPath<O> {
    pub(super) out: O,
    /// Maximum number of bytes of a datagram, including the memcached UDP header.
    pub(super) datagram_bytes_max: usize,
}

impl<O> SendPath<O> {
    /// Maximum number of bytes that may follow the header of a datagram.
    pub(super) fn payload_bytes(&self) -> usize {
        self.datagram_bytes_max - HEADER_BYTES
    }
}

impl<P: Copy> Answers<P> {
    pub(super) fn new(reply_bytes_max: usize) -> Answers<P> {
        Answers { all: Vec::with_capacity(ANSWERS_MAX), reply_bytes_max }
    }

    /// Begins an answer at the end of `out`, after space for a header. Returns the answer's start.
    #[inline]
    pub(super) fn begin(&self, out: &mut Out) -> Mark {
        out.buf.extend_from_slice(&[0; HEADER_BYTES]);
        out.mark()
    }

    #[inline]
    pub(super) fn budget(&self, from: Mark, out: &Out) -> Budget {
        Budget::of_message(from, out.pinned_bytes(), self.reply_bytes_max)
    }

    pub(super) fn reply_bytes_max(&self) -> usize {
        self.reply_bytes_max
    }

    /// Adds an answer of `bytes` bytes: all of `out` from `from` on. Drops an empty answer. If the
    /// answer fits into one datagram, writes the header into the space before the answer.
    #[inline]
    pub(super) fn add(
        &mut self,
        (peer, id): (&P, u16),
        (from, bytes): (Mark, usize),
        payload_bytes: usize,
        out: &mut Out,
    ) {
        let to = out.mark();
        if from == to {
            return take_back(from, out);
        }
        if bytes <= payload_bytes
            && let Some(room) = out.buf.get_mut(from.text - HEADER_BYTES..from.text)
        {
            room.copy_from_slice(&header(id, 0, 1));
        }
        self.all.push(Answer { peer: *peer, id, from, to, bytes });
    }

    /// True if the answers must be sent now: there are `ANSWERS_MAX` answers, or they have
    /// `OUT_BYTES_MAX` bytes.
    #[inline]
    pub(super) fn are_enough(&self, out: &Out) -> bool {
        self.all.len() >= ANSWERS_MAX || Budget::new(u32::MAX, OUT_BYTES_MAX).is_spent(out)
    }

    /// Sends all answers, and empties the turn's replies.
    pub(super) fn send<E: Executor, O: Outgoing<Peer = P>>(
        &mut self,
        path: &mut SendPath<O>,
        turn: &mut TurnState<E>,
    ) {
        let TurnState { out, calls, counters, .. } = turn;
        let payload_bytes = path.payload_bytes();
        let (mut tally, mut bytes_sent) = (Tally::default(), 0);
        let mut batch = path.out.open();
        for Answer { peer, id, from, to, bytes } in &self.all {
            let parts = if *bytes <= payload_bytes { 1 } else { bytes.div_ceil(payload_bytes) };
            bytes_sent += bytes + parts * HEADER_BYTES;
            if parts == 1 {
                let with_header = Mark { text: from.text - HEADER_BYTES, ..*from };
                if !batch.add(peer, &[], out.pieces(with_header, *to, None)) {
                    tally += batch.post_or_drop(calls);
                    let has_room = batch.add(peer, &[], out.pieces(with_header, *to, None));
                    tally.full += usize::from(!has_room);
                }
                continue;
            }
            let mut rest = AnswerRest { all: out.pieces(*from, *to, None), first: &[] };
            for number in 0..parts {
                let (head, before) = (header(*id, number, parts), rest.clone());
                if !batch.add(peer, &head, rest.take(payload_bytes)) {
                    tally += batch.post_or_drop(calls);
                    rest = before;
                    if !batch.add(peer, &head, rest.take(payload_bytes)) {
                        // The answer is useless without this part: drop all later parts.
                        tally.full += parts - number;
                        break;
                    }
                }
            }
        }
        tally += batch.post_or_drop(calls);
        drop(batch);
        let unsent = tally.full + tally.too_long + tally.refused;
        counters.udp_sent.add(tally.sent as u64);
        counters.udp_unsent.add(unsent as u64);
        counters.copied_bytes.add(tally.copied_bytes as u64);
        counters.zero_copy_bytes.add(tally.in_place_bytes as u64);
        counters.bytes_written.add(bytes_sent as u64);
        self.all.clear();
        out.clear();
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.all.capacity() * size_of::<Answer<P>>()
    }
}

/// Removes an answer, and the space for its header, from the end of `out`.
pub(super) fn take_back(from: Mark, out: &mut Out) {
    out.truncate(Mark { text: from.text - HEADER_BYTES, ..from });
}

/// Makes the header of a datagram. `total` is below 2^16, because the length of answers is limited.
#[inline]
fn header(id: u16, number: usize, total: usize) -> [u8; HEADER_BYTES] {
    let number = u16::try_from(number).unwrap_or(u16::MAX);
    let total = u16::try_from(total).unwrap_or(u16::MAX);
    Header { id, number, total, flow: 0 }.bytes()
}

/// The bytes of an answer that have not been put into a datagram yet.
#[derive(Clone)]
struct AnswerRest<'o> {
    all: Pieces<'o>,
    /// The rest of a piece whose beginning filled the previous datagram.
    first: &'o [u8],
}

impl<'o> AnswerRest<'o> {
    #[inline]
    fn take(&mut self, bytes: usize) -> Take<'_, 'o> {
        Take { rest: self, left: bytes }
    }
}

/// The bytes of one datagram, in pieces.
struct Take<'r, 'o> {
    rest: &'r mut AnswerRest<'o>,
    left: usize,
}

impl<'o> Iterator for Take<'_, 'o> {
    type Item = &'o [u8];

    // Inlined, because a call for each piece would take longer than the work on the piece.
    #[inline(always)]
    fn next(&mut self) -> Option<&'o [u8]> {
        if self.left == 0 {
            return None;
        }
        let piece = match std::mem::take(&mut self.rest.first) {
            [] => self.rest.all.next()?,
            first => first,
        };
        let (now, later) = piece.split_at(self.left.min(piece.len()));
        self.rest.first = later;
        self.left -= now.len();
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_enough_by_number_and_by_bytes() {
        let mut out = Out::for_column(1024);
        let mut answers = Answers::new(1 << 20);
        for id in (0..).take(ANSWERS_MAX) {
            assert!(!answers.are_enough(&out));
            let from = answers.begin(&mut out);
            out.buf.push(b'x');
            answers.add((&(), id), (from, 1), 1392, &mut out);
        }
        assert!(answers.are_enough(&out));
        let mut answers = Answers::new(1 << 20);
        let from = answers.begin(&mut out);
        out.buf.resize(from.text + OUT_BYTES_MAX, b'x');
        answers.add((&(), 0), (from, OUT_BYTES_MAX), 1392, &mut out);
        assert!(answers.are_enough(&out));
    }
}
