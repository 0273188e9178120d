//! The word of a group: its lock, its version, and where its slots are that left their home line.
//!
//! Where: a search that fails compares the word before and after; writers lock the group by it.
//! Invariant: the version is odd while slots of the group move.
//! Source: the KV-Cache paper, section 4.2.2 (bucket locks).

use super::slot::Slot;
use memory::sync::{AtomicU64, Ordering};

pub(super) const LOCK: u64 = 1 << 63;
const VERSION_AT: u32 = 48;
pub(super) const ODD: u64 = 1 << VERSION_AT;
pub(super) const VERSION: u64 = 0x7fff << VERSION_AT;
pub(super) const SPILLED_AT: u32 = 32;
pub(super) const SPILLED: u64 = 0xffff << SPILLED_AT;
/// Mask of the number of the first line in the group's overflow chain.
pub(super) const OVERFLOW_AT: u64 = 0xffff_ffff;

pub(super) fn bump_version(word: u64) -> u64 {
    (word & !VERSION) | (word.wrapping_add(ODD) & VERSION)
}

/// Stores `slot` in an empty word of `line`. Returns false if `line` is full.
pub(super) fn put_in(line: &[AtomicU64], slot: Slot) -> bool {
    for word in line {
        // Relaxed: only a holder of the group's lock, like the caller, stores slots.
        if word.load(Ordering::Relaxed) == 0 {
            word.store(slot.0, Ordering::Release); // pairs with the Acquire of `probe`
            return true;
        }
    }
    false
}

#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits here")]
pub(super) fn index(at: u64) -> usize {
    at as usize
}
