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
    pub fn pieces(&self, from: Mark, to: Mark) -> impl Iterator<Item = &[u8]> + Clone {
        let pins = self.pins.get(from.pins..to.pins).unwrap_or_default();
        let starts = std::iter::once(from.text).chain(pins.iter().map(|(at, _)| *at));
        let ends = pins.iter().map(|(at, _)| *at).chain(std::iter::once(to.text));
        let values = pins.iter().map(Some).chain(std::iter::once(None));
        starts
            .zip(ends)
            .zip(values)
            .flat_map(|((start, end), pin)| {
                let text = self.buf.get(start..end).unwrap_or_default();
                let value = pin.into_iter().flat_map(|(_, value)| value.pieces());
                std::iter::once(text).chain(value)
            })
            .filter(|piece| !piece.is_empty())
    }

    /// Sum of the bytes between two places.
    #[inline]
    #[must_use]
    pub fn bytes_between(&self, from: Mark, to: Mark) -> usize {
        let pins = self.pins.get(from.pins..to.pins).unwrap_or_default();
        (to.text - from.text) + pins.iter().map(|(_, value)| value.bytes_left()).sum::<usize>()
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
