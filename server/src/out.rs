//! The replies of a turn: text, with large values spliced in by reference.
//!
//! Where: the executor appends, the turn's holder sends.
//! Invariant: the bytes to send are `buf` with each pinned value's bytes inserted at its position.
//! `buf` holds copies, so it outlives any quiescent point; a pinned value keeps its frames.

use std::mem;

use crate::limits::{OUT_BYTES_MAX, PINS_MAX, REPLY_BYTES_MAX};

/// Replies to be sent.
#[derive(Debug, Default)]
pub struct Out {
    /// Reply text; preallocated, does not grow on the request path.
    pub buf: Vec<u8>,
    /// Where in `buf` a value's body belongs; ascending.
    pub(crate) pins: Vec<(usize, store::Pinned)>,
    /// Sum of the pins' bytes.
    pinned_bytes: usize,
}

/// A place between two replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Bytes of `buf` before it.
    pub(crate) text: usize,
    /// Pins before it.
    pub(crate) pins: usize,
}

impl Out {
    /// Room for a turn's replies and one reply with a value of `value_bytes_max` on top.
    #[must_use]
    pub fn for_column(value_bytes_max: usize) -> Out {
        Out {
            buf: Vec::with_capacity(OUT_BYTES_MAX + value_bytes_max + REPLY_BYTES_MAX),
            pins: Vec::with_capacity(PINS_MAX),
            pinned_bytes: 0,
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

    /// There is nothing to send.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty() && self.pins.is_empty()
    }

    /// The end of what is there.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { text: self.buf.len(), pins: self.pins.len() }
    }

    /// The bytes between two places, in order, without empty pieces.
    #[inline]
    #[must_use]
    pub fn pieces(&self, from: Mark, to: Mark) -> Pieces<'_> {
        Pieces {
            text: self.buf.get(..to.text).unwrap_or_default(),
            at: from.text,
            pins: self.pins.get(from.pins..to.pins).unwrap_or_default().iter(),
            value: None,
        }
    }

    /// Sum of the bytes between two places.
    #[inline]
    #[must_use]
    pub fn bytes_between(&self, from: Mark, to: Mark) -> usize {
        let text_bytes = to.text - from.text;
        if from.pins == to.pins {
            return text_bytes;
        }
        let pins = self.pins.get(from.pins..to.pins).unwrap_or_default();
        text_bytes + pins.iter().map(|(_, value)| value.bytes_left()).sum::<usize>()
    }

    /// Takes back all behind a place.
    pub fn truncate(&mut self, to: Mark) {
        self.buf.truncate(to.text);
        for (_, value) in self.pins.drain(to.pins..) {
            self.pinned_bytes -= value.bytes();
        }
    }

    /// Drops the first pin: its value is sent.
    pub(crate) fn unpin_first(&mut self) {
        if !self.pins.is_empty() {
            self.pinned_bytes -= self.pins.remove(0).1.bytes();
        }
    }

    /// Takes over the pins of `from`, whose first `text_bytes` bytes are not here.
    pub(crate) fn take_pins(&mut self, from: &mut Out, text_bytes: usize) {
        self.pins.extend(from.pins.drain(..).map(|(at, value)| (at - text_bytes, value)));
        self.pinned_bytes += mem::take(&mut from.pinned_bytes);
    }

    /// Forgets everything; keeps the room.
    #[inline]
    pub fn clear(&mut self) {
        self.buf.clear();
        if !self.pins.is_empty() {
            self.pins.clear();
        }
        self.pinned_bytes = 0;
    }

    /// Memory it takes beside the values it pins.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Out>()
            + self.buf.capacity()
            + self.pins.capacity() * size_of::<(usize, store::Pinned)>()
    }

    /// Sum of the values it pins.
    #[inline(always)]
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }
}

/// Bytes of replies, in order.
#[derive(Clone, Debug)]
pub struct Pieces<'o> {
    /// All text before the end.
    text: &'o [u8],
    /// Bytes of it that are taken.
    at: usize,
    pins: std::slice::Iter<'o, (usize, store::Pinned)>,
    /// What is left of the value that comes first.
    value: Option<store::PinnedPieces<'o>>,
}

impl<'o> Iterator for Pieces<'o> {
    type Item = &'o [u8];

    #[inline]
    fn next(&mut self) -> Option<&'o [u8]> {
        loop {
            if let Some(value) = &mut self.value {
                if let Some(piece) = value.next() {
                    return Some(piece);
                }
                self.value = None;
            }
            let pin = self.pins.next();
            let end = pin.map_or(self.text.len(), |(at, _)| *at);
            self.value = pin.map(|(_, value)| value.pieces());
            let text = self.text.get(self.at..end).unwrap_or_default();
            self.at = end;
            if !text.is_empty() {
                return Some(text);
            }
            self.value.as_ref()?;
        }
    }
}
