//! A slot: eight bytes of the index, which name one item.
//!
//! Where: eight slots make a line of the index.
//! Invariant: a slot is 0 if and only if it is empty, since a tag is never 0.
//!
//! ```text
//!   63    61   60    59    58     57      56..55    54..40       39..0
//!   ver:3      busy  won   stale  fetched cnt:2     tag:15       loc:40
//! ```
//! `cnt` is NbQ-CLOCK's reference counter. A meta reply shows `fetched`, `stale` and `won` by h, X
//! and Z. `busy` and `ver` tell readers without a lock of a rewrite in place (see `rewrite`).

use crate::policy;

const LOC_BITS: u32 = 40;
pub(super) const TAG_BITS: u32 = 15;
const CNT_AT: u32 = LOC_BITS + TAG_BITS;
const LOC_MASK: u64 = (1 << LOC_BITS) - 1;
pub(super) const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

pub(crate) const CNT_MAX: u64 = policy::CNT_MAX as u64;
pub(crate) const FETCHED: u64 = 1 << 57;
/// Bit that is set if a client has marked the item as stale (`md` or `ms` with flag I).
pub(crate) const STALE: u64 = 1 << 58;
/// Bit that is set if a client was told to recache the item.
pub(crate) const WON: u64 = 1 << 59;
pub(crate) const BUSY: u64 = 1 << 60;
const VER_AT: u32 = 61;
/// Maximum version: an item with this version is not rewritten in place any more.
pub(crate) const VER_MAX: u64 = policy::room::VERSION_MAX as u64;
const ITEM_MASK: u64 = LOC_MASK | (TAG_MASK << LOC_BITS);
const NAME_MASK: u64 = ITEM_MASK | BUSY | (VER_MAX << VER_AT);
/// The bits, besides the tag, that stay the same when the item moves to another location.
const STATE_MASK: u64 = (CNT_MAX << CNT_AT) | FETCHED | STALE | WON;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u64);

impl Slot {
    pub(crate) fn new(hash: u64, loc: u64) -> Self {
        debug_assert!(loc <= LOC_MASK);
        Self((tag(hash) << LOC_BITS) | (loc & LOC_MASK))
    }

    #[inline]
    pub(crate) fn loc(self) -> u64 {
        self.0 & LOC_MASK
    }

    #[inline]
    pub(crate) fn tag(self) -> u64 {
        (self.0 >> LOC_BITS) & TAG_MASK
    }

    #[inline]
    pub(crate) fn tagged(tag: u64) -> Self {
        Self(tag << LOC_BITS)
    }

    #[inline]
    pub(crate) fn same_tag(self, tagged: Self) -> bool {
        self.0 & (TAG_MASK << LOC_BITS) == tagged.0
    }

    #[inline]
    pub(crate) fn cnt(self) -> u64 {
        (self.0 >> CNT_AT) & CNT_MAX
    }

    /// The slot after a use: `fetched` is set and, if `counts`, `cnt` rises by 1 up to `CNT_MAX`.
    #[inline]
    pub(crate) fn used(self, counts: bool) -> Self {
        let more = if counts && self.cnt() < CNT_MAX { 1 << CNT_AT } else { 0 };
        Self((self.0 | FETCHED) + more)
    }

    #[inline]
    pub(crate) fn is_saturated(self) -> bool {
        const ALL: u64 = (CNT_MAX << CNT_AT) | FETCHED;
        self.0 & ALL == ALL
    }

    pub(crate) fn with_cnt(self, cnt: u64) -> Self {
        Self(self.0 & !(CNT_MAX << CNT_AT) | (cnt.min(CNT_MAX) << CNT_AT))
    }

    #[inline]
    pub(crate) fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    #[inline]
    pub(crate) fn ver(self) -> u64 {
        self.0 >> VER_AT
    }

    #[inline]
    pub(crate) fn names_item_of(self, other: Slot) -> bool {
        (self.0 ^ other.0) & ITEM_MASK == 0
    }

    /// True if both slots name the same version of the same item.
    #[inline]
    pub(crate) fn names_same(self, other: Slot) -> bool {
        (self.0 ^ other.0) & NAME_MASK == 0
    }

    /// The slot after a rewrite: `cnt` and the bits in `keep_bits` stay, and `set_bits` are set.
    pub(crate) fn rewritten(self, keep_bits: u64, set_bits: u64) -> Self {
        debug_assert!(self.ver() < VER_MAX);
        let kept = self.0 & (NAME_MASK | (CNT_MAX << CNT_AT) | keep_bits);
        Self(((kept | set_bits) & !BUSY) + (1 << VER_AT))
    }

    #[inline]
    pub(crate) fn with(self, bit: u64, on: bool) -> Self {
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }

    pub(crate) fn at(self, loc: u64) -> Self {
        Self((self.0 & (STATE_MASK | (TAG_MASK << LOC_BITS))) | (loc & LOC_MASK))
    }
}

/// The 15 bits of a key's hash that a slot keeps; never 0.
#[inline]
pub(crate) fn tag(hash: u64) -> u64 {
    (hash >> (64 - TAG_BITS)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let slot = Slot::new(u64::MAX, LOC_MASK).with(STALE, true);
        assert_eq!((slot.loc(), slot.tag(), slot.cnt()), (LOC_MASK, TAG_MASK, 0));
        let used = (0..5).fold(slot, |slot, _| slot.used(true));
        assert!(used.is_saturated() && !slot.used(true).is_saturated());
        assert_eq!((slot.used(false).cnt(), slot.used(false).has(FETCHED)), (0, true));
        assert_eq!((used.cnt(), used.tag(), used.loc()), (CNT_MAX, TAG_MASK, LOC_MASK));
        assert!(used.has(FETCHED) && used.has(STALE) && !used.has(WON));
        let moved = used.with_cnt(1).at(77);
        assert_eq!((moved.loc(), moved.cnt(), moved.tag()), (77, 1, TAG_MASK));
        assert!(moved.has(FETCHED) && moved.has(STALE));
        assert_ne!(Slot::new(0, 0).0, 0);
        let again = moved.with(BUSY, true).rewritten(0, WON);
        assert_eq!((again.loc(), again.tag(), again.cnt(), again.ver()), (77, TAG_MASK, 1, 1));
        assert!(again.has(WON) && !again.has(BUSY | STALE | FETCHED));
        assert!(again.rewritten(WON, WON).has(WON), "kept and set");
        assert!(!again.names_same(moved) && again.names_same(again.used(true)));
        let last = (1..VER_MAX).fold(again, |slot, _| slot.rewritten(STALE, 0));
        assert_eq!((last.ver(), last.loc(), last.at(5).ver()), (VER_MAX, 77, 0));
    }
}
