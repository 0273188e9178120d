//! Places for those who go through all items.
//!
//! Where: a dump or a count of all items takes one, and gives it back when it is dropped.
//! Invariant: at most `DUMPS_MAX` have one. Who has not moved for `DUMP_STALLED_SECONDS`, because a
//! client takes nothing, keeps it only until somebody else asks.
//! Source: none; memcached has one crawler, and a client that does not read holds it.

use std::sync::{Arc, PoisonError};

use memory::plant::{Fault, is};
use memory::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering};

use crate::execute::Context;
use crate::limits::{DUMP_STALLED_SECONDS, DUMPS_MAX};

/// All who have a place.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<Arc<Holder>>>);

#[derive(Debug)]
struct Holder {
    /// The second of its last step.
    moved: AtomicU32,
    /// Its place is another's.
    ended: AtomicBool,
}

/// One of the `DUMPS_MAX` places.
#[derive(Debug)]
pub(crate) struct Place {
    holder: Arc<Holder>,
    places: Arc<Places>,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Holder>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is any taken?
    pub(crate) fn any(&self) -> bool {
        !self.lock().is_empty()
    }
}

impl Place {
    /// Takes one. `None`: none is free, and none is stalled.
    pub(crate) fn take(context: &Context) -> Option<Place> {
        let (places, now) = (Arc::clone(&context.shared.places), context.clock.now);
        let mut holders = places.lock();
        if holders.len() >= DUMPS_MAX {
            let stalled = holders.iter().position(|it| it.is_stalled(now))?;
            // Relaxed, paired with the load in `keep`: a flag that orders nothing.
            holders.swap_remove(stalled).ended.store(!is(Fault::PlaceOfTwo), Ordering::Relaxed);
            context.counters.dumps_stalled.add(1);
        }
        let holder = Arc::new(Holder { moved: AtomicU32::new(now), ended: AtomicBool::new(false) });
        holders.push(Arc::clone(&holder));
        drop(holders);
        Some(Place { holder, places })
    }

    /// A step is taken. False: the place is another's.
    pub(crate) fn keep(&self, now: u32) -> bool {
        // Relaxed, paired with the load in `is_stalled`: a number that orders nothing.
        self.holder.moved.store(now, Ordering::Relaxed);
        !self.holder.ended.load(Ordering::Relaxed) // as in `take`
    }
}

impl Holder {
    fn is_stalled(&self, now: u32) -> bool {
        let moved = self.moved.load(Ordering::Relaxed); // as in `keep`
        now.saturating_sub(moved) > DUMP_STALLED_SECONDS
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().retain(|other| !Arc::ptr_eq(other, &self.holder));
    }
}
