//! The index maps a key's hash to a slot. Readers take no lock; writers lock a group of lines.
//!
//! Where: a lookup usually probes one line of the index, then reads one item in the log.
//! Invariant: slots change only under their group's lock, except that a hit updates `cnt` and
//! `fetched`. A reader reports a miss only if the group's version was even, and if the version and
//! the key's address were the same before and after the search: then no slot moved meanwhile.
//! Source: the KV-Cache paper, section 4.2.2 (a table with 2^m bucket locks); growth by linear
//! hashing, in groups of 8 to 15 lines so that memory never doubles at once.
//!
//! ```text
//!   line, 64 bytes:  slot 8 | slot 8 | ... 8 slots        (overflow: 7 slots, link to the next)
//!   group word, u64: lock:1 | version:15 | spilled:16 | overflow_at:32
//!                    spilled: a bit per home line with slots elsewhere; overflow_at: 0 for none
//! ```
//! The hash's low bits choose a key's group. The tag, other bits of the hash, chooses two lines of
//! the group: the key's home line and its other line. So a line can be added without reading keys.
//! A slot goes to its home line or, if that line is full, to its other line. If both lines are
//! full, a slot that can move to its own other line leaves the home line and makes room for the new
//! slot; if no slot can move, the new slot goes to an overflow line. So lines are nearly full:
//! under steady insertions and removals, just before a line is added, 70 % of the slots are in home
//! lines, 23 % in other lines and 7 % in overflow lines; an item takes 8.7 to 9.0 bytes.

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
mod found;
pub(crate) mod ghost;
pub(crate) mod grow;
pub(crate) mod hash;
mod layout;
mod locked;
mod overflow;
pub(crate) mod pass;
mod probe;
pub(crate) mod slot;
pub(crate) mod unlink;
pub(crate) mod visit;
mod width;
mod word;

pub(crate) use found::{FoundSlot, Loc, Moment, SlotRef};
pub(crate) use locked::{Full, LockedGroup};

use crate::policy::GhostScope;
use ghost::Ghost;
use grow::MoveState;
use memory::plant::{self, Fault};
use memory::sync::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering, fence,
    wait_a_little,
};
use memory::words::Words;
use overflow::Overflow;
use probe::{likely, probe};
use slot::tag;
use std::io;
use width::{Address, LINES_MIN, Width};
use word::{LOCK, ODD, OVERFLOW_AT, SPILLED_AT, VERSION, index};

/// The index grows when it has more items than this percentage of its home slots.
const LOAD_PERCENT_MAX: u64 = 104;
/// The index begins to contract when it has fewer items than this percentage of its home slots.
/// Contraction ends at `LOAD_PERCENT_BACK`, or when the index grows.
const LOAD_PERCENT_MIN: u64 = 55;
const LOAD_PERCENT_BACK: u64 = 65;
/// Maximum percentage of a store's memory that lines may take. The percentage suffices even for the
/// smallest items, each of which takes 5 bytes of the log and 7.7 bytes of nearly full lines.
const LINES_PERCENT: usize = 66;
/// There is address space for one overflow line for each `OVERFLOW_PART` home lines. Just before a
/// line is added, about one overflow line for each twelve home lines is in use.
const OVERFLOW_PART: usize = 4;
const OVERFLOW_LINES_MIN: usize = 8;
/// After every `RECHECK_LINES` lines of an overflow chain, a search checks that the group's version
/// is unchanged, because the lines may have left the chain meanwhile.
const RECHECK_LINES: usize = 16;

#[derive(Debug)]
struct PublishedWidth {
    width: AtomicU64,
    fewest_items: AtomicI64,
    most_items: AtomicI64,
}

#[derive(Debug)]
pub(crate) struct Index {
    lines: Words,
    groups: Words,
    overflow: Overflow,
    ghost: Ghost,
    width: CachePadded<PublishedWidth>,
    /// The smallest width to which the index contracts: the first width, until `forget_start`.
    least: AtomicU64,
    items: CachePadded<AtomicI64>,
    granted: AtomicUsize,
    /// Locked to add or remove a line, lay out a group, give memory back or begin a pass.
    moving: Mutex<MoveState>,
    /// True while a pass is under way, during which the index does not contract.
    passing: AtomicBool,
}

