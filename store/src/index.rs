//! The index: key hash -> slot, read without locks, written under one lock per group of lines.
//!
//! Where: every lookup of a batch probes one line here, then one item in the log.
//! Invariant: slots change only under the group's lock, except a hit's updates of `cnt` and
//! `fetched`. A reader who misses has seen one even version and one address around its probes;
//! nothing moved meanwhile.
//! Source: the paper's table with 2^m bucket locks (4.2.2); growth by linear hashing, in groups of
//! 8 to 15 lines so that memory never doubles at once.
//!
//! ```text
//!   line, 64 bytes:  slot 8 | slot 8 | ... 8 slots        (overflow: 7 slots, link to the next)
//!   group word, u64: lock:1 | version:15 | spilled:16 | overflow_at:32
//!                    spilled: a bit per home line; overflow_at: 0 is none
//! ```
//! Key -> group by the hash's low bits; -> home line in it by the tag, so that a group is spread
//! over one line more without looking at keys. What finds its home line full goes to the group's
//! overflow lines.

pub(crate) mod ghost;
pub(crate) mod grow;
pub(crate) mod slot;

use crate::policy::Queue;
use ghost::{Ghost, Remembered};
use memory::sync::{
    AtomicI64, AtomicU64, AtomicUsize, Line, Mutex, Ordering, fence, wait_a_little,
};
use memory::words::Words;
use slot::{Slot, tag};
use std::io;

const LOCK: u64 = 1 << 63;
const VERSION_AT: u32 = 48;
const ODD: u64 = 1 << VERSION_AT;
const VERSION: u64 = 0x7fff << VERSION_AT;
const SPILLED_AT: u32 = 32;
const OVERFLOW_AT: u64 = 0xffff_ffff;
/// Fewest and most lines of a group; one more and it is split.
const LINES_MIN: u64 = 8;
const LINES_MAX: u64 = 15;
/// Slots of an overflow line; the eighth word links to the next one.
const OVERFLOW_SLOTS: usize = 7;
/// An overflow chain is looked over for changes again after so many lines: it may have been
/// unlinked.
const RECHECK_LINES: usize = 16;

/// How far the index has grown: `2^groups_log` groups of `lines` lines; the first `stepped` have
/// one more, or, where that would be 16, are two groups of 8.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Width {
    groups_log: u32,
    lines: u64,
    stepped: u64,
}

impl Width {
    fn unpack(word: u64) -> Self {
        let groups_log = u32::from(word.to_le_bytes()[0]);
        Self { groups_log, lines: (word >> 8) & 0xff, stepped: word >> 16 }
    }

    fn pack(self) -> u64 {
        u64::from(self.groups_log) | (self.lines << 8) | (self.stepped << 16)
    }

    /// All home lines.
    fn total_lines(self) -> u64 {
        (self.lines << self.groups_log) + self.stepped
    }

    fn total_groups(self) -> u64 {
        (1 << self.groups_log) + if self.lines == LINES_MAX { self.stepped } else { 0 }
    }

    #[inline]
    fn address(self, hash: u64) -> Address {
        let mut groups_log = self.groups_log;
        let mut group = hash & ((1 << groups_log) - 1);
        let mut lines = self.lines;
        if group < self.stepped {
            lines += 1;
            if lines > LINES_MAX {
                groups_log += 1;
                group = hash & ((1 << groups_log) - 1);
                lines = LINES_MIN;
            }
        }
        Address { group, groups_log, lines }
    }
}

/// Where a hash lives: its group, and how that is spread.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Address {
    group: u64,
    groups_log: u32,
    lines: u64,
}

impl Address {
    /// Which of the group's lines a tag is at home in.
    #[inline]
    fn home(self, tag: u64) -> u64 {
        (tag * self.lines) >> 15
    }

    /// Lines stand in planes, one line of each group a plane, so that new ones append in order.
    #[inline]
    fn line(self, home: u64) -> usize {
        index((home << self.groups_log) + self.group)
    }

    fn group(self) -> usize {
        index(self.group)
    }
}

