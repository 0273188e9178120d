//! Recycled buffers for input that must be kept between turns.
//!
//! Where: a connection whose turn does not use all input holds a buffer until the input is used.
//! Invariant: a connection without input left over holds no buffer; the number of spare buffers is
//! bounded; `held_bytes` counts the buffers that connections hold, by capacity.

use crate::limits::{SPARE_SMALL_BYTES, SPARES_LARGE_MAX, SPARES_SMALL_MAX};

#[derive(Debug)]
pub(crate) struct Spares {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    large_bytes: usize,
    held: usize,
    held_bytes: usize,
}

impl Spares {
    /// `large_bytes` is the length of the receive buffer.
    pub(crate) fn new(large_bytes: usize) -> Spares {
        Spares {
            small: Vec::with_capacity(SPARES_SMALL_MAX),
            large: Vec::with_capacity(SPARES_LARGE_MAX),
            large_bytes,
            held: 0,
            held_bytes: 0,
        }
    }

    pub(crate) fn large_bytes(&self) -> usize {
        self.large_bytes
    }

    pub(crate) fn copy_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = if bytes.len() <= SPARE_SMALL_BYTES {
            self.small.pop().unwrap_or_else(|| Vec::with_capacity(SPARE_SMALL_BYTES))
        } else {
            Vec::with_capacity(bytes.len())
        };
        buffer.extend_from_slice(bytes);
        self.held += 1;
        self.held_bytes += buffer.capacity();
        buffer
    }

    /// Returns a new receive buffer, because a connection keeps the old one, `held`.
    pub(crate) fn swap_large(&mut self, held: &Vec<u8>) -> Vec<u8> {
        self.held += 1;
        self.held_bytes += held.capacity();
        self.large.pop().unwrap_or_else(|| vec![0; self.large_bytes])
    }

    pub(crate) fn put_back(&mut self, mut buffer: Vec<u8>) {
        self.held -= 1;
        self.held_bytes -= buffer.capacity();
        if buffer.len() == self.large_bytes {
            if self.large.len() < SPARES_LARGE_MAX {
                self.large.push(buffer);
            }
        } else if buffer.capacity() == SPARE_SMALL_BYTES && self.small.len() < SPARES_SMALL_MAX {
            buffer.clear();
            self.small.push(buffer);
        }
    }

    /// Notes that a connection leaves the column with `held_bytes` bytes of buffer (0 if none).
    pub(crate) fn leaves(&mut self, held_bytes: usize) {
        self.held -= usize::from(held_bytes > 0);
        self.held_bytes -= held_bytes;
    }

    /// Notes that a connection joins the column with `held_bytes` bytes of buffer (0 if none).
    pub(crate) fn comes(&mut self, held_bytes: usize) {
        self.held += usize::from(held_bytes > 0);
        self.held_bytes += held_bytes;
    }

    pub(crate) fn count(&self) -> usize {
        self.held + self.small.len() + self.large.len()
    }

    pub(crate) fn spare_bytes(&self) -> usize {
        self.small.len() * SPARE_SMALL_BYTES + self.large.len() * self.large_bytes
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}
