//! What is to be sent on one connection: reply text, with large values spliced in by reference.
//!
//! Where: the executor appends, the connection sends. A column has one for the turn at hand; a
//! connection whose socket is full gets one of its own with what is left.
//! Invariant: the bytes to send are `buf` with each pinned value's bytes inserted at its position,
//! without those that have been sent, which are never walked again. `buf` holds copies, so it
//! outlives any quiescent point; a pinned value keeps its frames until its last byte is sent.

use std::io::IoSlice;

use crate::limits::{OUT_BYTES_MAX, PINNED_BYTES_TURN_MAX, PINS_MAX, REPLY_BYTES_MAX};

/// Replies waiting to be sent.
#[derive(Debug, Default)]
pub struct Out {
    /// Reply text; preallocated, does not grow on the request path.
    pub buf: Vec<u8>,
    /// Where in `buf` a value's body belongs; ascending.
    pub pins: Vec<(usize, store::Pinned)>,
    /// Bytes of `buf` sent.
    text_sent: usize,
    /// Sum of the pins' bytes.
    pinned_bytes: usize,
}

impl Out {
    /// Room for a turn's replies and one reply with a value of `value_bytes_max` on top.
    #[must_use]
    pub fn for_column(value_bytes_max: usize) -> Out {
        Out {
            buf: Vec::with_capacity(OUT_BYTES_MAX + value_bytes_max + REPLY_BYTES_MAX),
            pins: Vec::with_capacity(PINS_MAX),
            ..Out::default()
        }
    }

    /// Splices a value's body in at the end of what is there.
    pub fn pin(&mut self, value: store::Pinned) {
        let bytes = value.bytes();
        if bytes > 0 {
            self.pinned_bytes += bytes;
            self.pins.push((self.buf.len(), value));
        }
    }

    /// Nothing is left to send.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text_sent == self.buf.len() && self.pins.is_empty()
    }

    /// The turn has produced enough; it must send before it executes another request.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.buf.len() >= OUT_BYTES_MAX
            || self.pins.len() >= PINS_MAX
            || self.pinned_bytes >= PINNED_BYTES_TURN_MAX
    }

    /// What is left to send, if it is one piece.
    #[inline]
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        if self.pins.is_empty() { self.buf.get(self.text_sent..) } else { None }
    }

    /// The first of what is left to send, in `pieces`; how many of them are used.
    pub fn gather<'a>(&'a self, pieces: &mut [IoSlice<'a>]) -> usize {
        let mut free = pieces.iter_mut();
        let mut used = 0;
        let mut put = |bytes: &'a [u8]| {
            if bytes.is_empty() {
                return true;
            }
            let Some(piece) = free.next() else { return false };
            *piece = IoSlice::new(bytes);
            used += 1;
            true
        };
        let mut text_at = self.text_sent;
        for (at, value) in &self.pins {
            if !put(&self.buf[text_at..*at]) {
                return used;
            }
            text_at = *at;
            for piece in value.pieces() {
                if !put(piece) {
                    return used;
                }
            }
        }
        put(&self.buf[text_at..]);
        used
    }

    /// Takes `bytes` bytes that have been sent away.
    pub fn advance(&mut self, mut bytes: usize) {
        while let Some((at, value)) = self.pins.first_mut() {
            let text = bytes.min(*at - self.text_sent);
            self.text_sent += text;
            bytes -= text;
            let body = bytes.min(value.bytes_left());
            value.advance(body);
            bytes -= body;
            if value.bytes_left() > 0 {
                return;
            }
            self.pinned_bytes -= value.bytes();
            self.pins.remove(0);
        }
        self.text_sent = (self.text_sent + bytes).min(self.buf.len());
    }

    /// Forgets everything; keeps the room.
    #[inline]
    pub fn clear(&mut self) {
        self.buf.clear();
        self.text_sent = 0;
        if !self.pins.is_empty() {
            self.pins.clear();
        }
        self.pinned_bytes = 0;
    }

    /// Moves what is left into an `Out` of just that size, and clears this one.
    #[must_use]
    pub fn take_rest(&mut self) -> Out {
        let from = self.text_sent;
        let mut pins = Vec::with_capacity(self.pins.len());
        pins.extend(self.pins.drain(..).map(|(at, value)| (at - from, value)));
        let rest = Out {
            buf: self.buf[from..].to_vec(),
            pins,
            text_sent: 0,
            pinned_bytes: self.pinned_bytes,
        };
        self.clear();
        rest
    }

    /// Memory it takes beside the values it pins.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Out>()
            + self.buf.capacity()
            + self.pins.capacity() * size_of::<(usize, store::Pinned)>()
    }

    /// Sum of the values it pins.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Body, Config, Put, Store, Value, Verb};

    /// A value of `bytes` bytes, pinned, and what of it is not in frames.
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
        let config = Config {
            memory_bytes: 8 << 20,
            item_bytes_max: 1 << 20,
            columns: 1,
            eviction: Some(store::policy::Eviction::default()),
            cas: true,
            now: 62,
        };
        let mut column = Store::new(&config).unwrap().column();
        for step in [7, 100, 4096, 65_537, usize::MAX] {
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
            let mut got = Vec::new();
            let mut turn = 0;
            while !out.is_empty() {
                let mut pieces = [IoSlice::new(&[]); 5];
                let used = out.gather(&mut pieces);
                assert!(used > 0);
                let pieces = pieces[..used].iter().flat_map(|piece| piece.iter());
                let taken: Vec<u8> = pieces.take(step).copied().collect();
                got.extend_from_slice(&taken);
                out.advance(taken.len());
                turn += 1;
                if turn % 3 == 0 {
                    out = out.take_rest();
                }
            }
            assert!(got == expected, "step {step}");
            assert_eq!(out.pinned_bytes(), 0);
        }
    }
}
