//! The replies of a turn: text, and large values inserted by reference.
//!
//! Where: the executor appends replies, and `connection` or `datagram` sends these replies.
//! Invariant: the bytes to send are `buf`, with each value of `pins` inserted at its position.
//! Bytes in `buf` and pinned frames stay valid after a quiescent point (a moment after which the
//! store may reuse memory). A value in the log is readable only until the column's next quiescent
//! point. Code that may pass a quiescent point first calls `settle`, which copies the values in the
//! log to `buf`.

use std::mem;

use memory::plant::{Fault, is};

use crate::limits::{KEPT_BYTES_MIN, OUT_BYTES_MAX, PINS_MAX, REPLY_BYTES_MAX};

/// Replies to be sent.
#[derive(Debug, Default)]
pub struct Out {
    /// The text of the replies. The initial capacity suffices for the replies of most turns.
    pub buf: Vec<u8>,
    /// The values inserted by reference, each with its position in `buf`, sorted by position.
    pub(crate) pins: Vec<(usize, Body)>,
    /// Bytes of all values in `pins` that are in frames.
    pinned_bytes: usize,
    /// Bytes of all values in `pins` that are in the log.
    kept_bytes: usize,
    /// True if `pins` may refer to values in the log. False if such values are always copied.
    pub(crate) keeps: bool,
    /// True if a value was no longer in the log when `settle` was to copy it.
    is_lost: bool,
    usual_bytes: usize,
}

#[derive(Debug)]
pub(crate) enum Body {
    Frames(store::Pinned),
    /// A value in the log, and its length in bytes.
    Log(store::ValueRef, usize),
}

impl Body {
    fn bytes_left(&self) -> usize {
        match self {
            Body::Frames(value) => value.bytes_left(),
            Body::Log(_, bytes) => *bytes,
        }
    }
}

/// A position between two replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Bytes of `buf` before the position.
    pub(crate) text: usize,
    /// Number of pins before the position.
    pub(crate) pins: usize,
}

impl Out {
    /// Makes an empty `Out` with capacity for a turn's replies, and for one more reply with a value
    /// of `value_bytes_max` bytes.
    #[must_use]
    pub fn for_column(value_bytes_max: usize) -> Out {
        Out {
            buf: Vec::with_capacity(OUT_BYTES_MAX + value_bytes_max + REPLY_BYTES_MAX),
            pins: Vec::with_capacity(PINS_MAX),
            keeps: true,
            usual_bytes: OUT_BYTES_MAX + value_bytes_max + REPLY_BYTES_MAX,
            ..Out::default()
        }
    }

    /// Appends a value by reference.
    pub fn pin(&mut self, value: store::Pinned) {
        let bytes = value.bytes();
        if bytes > 0 {
            self.pinned_bytes += bytes;
            self.pins.push((self.buf.len(), Body::Frames(value)));
        }
    }

    /// Appends a value in the log: a reference if it is long and `keeps` is true, otherwise a copy.
    pub fn keep(&mut self, value: &[u8], kept: store::ValueRef) {
        if self.keeps && value.len() >= KEPT_BYTES_MIN {
            self.kept_bytes += value.len();
            self.pins.push((self.buf.len(), Body::Log(kept, value.len())));
        } else {
            self.buf.extend_from_slice(value);
        }
    }

    /// Copies the values in the log into `buf`. Called before a quiescent point may be passed.
    #[inline(always)]
    pub fn settle(&mut self, store: Option<&store::Column>) {
        if self.kept_bytes > 0 {
            self.copy_kept(store);
        }
    }

    #[cold]
    fn copy_kept(&mut self, store: Option<&store::Column>) {
        // Moves bytes from the end backwards, so that no byte is overwritten before it has moved.
        let mut end = self.buf.len();
        let mut end_then = end + self.kept_bytes;
        self.buf.resize(end_then, 0);
        for (at, body) in self.pins.iter_mut().rev() {
            let text_bytes = end - *at;
            self.buf.copy_within(*at..end, end_then - text_bytes);
            (end, end_then) = (*at, end_then - text_bytes);
            if let Body::Log(kept, bytes) = *body {
                let to = end_then - bytes..end_then;
                end_then = to.start;
                let value = store.and_then(|store| store.kept(kept));
                let value = value.filter(|value| value.len() == bytes);
                self.is_lost |= value.is_none() && !is(Fault::LossNotSeen);
                if let (Some(to), Some(value)) = (self.buf.get_mut(to), value) {
                    to.copy_from_slice(value);
                }
            }
            *at = if is(Fault::PinNotMoved) { *at } else { end_then };
        }
        self.pins.retain(|(_, body)| matches!(body, Body::Frames(_)));
        self.kept_bytes = 0;
    }