/// A slot found, and where, to count its use there.
pub(crate) struct Found<'i> {
    pub(crate) slot: Slot,
    at: &'i AtomicU64,
}

impl Found<'_> {
    /// Counts a use, where it `counts`. A lost update is harmless; saturated and fetched, nothing
    /// is asked or written.
    #[inline]
    pub(crate) fn bump(&self, counts: impl FnOnce() -> bool) {
        if self.slot.is_saturated() {
            return;
        }
        let used = self.slot.used(counts());
        if used != self.slot {
            // Relaxed: the bits order nothing, and an exchange that fails met a change that matters
            // more.
            let (old, new) = (self.slot.0, used.0);
            let _ = self.at.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Its item is being rewritten: to be looked up again.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.slot.has(slot::BUSY)
    }

    /// Was what has been read of the item what the slot named, and is it linked? False also when
    /// it only moved. It was not busy.
    #[inline]
    pub(crate) fn is_unchanged(&self) -> bool {
        // Pairs with the Release fence in `Locked::rewrite`: who has read a byte written there sees
        // the busy slot here, or a later one.
        fence(Ordering::Acquire);
        Slot(self.at.load(Ordering::Relaxed)).names_same(self.slot)
    }
}

/// No memory for another overflow line.
#[derive(Debug)]
pub(crate) struct Full;

/// The index of a store.
#[derive(Debug)]
pub(crate) struct Index {
    lines: Words,
    groups: Words,
    overflow: Words,
    ghost: Ghost,
    width: Line<AtomicU64>,
    items: Line<AtomicI64>,
    /// Bytes of memory it may use.
    granted: AtomicUsize,
    /// Overflow lines cut so far, counting line 0, which is never used.
    overflow_cut: AtomicUsize,
    /// Free overflow lines, linked: {times changed: 32, line: 32}.
    overflow_free: AtomicU64,
    /// Held by who steps; the slots on their way to new lines.
    moving: Mutex<Vec<u64>>,
}

impl Index {
    /// Room to grow within `bytes_max`, with a ghost of some evictions; starts with `2^groups_log`
    /// groups of 8 lines, granted.
    pub(crate) fn new(
        bytes_max: usize,
        groups_log: u32,
        remembered: Remembered,
    ) -> io::Result<Self> {
        let width = Width { groups_log, lines: LINES_MIN, stepped: 0 };
        let lines = (bytes_max / 8).max(index(width.total_lines()) * 8);
        let groups = (lines / 32).max(1 << groups_log);
        let index = Self {
            lines: Words::new(lines.next_multiple_of(8))?,
            groups: Words::new(groups)?,
            overflow: Words::new((lines / 2).next_multiple_of(8))?,
            ghost: Ghost::new(remembered, groups)?,
            width: Line(AtomicU64::new(width.pack())),
            items: Line(AtomicI64::new(0)),
            granted: AtomicUsize::new(0),
            overflow_cut: AtomicUsize::new(1),
            overflow_free: AtomicU64::new(0),
            moving: Mutex::new(Vec::new()),
        };
        index.grant(index.bytes());
        Ok(index)
    }

    /// Asks for huge pages under the lines.
    pub(crate) fn want_huge(&self) {
        self.lines.want_huge();
    }

    /// Bytes it uses.
    pub(crate) fn bytes(&self) -> usize {
        let (lines, ghost) = self.bytes_by_part();
        lines + ghost
    }

    /// Bytes it uses for lines and group words, and for the ghost.
    pub(crate) fn bytes_by_part(&self) -> (usize, usize) {
        let width = self.width();
        let cut = self.overflow_cut.load(Ordering::Relaxed); // a sum
        let groups = width.total_groups();
        let lines = index(width.total_lines()) * 64 + index(groups) * 8 + cut * 64;
        (lines, self.ghost.bytes(groups))
    }

    /// Bytes it may use.
    pub(crate) fn granted_bytes(&self) -> usize {
        self.granted.load(Ordering::Relaxed) // a limit that only grows
    }

