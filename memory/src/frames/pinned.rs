//! A reader's reference to the body of a large value.
//!
//! Where: a hit returns one to the connection, which sends the body straight from its frames.
//! Invariant: the frames keep their contents as long as this lives, whatever becomes of the item.
//! Source: none.

#![allow(unsafe_code, reason = "reads frames in the mapping")]

use super::Memory;
use crate::segments::NONE;
use std::sync::Arc;

/// A reference to the body of a large value, with a read position. Any thread may read the body.
#[derive(Debug)]
pub struct Pinned {
    memory: Arc<Memory>,
    head: u32,
    bytes: usize,
    /// The read position, in bytes from the beginning of the body.
    passed: usize,
    /// The frame in which the read position lies.
    at: u32,
}

impl Pinned {
    /// Takes a reference to the chain at `head`, whose frames hold `bytes` bytes. `None`: the chain
    /// is free, so what named it is linked no more.
    ///
    /// # Safety
    /// `head` and `bytes` come from one item or draft. Where others may unlink the item, the caller
    /// makes sure after this call, and before he reads any piece, that it is still linked; if it is
    /// not, the frames may be another's already, and he drops what he holds.
    #[must_use]
    pub unsafe fn hold(memory: &Arc<Memory>, head: u32, bytes: usize) -> Option<Self> {
        let pinned = || Self { memory: Arc::clone(memory), head, bytes, passed: 0, at: head };
        memory.hold(head).then(pinned)
    }

    /// The bytes from the read position on, in order, each frame's as one piece.
    #[must_use]
    pub fn pieces(&self) -> Pieces<'_> {
        let frame_bytes = self.memory.frames.frame_bytes as usize;
        let from = self.passed % frame_bytes;
        Pieces { memory: &self.memory, frame: self.at, from, left: self.bytes_left() }
    }

    /// Moves the read position by `bytes`, but not beyond the end. Frames before the position stay
    /// pinned.
    pub fn advance(&mut self, bytes: usize) {
        let frame_bytes = self.memory.frames.frame_bytes as usize;
        let to = self.passed.saturating_add(bytes).min(self.bytes);
        for _ in self.passed / frame_bytes..to / frame_bytes {
            self.at = self.memory.next(self.at);
        }
        self.passed = to;
    }

    /// Bytes from the read position to the end.
    #[must_use]
    pub fn bytes_left(&self) -> usize {
        self.bytes - self.passed
    }

    /// True if any frame of the body lies in a segment from `from` on that has free frames.
    #[must_use]
    pub fn is_scattered(&self, from: u32) -> bool {
        let frames = &self.memory.frames;
        let (mut frame, mut left) = (self.head, self.bytes);
        while left > 0 && frame != NONE {
            if frames.is_scattered(frame, from) {
                return true;
            }
            left = left.saturating_sub(frames.frame_bytes as usize);
            frame = self.memory.next(frame);
        }
        false
    }

    /// Bytes of the whole body.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Pieces of a body, which is pinned as long as they are used.
#[derive(Clone, Debug)]
pub struct Pieces<'p> {
    memory: &'p Memory,
    frame: u32,
    /// The byte of the frame at which the next piece begins.
    from: usize,
    /// Bytes of all that are to come.
    left: usize,
}

impl<'p> Iterator for Pieces<'p> {
    type Item = &'p [u8];

    fn next(&mut self) -> Option<&'p [u8]> {
        if self.left == 0 || self.frame == NONE {
            return None;
        }
        let bytes = self.left.min(self.memory.frames.frame_bytes as usize - self.from);
        // SAFETY: the frame is in the chain to which a `Pinned` holds a reference, by the contract
        // of `hold`. It was filled before the chain was published, nobody writes to it afterwards,
        // and it is not freed while the reference lives; the piece borrows the `Pinned`, as this
        // iterator does, so it does not outlive the reference. `from + bytes` is at most a frame's
        // length.
        let piece = unsafe {
            std::slice::from_raw_parts(self.memory.frame_at(self.frame).add(self.from), bytes)
        };
        self.left -= bytes;
        self.from = 0;
        self.frame = self.memory.next(self.frame);
        Some(piece)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.memory.release(self.head);
    }
}
