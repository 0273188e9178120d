//! Copies of bytes that another column may be rewriting: a value, or a field of a header.
//!
//! Where: readers copy by `copy_out`, writers by `copy_in`; see `rewrite`.
//! Invariant: all accesses to shared bytes are relaxed atomics, and all accesses to one byte have
//! the same size. On x86-64 this size is one byte. Elsewhere, and under shuttle, where other
//! threads may run between two pieces, bytes are cut into aligned pieces that cover each byte once;
//! the address and the length alone determine the pieces. A load may see any store of `copy_in` to
//! the same piece. The fences around the copies, in `LockedGroup::rewrite` and
//! `FoundSlot::is_unchanged`, order the loads and stores of different pieces.
//! Source: see `rewrite`; for a "bytewise atomic memcpy", see P1478, a proposal for C++.

#![allow(unsafe_code, reason = "atomics over bytes in the mapping")]

#[cfg(all(target_arch = "x86_64", not(any(miri, shuttle))))]
pub(super) use whole::{
    copy as copy_in, copy as copy_out, copy as copy_still, load_2, load_4, load_8,
};

#[cfg(not(all(target_arch = "x86_64", not(any(miri, shuttle)))))]
pub(super) use cut::{copy_in, copy_out, copy_still, load_2, load_4, load_8};

/// Copies by wide instructions, which act like relaxed loads and stores of single bytes.
///
/// A compiler does not merge atomics into wider accesses. Assembler code can: on x86-64 no access
/// tears a byte, and a wide access is ordered like accesses of one byte.
#[cfg(all(target_arch = "x86_64", not(any(miri, shuttle))))]
mod whole {
    use memory::plant::{Fault, is};
    use std::arch::asm;

    /// Copies a piece from `$from + $more` to `$to + $more` through a register.
    macro_rules! step {
        ($class:ident, $move:literal, $register:literal, $from:expr, $to:expr, $more:literal) => {
            asm!(
                concat!($move, " ", $register, ", [{from} + ", $more, "]"),
                concat!($move, " [{to} + ", $more, "], ", $register),
                from = in(reg) $from,
                to = in(reg) $to,
                piece = out($class) _,
                options(nostack, preserves_flags),
            )
        };
    }

    macro_rules! load {
        ($name:ident, $number:ty, $move:literal) => {
            /// Loads a number from the bytes at `from`.
            ///
            /// # Safety
            /// The bytes at `from` may be loaded as atomics of one byte.
            #[inline(always)]
            pub(in crate::item) unsafe fn $name(from: *const u8) -> $number {
                let piece: $number;
                // SAFETY: the load acts like atomics of single bytes, which the caller allows.
                unsafe {
                    asm!(
                        $move,
                        from = in(reg) from,
                        piece = out(reg) piece,
                        options(nostack, preserves_flags, readonly),
                    );
                }
                piece
            }
        };
    }

    load!(load_2, u16, "mov {piece:x}, [{from}]");
    load!(load_4, u32, "mov {piece:e}, [{from}]");
    load!(load_8, u64, "mov {piece}, [{from}]");