    /// It may use `bytes` more.
    pub(crate) fn grant(&self, bytes: usize) {
        self.granted.fetch_add(bytes, Ordering::Relaxed); // a limit that only grows
    }

    /// Slots in home lines.
    pub(crate) fn home_slots(&self) -> u64 {
        self.width().total_lines() * 8
    }

    /// `more` items linked than before; columns report in lumps.
    pub(crate) fn count(&self, more: i64) {
        self.items.fetch_add(more, Ordering::Relaxed); // a sum
    }

    /// Brings the home line of `hash` near.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let address = self.width().address(hash);
        self.lines.prefetch(address.line(address.home(tag(hash))));
    }

    /// Calls `each` with the slots a lookup of `hash` is likely to compare with its key: for hints.
    #[inline]
    pub(crate) fn candidates(&self, hash: u64, mut each: impl FnMut(Slot)) {
        let (address, tag) = (self.width().address(hash), tag(hash));
        let home = address.home(tag);
        let mut take = |slot| {
            each(slot);
            true
        };
        if probe(self.lines.line(address.line(home)), tag, &mut take).is_some() {
            return;
        }
        // Relaxed: nothing but a hint is made of it.
        let group = self.groups.word(address.group()).load(Ordering::Relaxed);
        if group & (1 << (u64::from(SPILLED_AT) + home)) != 0 {
            let _hint = self.find_overflow(group, tag, &mut take, &|| false);
        }
    }

    /// Was the key of `hash` evicted of late? A hint.
    pub(crate) fn remembers(&self, hash: u64) -> bool {
        self.ghost.knows(self.width().address(hash).group(), hash)
    }

    /// The slot that the key of `hash` is likely to have, if it has one: by its tag alone.
    pub(crate) fn likely(&self, hash: u64) -> Option<Slot> {
        let mut likely = None;
        self.candidates(hash, |slot| likely = likely.or(Some(slot)));
        likely
    }

    #[inline]
    fn width(&self) -> Width {
        // Acquire pairs with the Release in `grow::step`: the new lines are seen as zeroed or
        // filled.
        Width::unpack(self.width.load(Ordering::Acquire))
    }

    /// The first slot in the home line of `hash` that has its tag, without a lock: nearly always
    /// its key's, where that has one. What it does not find, `find_validated` does.
    #[inline(always)]
    pub(crate) fn first(&self, hash: u64) -> Option<Found<'_>> {
        let address = self.width().address(hash);
        let line = self.lines.line(address.line(address.home(tag(hash))));
        probe(line, tag(hash), &mut |_| true)
    }

    /// Finds the slot whose item `is_it` takes for its own, without a lock.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(Slot) -> bool) -> Option<Found<'_>> {
        let first = self.first(hash).filter(|found| is_it(found.slot));
        first.or_else(|| self.find_validated(hash, is_it))
    }

    /// The second look, of a miss in the first: between one even version and its repetition, so
    /// that what moved is not missed.
    #[inline(never)]
    pub(crate) fn find_validated(
        &self,
        hash: u64,
        mut is_it: impl FnMut(Slot) -> bool,
    ) -> Option<Found<'_>> {
        let mut rounds = 0;
        loop {
            let address = self.width().address(hash);
            let home = address.home(tag(hash));
            let group = self.groups.word(address.group());
            // Acquire pairs with the Release stores of `Locked` and `grow`.
            let before = group.load(Ordering::Acquire);
            if before & ODD != 0 {
                wait_a_little(&mut rounds);
                continue;
            }
            let unchanged = || {
                // Pairs with the Release fences before slots move: had a probe seen a moved slot,
                // this load sees the odd version or a later one.
                fence(Ordering::Acquire);
                let now = group.load(Ordering::Relaxed);
                now & VERSION == before & VERSION && self.width().address(hash) == address
            };
            // Overflow lines first: the first look was at the home line.
            if before & (1 << (u64::from(SPILLED_AT) + home)) != 0 {
                let found = self.find_overflow(before, tag(hash), &mut is_it, &unchanged);
                if found.is_some() {
                    return found;
                }
            }
            let line = self.lines.line(address.line(home));
            if let Some(found) = probe(line, tag(hash), &mut is_it) {
                return Some(found);
            }
            if unchanged() {
                return None;
            }
        }
    }

    fn find_overflow(
        &self,
        group: u64,
        tag: u64,
        is_it: &mut impl FnMut(Slot) -> bool,
        unchanged: &impl Fn() -> bool,
    ) -> Option<Found<'_>> {
        let (mut at, mut lines) = (index(group & OVERFLOW_AT), 0);
        while at != 0 {
            let line = self.overflow.line(at);
            if let Some(found) = probe(&line[..OVERFLOW_SLOTS], tag, is_it) {
                return Some(found);
            }
            at = index(line[OVERFLOW_SLOTS].load(Ordering::Acquire)); // pairs with `push_overflow`
            lines += 1;
            if lines % RECHECK_LINES == 0 && !unchanged() {
                break;
            }
        }
        None
    }

    /// Locks the group `hash` lives in.
    pub(crate) fn lock(&self, hash: u64) -> Locked<'_> {
        let mut rounds = 0;
        loop {
            let address = self.width().address(hash);
            if let Some(word) = self.lock_group(address.group()) {
                if self.width().address(hash) == address {
                    let home = address.home(tag(hash));
                    return Locked { index: self, hash, address, home, word };
                }
                // Stepped in between: it lives elsewhere. Release: nothing was changed under the
                // lock.
                self.groups.word(address.group()).store(word, Ordering::Release);
            }
            wait_a_little(&mut rounds);
        }
    }

    /// Takes the group's lock if it is free; returns the word without the lock's bit.
    fn lock_group(&self, group: usize) -> Option<u64> {
        let word = self.groups.word(group);
        let old = word.load(Ordering::Relaxed); // the exchange decides
        if old & LOCK != 0 {
            return None;
        }
        // Acquire pairs with the Release that unlocked it.
        let taken = word.compare_exchange(old, old | LOCK, Ordering::Acquire, Ordering::Relaxed);
        taken.ok()
    }

    /// Takes an overflow line, all zero; if it `must` be, beyond the memory granted.
    fn take_overflow(&self, must: bool) -> Option<u64> {
        let pop = |head: u64| {
            let at = head & OVERFLOW_AT;
            let next = || self.overflow.line(index(at))[OVERFLOW_SLOTS].load(Ordering::Relaxed);
            (at != 0).then(|| ((head >> 32).wrapping_add(1) << 32) | next())
        };
        // Acquire pairs with the Release in `give_overflow`; the count in the head guards against a
        // line that was taken and given back in between.
        let popped = self.overflow_free.fetch_update(Ordering::Acquire, Ordering::Acquire, pop);
        if let Ok(head) = popped {
            let at = head & OVERFLOW_AT;
            self.overflow.line(index(at))[OVERFLOW_SLOTS].store(0, Ordering::Relaxed);
            return Some(at);
        }
        if !must && self.bytes() + 64 > self.granted_bytes() {
            return None;
        }
        let room = self.overflow.len() / 8;
        let cut = |cut: usize| (cut < room).then(|| cut + 1);
        // Relaxed: the number alone is shared.
        let at = self.overflow_cut.fetch_update(Ordering::Relaxed, Ordering::Relaxed, cut).ok()?;
        u64::try_from(at).ok()
    }

    /// Gives back an overflow line whose slots are all zero.
    fn give_overflow(&self, at: u64) {
        let link = &self.overflow.line(index(at))[OVERFLOW_SLOTS];
        let push = |head: u64| {
            link.store(head & OVERFLOW_AT, Ordering::Relaxed); // published by the exchange
            Some(((head >> 32).wrapping_add(1) << 32) | at)
        };
        // Release pairs with the Acquire in `take_overflow`.
        let pushed = self.overflow_free.fetch_update(Ordering::Release, Ordering::Relaxed, push);
        debug_assert!(pushed.is_ok(), "push never refuses");
    }
}