impl Index {
    /// Makes an index with `lines` lines, which count as granted. The index may grow within
    /// `bytes_max`. Its ghost remembers the evictions that `remembered` selects.
    pub(crate) fn new(bytes_max: usize, lines: u64, remembered: GhostScope) -> io::Result<Self> {
        let width = Width::of_lines(lines);
        let lines = (bytes_max / 8 * LINES_PERCENT / 100).max(2 * index(width.total_lines()) * 8);
        // A group has at least 64 words of lines; `may_be_wider` needs room for one more group.
        let groups = lines / 64 + 2;
        let index = Self {
            lines: Words::new(lines.next_multiple_of(8))?,
            groups: Words::new(groups)?,
            overflow: Overflow::new((lines / 8 / OVERFLOW_PART).max(OVERFLOW_LINES_MIN))?,
            ghost: Ghost::new(remembered, groups)?,
            width: CachePadded(PublishedWidth {
                width: AtomicU64::new(0),
                fewest_items: AtomicI64::new(0),
                most_items: AtomicI64::new(0),
            }),
            least: AtomicU64::new(width.pack()),
            items: CachePadded(AtomicI64::new(0)),
            granted: AtomicUsize::new(0),
            moving: Mutex::new(MoveState::new(width)),
            passing: AtomicBool::new(false),
        };
        index.publish(width, LOAD_PERCENT_MIN);
        index.grant(index.bytes());
        Ok(index)
    }

    /// Number of lines for `items` items without growth, but no more than fit in `bytes`.
    pub(crate) fn lines_for(items: u64, bytes: usize) -> u64 {
        let lines = items.saturating_mul(100) / LOAD_PERCENT_MAX / 8 + 1;
        let group_bytes = index(LINES_MIN) * 64 + grow::GROUP_BYTES;
        lines.min(bytes as u64 / group_bytes as u64 * LINES_MIN)
    }

    /// From now on the index may contract to `lines` lines, even if it had more lines at the start.
    pub(crate) fn forget_start(&self, lines: u64) {
        let Ok(_alone) = self.moving.lock() else { return };
        // Relaxed, like all accesses to `least`: each holds the lock of `moving`, except in `new`.
        self.least.store(Width::of_lines(lines).pack(), Ordering::Relaxed);
        self.publish(self.width(), LOAD_PERCENT_MIN);
    }

    /// Requests huge pages for the lines, including lines that are added later.
    pub(crate) fn want_huge(&self) {
        if let Ok(mut moving) = self.moving.try_lock() {
            moving.huge_bytes = Some(0);
            moving.ask_for_huge(&self.lines, self.width());
        }
    }

    pub(crate) fn lock_memory(&self) -> io::Result<()> {
        let width = self.width();
        let groups = width.total_groups();
        self.lines.lock(index(width.total_lines()) * 64)?;
        self.groups.lock(index(groups) * 8)?;
        self.overflow.lock()?;
        self.ghost.lock(groups)
    }

    /// Number of bytes of the index, with the bytes that the ghost uses after an eviction.
    pub(crate) fn bytes(&self) -> usize {
        let width = self.width();
        self.line_bytes(width) + self.ghost.bytes(width.total_groups())
    }

    /// The bytes in use for lines and group words, and the bytes in use for the ghost.
    pub(crate) fn bytes_by_part(&self) -> (usize, usize) {
        let width = self.width();
        (self.line_bytes(width), self.ghost.touched_bytes(width.total_groups()))
    }