    /// Copies `bytes` bytes, some of them twice, since steps overlap. Meanwhile other threads may
    /// load both ranges, and may store to one range, but not to both.
    ///
    /// # Safety
    /// The bytes at `from` may be loaded, and the bytes at `to` stored, both as atomics of one
    /// byte. The two ranges do not overlap.
    #[inline(always)]
    pub(in crate::item) unsafe fn copy(mut from: *const u8, mut to: *mut u8, bytes: usize) {
        let bytes = if is(Fault::LastPieceNotCopied) && bytes > 64 { bytes & !7 } else { bytes };
        let bytes = if is(Fault::PieceCopiedBeyond) { bytes + 64 } else { bytes };
        // SAFETY: every access lies within the `bytes` bytes: each branch has checked that there
        // are enough bytes for its steps, which go on from the start and back from the end; the
        // loop leaves no more bytes than the last four steps copy. The assembler does only what
        // relaxed atomics of single bytes may do: it loads and stores each byte at most twice, and
        // x86-64 tears no byte. SSE2 is part of x86-64.
        unsafe {
            let (from_end, to_end) = (from.add(bytes), to.add(bytes));
            if bytes >= 32 {
                while from_end.offset_from(from) > 64 {
                    step!(xmm_reg, "movdqu", "{piece}", from, to, 0);
                    step!(xmm_reg, "movdqu", "{piece}", from, to, 16);
                    (from, to) = (from.add(32), to.add(32));
                }
                step!(xmm_reg, "movdqu", "{piece}", from, to, 0);
                step!(xmm_reg, "movdqu", "{piece}", from, to, 16);
                step!(xmm_reg, "movdqu", "{piece}", from_end, to_end, -32);
                step!(xmm_reg, "movdqu", "{piece}", from_end, to_end, -16);
            } else if bytes >= 16 {
                step!(xmm_reg, "movdqu", "{piece}", from, to, 0);
                step!(xmm_reg, "movdqu", "{piece}", from_end, to_end, -16);
            } else if bytes >= 8 {
                step!(reg, "mov", "{piece}", from, to, 0);
                step!(reg, "mov", "{piece}", from_end, to_end, -8);
            } else if bytes >= 4 {
                step!(reg, "mov", "{piece:e}", from, to, 0);
                step!(reg, "mov", "{piece:e}", from_end, to_end, -4);
            } else if bytes >= 2 {
                step!(reg, "mov", "{piece:x}", from, to, 0);
                step!(reg, "mov", "{piece:x}", from_end, to_end, -2);
            } else if bytes == 1 {
                step!(reg_byte, "mov", "{piece}", from, to, 0);
            }
        }
    }
}

/// Copies by atomics as large as their addresses allow, for builds without `whole`.
#[cfg(any(all(test, not(loom)), not(all(target_arch = "x86_64", not(any(miri, shuttle))))))]
mod cut {
    use memory::plant::{Fault, is};
    use memory::sync::plain_access;
    use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

    /// Calls `each` with the address and length of each piece of `bytes` bytes from `at`, in order.
    /// A piece is as long as its address allows, up to eight bytes, and aligned to its length.
    #[inline(always)]
    pub(super) fn pieces(at: *const u8, bytes: usize, mut each: impl FnMut(*mut u8, usize)) {
        let (mut at, mut left) = (at.cast_mut(), bytes);
        // These steps align `at` to eight bytes. If too few bytes are left for a step, `at` is
        // aligned to that step's length, and the pieces at the end are smaller.
        for step in [1, 2, 4] {
            if at.addr() & step != 0 && left >= step {
                each(at, step);
                (at, left) = (at.wrapping_add(step), left - step);
            }
        }
        while left >= 8 {
            each(at, 8);
            (at, left) = (at.wrapping_add(8), left - 8);
        }
        for step in [4, 2, 1] {
            if left & step != 0 {
                each(at, step);
                at = at.wrapping_add(step);
            }
        }
    }

    /// Copies `bytes` bytes that other threads may be storing by `copy_in`.
    ///
    /// # Safety
    /// The bytes at `from` may be loaded by atomics of the pieces' sizes. `from` must allow stores
    /// too, since atomics are made from it. Only the caller accesses the bytes at `to`.
    #[inline]
    pub(in crate::item) unsafe fn copy_out(from: *const u8, mut to: *mut u8, bytes: usize) {
        // Relaxed: the fences around the copy order these loads, which see stores of `copy_in`.
        let relaxed = Ordering::Relaxed;
        let bytes = if is(Fault::PieceLoadedBeyond) { bytes + 1 } else { bytes };
        pieces(from, bytes, |from, piece| {
            plain_access(from, piece, false);
            // SAFETY: the caller's guarantee holds for each piece, which lies within the bytes and
            // is aligned; `to` advances by the piece's length.
            unsafe {
                match piece {
                    1 => to.write(AtomicU8::from_ptr(from).load(relaxed)),
                    2 => to
                        .cast::<u16>()
                        .write_unaligned(AtomicU16::from_ptr(from.cast()).load(relaxed)),
                    4 => to
                        .cast::<u32>()
                        .write_unaligned(AtomicU32::from_ptr(from.cast()).load(relaxed)),
                    _ => to
                        .cast::<u64>()
                        .write_unaligned(AtomicU64::from_ptr(from.cast()).load(relaxed)),
                }
                to = to.add(piece);
            }
        });
    }

