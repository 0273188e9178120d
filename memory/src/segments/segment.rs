//! One segment's entry: its state, its fill, and the number of its live bytes.
//!
//! Where: columns use entries to reserve room, count unlinked items and choose a segment to drain.
//! Invariant: a thread whose `change` of the state succeeds owns the segment. A segment is
//! drainable when it is sealed and its committed bytes equal its end.
//!
//! Every append writes the first of an entry's two cache lines. Every unlink writes the second
//! cache line, which a column reads when it chooses a segment to drain.
//!
//! ```text
//!   line 0: cursor 8 | end 4 | committed 4 | cas_base 8 | epoch 4 | free-list link 4 | birth 8
//!   line 1: live 4 | min_exp 4 | max_exp 4 | state 4 | ticket 8 | retired 8 | walked 4 | opened 4
//!           | touched 4 | due 4 | has_frames 4 | uncounted 4
//! ```

#[cfg(loom)]
use super::NONE;
use crate::plant::{self, Fault};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The value of `end` while a segment is open.
pub const UNSEALED: u32 = u32::MAX;
/// The use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Unused, in a free list.
    Free = 0,
    /// Columns append to it.
    Open = 1,
    /// Full, and in its queue.
    Sealed = 2,
    /// One column walks it and moves or drops its items.
    Draining = 3,
    /// Retired: it waits until no column can be reading it.
    Limbo = 4,
    /// Cut into frames.
    Frames = 5,
    /// Its memory was given back to the system, so that the index may use the same amount.
    Index = 6,
    /// Its memory was given back to the system, because the limit was lowered.
    Withheld = 7,
}

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct AppendFields {
    cursor: AtomicU64,
    end: AtomicU32,
    committed: AtomicU32,
    cas_base: AtomicU64,
    epoch: AtomicU32,
    pub(super) next: AtomicU32,
    birth: AtomicU64,
}

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct LifeFields {
    live: AtomicU32,
    min_exp: AtomicU32,
    max_exp: AtomicU32,
    state: AtomicU32,
    ticket: AtomicU64,
    pub(super) retired: AtomicU64,
    walked: AtomicU32,
    opened: AtomicU32,
    touched: AtomicU32,
    due: AtomicU32,
    has_frames: AtomicU32,
    uncounted: AtomicU32,
}

/// One segment's entry.
#[derive(Debug)]
pub struct Segment {
    pub(super) appended: AppendFields,
    pub(super) lived: LifeFields,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Segment>() == 128, "two cache lines");

/// The properties that a segment gets when it is opened, and keeps until it is free again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    /// The base to which the short CAS uniques of its items are added.
    pub cas_base: u64,
    /// The flush epoch.
    pub epoch: u32,
    /// The segment's queue and its sequence number in that queue, packed by the log.
    pub birth: u64,
    /// The second in which the segment is opened.
    pub now: u32,
}

/// The result of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// The bytes from this offset in the segment are the caller's.
    At(u32),
    /// The segment has no room. This call has sealed it, and the caller must queue it.
    Sealed,
    /// The segment has no room; another call has sealed it.
    Full,
}

