//! The entry of a segment: the segment's state, and the numbers of its used and live bytes.
//!
//! Where: columns use entries to reserve room, to count unlinked items and to choose what to drain.
//! Invariant: a thread owns a segment if its call of `change` returned true. A segment is drainable
//! when it is sealed and all bytes before its end are committed.
//!
//! An entry has two cache lines. Every append writes line 0. Every unlink writes line 1, and a
//! column reads line 1 when it chooses a segment to drain.
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
/// The state of a segment, which tells how the segment is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Unused. The segment is in a free list.
    Free = 0,
    /// Columns append items to the segment.
    Open = 1,
    /// Full. The segment waits in its queue until a column drains it.
    Sealed = 2,
    /// A column goes through the segment, and moves or drops the segment's items.
    Draining = 3,
    /// Retired. The segment waits until no column can be reading it.
    Limbo = 4,
    /// The segment is cut into frames.
    Frames = 5,
    /// The segment's memory was given back to the system, so that the index may use more memory.
    Index = 6,
    /// The segment's memory was given back to the system, because the limit was lowered.
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

/// The entry of a segment.
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
    /// An item with a short CAS unique stores the distance of the CAS unique from this number.
    pub cas_base: u64,
    /// The flush epoch in which the segment is opened.
    pub epoch: u32,
    /// The segment's queue, and the segment's number in that queue, packed into one number.
    pub birth: u64,
    /// The second in which the segment is opened.
    pub now: u32,
}