    /// Copies `bytes` bytes that nobody stores meanwhile.
    ///
    /// # Safety
    /// The bytes at `from` may be read and the bytes at `to` written; the ranges do not overlap.
    #[inline]
    pub(in crate::item) unsafe fn copy_still(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the caller keeps the contract of `copy_from_nonoverlapping`.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
    }

    /// Defines a function that loads a little-endian number by `copy_out`.
    macro_rules! load {
        ($name:ident, $number:ty) => {
            /// # Safety
            /// The number's bytes at `from` fulfil the conditions of `copy_out`.
            #[inline]
            pub(in crate::item) unsafe fn $name(from: *const u8) -> $number {
                let mut bytes = [0; size_of::<$number>()];
                // SAFETY: the caller guarantees the bytes at `from`; the array is as long.
                unsafe { copy_out(from, bytes.as_mut_ptr(), bytes.len()) };
                <$number>::from_le_bytes(bytes)
            }
        };
    }

    load!(load_2, u16);
    load!(load_4, u32);
    load!(load_8, u64);

    /// Copies `bytes` bytes to a place from which other threads may be loading by `copy_out`.
    ///
    /// # Safety
    /// The bytes at `to` may be stored by atomics of the pieces' sizes. Only the caller accesses
    /// the bytes at `from`.
    #[inline]
    pub(in crate::item) unsafe fn copy_in(mut from: *const u8, to: *mut u8, bytes: usize) {
        // Relaxed: the fences around the copy order these stores, which `copy_out` loads.
        let relaxed = Ordering::Relaxed;
        pieces(to, bytes, |to, piece| {
            plain_access(to, piece, true);
            // SAFETY: the caller's guarantee holds for each piece, which is aligned.
            unsafe {
                match piece {
                    1 => AtomicU8::from_ptr(to).store(from.read(), relaxed),
                    2 => {
                        let half = from.cast::<u16>().read_unaligned();
                        AtomicU16::from_ptr(to.cast()).store(half, relaxed);
                    }
                    4 => {
                        let half = from.cast::<u32>().read_unaligned();
                        AtomicU32::from_ptr(to.cast()).store(half, relaxed);
                    }
                    _ => {
                        let word = from.cast::<u64>().read_unaligned();
                        AtomicU64::from_ptr(to.cast()).store(word, relaxed);
                    }
                }
                from = from.add(piece);
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::cut::{self, pieces};
    use super::{copy_in, copy_out, copy_still, load_2, load_4, load_8};
    use testing::Random;

    /// A function that copies bytes from a pointer that allows stores too (see `cut::copy_out`).
    type Copy = unsafe fn(*const u8, *mut u8, usize);

    #[test]
    fn copies_take_their_bytes_and_no_others() {
        let mut given: Vec<u8> = (0..=255).collect();
        let mut copies: Vec<Copy> = vec![cut::copy_in, cut::copy_out, cut::copy_still];
        copies.extend([copy_in as Copy, copy_out, copy_still]);
        for (copy, offset) in copies.into_iter().flat_map(|copy| (0..9).map(move |o| (copy, o))) {
            for bytes in (0..200).step_by(if cfg!(miri) { 23 } else { 1 }) {
                let mut got = vec![0_u8; 256];
                // SAFETY: the test owns both ranges, and both are long enough.
                unsafe { copy(given.as_mut_ptr().add(offset), got.as_mut_ptr().add(7), bytes) };
                assert_eq!(got[7..7 + bytes], given[offset..offset + bytes], "from {offset}");
                assert!(got[..7].iter().chain(&got[7 + bytes..]).all(|byte| *byte == 0));
                // Copies to other memory, since no byte may be stored in pieces of two sizes.
                let mut got = vec![0_u8; 256];
                // SAFETY: the test owns both ranges, and both are long enough.
                unsafe { copy(given.as_mut_ptr(), got.as_mut_ptr().add(offset), bytes) };
                assert_eq!(got[offset..offset + bytes], given[..bytes], "to {offset}");
            }
        }
    }

    /// A load beyond the last byte fails no assertion; valgrind and Miri report it.
    #[test]
    fn copies_and_loads_of_all_of_an_allocation_read_nothing_beyond() {
        for bytes in 1..200 {
            let mut given: Box<[u8]> = (1..=bytes).collect();
            for copy in [cut::copy_in, cut::copy_out, copy_in as Copy, copy_out] {
                let mut got = [0; 512];
                // SAFETY: the test owns both ranges, and `got` is longer than `given`.
                unsafe { copy(given.as_mut_ptr(), got.as_mut_ptr(), given.len()) };
                assert_eq!(got[..given.len()], *given);
            }
        }
        let mut two = Box::new([1, 2]);
        let mut four = Box::new([1, 2, 3, 4]);
        let mut eight = Box::new([1, 2, 3, 4, 5, 6, 7, 8]);
        // SAFETY: the test owns as many bytes as each number has.
        let got = unsafe {
            let (two, four, eight) = (two.as_mut_ptr(), four.as_mut_ptr(), eight.as_mut_ptr());
            let cut = (cut::load_2(two), cut::load_4(four), cut::load_8(eight));
            (cut, (load_2(two), load_4(four), load_8(eight)))
        };
        let due = (u16::from_le_bytes(*two), u32::from_le_bytes(*four), u64::from_le_bytes(*eight));
        assert_eq!(got, (due, due));
    }

    /// Under Miri and shuttle all copies are those of `cut`, so this test compares nothing.
    #[test]
    fn whole_and_cut_copy_the_same_whatever_the_bytes_and_wherever_they_lie() {
        const ROOM: usize = 4096;
        let mut random = Random::new(27);
        // Under Miri, 5,000 rounds would take minutes.
        for _ in 0..if cfg!(miri) { 20 } else { 5_000 } {
            let mut given: Vec<u64> = (0..ROOM / 8).map(|_| random.next()).collect();
            let most = random.pick(&[4, 40, 300, ROOM]);
            let bytes = random.index(most);
            let [from, to] = [(); 2].map(|()| random.index((ROOM - bytes).min(80)));
            let start = given.as_mut_ptr().cast::<u8>().wrapping_add(from);
            let ends = [cut::copy_in, cut::copy_out, copy_in as Copy, copy_out].map(|copy| {
                let mut got = vec![0xa5; ROOM];
                // SAFETY: the test owns both ranges, and both have `bytes` bytes from there on.
                unsafe { copy(start, got.as_mut_ptr().add(to), bytes) };
                got
            });
            assert!(ends.iter().all(|end| *end == ends[0]), "{bytes} bytes from {from} to {to}");
            // SAFETY: the test owns at least eight bytes from `start` on.
            let loads = unsafe {
                let cut = (cut::load_2(start), cut::load_4(start), cut::load_8(start));
                (cut, (load_2(start), load_4(start), load_8(start)))
            };
            assert_eq!(loads.0, loads.1, "at {from}");
        }
    }

    #[test]
    fn numbers_are_little_endian_wherever_they_lie() {
        let mut given: Vec<u8> = (1..=32).collect();
        for at in 0..16 {
            let mut due = [0; 8];
            due.copy_from_slice(&given[at..at + 8]);
            let due = u64::from_le_bytes(due);
            let from = given[at..].as_mut_ptr();
            // SAFETY: the test owns eight bytes from `from` on.
            let got = unsafe {
                let cut = (cut::load_2(from), cut::load_4(from), cut::load_8(from));
                assert_eq!(cut, (load_2(from), load_4(from), load_8(from)));
                cut
            };
            assert_eq!((u64::from(got.0), u64::from(got.1)), (due & 0xffff, due & 0xffff_ffff));
            assert_eq!(got.2, due);
        }
    }

    #[test]
    fn pieces_cover_all_bytes_once_aligned_wherever_they_lie() {
        let memory = [0_u64; 16];
        let start = memory.as_ptr().cast::<u8>();
        for (offset, len) in (0..8).flat_map(|offset| (0..100).map(move |len| (offset, len))) {
            let mut next = start.wrapping_add(offset);
            let end = next.wrapping_add(len);
            pieces(next, len, |at, piece| {
                assert_eq!(at.cast_const(), next, "{len} bytes at {offset}");
                assert_eq!(at.addr() % piece, 0, "{len} bytes at {offset}");
                next = next.wrapping_add(piece);
            });
            assert_eq!(next, end, "{len} bytes at {offset}");
        }
    }
}
