//! A column's handle on the store: items are read, linked and unlinked only through this handle.
//!
//! Where: every `Column` has a handle, which is passed to every function that works for the column.
//! Invariant: no reference into the log outlives a quiescent point, as the borrow checker proves:
//! each reference borrows a `View`, which borrows the column's `Handle`. A function that may pass a
//! quiescent point takes `&mut Handle`; every other function takes a `View`.
//! Source: a reader in quiescent-state-based reclamation; see `memory::quiescence`.

#![allow(unsafe_code, reason = "announces quiescent points")]

use crate::index::hash::Key;
use crate::index::{Loc, Moment};
use crate::item::stamp::Stamp;
use crate::shared::Shared;
use crate::stats::Counters;
use crate::stats::evictions::Evictions;
use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static HANDLES: AtomicU64 = AtomicU64::new(0);

/// Names a value that is never rewritten. Valid until the column's next quiescent point.
#[derive(Clone, Copy, Debug)]
pub struct ValueRef {
    handle: u64,
    passes: u64,
    loc: u64,
}

#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    /// The column's number; unique in the store.
    pub(crate) id: usize,
    number: u64,
    passes: u64,
    /// The column's clock, in seconds of the store's time.
    pub(crate) now: u32,
    pub(crate) stamp: Stamp,
    /// Number of items linked minus items unlinked, since the last report to the index.
    pub(crate) items: Cell<i64>,
    /// Number of bytes of the log that the column has made dead since it last found the store full.
    pub(crate) dead_bytes: Cell<u32>,
    /// Number of lookups since the last lookup of a sampled key.
    lookups: Cell<u64>,
    pub(crate) evictions: Evictions,
}

impl Handle {
    /// Makes the handle of column `id`, and puts the column online. Each `id` has one handle.
    pub(crate) fn new(shared: Arc<Shared>, id: usize) -> Self {
        let now = shared.config.now;
        shared.log.set_now(now);
        let (items, dead_bytes, lookups, evictions) = Default::default();
        let stamp = Stamp::new(now);
        // Relaxed: the number only has to be unique.
        let (number, passes) = (HANDLES.fetch_add(1, Ordering::Relaxed), 0);
        let mut handle =
            Self { shared, id, number, passes, now, stamp, items, dead_bytes, lookups, evictions };
        handle.pass();
        handle
    }

    /// Sets the clock to `now`, but never back. Returns false if the clock was at `now` or later.
    pub(crate) fn set_now(&mut self, now: u32) -> bool {
        let is_later = now > self.now;
        if is_later {
            (self.now, self.stamp) = (now, Stamp::new(now));
            self.shared.log.set_now(now);
        }
        is_later
    }

    pub(crate) fn keep(&self, loc: u64) -> ValueRef {
        ValueRef { handle: self.number, passes: self.passes, loc }
    }

    /// Passes a quiescent point, after which memory that the column has read may be reused.
    pub(crate) fn pass(&mut self) {
        self.passes += 1;
        // SAFETY: no other handle has the column's number. All that the column has read borrows the
        // handle, and `&mut self` proves that no such borrow is left.
        unsafe { self.shared.memory().quiescence.pass(self.id) };
    }

    /// Passes the last quiescent point before the thread sleeps. Before the column's next access to
    /// the store, `pass` must be called.
    pub(crate) fn offline(&mut self) {
        self.passes += 1;
        self.view().report_items();
        // SAFETY: `&mut self` proves that nothing that the column has read is still borrowed.
        unsafe { self.shared.memory().quiescence.offline(self.id) };
    }

    /// A view of the store, to be used until the column's next quiescent point.
    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        View { shared: &self.shared, handle: self }
    }
}

/// A column's view of the store between two quiescent points. All that is read through a view
/// borrows the column's handle. A function that passes a quiescent point takes `&mut Handle`.
#[derive(Clone, Copy)]
pub(crate) struct View<'r> {
    pub(crate) shared: &'r Shared,
    pub(crate) handle: &'r Handle,
}

impl Deref for View<'_> {
    type Target = Shared;

    #[inline(always)]
    fn deref(&self) -> &Shared {
        self.shared
    }
}

impl<'r> View<'r> {
    /// The promise that the column passes no quiescent point while the view is borrowed.
    #[inline(always)]
    pub(crate) fn moment(self) -> Moment<'r> {
        // SAFETY: the column is online, since `Column::offline` forbids operations until `online`.
        // A quiescent point needs the handle mutably, and this view borrows the handle for `'r`.
        unsafe { Moment::new() }
    }

    /// Returns the part of the value that is in the log. Returns `None` if the column has passed a
    /// quiescent point since the lookup, or if another column made the `ValueRef`.
    pub(crate) fn kept(self, ValueRef { handle, passes, loc }: ValueRef) -> Option<&'r [u8]> {
        if (handle, passes) != (self.handle.number, self.handle.passes) {
            return None;
        }
        // SAFETY: this column read `loc` from a slot, and has passed no quiescent point since.
        let loc = unsafe { Loc::new(loc, self.moment()) };
        self.item(loc).lasting_value()
    }

    #[inline]
    pub(crate) fn key<'k>(self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: self.hash.hash(bytes) }
    }

    /// The open segments to which the column appends, by number.
    #[inline]
    pub(crate) fn appender(self) -> usize {
        let appenders = self.tokens_max() as usize;
        if self.handle.id < appenders { self.handle.id } else { self.handle.id % appenders }
    }

    #[inline]
    pub(crate) fn counters(self) -> &'r Counters {
        &self.shared.counters[self.handle.id]
    }

    /// Adds `more` to the number of linked items; `more` is negative if items were unlinked.
    #[inline]
    pub(crate) fn count_items(self, more: i64) {
        self.handle.items.set(self.handle.items.get() + more);
    }

    /// Reports to the index how the number of linked items has changed since the last report.
    pub(crate) fn report_items(self) {
        if self.handle.items.get() != 0 {
            let index = &self.shared.index;
            index.count(self.handle.items.take());
            if index.wants_to_grow() || index.wants_to_shrink() {
                self.shared.log.note_change();
            }
        }
    }

    /// Counts a lookup. If the miss-ratio estimate samples the key, also reports the lookup to it.
    #[inline]
    pub(crate) fn sample_lookup(self, hash: u64) {
        self.handle.lookups.set(self.handle.lookups.get() + 1);
        if self.shared.mrc.samples(hash) {
            self.report_lookup(hash);
        }
    }

    #[cold]
    #[inline(never)]
    fn report_lookup(self, hash: u64) {
        let mut lookups = self.handle.lookups.take();
        self.shared.mrc.looked_up(hash, self.handle.now, &mut lookups);
        self.handle.lookups.set(lookups);
    }
}