    /// True if a value in the log is gone, because a quiescent point was passed without `settle`.
    #[inline]
    pub(crate) fn is_lost(&self, store: Option<&store::Column>) -> bool {
        let is_gone = |body: &Body| match *body {
            Body::Frames(_) => false,
            Body::Log(kept, bytes) => {
                let value = store.and_then(|store| store.kept(kept));
                value.is_none_or(|value| value.len() != bytes)
            }
        };
        let keeps_gone = self.kept_bytes > 0 && self.pins.iter().any(|(_, body)| is_gone(body));
        let is_lost = self.is_lost || keeps_gone;
        debug_assert!(!is_lost, "a value left the log before it was sent");
        is_lost
    }

    /// True if there is nothing to send.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty() && self.pins.is_empty()
    }

    /// The position at the current end.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { text: self.buf.len(), pins: self.pins.len() }
    }

    /// The bytes between two positions, in order, without empty pieces. The caller must give
    /// `store` if some of the values may be in the log.
    #[inline]
    #[must_use]
    pub fn pieces<'o>(
        &'o self,
        from: Mark,
        to: Mark,
        store: Option<&'o store::Column>,
    ) -> Pieces<'o> {
        Pieces {
            store,
            text: self.buf.get(..to.text).unwrap_or_default(),
            at: from.text,
            pins: self.pins.get(from.pins..to.pins).unwrap_or_default().iter(),
            value: None,
        }
    }

    /// Number of bytes between two positions.
    #[inline]
    #[must_use]
    pub fn bytes_between(&self, from: Mark, to: Mark) -> usize {
        let text_bytes = to.text - from.text;
        if from.pins == to.pins {
            return text_bytes;
        }
        let pins = self.pins.get(from.pins..to.pins).unwrap_or_default();
        text_bytes + pins.iter().map(|(_, body)| body.bytes_left()).sum::<usize>()
    }

    /// Drops all replies after a position.
    pub fn truncate(&mut self, to: Mark) {
        self.buf.truncate(to.text);
        for (_, body) in self.pins.drain(to.pins..) {
            match body {
                Body::Frames(value) => self.pinned_bytes -= value.bytes(),
                Body::Log(_, bytes) => self.kept_bytes -= bytes,
            }
        }
    }

    /// Drops the first pin, because its value has been sent.
    pub(crate) fn unpin_first(&mut self) {
        if !self.pins.is_empty()
            && let (_, Body::Frames(value)) = self.pins.remove(0)
        {
            self.pinned_bytes -= value.bytes();
        }
    }

    /// Moves all pins of `from` here. The caller has copied the text of `from`, without its first
    /// `text_bytes` bytes, to this `Out`.
    pub(crate) fn take_pins(&mut self, from: &mut Out, text_bytes: usize) {
        self.pins.extend(from.pins.drain(..).map(|(at, body)| (at - text_bytes, body)));
        self.pinned_bytes += mem::take(&mut from.pinned_bytes);
    }

    /// Removes all replies, and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.buf.clear();
        if !self.pins.is_empty() {
            self.pins.clear();
        }
        (self.pinned_bytes, self.kept_bytes, self.is_lost) = (0, 0, false);
    }

    /// Frees memory that a long reply added to `buf`. Called before the column sleeps.
    pub(crate) fn shrink(&mut self) {
        self.buf.shrink_to(self.usual_bytes);
    }

    /// Bytes of memory that this `Out` takes, without the pinned values.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Out>() + self.buf.capacity() + self.pins.capacity() * size_of::<(usize, Body)>()
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.buf.len() + self.pinned_bytes + self.kept_bytes
    }

    /// Bytes of replies that are in `buf` or will be there after `settle`.
    #[inline(always)]
    pub(crate) fn text_bytes(&self) -> usize {
        self.buf.len() + self.kept_bytes
    }

    /// Bytes of the pinned values.
    #[inline(always)]
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }
}

/// The bytes between two positions, piece by piece.
#[derive(Clone, Debug)]
pub struct Pieces<'o> {
    store: Option<&'o store::Column>,
    /// All text before the end position.
    text: &'o [u8],
    /// Number of bytes of `text` that have been returned.
    at: usize,
    pins: std::slice::Iter<'o, (usize, Body)>,
    /// The part of the value at the current position that has not been returned.
    value: Option<BodyPieces<'o>>,
}

