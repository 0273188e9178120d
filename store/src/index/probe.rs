//! Searches one line for the slots that have a given tag.
//!
//! Where: the first step of every lookup.
//! Invariant: a search meets each slot that has the tag and is in the line during the whole search.
//! Source: Swiss tables, which probe a group of entries at once (here eight slots).

#![allow(unsafe_code, reason = "eight atomics are read at once")]

use super::found::{FoundSlot, Loc};
use super::slot::Slot;
use memory::sync::AtomicU64;

#[inline(always)]
pub(super) fn probe<'i>(
    line: &'i [AtomicU64; 8],
    tag: u64,
    is_it: &mut impl FnMut(Loc<'i>) -> bool,
) -> Option<FoundSlot<'i>> {
    let mut tagged = tagged(line, tag);
    while let Some(at) = first(line, tagged) {
        tagged &= tagged - 1;
        let found = FoundSlot::read(at);
        if found.slot().same_tag(Slot::tagged(tag)) && is_it(found.loc()) {
            return Some(found);
        }
    }
    None
}

/// Finds the first slot of `line` that is likely to have this tag.
#[inline(always)]
pub(super) fn likely(line: &[AtomicU64; 8], tag: u64) -> Option<FoundSlot<'_>> {
    let found = FoundSlot::read(first(line, tagged(line, tag))?);
    // The slot may have been emptied since its tag was compared.
    (found.slot() != Slot(0)).then_some(found)
}

/// The first slot whose bit is set in `tagged`, a result of the function `tagged`.
#[inline(always)]
fn first(line: &[AtomicU64; 8], tagged: u32) -> Option<&AtomicU64> {
    (tagged != 0).then(|| &line[tagged.trailing_zeros() as usize / 2 % 8])
}

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
use at_once as tagged;
#[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
use one_by_one as tagged;

/// A number in which bit 2n is set if slot n of `line` seems to have this tag.
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
#[inline(always)]
fn at_once(line: &[AtomicU64; 8], tag: u64) -> u32 {
    use super::slot::TAG_MASK;
    use memory::plant::{Fault, is};
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128, _mm_and_si128, _mm_castps_si128, _mm_cmpeq_epi32, _mm_movemask_epi8,
        _mm_packs_epi32, _mm_set1_epi32, _mm_shuffle_ps,
    };
    /// Selects the odd elements of both vectors: the upper halves of slots.
    const UPPER: i32 = 0b11_01_11_01;
    let (one, two, three, four): (__m128, __m128, __m128, __m128);
    // SAFETY: the block reads the 64 bytes of `line`, which are borrowed, and assumes nothing about
    // their values. For the rest of the program the reads are relaxed loads of atomics, because the
    // processor reads each aligned half of a slot in one piece. Neither the compiler nor the
    // processor moves an `asm` block's load before an Acquire load or behind an Acquire fence.
    unsafe {
        asm!(
            "movups {one}, [{line}]",
            "movups {two}, [{line} + 16]",
            "movups {three}, [{line} + 32]",
            "movups {four}, [{line} + 48]",
            line = in(reg) line.as_ptr(),
            one = out(xmm_reg) one,
            two = out(xmm_reg) two,
            three = out(xmm_reg) three,
            four = out(xmm_reg) four,
            options(nostack, preserves_flags, readonly)
        );
    }
    let [tag, tags] = [tag, TAG_MASK].map(|tag| ((Slot::tagged(tag).0 >> 32) as u32).cast_signed());
    // SAFETY: the intrinsics need only SSE2, which is part of x86-64, and touch no memory.
    let same = |one, two| unsafe {
        let upper = _mm_castps_si128(_mm_shuffle_ps::<UPPER>(one, two));
        _mm_cmpeq_epi32(_mm_and_si128(upper, _mm_set1_epi32(tags)), _mm_set1_epi32(tag))
    };
    // SAFETY: the intrinsics need only SSE2, and touch no memory.
    let mask = unsafe { _mm_movemask_epi8(_mm_packs_epi32(same(one, two), same(three, four))) };
    let all = if is(Fault::LastSlotNotSeen) { 0x1555 } else { 0x5555 };
    mask.cast_unsigned() & all
}

/// Like `at_once`, but never sets a bit for a slot that lacks the tag.
#[cfg(any(test, not(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))))]
fn one_by_one(line: &[AtomicU64; 8], tag: u64) -> u32 {
    let has_tag = |word: &AtomicU64| {
        // Relaxed: the caller loads the slot again.
        Slot(word.load(memory::sync::Ordering::Relaxed)).same_tag(Slot::tagged(tag))
    };
    line.iter()
        .enumerate()
        .fold(0, |bits, (at, word)| bits | (u32::from(has_tag(word)) << (2 * at)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::index::slot::{BUSY, FETCHED, TAG_MASK};
    use memory::sync::Ordering;
    use testing::Random;

    #[test]
    fn each_tag_in_each_place_is_met_whatever_else_a_slot_says() {
        let line: [AtomicU64; 8] = std::array::from_fn(|_| AtomicU64::new(0));
        for at in 0..8 {
            for tag in (1..=TAG_MASK).step_by(if cfg!(miri) { 101 } else { 1 }) {
                let slot = Slot::new(tag << 49, 0xff_ffff_ffff).with(BUSY | FETCHED, tag % 2 == 0);
                line[at].store(slot.0, Ordering::Relaxed);
                let found = probe(&line, tag, &mut |_| true).map(|found| found.slot().0);
                assert_eq!(found, Some(slot.0), "{tag} at {at}");
                assert!(probe(&line, tag % TAG_MASK + 1, &mut |_| true).is_none());
                assert!(probe(&line, tag, &mut |_| false).is_none());
            }
            line[at].store(0, Ordering::Relaxed);
        }
    }

    /// Under Miri and shuttle `tagged` is `one_by_one` itself, so the test compares nothing.
    #[test]
    fn at_once_and_one_by_one_see_the_same_slots_whatever_a_line_holds() {
        let mut random = Random::new(27);
        for _ in 0..if cfg!(miri) { 1_000 } else { 200_000 } {
            // A mask of few bits makes slots share tags.
            let few = random.next() & 3;
            let tags = random.pick(&[3, 0xff, TAG_MASK]);
            let line: [AtomicU64; 8] = std::array::from_fn(|_| {
                let others = random.next() & !Slot::tagged(TAG_MASK).0;
                let tag = (random.next() ^ few << 12) & tags;
                let slot = if random.one_in(4) { 0 } else { others | Slot::tagged(tag).0 };
                AtomicU64::new(slot)
            });
            let tag = (random.next() ^ few << 12) & tags;
            assert_eq!(tagged(&line, tag), one_by_one(&line, tag), "{tag} in {line:x?}");
        }
    }

    #[test]
    fn several_of_a_tag_are_offered_in_turn() {
        let line = std::array::from_fn(|at| AtomicU64::new(Slot::new(7 << 49, at as u64).0));
        let mut met = Vec::new();
        let found = probe(&line, 7, &mut |loc| {
            met.push(loc.offset());
            loc.offset() == 5
        });
        assert_eq!((found.map(|found| found.slot().loc()), met), (Some(5), vec![0, 1, 2, 3, 4, 5]));
    }
}
