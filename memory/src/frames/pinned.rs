//! A reader's reference to the body of a large value.
//!
//! Where: a connection sends the frames of a large value while the value is pinned.
//! Invariant: while a `Pinned` exists, its frames do not change, even if the item is unlinked.

#![allow(unsafe_code, reason = "reads and copies frames in the mapping")]

use super::Memory;
use crate::segments::NONE;
use std::sync::Arc;

/// A reference to the body of a large value, and a read position in the body.
#[derive(Debug)]
pub struct Pinned {
    memory: Arc<Memory>,
    head: u32,
    bytes: usize,
    left: usize,
    /// The frame that contains the read position, and the position's offset in the frame.
    at: (u32, usize),
}

impl Pinned {
    /// Takes a reference to the chain that begins with frame `head` and holds `bytes` bytes.
    /// Returns `None` if the chain is free, which means that its item was unlinked.
    ///
    /// # Safety
    /// `head` and `bytes` belong to the same item or draft. If another thread may unlink the item,
    /// the caller checks after this call that the item is still linked. If the item is unlinked,
    /// the frames may belong to another value, so the caller drops the `Pinned` without reading.
    #[must_use]
    pub unsafe fn hold(memory: &Arc<Memory>, head: u32, bytes: usize) -> Option<Self> {
        let pinned =
            || Self { memory: Arc::clone(memory), head, bytes, left: bytes, at: (head, 0) };
        memory.hold(head).then(pinned)
    }

    /// Iterates over the bytes from the read position on. Each step returns the bytes of one frame.
    #[must_use]
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces { memory: &self.memory, at: self.at, left: self.left }
    }

    /// Moves the read position forward by `bytes`, at most to the end. All frames stay pinned.
    pub fn advance(&mut self, bytes: usize) {
        let mut pieces = Pieces { memory: &self.memory, at: self.at, left: self.left };
        pieces.skip_bytes(bytes.min(self.left));
        (self.at, self.left) = (pieces.at, pieces.left);
    }

    /// Number of bytes from the read position to the end of the body.
    #[must_use]
    pub fn bytes_left(&self) -> usize {
        self.left
    }

    /// True if a frame of the body lies in a segment that has free frames and a number >= `from`.
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

    /// Copies the body to free frames in segments below `before`, and returns the copy's first
    /// frame. Returns `None` if too few frames are free.
    #[must_use]
    pub fn copied_before(&self, before: u32) -> Option<u32> {
        let memory = &self.memory;
        let (mut first, mut last) = (None, None);
        for piece in self.pieces() {
            let Some(frame) = memory.take_frame_before(before) else {
                first.map(|first| memory.release(first));
                return None;
            };
            // SAFETY: only this call uses the frame until its chain is published. A piece is no
            // longer than a frame, and lies in another frame.
            unsafe { memory.frame_at(frame).copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
            match last {
                Some(last) => memory.chain(last, frame),
                None => first = Some(frame),
            }
            last = Some(frame);
        }
        first
    }

    /// Number of bytes of the whole body.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Iterates over the pieces of a body. The body stays pinned while the iterator exists.
#[derive(Clone, Debug)]
pub struct Pieces<'p> {
    memory: &'p Memory,
    at: (u32, usize),
    left: usize,
}

impl Pieces<'_> {
    /// The address and length of the next piece; `None` at the end of the body.
    fn next_piece(&self) -> Option<(*mut u8, usize)> {
        let (frame, passed) = self.at;
        if self.left == 0 || frame == NONE {
            return None;
        }
        let (at, bytes) = self.memory.piece(frame);
        Some((at.wrapping_add(passed), (bytes - passed).min(self.left)))
    }

    fn skip_bytes(&mut self, mut bytes: usize) {
        while bytes > 0
            && let Some((_, there)) = self.next_piece()
        {
            let passed = bytes.min(there);
            (bytes, self.left) = (bytes - passed, self.left - passed);
            self.at.1 += passed;
            if self.at.1 == self.memory.piece(self.at.0).1 {
                self.at = (self.memory.next(self.at.0), 0);
            }
        }
    }
}

impl<'p> Iterator for Pieces<'p> {
    type Item = &'p [u8];

    fn next(&mut self) -> Option<&'p [u8]> {
        let (at, bytes) = self.next_piece()?;
        // SAFETY: by the contract of `hold`, the frame is in the chain to which the `Pinned` holds
        // a reference. The frame was filled before the chain was published, nobody writes to the
        // frame afterwards, and the frame is not freed while the reference exists. `piece` borrows
        // the `Pinned`, so the reference outlives `piece`. The bytes of `piece` are the value's.
        let piece = unsafe { std::slice::from_raw_parts(at, bytes) };
        self.left -= bytes;
        self.at = (self.memory.next(self.at.0), 0);
        Some(piece)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.memory.release(self.head);
    }
}
