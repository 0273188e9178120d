//! One segment's entry: what it is used for, how far it is filled, how much of it lives.
//!
//! Where: columns append to an open segment and commit, unlink what is in it, and choose which one
//! to drain, by its entry alone.
//! Invariant: who changes the state from one to another by `change`, and is told so, owns the
//! segment. Sealed and committed == end: drainable.
//! Source: none.
//!
//! An entry is two cache lines: what every append writes, and what unlinks and choices read.
//!
//! ```text
//!   line 0: cursor 8 | end 4 | committed 4 | cas_base 8 | epoch 4 | free-list link 4 | birth 8
//!   line 1: live 4 | min_exp 4 | max_exp 4 | state 4 | ticket 8 | retired 8 | walked 4 | opened 4
//!           | touched 4 | due 4 | framed 4 | uncounted 4
//! ```

#[cfg(loom)]
use super::NONE;
use crate::plant::{self, Fault};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// `end` of a segment that is still open.
pub const UNSEALED: u32 = u32::MAX;
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
pub(super) struct Appended {
    cursor: AtomicU64,
    end: AtomicU32,
    committed: AtomicU32,
    cas_base: AtomicU64,
    epoch: AtomicU32,
    pub(super) next: AtomicU32,
    birth: AtomicU64,
}

/// What unlinks write and choices read.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Lived {
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
    framed: AtomicU32,
    uncounted: AtomicU32,
}

/// One segment's entry.
#[derive(Debug)]
pub struct Segment {
    pub(super) appended: Appended,
    pub(super) lived: Lived,
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
    pub(super) fn new() -> Self {
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

    /// An item of `bytes` was linked, expiring at `exptime` (0: never), perhaps with frames. Before
    /// its slot is set.
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

    /// An item of it will expire at `exptime` (0: never). Called before the item's own exptime says
    /// so.
    pub fn raise_exp(&self, exptime: u32) {
        let exptime = if exptime == 0 { u32::MAX } else { exptime };
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
