//! A network interface's receive ring as the store sees it: chunks that receive data in turn.
//!
//! Where: in tests of the store with an arena that keeps values where they were received.
//! Invariant: each chunk that returns to the ring is overwritten at once, as a kernel may do.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    reason = "a test, which writes to chunks as a kernel does"
)]

use memory::arena::Arena;
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) struct Ring {
    arena: Arc<Arena>,
    chunks: VecDeque<u32>,
}

impl Ring {
    /// Makes ring `number` of `rings`, which share the arena's ring chunks equally.
    pub(crate) fn new(arena: &Arc<Arena>, number: u32, rings: u32) -> Self {
        let each = arena.ring_chunks() / rings;
        Self { arena: Arc::clone(arena), chunks: (number * each..(number + 1) * each).collect() }
    }

    /// Receives `bytes` at offset `at` of a chunk, which must have room, and passes them to `show`.
    pub(crate) fn receive<T>(
        &mut self,
        at: usize,
        bytes: &[u8],
        show: impl FnOnce(&[u8]) -> T,
    ) -> T {
        self.receive_all([(at, bytes)], |[shown]| show(shown))
    }

    /// Like `receive`, but for several packets, which `show` gets together.
    pub(crate) fn receive_all<const N: usize, T>(
        &mut self,
        packets: [(usize, &[u8]); N],
        show: impl FnOnce([&[u8]; N]) -> T,
    ) -> T {
        let chunks = packets.map(|_| self.chunks.pop_front().unwrap());
        let mut packets = packets.into_iter().zip(chunks);
        let shown = chunks.map(|_| {
            let ((at, bytes), chunk) = packets.next().unwrap();
            assert!(at + bytes.len() <= self.arena.chunk_bytes());
            // SAFETY: nobody but this ring uses the chunk before `recycle` below, and the bytes fit
            // in the chunk, as the assertion has checked.
            unsafe {
                let there = self.arena.at(chunk).add(at);
                there.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                std::slice::from_raw_parts(there, bytes.len())
            }
        });
        let result = show(shown);
        for chunk in chunks {
            let next = self.arena.recycle(chunk);
            assert!(self.arena.value_chunk_of(self.arena.at(next)).is_none(), "a value's");
            assert!(!self.chunks.contains(&next), "received into twice at once");
            // SAFETY: nobody but this ring uses chunk `next`, and no byte beyond it is written.
            unsafe { self.arena.at(next).write_bytes(0xee, self.arena.chunk_bytes()) };
            self.chunks.push_back(next);
        }
        result
    }
}
