//! How a value that may be rewritten is cut into atomics.
//!
//! Where: readers copy by it, writers write by it, see `rewrite`.
//! Invariant: place and length alone decide the cut, so that no two accesses to one byte differ in
//! size; pieces are aligned, and cover each byte once.

#![allow(unsafe_code, reason = "atomics over bytes in the mapping")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// A piece of a value that is rewritten, as large as its place allows.
#[derive(Clone, Copy)]
pub(super) enum Piece<'p> {
    One(&'p AtomicU8),
    Two(&'p AtomicU16),
    Four(&'p AtomicU32),
    Eight(&'p AtomicU64),
}

impl Piece<'_> {
    #[inline(always)]
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Two(_) => 2,
            Self::Four(_) => 4,
            Self::Eight(_) => 8,
        }
    }
}

/// Calls `each` with the pieces of `bytes` bytes from `at`, in order.
///
/// # Safety
/// The bytes may be read and written by atomics of these sizes for as long as `each` has them.
#[inline(always)]
pub(super) unsafe fn pieces<'p>(at: *const u8, bytes: usize, mut each: impl FnMut(Piece<'p>)) {
    let (mut at, mut left) = (at.cast_mut(), bytes);
    // Up to a multiple of eight. Where less is left than a step takes, `at` is aligned to that step
    // already, and the steps down at the end are smaller.
    //
    // SAFETY: each piece lies within the bytes, and is aligned: by the bits of `at` tested, and at
    // the end because smaller pieces follow larger ones.
    unsafe {
        if at.addr() & 1 != 0 && left >= 1 {
            each(Piece::One(AtomicU8::from_ptr(at)));
            (at, left) = (at.add(1), left - 1);
        }
        if at.addr() & 2 != 0 && left >= 2 {
            each(Piece::Two(AtomicU16::from_ptr(at.cast())));
            (at, left) = (at.add(2), left - 2);
        }
        if at.addr() & 4 != 0 && left >= 4 {
            each(Piece::Four(AtomicU32::from_ptr(at.cast())));
            (at, left) = (at.add(4), left - 4);
        }
        while left >= 32 {
            for word in 0..4 {
                each(Piece::Eight(AtomicU64::from_ptr(at.add(8 * word).cast())));
            }
            (at, left) = (at.add(32), left - 32);
        }
        while left >= 8 {
            each(Piece::Eight(AtomicU64::from_ptr(at.cast())));
            (at, left) = (at.add(8), left - 8);
        }
        if left & 4 != 0 {
            each(Piece::Four(AtomicU32::from_ptr(at.cast())));
            at = at.add(4);
        }
        if left & 2 != 0 {
            each(Piece::Two(AtomicU16::from_ptr(at.cast())));
            at = at.add(2);
        }
        if left & 1 != 0 {
            each(Piece::One(AtomicU8::from_ptr(at)));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_bytes_once_aligned_wherever_they_lie() {
        let memory = [0_u64; 16];
        let start = memory.as_ptr().cast::<u8>();
        for (offset, len) in (0..8).flat_map(|offset| (0..100).map(move |len| (offset, len))) {
            let mut next = start.wrapping_add(offset);
            let end = next.wrapping_add(len);
            // SAFETY: within `memory`, of which nothing is read or written.
            unsafe {
                pieces(next, len, |piece| {
                    let at = match piece {
                        Piece::One(at) => at.as_ptr().cast::<u8>(),
                        Piece::Two(at) => at.as_ptr().cast(),
                        Piece::Four(at) => at.as_ptr().cast(),
                        Piece::Eight(at) => at.as_ptr().cast(),
                    };
                    assert_eq!(at.cast_const(), next, "{len} bytes at {offset}");
                    assert_eq!(at.addr() % piece.bytes(), 0, "{len} bytes at {offset}");
                    next = next.wrapping_add(piece.bytes());
                });
            }
            assert_eq!(next, end, "{len} bytes at {offset}");
        }
    }
}
