//! A walk through all items: makes a stamp coarse if nobody has accessed its item for hours.
//!
//! Where: background work visits a few groups of the index in each round of a column's loop.
//! Invariant: at most `2 * PERIOD_SECONDS` pass between two visits of an item, even if the index is
//! resized. So a stamp is made coarse before its seconds wrap around. If the clock jumps forward by
//! hours, a stamp may wrap around, and then denotes too recent an access.
//! Source: memcached's LRU crawler (1.6.45). A dump visits groups in the same order.

use crate::column::handle::View;
use crate::index::visit::Place;
use crate::item::stamp::{COARSE_FROM_SECONDS, SECONDS_MAX};
use memory::sync::{AtomicU32, Mutex, Ordering};

const PERIOD_SECONDS: u32 = 7200;
const _: () = assert!(COARSE_FROM_SECONDS + 2 * PERIOD_SECONDS < SECONDS_MAX);

const GROUPS_MAX: u32 = 32;

#[derive(Debug)]
pub(crate) struct Aging {
    /// The last second in which the walk was found to be on schedule.
    done: AtomicU32,
    walk: Mutex<Walk>,
}

#[derive(Debug)]
struct Walk {
    began: u32,
    /// The place at which the walk continues; `None` if the walk is complete.
    next: Option<Place>,
}

impl Walk {
    fn is_behind(&self, now: u32) -> bool {
        let part = f64::from(now.saturating_sub(self.began)) / f64::from(PERIOD_SECONDS);
        self.next.is_some_and(|next| next.part() < part)
    }
}

impl Aging {
    pub(crate) fn new(now: u32) -> Self {
        let walk = Walk { began: now, next: Some(Place::default()) };
        Self { done: AtomicU32::new(now), walk: Mutex::new(walk) }
    }

    /// True if the walk may be behind its schedule at second `now`.
    pub(crate) fn is_due(&self, now: u32) -> bool {
        // Relaxed: `done` is only a hint. Another column, whose clock is ahead, may have stored it.
        self.done.load(Ordering::Relaxed) < now
    }

    /// Visits some groups. If the result is true, the caller must call this function again at once.
    pub(crate) fn walk_slice(&self, view: View<'_>) -> bool {
        let now = view.handle.now;
        if !self.is_due(now) {
            return false;
        }
        let Ok(mut walk) = self.walk.try_lock() else { return false };
        if walk.next.is_none() && now.saturating_sub(walk.began) >= PERIOD_SECONDS {
            *walk = Walk { began: now, next: Some(Place::default()) };
        }
        let mut groups = 0;
        while let Some(next) = walk.next.filter(|_| walk.is_behind(now)) {
            if groups == GROUPS_MAX {
                return true;
            }
            walk.next = view.age_group(next);
            groups += 1;
        }
        self.done.store(now, Ordering::Relaxed); // a hint, like the load
        false
    }
}

impl View<'_> {
    fn age_group(self, place: Place) -> Option<Place> {
        let region = &self.shared.memory().region;
        self.index.prefetch_at(place, |slot| region.prefetch(slot.loc()));
        let locked = self.index.lock_at(self.moment(), place);
        locked.visit(|found| {
            let item = self.item(found.loc());
            if let Some(aged) = item.accessed().aged(self.handle.now) {
                item.set_accessed(aged);
            }
        });
        locked.next_place()
    }
}
