//! The table of segments: what each is used for, how far it is filled, how much of it lives.
//!
//! Where: the log appends to open segments and drains sealed ones; frames and the index take whole
//! ones.
//! Invariant: a segment leaves `Limbo` only when every column has passed a quiescent point since it
//! was retired; `Free`, `Frames`, `Index` and `Withheld` segments hold no items. Sealed and
//! committed == end: drainable. Of the free ones those that are memory already are taken first,
//! the last that was given back before all others: what is warm is used again.
//!
//! ```text
//!          open          seal           claim             retire         all columns passed
//!   Free --------> Open --------> Sealed -------> Draining -------> Limbo -----------------> Free
//!     \---> Frames --> Free (when its last frame is free)
//!     \---> Index (its memory given back; the index may grow by as much) --> Free
//!     \---> Withheld (its memory given back) --> Free, when there may be more again
//! ```
//!
//! An entry is two cache lines: what every append writes, and what unlinks and choices read.
//!
//! ```text
//!   line 0: cursor 8 | end 4 | committed 4 | cas_base 8 | epoch 4 | free-list link 4 | birth 8
//!   line 1: live 4 | min_exp 4 | max_exp 4 | state 4 | ticket 8 | retired 8 | walked 4 | opened 4
//!           | touched 4 | due 4 | framed 4 | uncounted 4
//! ```

#![cfg_attr(not(loom), allow(unsafe_code, reason = "the table lies in a mapping"))]

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;

#[cfg(not(loom))]
use crate::map::Map;
use crate::plant::{self, Fault};
use crate::quiescence::Quiescence;
use crate::sync::{AtomicU32, AtomicU64, Line, Ordering, fence, wait_a_little};
use std::io;
#[cfg(not(loom))]
use std::ptr::NonNull;

/// `end` of a segment that is still open.
pub const UNSEALED: u32 = u32::MAX;
/// No segment.
pub const NONE: u32 = u32::MAX;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Free to be used.
    Free = 0,
    /// Columns append to it.
    Open = 1,
    /// Full; in the queue.
    Sealed = 2,
    /// One column walks it and moves or drops its items.
    Draining = 3,
    /// Waits until no column can be reading it.
    Limbo = 4,
    /// Cut into frames.
    Frames = 5,
    /// Its memory was given to the index.
    Index = 6,
    /// Out of use: its memory was given back, for the limit is lower than it was.
    Withheld = 7,
}

/// What appends write.
#[derive(Debug)]
#[repr(C, align(64))]
struct Appended {
    cursor: AtomicU64,
    end: AtomicU32,
    committed: AtomicU32,
    cas_base: AtomicU64,
    epoch: AtomicU32,
    next: AtomicU32,
    birth: AtomicU64,
}

/// What unlinks write and choices read.
#[derive(Debug)]
#[repr(C, align(64))]
struct Lived {
    live: AtomicU32,
    min_exp: AtomicU32,
    max_exp: AtomicU32,
    state: AtomicU32,
    ticket: AtomicU64,
    retired: AtomicU64,
    walked: AtomicU32,
    opened: AtomicU32,
    touched: AtomicU32,
    due: AtomicU32,
    framed: AtomicU32,
    uncounted: AtomicU32,
}

/// One segment's entry.
#[derive(Debug)]
pub struct Segment {
    appended: Appended,
    lived: Lived,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Segment>() == 128, "two cache lines");

/// What a segment is told when it is opened; unchanged until it is free again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    /// What its items' short CAS uniques count from.
    pub cas_base: u64,
    /// The flush epoch.
    pub epoch: u32,
    /// Its queue and its place among those opened for that, as the log numbers them.
    pub birth: u64,
    /// The second it is opened in.
    pub now: u32,
}

/// What came of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The bytes from this offset in the segment are the caller's.
    At(u32),
    /// Full; this very call sealed it, and the caller must queue it.
    Sealed,
    /// Was full already.
    Full,
}