/// A slot's place, under the lock.
#[derive(Clone, Copy)]
pub(crate) struct At<'i> {
    word: &'i AtomicU64,
    in_home: bool,
}

impl At<'_> {
    /// The slot as it is.
    pub(crate) fn slot(&self) -> Slot {
        Slot(self.word.load(Ordering::Acquire)) // pairs with the Release of `set`
    }
}

/// A locked group, seen from one hash.
pub(crate) struct Locked<'i> {
    index: &'i Index,
    hash: u64,
    address: Address,
    home: u64,
    /// The group's word as it will be when unlocked.
    word: u64,
}

impl<'i> Locked<'i> {
    /// Finds the slot that `is_it` takes for its own.
    pub(crate) fn find(&self, mut is_it: impl FnMut(Slot) -> bool) -> Option<At<'i>> {
        let line = self.index.lines.line(self.address.line(self.home));
        if let Some(found) = probe(line, tag(self.hash), &mut is_it) {
            return Some(At { word: found.at, in_home: true });
        }
        if self.word & self.spilled_bit() == 0 {
            return None;
        }
        let found = self.index.find_overflow(self.word, tag(self.hash), &mut is_it, &|| true)?;
        Some(At { word: found.at, in_home: false })
    }

    /// Finds the slot of the item at `loc`.
    pub(crate) fn find_loc(&self, loc: u64) -> Option<At<'i>> {
        self.find(|slot| slot.loc() == loc)
    }

    /// Changes a slot in place, keeping what lock-free hits do to it meanwhile: `change` sees the
    /// latest.
    pub(crate) fn update(&self, at: At<'_>, mut change: impl FnMut(Slot) -> Slot) {
        let change = |old: u64| Some(change(Slot(old)).0);
        // Release pairs with the Acquire of `probe`: who sees the slot sees the item.
        let updated = at.word.fetch_update(Ordering::Release, Ordering::Acquire, change);
        debug_assert!(updated.is_ok(), "change never refuses");
    }

    /// Has `write` store other bytes in a slot's item, by atomics, while readers look; then the
    /// slot is what `change` makes of it.
    pub(crate) fn rewrite(
        &self,
        at: At<'_>,
        change: impl FnOnce(Slot) -> Slot,
        write: impl FnOnce(),
    ) {
        // Relaxed: ordered by the fence. What hits have counted is kept; from here on none counts.
        let busy = Slot(at.word.fetch_or(slot::BUSY, Ordering::Relaxed) | slot::BUSY);
        fence(Ordering::Release); // pairs with the Acquire fence in `Found::is_unchanged`
        write();
        // Release pairs with the Acquire of `probe`: who sees the version sees its bytes.
        at.word.store(change(busy).0, Ordering::Release);
    }

    /// Puts another item in a slot's place.
    pub(crate) fn set(&self, at: At<'_>, slot: Slot) {
        at.word.store(slot.0, Ordering::Release); // pairs with the Acquire of `probe`
    }

    /// Adds a slot whose key is in no other.
    pub(crate) fn insert(&mut self, slot: Slot) -> Result<(), Full> {
        let line = self.index.lines.line(self.address.line(self.home));
        if put_in(line, slot) {
            return Ok(());
        }
        let mut at = self.word & OVERFLOW_AT;
        while at != 0 {
            let line = self.index.overflow.line(index(at));
            if put_in(&line[..OVERFLOW_SLOTS], slot) {
                self.word |= self.spilled_bit();
                return Ok(());
            }
            at = line[OVERFLOW_SLOTS].load(Ordering::Relaxed); // changed only under this lock
        }
        let at = self.index.take_overflow(false).ok_or(Full)?;
        let line = self.index.overflow.line(index(at));
        // Relaxed: published by the Release that unlocks.
        line[OVERFLOW_SLOTS].store(self.word & OVERFLOW_AT, Ordering::Relaxed);
        line[0].store(slot.0, Ordering::Release); // pairs with the Acquire of `probe`
        self.word = (self.word & !OVERFLOW_AT) | at | self.spilled_bit();
        Ok(())
    }

    /// Empties a slot; what had spilled from its line comes home.
    pub(crate) fn remove(&mut self, at: At<'_>) {
        at.word.store(0, Ordering::Release); // pairs with the Acquire of `probe`
        if at.in_home && self.word & self.spilled_bit() != 0 {
            self.pull_home(at.word);
        }
    }

    /// The ghost takes note that the key left queue `from`.
    pub(crate) fn remember(&self, from: Queue) {
        self.index.ghost.push(self.address.group(), self.hash, from);
    }

    /// The queue that the key left, if the ghost knew; it does not any more.
    pub(crate) fn recall(&self) -> Option<Queue> {
        self.index.ghost.take(self.address.group(), self.hash)
    }

    fn pull_home(&mut self, empty: &AtomicU64) {
        let first = self.word & OVERFLOW_AT;
        let mut at = first;
        while at != 0 {
            let line = self.index.overflow.line(index(at));
            for word in &line[..OVERFLOW_SLOTS] {
                let slot = Slot(word.load(Ordering::Relaxed)); // changed only under this lock
                if slot.0 != 0 && self.address.home(slot.tag()) == self.home {
                    self.moving(|locked| {
                        // The swap takes along what a hit just counted. Release pairs with the
                        // Acquire of `probe`.
                        empty.store(word.swap(0, Ordering::Relaxed), Ordering::Release);
                        locked.drop_empty_overflow(first);
                    });
                    return;
                }
            }
            at = line[OVERFLOW_SLOTS].load(Ordering::Relaxed); // changed only under this lock
        }
        self.word &= !self.spilled_bit();
    }

    /// Unlinks the first overflow line if it is empty. Only while moving.
    fn drop_empty_overflow(&mut self, first: u64) {
        let line = self.index.overflow.line(index(first));
        // Relaxed: changed only under this lock.
        if line[..OVERFLOW_SLOTS].iter().all(|word| word.load(Ordering::Relaxed) == 0) {
            let next = line[OVERFLOW_SLOTS].load(Ordering::Relaxed);
            self.word = (self.word & !OVERFLOW_AT) | next;
            self.index.give_overflow(first);
        }
    }

    /// Runs `moves`, which moves slots, between an odd version and the next even one.
    fn moving(&mut self, moves: impl FnOnce(&mut Self)) {
        self.bump_version();
        let group = self.index.groups.word(self.address.group());
        group.store(self.word | LOCK, Ordering::Relaxed); // ordered by the fence
        fence(Ordering::Release); // pairs with the Acquire fence of a validating reader
        moves(self);
        self.bump_version();
    }

    fn bump_version(&mut self) {
        self.word = (self.word & !VERSION) | (self.word.wrapping_add(ODD) & VERSION);
    }

    fn spilled_bit(&self) -> u64 {
        1 << (u64::from(SPILLED_AT) + self.home)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire of the next lock, and of readers.
        self.index.groups.word(self.address.group()).store(self.word, Ordering::Release);
    }
}

/// The slot of `line` with this tag that `is_it` takes for its own.
#[inline(always)]
fn probe<'i>(
    line: &'i [AtomicU64],
    tag: u64,
    is_it: &mut impl FnMut(Slot) -> bool,
) -> Option<Found<'i>> {
    let tagged = Slot::tagged(tag);
    for at in line {
        // Acquire pairs with the Release that put the slot there: the item behind it is whole.
        let slot = Slot(at.load(Ordering::Acquire));
        if slot.same_tag(tagged) && is_it(slot) {
            return Some(Found { slot, at });
        }
    }
    None
}

/// Puts `slot` in an empty place of `line`.
fn put_in(line: &[AtomicU64], slot: Slot) -> bool {
    for word in line {
        // Relaxed: changed only under this group's lock.
        if word.load(Ordering::Relaxed) == 0 {
            word.store(slot.0, Ordering::Release); // pairs with the Acquire of `probe`
            return true;
        }
    }
    false
}

#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits here")]
fn index(at: u64) -> usize {
    at as usize
}

#[cfg(test)]
mod tests;
