//! Recycled buffers for input that must be kept between turns.
//!
//! Where: a connection that ends its turn with bytes left takes one; it comes back when they are
//! used up.
//! Invariant: a connection at rest holds none; a bounded number is kept here, and
//! the bytes that connections hold are counted in `held_bytes`, by capacity.

use crate::limits::{SPARE_SMALL_BYTES, SPARES_LARGE_MAX, SPARES_SMALL_MAX};

/// The column's stock.
#[derive(Debug)]
pub(crate) struct Spares {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    large_bytes: usize,
    held_bytes: usize,
}

impl Spares {
    /// `large_bytes` is the length of the receive buffer.
    pub(crate) fn new(large_bytes: usize) -> Spares {
        Spares {
            small: Vec::with_capacity(SPARES_SMALL_MAX),
            large: Vec::with_capacity(SPARES_SMALL_MAX),
            large_bytes,
            held_bytes: 0,
        }
    }

    /// Length of a receive buffer.
    pub(crate) fn large_bytes(&self) -> usize {
        self.large_bytes
    }

    /// A buffer with a copy of `bytes`, for a connection to hold.
    pub(crate) fn copy_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = if bytes.len() <= SPARE_SMALL_BYTES {
            self.small.pop().unwrap_or_else(|| Vec::with_capacity(SPARE_SMALL_BYTES))
        } else {
            Vec::with_capacity(bytes.len())
        };
        buffer.extend_from_slice(bytes);
        self.held_bytes += buffer.capacity();
        buffer
    }

    /// A receive buffer in the place of one that a connection holds from now on.
    pub(crate) fn swap_large(&mut self, held: &Vec<u8>) -> Vec<u8> {
        self.held_bytes += held.capacity();
        self.large.pop().unwrap_or_else(|| vec![0; self.large_bytes])
    }

    /// Takes back what a connection held.
    pub(crate) fn put_back(&mut self, mut buffer: Vec<u8>) {
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

    /// Bytes of the buffers in stock.
    pub(crate) fn stock_bytes(&self) -> usize {
        self.small.len() * SPARE_SMALL_BYTES + self.large.len() * self.large_bytes
    }

    /// Bytes that connections hold.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}