impl Segment {
    #[cfg(loom)]
    fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Self {
            appended: Appended {
                cursor: AtomicU64::new(0),
                end: AtomicU32::new(UNSEALED),
                committed: zero(),
                cas_base: AtomicU64::new(0),
                epoch: zero(),
                next: AtomicU32::new(NONE),
                birth: AtomicU64::new(0),
            },
            lived: Lived {
                live: zero(),
                min_exp: zero(),
                max_exp: zero(),
                state: zero(),
                ticket: AtomicU64::new(0),
                retired: AtomicU64::new(0),
                walked: zero(),
                opened: zero(),
                touched: zero(),
                due: AtomicU32::new(u32::MAX),
                framed: zero(),
                uncounted: zero(),
            },
        }
    }

    /// Makes a segment just taken from the free list ready for appends.
    pub fn open(&self, opening: Opening) {
        let (appended, lived) = (&self.appended, &self.lived);
        // Relaxed: published by the Release of the cursor below, and of whoever shares the
        // segment's number.
        appended.end.store(UNSEALED, Ordering::Relaxed);
        appended.committed.store(0, Ordering::Relaxed);
        appended.cas_base.store(opening.cas_base, Ordering::Relaxed);
        appended.epoch.store(opening.epoch, Ordering::Relaxed);
        appended.birth.store(opening.birth, Ordering::Relaxed);
        lived.live.store(0, Ordering::Relaxed);
        lived.min_exp.store(u32::MAX, Ordering::Relaxed);
        lived.max_exp.store(0, Ordering::Relaxed);
        lived.walked.store(0, Ordering::Relaxed);
        lived.opened.store(opening.now, Ordering::Relaxed);
        lived.due.store(u32::MAX, Ordering::Relaxed);
        lived.framed.store(0, Ordering::Relaxed);
        lived.uncounted.store(0, Ordering::Relaxed);
        self.set_state(State::Open);
        // Last, for somebody may still know the number from its former life: until here it is full
        // to him, and from here on as open as to anyone. Release pairs with the Acquire in
        // `reserve`.
        appended.cursor.store(0, Ordering::Release);
    }

    /// Takes `bytes` of an open segment of `segment_bytes`. More than a segment only seals it.
    pub fn reserve(&self, bytes: u32, segment_bytes: u32) -> Reserved {
        // AcqRel: Acquire pairs with the Release that published the open segment; the order among
        // reservations is the cursor's own.
        let old = self.appended.cursor.fetch_add(u64::from(bytes), Ordering::AcqRel);
        if old + u64::from(bytes) <= u64::from(segment_bytes) {
            return Reserved::At(u32::try_from(old).unwrap_or(u32::MAX));
        }
        match u32::try_from(old) {
            // The one reservation that crosses the end finds out where the items end.
            Ok(end) if end <= segment_bytes => {
                // SeqCst pairs with `commit`: of the sealer and the last committer, one at least
                // sees what the other wrote. Release is for `drainable`.
                self.appended.end.store(end, Ordering::SeqCst);
                Reserved::Sealed
            }
            _ => Reserved::Full,
        }
    }

    /// `bytes` reserved before are an item or a void now. True: that was the last of a sealed
    /// segment.
    pub fn commit(&self, bytes: u32) -> bool {
        // Release pairs with the Acquire in `drainable`: who drains sees the bytes. SeqCst, here
        // and in the load, pairs with `reserve`.
        let now = self.appended.committed.fetch_add(bytes, Ordering::SeqCst) + bytes;
        now == self.appended.end.load(Ordering::SeqCst)
    }

    /// Sealed, and every reservation has become an item or a void.
    #[must_use]
    pub fn drainable(&self) -> bool {
        // Acquire pairs with the Release in `reserve` and `commit`.
        let end = self.appended.end.load(Ordering::Acquire);
        let all = plant::is(Fault::UncommittedDrained);
        end != UNSEALED && (all || self.appended.committed.load(Ordering::Acquire) == end)
    }

    /// Where its items end, once sealed.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.appended.end.load(Ordering::Acquire) // pairs with the Release in `reserve`
    }

    /// Bytes of items and voids in it.
    #[must_use]
    pub fn committed(&self) -> u32 {
        self.appended.committed.load(Ordering::Relaxed) // a number to look at
    }

    /// Bytes reserved so far, at most `segment_bytes` of them real.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.appended.cursor.load(Ordering::Relaxed) // a hint
    }

    /// What its items' short CAS uniques count from.
    #[inline]
    #[must_use]
    pub fn cas_base(&self) -> u64 {
        // set before the segment's items were published
        self.appended.cas_base.load(Ordering::Relaxed)
    }

    /// The flush epoch it was opened in.
    #[inline]
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.appended.epoch.load(Ordering::Relaxed) // set before the segment's items were published
    }

    /// As given to `open`.
    #[inline]
    #[must_use]
    pub fn birth(&self) -> u64 {
        self.appended.birth.load(Ordering::Relaxed) // as `epoch`
    }

    /// The second it was opened in.
    #[must_use]
    pub fn opened(&self) -> u32 {
        self.lived.opened.load(Ordering::Relaxed) // as `epoch`
    }

    /// Its first `bytes` have been written to: they are memory now.
    #[inline]
    pub fn touch(&self, bytes: u32) {
        // Relaxed, here and below: a number to look at.
        if self.lived.touched.load(Ordering::Relaxed) < bytes {
            self.lived.touched.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes from its beginning that are memory, as far as has been told.
    #[must_use]
    pub fn touched(&self) -> u32 {
        self.lived.touched.load(Ordering::Relaxed)
    }

    /// Its owner has given its memory back.
    pub fn set_untouched(&self) {
        self.lived.touched.store(0, Ordering::Relaxed);
    }

    /// Bytes of its items that are linked.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.lived.live.load(Ordering::Relaxed) // a hint, exact when nothing changes it
    }

    /// An item of `bytes` was linked, expiring at `exptime` (`u32::MAX`: never), perhaps with
    /// frames. Before its slot is set.
    pub fn link(&self, bytes: u32, exptime: u32, is_framed: bool) {
        self.raise_exp(exptime);
        if is_framed {
            // Relaxed: published with the slot, and by the commit.
            self.lived.framed.store(1, Ordering::Relaxed);
        }
        // Relaxed: a sum; read exactly only under the group locks of all its items' writers.
        self.lived.live.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Has any of its items had frames?
    #[must_use]
    pub fn is_framed(&self) -> bool {
        self.lived.framed.load(Ordering::Relaxed) != 0 // as in `link`; asked when it is drainable
    }

    /// All that is linked goes at once: its bytes. Who has unlinked an item and is about to say so
    /// makes them less than nothing, which `miscounted` tells.
    pub fn unlink_all(&self) -> u32 {
        self.lived.live.swap(0, Ordering::AcqRel) // as `unlink`
    }

    /// Its owner has unlinked items and could not say how many bytes: from here on `live` is more
    /// than there is, and tells nobody when the last item goes.
    pub fn set_uncounted(&self) {
        self.lived.uncounted.store(1, Ordering::Relaxed); // published when it is sealed again
    }

    /// Is `live` more than there is?
    #[must_use]
    pub fn is_uncounted(&self) -> bool {
        self.lived.uncounted.load(Ordering::Relaxed) != 0 // as in `set_uncounted`
    }

    /// Of a retired segment that all columns have passed since: bytes that went and were not said
    /// to have gone, or, below 0, were said to twice.
    #[must_use]
    pub fn miscounted(&self) -> i32 {
        // Acquire pairs with the Release of `unlink`.
        self.lived.live.load(Ordering::Acquire).cast_signed()
    }

    /// An item of `bytes` was unlinked. True: that was the last one.
    pub fn unlink(&self, bytes: u32) -> bool {
        // AcqRel: the last unlink is ordered behind all others.
        self.lived.live.fetch_sub(bytes, Ordering::AcqRel) == bytes
    }

    /// An item of it will expire at `exptime`. Called before the item's own exptime says so.
    pub fn raise_exp(&self, exptime: u32) {
        // Relaxed: hints for the background walk, which looks again every second.
        if self.lived.max_exp.load(Ordering::Relaxed) < exptime {
            self.lived.max_exp.fetch_max(exptime, Ordering::Relaxed);
        }
        if self.lived.min_exp.load(Ordering::Relaxed) > exptime {
            self.lived.min_exp.fetch_min(exptime, Ordering::Relaxed);
        }
    }

    /// The earliest exptime of its items, or earlier; `u32::MAX`: none expires.
    #[must_use]
    pub fn min_exp(&self) -> u32 {
        self.lived.min_exp.load(Ordering::Relaxed) // a hint
    }

    /// The latest exptime of its items, or later; `u32::MAX`: some item never expires.
    #[must_use]
    pub fn max_exp(&self) -> u32 {
        self.lived.max_exp.load(Ordering::Relaxed) // a hint
    }

    /// Before a walk reads the exptimes of all its items anew: forgets the earliest, which is
    /// returned. Nothing linked expires before that.
    pub fn reset_min_exp(&self) -> u32 {
        // Relaxed: ordered by the fence. An exchange, so that what others lower meanwhile is either
        // returned or stays.
        let earliest = self.lived.min_exp.swap(u32::MAX, Ordering::Relaxed);
        fence(Ordering::SeqCst); // pairs with the one in `shorten_exp`
        earliest
    }

    /// Lowers the earliest exptime, where a walk found it.
    pub fn lower_min_exp(&self, exptime: u32) {
        if self.lived.min_exp.load(Ordering::Relaxed) > exptime {
            self.lived.min_exp.fetch_min(exptime, Ordering::Relaxed);
        }
    }

    /// An item of it has got an earlier `exptime` than it had, and says so itself already.
    ///
    /// `raise_exp` before that is not enough: a walk may forget the earliest exptime after it, and
    /// then read the item's old one. With a fence on both sides one of two holds. Where the walk's
    /// comes first, this call lowers what the walk has reset; where this one does, the walk reads
    /// the new exptime.
    pub fn shorten_exp(&self, exptime: u32) {
        if !plant::is(Fault::ShortenedUnfenced) {
            fence(Ordering::SeqCst); // pairs with the one in `reset_min_exp`
        }
        self.lower_min_exp(exptime);
    }

    /// The second in which it is to be looked at again for expired items; `u32::MAX`: never.
    #[must_use]
    pub fn due(&self) -> u32 {
        self.lived.due.load(Ordering::Relaxed) // ordered by the calendar that it is noted in
    }

    /// Sets `due`.
    pub fn set_due(&self, due: u32) {
        self.lived.due.store(due, Ordering::Relaxed); // as `due`
    }

    /// Lowers `due`; false if it was as early before.
    pub fn lower_due(&self, due: u32) -> bool {
        self.lived.due.fetch_min(due, Ordering::Relaxed) > due // as `due`
    }

    /// The second in which a background walk last went through it.
    #[must_use]
    pub fn walked(&self) -> u32 {
        self.lived.walked.load(Ordering::Relaxed) // a hint
    }

    /// A background walk goes through it in second `now`.
    pub fn set_walked(&self, now: u32) {
        self.lived.walked.store(now, Ordering::Relaxed); // a hint
    }

    /// Its place in the queue.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.lived.ticket.load(Ordering::Acquire) // pairs with `set_ticket`
    }

    /// Its place in the queue from now on.
    pub fn set_ticket(&self, ticket: u64) {
        self.lived.ticket.store(ticket, Ordering::Release); // pairs with `ticket`
    }

    /// Is it in `state` now?
    #[must_use]
    pub fn is(&self, state: State) -> bool {
        self.lived.state.load(Ordering::Acquire) == state as u32 // pairs with `set_state`, `change`
    }

    /// The owner of the segment says what it is used for now.
    pub fn set_state(&self, state: State) {
        self.lived.state.store(state as u32, Ordering::Release); // pairs with `is`, `change`
    }

    /// `from` becomes `to`; false when it was something else. Who gets true owns what follows.
    pub fn change(&self, from: State, to: State) -> bool {
        let (from, to) = (from as u32, to as u32);
        // AcqRel pairs with itself and with `set_state`.
        let state = &self.lived.state;
        state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// All segments, and the lists of free, retired and withheld ones.
#[derive(Debug)]
pub struct Segments {
    table: Table,
    /// So many of the table have been added.
    count: Line<AtomicU32>,
    /// Free ones that are memory. {times changed: 32, segment: 32}: the count keeps a stalled pop
    /// from mistaking a re-pushed head for the old.
    warm: Line<AtomicU64>,
    /// Free ones that were never touched, or were given back to the system.
    fresh: Line<AtomicU64>,
    free: Line<Free>,
    limbo: Line<AtomicU64>,
    limbo_count: AtomicU32,
    withheld: Line<AtomicU64>,
    withheld_count: AtomicU32,
}

/// How many are free.
#[derive(Debug)]
struct Free {
    /// Of both lists: never more than there are.
    all: AtomicU32,
    /// Of the fresh ones: never fewer than there are.
    fresh: AtomicU32,
}

impl Segments {
    /// A table of `count` segments, all free; segment 0 first. There may be `count_max` in time.
    ///
    /// # Errors
    /// The system refuses the address space.
    pub fn new(count: u32, count_max: u32) -> io::Result<Self> {
        let list = || Line(AtomicU64::new(u64::from(NONE)));
        let segments = Self {
            table: Table::new(count_max)?,
            count: Line(AtomicU32::new(count)),
            warm: list(),
            fresh: list(),
            free: Line(Free { all: AtomicU32::new(0), fresh: AtomicU32::new(0) }),
            limbo: list(),
            limbo_count: AtomicU32::new(0),
            withheld: list(),
            withheld_count: AtomicU32::new(0),
        };
        (0..count).rev().for_each(|segment| segments.give(segment));
        Ok(segments)
    }

    /// Entry of `segment`.
    #[inline]
    #[must_use]
    pub fn get(&self, segment: u32) -> &Segment {
        &self.table[segment as usize]
    }

    /// How many there are, withheld ones with them.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed) // the entries of more are zero, which is `Free`
    }

    /// How many there may be.
    #[must_use]
    pub fn count_max(&self) -> u32 {
        u32::try_from(self.table.len()).unwrap_or(u32::MAX)
    }

    /// Segments that are free now.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free.all.load(Ordering::Relaxed) // a hint; `take` decides
    }

    /// Free segments that were never touched, or were given back to the system.
    #[inline]
    #[must_use]
    pub fn fresh(&self) -> u32 {
        self.free.fresh.load(Ordering::Relaxed) // a hint
    }

    /// Free segments that are memory already.
    #[inline]
    #[must_use]
    pub fn warm(&self) -> u32 {
        self.free().saturating_sub(self.fresh())
    }

    /// Segments retired and not yet free.
    #[must_use]
    pub fn limbo(&self) -> u32 {
        self.limbo_count.load(Ordering::Relaxed) // a hint
    }

    /// Segments out of use.
    #[must_use]
    pub fn withheld(&self) -> u32 {
        self.withheld_count.load(Ordering::Relaxed) // a hint
    }

    /// Adds a segment to the free ones, where there are fewer than `count_max`; `admit` sees it
    /// first.
    pub(crate) fn add(&self, count_max: u32, admit: impl FnOnce(u32)) -> bool {
        let count_max = count_max.min(self.count_max());
        let more = |count: u32| (count < count_max).then(|| count + 1);
        // Relaxed: the number alone is shared; the free list publishes the segment.
        let added = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        added.is_ok_and(|segment| {
            admit(segment);
            self.give(segment);
            true
        })
    }

    /// Takes a segment that the caller owns, and whose memory he has given back, out of use.
    pub(crate) fn withhold(&self, segment: u32) {
        self.get(segment).set_state(State::Withheld);
        self.push(&self.withheld, segment);
        self.withheld_count.fetch_add(1, Ordering::Relaxed); // after the push: see `restore`
    }

    /// Frees a withheld segment, if fewer than `present_max` are not withheld; `admit` sees it
    /// first.
    pub(crate) fn restore(&self, present_max: u32, admit: impl FnOnce(u32)) -> bool {
        // The count is lowered first, as in `promise`: of several who find one too few, one gets
        // it.
        let count = self.count();
        let lower = |withheld: u32| {
            let lacks = count.saturating_sub(withheld) < present_max;
            (withheld > 0 && lacks).then(|| withheld - 1)
        };
        // Relaxed: the list orders the rest.
        let lowered = self.withheld_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        if lowered.is_err() {
            return false;
        }
        let segment = self.pop_counted(|| self.pop(&self.withheld));
        admit(segment);
        self.give(segment);
        true
    }

    /// Takes a free segment, if more than `keep` of them are free; one that is memory, if there is.
    pub fn take(&self, keep: u32) -> Option<u32> {
        self.promise(keep)?;
        let warm = || self.pop(&self.warm);
        Some(self.pop_counted(|| warm().or_else(|| self.pop_fresh())))
    }

    /// As `take`, where the segment's memory goes back to the system: one that has none, if there
    /// is.
    pub(crate) fn take_cold(&self, keep: u32) -> Option<u32> {
        self.promise(keep)?;
        Some(self.pop_counted(|| self.pop_fresh().or_else(|| self.pop(&self.warm))))
    }

    /// As `take`, but only one that is no memory yet.
    pub(crate) fn take_fresh(&self, keep: u32) -> Option<u32> {
        self.promise(keep)?;
        let fresh = self.pop_fresh();
        if fresh.is_none() {
            self.free.all.fetch_add(1, Ordering::Relaxed); // as in `give`
        }
        fresh
    }

    /// Lowers the count of free segments, if more than `keep` are: the caller may pop one.
    fn promise(&self, keep: u32) -> Option<u32> {
        // The count is lowered first, so that `keep` holds whatever others take meanwhile; Relaxed:
        // the list itself orders the segment's contents.
        let keep = keep.saturating_sub(u32::from(plant::is(Fault::KeepOffByOne)));
        let lower = |free: u32| (free > keep).then(|| free - 1);
        self.free.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower).ok()
    }

    fn pop_fresh(&self) -> Option<u32> {
        let fresh = self.pop(&self.fresh)?;
        self.free.fresh.fetch_sub(1, Ordering::Relaxed); // counted before it was pushed
        Some(fresh)
    }

    /// One that a count has promised the caller.
    fn pop_counted(&self, mut pop: impl FnMut() -> Option<u32>) -> u32 {
        let mut rounds = 0;
        loop {
            if let Some(segment) = pop() {
                return segment;
            }
            // The count said there is one, so it comes.
            wait_a_little(&mut rounds);
        }
    }

    /// Puts a segment nobody uses among the free ones.
    pub fn give(&self, segment: u32) {
        let there = self.get(segment);
        there.set_state(State::Free);
        if there.touched() == 0 {
            self.free.fresh.fetch_add(1, Ordering::Relaxed); // before the push: see `pop_fresh`
            self.push(&self.fresh, segment);
        } else {
            self.push(&self.warm, segment);
        }
        self.free.all.fetch_add(1, Ordering::Relaxed); // after the push: see `promise`
    }

    /// Retires a drained segment: free once all columns have passed a quiescent point.
    pub fn retire(&self, segment: u32, quiescence: &Quiescence) {
        let entry = self.get(segment);
        entry.touch(entry.end());
        self.limbo_count.fetch_add(1, Ordering::Relaxed); // a hint; first, as in `reclaim`
        entry.set_state(State::Limbo);
        // Release pairs with the Acquire in `reclaim`.
        entry.lived.retired.store(quiescence.retire(), Ordering::Release);
        self.push(&self.limbo, segment);
    }

    /// Frees what all columns have passed; `each` sees every segment before it is free.
    pub fn reclaim(&self, quiescence: &Quiescence, mut each: impl FnMut(u32)) {
        // AcqRel: takes the whole list; Acquire pairs with the Release in `push`.
        let head = self.limbo.swap(u64::from(NONE), Ordering::AcqRel);
        let mut segment = low(head);
        while segment != NONE {
            let entry = self.get(segment);
            let next = entry.appended.next.load(Ordering::Relaxed); // ours since the swap
            // Acquire pairs with the Release in `retire`.
            let passed = quiescence.passed(entry.lived.retired.load(Ordering::Acquire));
            if passed || plant::is(Fault::LimboNotWaited) {
                each(segment);
                self.give(segment);
                // A hint. Counted twice for a moment: in neither count, others would find nothing
                // that comes, and refuse.
                self.limbo_count.fetch_sub(1, Ordering::Relaxed);
            } else {
                self.push(&self.limbo, segment);
            }
            segment = next;
        }
    }

    fn push(&self, list: &AtomicU64, segment: u32) {
        let next = &self.get(segment).appended.next;
        let link = |head: u64| {
            next.store(low(head), Ordering::Relaxed); // published by the exchange below
            Some(changed(head) | u64::from(segment))
        };
        // Release pairs with the Acquire in `pop` and `reclaim`.
        let pushed = list.fetch_update(Ordering::Release, Ordering::Relaxed, link);
        debug_assert!(pushed.is_ok(), "link never refuses");
    }

    fn pop(&self, list: &AtomicU64) -> Option<u32> {
        let unlink = |head: u64| {
            let segment = low(head);
            // A segment taken meanwhile gives a wrong link, but then the count in `head` has
            // changed too.
            let next = || self.get(segment).appended.next.load(Ordering::Relaxed);
            (segment != NONE).then(|| changed(head) | u64::from(next()))
        };
        // Acquire pairs with the Release in `push`.
        list.fetch_update(Ordering::Acquire, Ordering::Acquire, unlink).ok().map(low)
    }
}

