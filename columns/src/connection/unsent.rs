//! Replies that the socket did not take, and the progress of sending them.
//!
//! Where: `output` makes `UnsentReplies` from the turn's replies, and the connection keeps it.
//! Invariant: bytes that have been sent are not visited again; a pinned value keeps its frames
//! until its last byte is sent.

use std::io::IoSlice;
use std::mem;

use memory::plant::{Fault, is};

use crate::out::{Body, Mark, Out};

/// The memory that all waiting replies of a column take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnsentTotals {
    /// Bytes of memory outside the store.
    pub(crate) held_bytes: usize,
    pub(crate) pinned_bytes: usize,
    pub(crate) count: usize,
}

impl UnsentTotals {
    pub(crate) fn add(&mut self, unsent: &UnsentReplies) {
        self.count += 1;
        self.held_bytes += unsent.held_bytes();
        self.pinned_bytes += unsent.pinned_bytes();
    }

    pub(crate) fn remove(&mut self, unsent: &UnsentReplies) {
        self.count -= 1;
        self.held_bytes -= unsent.held_bytes();
        self.pinned_bytes -= unsent.pinned_bytes();
    }
}

#[derive(Debug)]
pub(crate) struct UnsentReplies {
    replies: Out,
    /// Number of bytes of `replies.buf` that the socket has taken.
    text_sent: usize,
}

impl UnsentReplies {
    /// Moves the bytes of `out` after the first `sent_bytes` into memory of exactly their size, and
    /// leaves `out` empty. The caller has called `out.settle`.
    pub(crate) fn rest_of(out: &mut Out, sent_bytes: usize) -> UnsentReplies {
        let mut all = UnsentReplies { replies: mem::take(out), text_sent: 0 };
        all.advance(sent_bytes);
        let mut rest = Out::default();
        rest.buf = all.replies.buf[all.text_sent..].to_vec();
        rest.pins.reserve_exact(all.replies.pins.len());
        let before = if is(Fault::RestPinnedLater) { 0 } else { all.text_sent };
        rest.take_pins(&mut all.replies, before);
        all.replies.clear();
        *out = all.replies;
        UnsentReplies { replies: rest, text_sent: 0 }
    }

    pub(crate) fn advance(&mut self, mut bytes: usize) {
        while let Some((at, body)) = self.replies.pins.first_mut() {
            let Body::Frames(value) = body else { return };
            let text = bytes.min(*at - self.text_sent);
            self.text_sent += text;
            bytes -= text;
            let body = bytes.min(value.bytes_left());
            value.advance(body);
            bytes -= body;
            if value.bytes_left() > 0 {
                return;
            }
            self.replies.unpin_first();
        }
        self.text_sent = (self.text_sent + bytes).min(self.replies.buf.len());
    }

    fn sent(&self) -> Mark {
        Mark { text: self.text_sent, pins: 0 }
    }

    pub(crate) fn left_bytes(&self) -> usize {
        self.replies.bytes_between(self.sent(), self.replies.mark())
    }

    pub(crate) fn gather<'a>(&'a self, pieces: &mut [IoSlice<'a>]) -> usize {
        gather(self.replies.pieces(self.sent(), self.replies.mark(), None), pieces)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.replies.held_bytes()
    }

    pub(crate) fn pinned_bytes(&self) -> usize {
        self.replies.pinned_bytes()
    }
}

/// Fills `pieces` from `bytes`. Returns how many pieces are used.
pub(crate) fn gather<'a>(
    bytes: impl Iterator<Item = &'a [u8]>,
    pieces: &mut [IoSlice<'a>],
) -> usize {
    let filled = pieces.iter_mut().zip(bytes);
    filled.map(|(piece, bytes)| *piece = IoSlice::new(bytes)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_of;
    use store::{Body, Put, Value, Verb};

    /// Stores a value of `bytes` bytes. Returns it pinned, and its tail, which is not in frames.
    fn pinned(column: &mut store::Column, key: &[u8], bytes: usize) -> (store::Pinned, Vec<u8>) {
        let mut draft = column.draft(u32::try_from(bytes).unwrap());
        let mut byte = 0_u8;
        while draft.missing_bytes() > 0 {
            let space = draft.space(column).unwrap();
            let filled = space.len();
            for place in space {
                byte = byte.wrapping_mul(5).wrapping_add(key[0]);
                *place = byte;
            }
            draft.filled(filled);
        }
        let put = Put::new(Verb::Set, key);
        column.put(&put, Body::Draft(&mut draft)).unwrap();
        match column.get(key).unwrap().value {
            Value::Frames(pinned, tail) => (pinned, tail.to_vec()),
            Value::Log(_) => panic!("{bytes} bytes in the log"),
        }
    }

    #[test]
    fn bytes_come_out_in_order_however_they_are_taken() {
        let mut column = store_of(8).column();
        let steps = [7, 100, 4096, 65_537, usize::MAX];
        for (step, first) in
            steps.into_iter().flat_map(|step| [(step, 0), (step, 1), (step, 90_003)])
        {
            let mut out = Out::for_column(1024);
            let mut expected = Vec::new();
            for (key, bytes) in [(b"a", 70_000), (b"b", 33_000), (b"c", 200_001)] {
                let (body, tail) = pinned(&mut column, key, bytes);
                out.buf.extend_from_slice(key);
                expected.extend_from_slice(key);
                expected.extend(body.pieces().flatten());
                expected.extend_from_slice(&tail);
                out.pin(body);
                out.buf.extend_from_slice(&tail);
            }
            let mut got: Vec<u8> = out
                .pieces(Mark::default(), out.mark(), None)
                .flatten()
                .take(first)
                .copied()
                .collect();
            let mut unsent = UnsentReplies::rest_of(&mut out, first);
            assert!(out.is_empty());
            while unsent.left_bytes() > 0 {
                let mut pieces = [IoSlice::new(&[]); 5];
                let used = unsent.gather(&mut pieces);
                assert!(used > 0);
                let pieces = pieces[..used].iter().flat_map(|piece| piece.iter());
                let taken: Vec<u8> = pieces.take(step).copied().collect();
                got.extend_from_slice(&taken);
                unsent.advance(taken.len());
            }
            assert!(got == expected, "step {step}, {first} bytes first");
            assert_eq!(unsent.pinned_bytes(), 0);
        }
    }
}