#[derive(Clone, Debug)]
enum BodyPieces<'o> {
    Frames(store::PinnedPieces<'o>),
    Log(Option<&'o [u8]>),
}

impl<'o> BodyPieces<'o> {
    #[inline]
    fn of(body: &'o Body, store: Option<&'o store::Column>) -> Self {
        match body {
            Body::Frames(value) => BodyPieces::Frames(value.pieces()),
            Body::Log(kept, _) => BodyPieces::Log(store.and_then(|store| store.kept(*kept))),
        }
    }

    #[inline]
    fn next(&mut self) -> Option<&'o [u8]> {
        match self {
            BodyPieces::Frames(pieces) => pieces.next(),
            BodyPieces::Log(bytes) => bytes.take(),
        }
    }
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
            self.value = pin.map(|(_, body)| BodyPieces::of(body, self.store));
            let text = self.text.get(self.at..end).unwrap_or_default();
            self.at = end;
            if !text.is_empty() {
                return Some(text);
            }
            self.value.as_ref()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_of;
    use store::{AppendedPart, Body as Sent, Column, HeadResult, LookupResult, Put, Verb};

    const KEYS: [(&[u8], usize); 6] =
        [(b"a", 9000), (b"b", 200_000), (b"c", 5), (b"d", 12_000), (b"e", 8191), (b"f", 8192)];

    fn column() -> Column {
        let mut column = store_of(1024).column();
        for (key, bytes) in KEYS {
            column.put(&Put::new(Verb::Set, key), Sent::Bytes(&value(key, bytes))).unwrap();
        }
        column
    }

    fn value(key: &[u8], bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| u8::try_from(at % 251).unwrap() ^ key[0]).collect()
    }

    /// Appends the key, its value, and the key again.
    fn look_up(column: &mut Column, key: &[u8], out: &mut Out) {
        let hash = column.hashed(key);
        let head = |buf: &mut Vec<u8>, _: &store::Head<'_>| {
            buf.extend_from_slice(key);
            HeadResult::Value
        };
        match column.get_into(key, hash, &mut out.buf, |_| None, head) {
            LookupResult::Hit(AppendedPart::Lasting(value, kept)) => out.keep(value, kept),
            LookupResult::Hit(AppendedPart::Frames(pinned, tail)) => {
                out.pin(pinned);
                out.buf.extend_from_slice(tail);
            }
            LookupResult::Hit(_) => {}
            looked => panic!("{looked:?}"),
        }
        out.buf.extend_from_slice(key);
    }

    fn all(out: &Out, column: &Column) -> Vec<u8> {
        out.pieces(Mark::default(), out.mark(), Some(column)).flatten().copied().collect()
    }

    #[test]
    fn settled_or_not_the_bytes_are_the_same() {
        let mut column = column();
        for settled in 0..1 << KEYS.len() {
            let (mut out, mut expected) = (Out::for_column(1 << 20), Vec::new());
            for (at, (key, bytes)) in KEYS.into_iter().enumerate() {
                look_up(&mut column, key, &mut out);
                expected.extend([key, &value(key, bytes), key].concat());
                assert_eq!(out.bytes(), expected.len());
                if settled & (1 << at) != 0 {
                    out.settle(Some(&column));
                    assert_eq!(out.text_bytes(), out.buf.len());
                }
                assert!(!out.is_lost(Some(&column)));
                assert!(all(&out, &column) == expected, "{at} of {settled:b}");
            }
            let kept = out.pins.iter().filter(|(_, body)| matches!(body, Body::Log(..))).count();
            let settled_last = 31 - (settled << 1_u32 | 1_u32).leading_zeros() as usize;
            let long =
                KEYS[settled_last..].iter().filter(|(_, bytes)| (8192..100_000).contains(bytes));
            assert_eq!(kept, long.count(), "{settled:b}");
        }
    }

    #[test]
    fn a_settled_value_outlives_a_quiescent_point() {
        let mut column = column();
        let mut out = Out::for_column(1 << 20);
        look_up(&mut column, b"a", &mut out);
        let before = all(&out, &column);
        out.settle(Some(&column));
        column.quiesce();
        assert_eq!(all(&out, &column), before);
        assert!(!out.is_lost(Some(&column)));
    }

    #[test]
    #[should_panic(expected = "a value left the log before it was sent")]
    fn a_value_that_was_not_settled_is_missed() {
        let mut column = column();
        let mut out = Out::for_column(1 << 20);
        look_up(&mut column, b"a", &mut out);
        column.quiesce();
        out.is_lost(Some(&column));
    }

    #[test]
    #[should_panic(expected = "a value left the log before it was sent")]
    fn a_value_that_was_settled_too_late_is_missed() {
        let mut column = column();
        let mut out = Out::for_column(1 << 20);
        look_up(&mut column, b"a", &mut out);
        column.quiesce();
        out.settle(Some(&column));
        out.is_lost(Some(&column));
    }

    #[test]
    fn datagrams_keep_nothing() {
        let mut column = column();
        let mut out = Out { keeps: false, ..Out::for_column(1 << 20) };
        look_up(&mut column, b"a", &mut out);
        assert_eq!((out.pins.len(), out.bytes()), (0, 9002));
    }
}