/// The entries, zero until used: memory is taken for those that are. All zeroes are an entry as
/// good as new, but for `end`, which counts only once it is open.
#[cfg(not(loom))]
#[derive(Debug)]
struct Table {
    base: NonNull<Segment>,
    entries: usize,
    _map: Map,
}

// SAFETY: the entries are atomics, in a mapping that the struct owns.
#[cfg(not(loom))]
unsafe impl Send for Table {}
// SAFETY: as for Send.
#[cfg(not(loom))]
unsafe impl Sync for Table {}

#[cfg(not(loom))]
impl Table {
    fn new(entries: u32) -> io::Result<Self> {
        let entries = entries as usize;
        let map = Map::new(entries * size_of::<Segment>())?;
        Ok(Self { base: map.base().cast(), entries, _map: map })
    }
}

#[cfg(not(loom))]
impl std::ops::Deref for Table {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        // SAFETY: the map is as long as so many entries, open, aligned to a page and alive with
        // `self`; a `Segment` is made of atomic integers, for which zeroes are valid.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.entries) }
    }
}

#[cfg(loom)]
#[derive(Debug)]
struct Table(Box<[Segment]>);

#[cfg(loom)]
impl Table {
    fn new(entries: u32) -> io::Result<Self> {
        Ok(Self((0..entries).map(|_| Segment::new()).collect()))
    }
}

#[cfg(loom)]
impl std::ops::Deref for Table {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        &self.0
    }
}

/// The count of a list's head after another change.
fn changed(head: u64) -> u64 {
    (head >> 32).wrapping_add(u64::from(!plant::is(Fault::FreeTagKept))) << 32
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low(word: u64) -> u32 {
    word as u32
}

#[cfg(all(test, loom))]
mod under_loom;
