//! Input that a connection keeps between turns: the start of a request, or requests left for its
//! next turn.
//!
//! Where: between the receive buffer, which the whole column shares, and the parser.
//! Invariant: an incomplete request is kept in a buffer of about its own size, so that a peer
//! cannot make the server hold more bytes than the peer sent. A connection keeps the whole receive
//! buffer only for bytes that are executed in the next loop.

use std::mem;
use std::ops::Range;

use super::spares::Spares;
use crate::limits::SPARE_SMALL_BYTES;

/// Kept input. If there is no input, no memory is allocated.
#[derive(Debug, Default)]
pub(crate) struct HeldInput {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl HeldInput {
    /// Keeps `range` of the receive buffer. Copies the range if it is short or if `exact` is true
    /// (more bytes are awaited, or memory is scarce); otherwise takes the buffer and replaces it.
    pub(crate) fn keep(
        buffer: &mut Vec<u8>,
        range: Range<usize>,
        exact: bool,
        spares: &mut Spares,
    ) -> HeldInput {
        if exact || range.len() <= SPARE_SMALL_BYTES {
            return HeldInput::copy(&buffer[range], spares);
        }
        // The input is long and will be executed soon: keep the buffer itself instead of a copy.
        let next = spares.swap_large(buffer);
        HeldInput { buffer: mem::replace(buffer, next), from: range.start, to: range.end }
    }

    fn copy(bytes: &[u8], spares: &mut Spares) -> HeldInput {
        HeldInput { buffer: spares.copy_of(bytes), from: 0, to: bytes.len() }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// Returns the input after the first `used` bytes; nothing if the connection closes. If
    /// `partial` is true, copies the input into a buffer of exactly its size.
    pub(crate) fn after(
        mut self,
        used: usize,
        partial: bool,
        closing: bool,
        spares: &mut Spares,
    ) -> HeldInput {
        self.from += used;
        if self.from == self.to || closing {
            self.release(spares);
            return HeldInput::default();
        }
        if !partial {
            return self;
        }
        let copy = HeldInput::copy(self.bytes(), spares);
        self.release(spares);
        copy
    }

    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    #[inline]
    pub(crate) fn release(self, spares: &mut Spares) {
        if self.buffer.capacity() > 0 {
            spares.put_back(self.buffer);
        }
    }
}