impl Segment {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Self {
            appended: AppendFields {
                cursor: AtomicU64::new(0),
                end: AtomicU32::new(UNSEALED),
                committed: zero(),
                cas_base: AtomicU64::new(0),
                epoch: zero(),
                next: AtomicU32::new(NONE),
                birth: AtomicU64::new(0),
            },
            lived: LifeFields {
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
                has_frames: zero(),
                uncounted: zero(),
            },
        }
    }

    /// Opens a segment for appends. The caller has taken it off the free list.
    pub fn open(&self, opening: Opening) {
        let (appended, lived) = (&self.appended, &self.lived);
        // Relaxed: the Release store of the cursor publishes these fields, and so does the Release
        // with which a thread shares the segment's number.
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
        lived.has_frames.store(0, Ordering::Relaxed);
        lived.uncounted.store(0, Ordering::Relaxed);
        self.set_state(State::Open);
        // The cursor is stored last, because a column may still know this segment's number from an
        // earlier use of the segment. Until this store, the column's `reserve` finds the segment
        // full; afterwards it finds all fields set. Release pairs with the Acquire in `reserve`.
        appended.cursor.store(0, Ordering::Release);
    }

    /// Reserves `bytes` bytes in an open segment of `segment_bytes` bytes. If the segment has no
    /// room, seals it instead.
    pub fn reserve(&self, bytes: u32, segment_bytes: u32) -> Reservation {
        // AcqRel: Acquire pairs with the Release in `open`. The cursor itself orders reservations.
        let old = self.appended.cursor.fetch_add(u64::from(bytes), Ordering::AcqRel);
        if old + u64::from(bytes) <= u64::from(segment_bytes) {
            return Reservation::At(u32::try_from(old).unwrap_or(u32::MAX));
        }
        match u32::try_from(old) {
            // Exactly one reservation crosses the segment's end. The items end where that
            // reservation begins.
            Ok(end) if end <= segment_bytes => {
                // SeqCst pairs with `commit`: of the thread that seals and the thread that commits
                // last, at least one sees the other's write. Release pairs with the Acquire in
                // `drainable` and `end`.
                self.appended.end.store(end, Ordering::SeqCst);
                Reservation::Sealed
            }
            _ => Reservation::Full,
        }
    }

    /// Commits `bytes` reserved bytes that are written. True for a sealed segment's last commit.
    pub fn commit(&self, bytes: u32) -> bool {
        // Release pairs with the Acquire in `drainable`: the column that drains sees the bytes.
        // SeqCst, here and in the load, pairs with `reserve`.
        let now = self.appended.committed.fetch_add(bytes, Ordering::SeqCst) + bytes;
        now == self.appended.end.load(Ordering::SeqCst)
    }

    /// True if the segment is sealed and every reservation is committed.
    #[must_use]
    pub fn drainable(&self) -> bool {
        // Acquire pairs with the Release in `reserve` and `commit`.
        let end = self.appended.end.load(Ordering::Acquire);
        let all = plant::is(Fault::UncommittedDrained);
        end != UNSEALED && (all || self.appended.committed.load(Ordering::Acquire) == end)
    }

    /// The offset at which the segment's items end, or `UNSEALED`.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.appended.end.load(Ordering::Acquire) // pairs with the Release in `reserve`
    }

    /// Number of committed bytes: of items, and of voids, which are places that got no item.
    #[must_use]
    pub fn committed(&self) -> u32 {
        self.appended.committed.load(Ordering::Relaxed) // a hint
    }

    /// Number of bytes requested from `reserve`. May exceed the segment's size.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.appended.cursor.load(Ordering::Relaxed) // a hint
    }

    /// The `cas_base` given to `open`.
    #[inline]
    #[must_use]
    pub fn cas_base(&self) -> u64 {
        // Relaxed: set before the segment's items were published.
        self.appended.cas_base.load(Ordering::Relaxed)
    }

    /// The flush epoch in which the segment was opened.
    #[inline]
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.appended.epoch.load(Ordering::Relaxed) // set before the segment's items were published
    }

    /// The `birth` given to `open`.
    #[inline]
    #[must_use]
    pub fn birth(&self) -> u64 {
        self.appended.birth.load(Ordering::Relaxed) // as in `epoch`
    }

    /// The second in which the segment was opened.
    #[must_use]
    pub fn opened(&self) -> u32 {
        self.lived.opened.load(Ordering::Relaxed) // as in `epoch`
    }

    /// Notes that the segment's first `bytes` bytes are populated.
    #[inline]
    pub fn touch(&self, bytes: u32) {
        // Relaxed, here and in the two functions below: the number orders nothing.
        if self.lived.touched.load(Ordering::Relaxed) < bytes {
            self.lived.touched.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Number of bytes from the segment's beginning that are known to be populated.
    #[must_use]
    pub fn touched(&self) -> u32 {
        self.lived.touched.load(Ordering::Relaxed)
    }

    /// Notes that the segment's owner has given its memory back to the system.
    pub fn set_untouched(&self) {
        self.lived.touched.store(0, Ordering::Relaxed);
    }

    /// Number of bytes of the segment's linked items.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.lived.live.load(Ordering::Relaxed) // a hint while other columns link and unlink
    }

    /// Counts an item of `bytes` that expires at `exptime` (0: never), before its slot is set.
    pub fn link(&self, bytes: u32, exptime: u32, has_frames: bool) {
        self.raise_exp(exptime);
        if has_frames {
            // Relaxed: the store is published with the item's slot, and by the commit.
            self.lived.has_frames.store(1, Ordering::Relaxed);
        }
        // Relaxed: the sum is exact for a reader that holds every lock under which it changes.
        self.lived.live.fetch_add(bytes, Ordering::Relaxed);
    }

    /// True if any item of the segment has ever had frames.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.lived.has_frames.load(Ordering::Relaxed) != 0 // as in `link`, after all commits
    }

    /// Counts all items as unlinked and returns their bytes. If another column has unlinked an item
    /// and counts it only later, `live` becomes negative then; see `miscounted`.
    pub fn unlink_all(&self) -> u32 {
        self.lived.live.swap(0, Ordering::AcqRel) // as in `unlink`
    }

    /// Notes that the owner has unlinked items without counting their bytes. From now on `live` is
    /// too high, and does not reach 0 when the last item is unlinked.
    pub fn set_uncounted(&self) {
        self.lived.uncounted.store(1, Ordering::Relaxed); // published when the segment is resealed
    }

    /// True if `set_uncounted` was called: `live` is too high.
    #[must_use]
    pub fn is_uncounted(&self) -> bool {
        self.lived.uncounted.load(Ordering::Relaxed) != 0 // as in `set_uncounted`
    }

    /// Number of bytes that were unlinked but not counted; negative if bytes were counted twice.
    /// Valid for a retired segment once all columns have passed a quiescent point.
    #[must_use]
    pub fn miscounted(&self) -> i32 {
        // Acquire pairs with the Release of `unlink`.
        self.lived.live.load(Ordering::Acquire).cast_signed()
    }

    /// Counts an item of `bytes` as unlinked. True if it was the segment's last linked item.
    pub fn unlink(&self, bytes: u32) -> bool {
        // AcqRel, paired with itself: the last unlink comes after all others.
        self.lived.live.fetch_sub(bytes, Ordering::AcqRel) == bytes
    }

    /// Extends the range of exptimes to `exptime` (0: never). Called before an item gets `exptime`.
    pub fn raise_exp(&self, exptime: u32) {
        let exptime = if exptime == 0 { u32::MAX } else { exptime };
        // Relaxed: these are hints for background walks, which read them again every second.
        if self.lived.max_exp.load(Ordering::Relaxed) < exptime {
            self.lived.max_exp.fetch_max(exptime, Ordering::Relaxed);
        }
        if self.lived.min_exp.load(Ordering::Relaxed) > exptime {
            self.lived.min_exp.fetch_min(exptime, Ordering::Relaxed);
        }
    }

    /// The earliest exptime of the segment's items, or an earlier one; `u32::MAX` if none expires.
    #[must_use]
    pub fn min_exp(&self) -> u32 {
        self.lived.min_exp.load(Ordering::Relaxed) // a hint
    }

    /// The latest exptime of the segment's items, or a later one; `u32::MAX` if one never expires.
    #[must_use]
    pub fn max_exp(&self) -> u32 {
        self.lived.max_exp.load(Ordering::Relaxed) // a hint
    }

    /// Resets and returns the earliest exptime, before a walk reads all exptimes.
    pub fn reset_min_exp(&self) -> u32 {
        // Relaxed: the fence orders the swap, which loses no exptime that another column sets.
        let earliest = self.lived.min_exp.swap(u32::MAX, Ordering::Relaxed);
        fence(Ordering::SeqCst); // pairs with the one in `shorten_exp`
        earliest
    }

    /// Lowers the earliest exptime to one that a walk has found.
    pub fn lower_min_exp(&self, exptime: u32) {
        if self.lived.min_exp.load(Ordering::Relaxed) > exptime {
            self.lived.min_exp.fetch_min(exptime, Ordering::Relaxed);
        }
    }

    /// Lowers the earliest exptime to `exptime`, after an item's exptime was lowered to it.
    ///
    /// Calling `raise_exp` before would not be enough: a walk may reset the earliest exptime after
    /// that call, and then read the item's old exptime. With a fence on both sides, either this
    /// call lowers what the walk has reset, or the walk reads the item's new exptime.
    pub fn shorten_exp(&self, exptime: u32) {
        if !plant::is(Fault::ShortenedUnfenced) {
            fence(Ordering::SeqCst); // pairs with the one in `reset_min_exp`
        }
        self.lower_min_exp(exptime);
    }

    /// The second in which a walk must next look for expired items; `u32::MAX` if no walk has to.
    #[must_use]
    pub fn due(&self) -> u32 {
        self.lived.due.load(Ordering::Relaxed) // the calendar has the number too, and orders it
    }

    /// Sets the second in which a walk must next look for expired items.
    pub fn set_due(&self, due: u32) {
        self.lived.due.store(due, Ordering::Relaxed); // as in `due`
    }

    /// Lowers the second of the next walk to `due`. False if that second was `due` or earlier
    /// already.
    pub fn lower_due(&self, due: u32) -> bool {
        self.lived.due.fetch_min(due, Ordering::Relaxed) > due // as in `due`
    }

    /// The second in which a background walk last went through the segment.
    #[must_use]
    pub fn walked(&self) -> u32 {
        self.lived.walked.load(Ordering::Relaxed) // a hint
    }

    /// Notes that a background walk goes through the segment in second `now`.
    pub fn set_walked(&self, now: u32) {
        self.lived.walked.store(now, Ordering::Relaxed); // a hint
    }

    /// The segment's position in its queue.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.lived.ticket.load(Ordering::Acquire) // pairs with `set_ticket`
    }

    /// Sets the segment's position in its queue.
    pub fn set_ticket(&self, ticket: u64) {
        self.lived.ticket.store(ticket, Ordering::Release); // pairs with `ticket`
    }

    /// True if the segment is in `state`.
    #[must_use]
    pub fn is(&self, state: State) -> bool {
        self.lived.state.load(Ordering::Acquire) == state as u32 // pairs with `set_state`, `change`
    }

    /// Sets the state; only the segment's owner may call this.
    pub fn set_state(&self, state: State) {
        self.lived.state.store(state as u32, Ordering::Release); // pairs with `is`, `change`
    }

    /// Changes the state, which makes the caller the owner; false if the state was not `from`.
    pub fn change(&self, from: State, to: State) -> bool {
        let (from, to) = (from as u32, to as u32);
        // AcqRel pairs with itself and with `set_state`.
        let state = &self.lived.state;
        state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