/// The result of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// The caller owns the requested bytes. The number is the offset of the bytes in the segment.
    At(u32),
    /// The segment has no room. This call has sealed the segment, and the caller must queue it.
    Sealed,
    /// The segment has no room, and another call has sealed the segment.
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

    /// Opens a segment for appends. The caller has taken the segment off the free list.
    pub fn open(&self, opening: Opening) {
        let (appended, lived) = (&self.appended, &self.lived);
        // Relaxed: a Release store publishes these fields: the store of the cursor below, or the
        // store that shares the segment's number.
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
        // The cursor is stored last, because another column may have this segment's number from an
        // earlier use of the segment. Before this store, that column's call of `reserve` returns
        // `Full`. After this store, it sees all fields. Release pairs with Acquire in `reserve`.
        appended.cursor.store(0, Ordering::Release);
    }

    /// Reserves `bytes` bytes in an open segment of `segment_bytes` bytes. If there is no room for
    /// the bytes, seals the segment instead.
    pub fn reserve(&self, bytes: u32, segment_bytes: u32) -> Reservation {
        // AcqRel: Acquire pairs with the Release in `open`. The cursor's value orders reservations.
        let old = self.appended.cursor.fetch_add(u64::from(bytes), Ordering::AcqRel);
        if old + u64::from(bytes) <= u64::from(segment_bytes) {
            return Reservation::At(u32::try_from(old).unwrap_or(u32::MAX));
        }
        match u32::try_from(old) {
            // Exactly one reservation crosses the segment's end. The segment's items end at the
            // beginning of this reservation.
            Ok(end) if end <= segment_bytes => {
                // SeqCst pairs with `commit`: this thread sees the last commit, or the last commit
                // sees this store. Release pairs with Acquire in `drainable` and `end`.
                self.appended.end.store(end, Ordering::SeqCst);
                Reservation::Sealed
            }
            _ => Reservation::Full,
        }
    }

    /// Commits `bytes` reserved bytes, which are written now. Returns true if the segment is sealed
    /// and no other reservation is left to commit.
    pub fn commit(&self, bytes: u32) -> bool {
        // Release pairs with the Acquire in `drainable`: the column that drains the segment sees
        // the bytes. SeqCst, here and in the load below, pairs with `reserve`.
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

    /// The offset at which the segment's items end; `UNSEALED` while the segment is open.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.appended.end.load(Ordering::Acquire) // pairs with the Release in `reserve`
    }

    /// Number of committed bytes of items and of voids (reserved ranges that got no item).
    #[must_use]
    pub fn committed(&self) -> u32 {
        self.appended.committed.load(Ordering::Relaxed) // a hint
    }

    /// Number of bytes that were requested from `reserve`. It may exceed the segment's size.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.appended.cursor.load(Ordering::Relaxed) // a hint
    }

    /// The `cas_base` with which the segment was opened.
    #[inline]
    #[must_use]
    pub fn cas_base(&self) -> u64 {
        // Relaxed: `open` sets the field before the segment's items are published.
        self.appended.cas_base.load(Ordering::Relaxed)
    }

    /// The flush epoch in which the segment was opened.
    #[inline]
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.appended.epoch.load(Ordering::Relaxed) // set before the segment's items were published
    }

    /// The `birth` with which the segment was opened.
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
        // Relaxed, as in `touched` and `set_untouched`: the number orders no other data.
        if self.lived.touched.load(Ordering::Relaxed) < bytes {
            self.lived.touched.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Number of bytes from the segment's beginning that are known to be populated.
    #[must_use]
    pub fn touched(&self) -> u32 {
        self.lived.touched.load(Ordering::Relaxed)
    }

    /// Notes that the owner has given the segment's memory back to the system.
    pub fn set_untouched(&self) {
        self.lived.touched.store(0, Ordering::Relaxed);
    }

    /// Number of bytes of the segment's linked items.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.lived.live.load(Ordering::Relaxed) // a hint while other columns link and unlink
    }

    /// Counts an item of `bytes` bytes with `exptime` (0: never). Called before the item is linked.
    pub fn link(&self, bytes: u32, exptime: u32, has_frames: bool) {
        self.raise_exp(exptime);
        if has_frames {
            // Relaxed: the item's slot in the index publishes the store, and so does the commit.
            self.lived.has_frames.store(1, Ordering::Relaxed);
        }
        // Relaxed: a reader that holds all locks under which the sum changes reads the exact sum.
        self.lived.live.fetch_add(bytes, Ordering::Relaxed);
    }

    /// True if an item of the segment has or had frames.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.lived.has_frames.load(Ordering::Relaxed) != 0 // as in `link`, after all commits
    }

    /// Counts all items as unlinked, and returns the number of their bytes. If another column has
    /// unlinked an item but calls `unlink` only later, `live` becomes negative; see `miscounted`.
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

    /// Counts an item of `bytes` bytes as unlinked. Returns true if no linked item is left.
    pub fn unlink(&self, bytes: u32) -> bool {
        // AcqRel, paired with itself: the thread of the last unlink sees all earlier unlinks.
        self.lived.live.fetch_sub(bytes, Ordering::AcqRel) == bytes
    }

    /// Extends the range of exptimes to `exptime` (0: never). Called before an item gets `exptime`.
    pub fn raise_exp(&self, exptime: u32) {
        let exptime = if exptime == 0 { u32::MAX } else { exptime };
        // Relaxed: the two exptimes are hints for background walks, which come again every second.
        if self.lived.max_exp.load(Ordering::Relaxed) < exptime {
            self.lived.max_exp.fetch_max(exptime, Ordering::Relaxed);
        }
        if self.lived.min_exp.load(Ordering::Relaxed) > exptime {
            self.lived.min_exp.fetch_min(exptime, Ordering::Relaxed);
        }
    }

    /// A lower bound of the exptimes of the segment's items; `u32::MAX` if no item expires.
    #[must_use]
    pub fn min_exp(&self) -> u32 {
        self.lived.min_exp.load(Ordering::Relaxed) // a hint
    }

    /// An upper bound of the exptimes of the segment's items; `u32::MAX` if an item never expires.
    #[must_use]
    pub fn max_exp(&self) -> u32 {
        self.lived.max_exp.load(Ordering::Relaxed) // a hint
    }

    /// Resets the earliest exptime and returns the old value. Called before a walk reads all items.
    pub fn reset_min_exp(&self) -> u32 {
        // Relaxed: the fence below orders the swap, so that no exptime from another column is lost.
        let earliest = self.lived.min_exp.swap(u32::MAX, Ordering::Relaxed);
        fence(Ordering::SeqCst); // pairs with the one in `shorten_exp`
        earliest
    }

    /// Lowers the earliest exptime to `exptime`, which a walk has found in an item.
    pub fn lower_min_exp(&self, exptime: u32) {
        if self.lived.min_exp.load(Ordering::Relaxed) > exptime {
            self.lived.min_exp.fetch_min(exptime, Ordering::Relaxed);
        }
    }

    /// Lowers the earliest exptime to `exptime`. Called after an item has got `exptime`.
    ///
    /// A call of `raise_exp` before the item's change would not be enough: a walk could reset the
    /// earliest exptime after that call, and then read the item's old exptime. Because both threads
    /// have a fence, either this call comes after the reset, or the walk reads the new exptime.
    pub fn shorten_exp(&self, exptime: u32) {
        if !plant::is(Fault::ShortenedUnfenced) {
            fence(Ordering::SeqCst); // pairs with the one in `reset_min_exp`
        }
        self.lower_min_exp(exptime);
    }

    /// The second in which a walk must next look for expired items; `u32::MAX` if no walk must.
    #[must_use]
    pub fn due(&self) -> u32 {
        self.lived.due.load(Ordering::Relaxed) // the calendar has the number too, and orders it
    }

    /// Sets the second in which a walk must next look for expired items.
    pub fn set_due(&self, due: u32) {
        self.lived.due.store(due, Ordering::Relaxed); // as in `due`
    }

    /// Lowers the second of the next walk to `due`. Returns false if it was not later than `due`.
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

    /// Sets the state. Only the segment's owner may call this function.
    pub fn set_state(&self, state: State) {
        self.lived.state.store(state as u32, Ordering::Release); // pairs with `is`, `change`
    }

    /// Changes the state from `from` to `to` and makes the caller the segment's owner. Returns
    /// false if the state was not `from`.
    pub fn change(&self, from: State, to: State) -> bool {
        let (from, to) = (from as u32, to as u32);
        // AcqRel pairs with itself and with the Release in `set_state`.
        let state = &self.lived.state;
        state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