    fn line_bytes(&self, width: Width) -> usize {
        let lines = index(width.total_lines()) * 64 + self.overflow.bytes();
        lines + index(width.total_groups()) * 8
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn parts(&self) -> [(&'static str, std::ops::Range<usize>); 4] {
        let part = |words: &Words| {
            let from = std::ptr::from_ref(words.word(0)).addr();
            from..from + words.len() * 8
        };
        let ghost = self.ghost.words().map_or(0..0, part);
        let overflow = part(self.overflow.words());
        [
            ("line of the index", part(&self.lines)),
            ("group of the index", part(&self.groups)),
            ("line of the index", overflow),
            ("ghost", ghost),
        ]
    }

    pub(crate) fn granted_bytes(&self) -> usize {
        self.granted.load(Ordering::Relaxed) // a limit, which orders nothing
    }

    pub(crate) fn grant(&self, bytes: usize) {
        self.granted.fetch_add(bytes, Ordering::Relaxed); // as in `granted_bytes`
    }

    pub(crate) fn overflow_bytes(&self) -> usize {
        self.overflow.bytes()
    }

    pub(crate) fn home_slots(&self) -> u64 {
        self.width().total_lines() * 8
    }

    /// Adds `more` to the number of linked items; a column reports several changes at once.
    pub(crate) fn count(&self, more: i64) {
        self.items.fetch_add(more, Ordering::Relaxed); // a sum
    }

    #[cfg(all(any(debug_assertions, shuttle), not(loom)))]
    pub(crate) fn counted(&self) -> i64 {
        self.items.load(Ordering::Relaxed) // a sum
    }

    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let address = self.width().address(hash);
        self.lines.prefetch(address.line(address.home(tag(hash))));
    }

    /// True if the ghost seems to remember that the key of `hash` was evicted.
    pub(crate) fn remembers(&self, hash: u64) -> bool {
        self.ghost.knows(self.width().address(hash).group(), hash)
    }

    #[inline]
    fn width(&self) -> Width {
        Width::unpack(self.width_word())
    }

    #[inline]
    fn width_word(&self) -> u64 {
        // Acquire pairs with the Release in `publish`: the new width's lines are visible.
        self.width.width.load(Ordering::Acquire)
    }

    /// True if the address of `hash` is still `address`, which was computed from `width`.
    #[inline]
    fn is_still_at(&self, address: Address, hash: u64, width: u64) -> bool {
        let now = self.width_word();
        let same = now == width || Width::unpack(now).address(hash) == address;
        same || plant::is(Fault::WidthNotCompared)
    }

    /// Publishes the width, the number of items above which the index grows, and `least_percent` of
    /// the home slots, below which the index contracts. The changed groups must be locked.
    fn publish(&self, width: Width, least_percent: u64) {
        let items = |percent| {
            let items = width.total_lines() * 8 * percent / 100;
            i64::try_from(items).unwrap_or(i64::MAX)
        };
        let least = self.least.load(Ordering::Relaxed); // as in `forget_start`
        let fewest = if width.pack() == least { i64::MIN } else { items(least_percent) };
        // Relaxed: no other data depends on the two numbers, and a column may use outdated numbers.
        self.width.fewest_items.store(fewest, Ordering::Relaxed);
        let most = if self.may_be_wider(width) { items(LOAD_PERCENT_MAX) } else { i64::MAX };
        self.width.most_items.store(most, Ordering::Relaxed);
        // Release pairs with the Acquire in `width_word`.
        self.width.width.store(width.pack(), Ordering::Release);
    }

    /// Finds, without a lock, a slot with the tag of `hash`, probably the key's slot. Searches the
    /// home line, then the other line and overflow lines. `None` if the index lacks the key.
    #[inline(always)]
    pub(crate) fn likely<'v>(&'v self, _: Moment<'v>, hash: u64) -> Option<FoundSlot<'v>> {
        let width = self.width_word();
        let address = Width::unpack(width).address(hash);
        let line = self.lines.line(address.line(address.home(tag(hash))));
        likely(line, tag(hash)).or_else(|| self.likely_elsewhere(hash, width))
    }

    #[cold]
    #[inline(never)]
    fn likely_elsewhere(&self, hash: u64, width: u64) -> Option<FoundSlot<'_>> {
        self.find_validated(hash, width, |_| true)
    }

    #[inline]
    pub(crate) fn find<'v>(
        &'v self,
        moment: Moment<'v>,
        hash: u64,
        mut is_it: impl FnMut(Loc<'v>) -> bool,
    ) -> Option<FoundSlot<'v>> {
        let likely = self.likely(moment, hash)?;
        if is_it(likely.loc()) { Some(likely) } else { self.find_exactly(hash, is_it) }
    }

    #[inline(never)]
    fn find_exactly<'v>(
        &'v self,
        hash: u64,
        is_it: impl FnMut(Loc<'v>) -> bool,
    ) -> Option<FoundSlot<'v>> {
        self.find_validated(hash, self.width_word(), is_it)
    }

    /// Searches every line that may hold the slot, first by `width`, then by the current width.
    /// Returns `None` only if the group's version was even, and was the same before and after the
    /// search, which proves that no slot moved meanwhile.
    #[inline(always)]
    fn find_validated<'v>(
        &'v self,
        hash: u64,
        mut width: u64,
        mut is_it: impl FnMut(Loc<'v>) -> bool,
    ) -> Option<FoundSlot<'v>> {
        let (tag, mut rounds) = (tag(hash), 0);
        loop {
            let address = Width::unpack(width).address(hash);
            let (group, homes) = (self.groups.word(address.group()), address.homes());
            let home = homes.home(tag);
            // Acquire pairs with the Release of a dropped `LockedGroup` and of `Group::end_moving`.
            let before = group.load(Ordering::Acquire);
            if before & ODD == 0 {
                // The home line is searched last, because most callers have just searched it.
                if before & (1 << (u64::from(SPILLED_AT) + home)) != 0 {
                    let other = self.lines.line(address.line(homes.other(tag)));
                    let mut found = probe(other, tag, &mut is_it);
                    if found.is_none() && before & OVERFLOW_AT != 0 {
                        let goes_on = || is_same_version(group, before);
                        found = self.find_overflow(before, tag, &mut is_it, goes_on);
                    }
                    if found.is_some() {
                        return found;
                    }
                }
                let line = self.lines.line(address.line(home));
                if let Some(found) = probe(line, tag, &mut is_it) {
                    return Some(found);
                }
                if is_same_version(group, before) && self.is_still_at(address, hash, width) {
                    return None;
                }
            } else {
                wait_a_little(&mut rounds);
            }
            width = self.width_word();
        }
    }

    /// Searches the overflow chain of a group whose word is `group`, while `goes_on` is true.
    #[inline(never)]
    fn find_overflow<'v>(
        &'v self,
        group: u64,
        tag: u64,
        is_it: &mut impl FnMut(Loc<'v>) -> bool,
        goes_on: impl Fn() -> bool,
    ) -> Option<FoundSlot<'v>> {
        let (mut at, mut lines) = (group & OVERFLOW_AT, 0);
        while at != 0 {
            if let Some(found) = probe(self.overflow.line(at), tag, is_it) {
                return Some(found);
            }
            at = self.overflow.next(at);
            lines += 1;
            if lines % RECHECK_LINES == 0 && !goes_on() {
                break;
            }
        }
        None
    }

    #[inline(always)]
    pub(crate) fn lock<'v>(&'v self, _: Moment<'v>, hash: u64) -> LockedGroup<'v> {
        let mut rounds = 0;
        loop {
            let width = self.width_word();
            let address = Width::unpack(width).address(hash);
            if let Some(word) = self.lock_group(address.group()) {
                if self.is_still_at(address, hash, width) {
                    let home = address.home(tag(hash));
                    return LockedGroup { index: self, hash, address, home, word };
                }
                // A step has moved `hash` to another group, so this group is unlocked again.
                // Release pairs with the Acquire of the next `lock_group`.
                self.groups.word(address.group()).store(word, Ordering::Release);
            }
            wait_a_little(&mut rounds);
        }
    }

    #[inline(always)]
    fn lock_group(&self, group: usize) -> Option<u64> {
        let word = self.groups.word(group);
        let old = word.load(Ordering::Relaxed); // the exchange decides
        if old & LOCK != 0 {
            return None;
        }
        // Acquire pairs with the Release of a dropped `LockedGroup` and of `Group::end_moving`.
        let taken = word.compare_exchange(old, old | LOCK, Ordering::Acquire, Ordering::Relaxed);
        taken.ok()
    }

    /// True if an overflow line is free or can be added. If false, items must be evicted.
    pub(crate) fn has_room(&self) -> bool {
        self.overflow.has_room()
    }

    pub(crate) fn has_line(&self) -> bool {
        self.overflow.has_free()
            || (self.overflow.has_room() && self.bytes() + 64 <= self.granted_bytes())
    }

    /// Takes an overflow line with empty slots; if `must`, even beyond the granted memory.
    fn take_overflow(&self, must: bool) -> Option<u64> {
        self.overflow.take(must, || self.bytes() + 64 <= self.granted_bytes())
    }
}

/// True if the group's version is the same as in the word `before`: no slot has moved since.
#[inline]
fn is_same_version(group: &AtomicU64, before: u64) -> bool {
    // Pairs with the Release fences of `LockedGroup::moving` and `begin_moving`: if a search saw a
    // moved slot, the load below sees the odd version or a later version.
    fence(Ordering::Acquire);
    let same = (group.load(Ordering::Relaxed) ^ before) & VERSION == 0;
    same || plant::is(Fault::VersionNotCompared)
}

#[cfg(test)]
mod tests;
