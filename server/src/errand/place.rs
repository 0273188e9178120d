//! Places: permissions for errands to go through all items.
//!
//! Where: a dump or a count of all items takes a place, and frees the place when it ends.
//! Invariant: at most `DUMPS_MAX` errands have a place. A stalled errand loses its place if another
//! errand needs one. An errand is stalled if it has not taken `DUMP_STEPS_MIN` steps for
//! `DUMP_STALLED_SECONDS`, because its client reads little or nothing.
//! Source: none. memcached has one crawler, and a client that does not read blocks the crawler.

use std::sync::{Arc, PoisonError};

use memory::plant::{Fault, is};
use memory::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering};

use crate::limits::{DUMP_STALLED_SECONDS, DUMP_STEPS_MIN, DUMPS_MAX};

#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<Arc<Holder>>>);

#[derive(Debug)]
struct Holder {
    /// The second in which the holder began, or in which it last completed `DUMP_STEPS_MIN` steps.
    moved: AtomicU32,
    /// True if the place was given to another errand.
    ended: AtomicBool,
}

/// One of the `DUMPS_MAX` places.
#[derive(Debug)]
pub(crate) struct Place {
    holder: Arc<Holder>,
    places: Arc<Places>,
    /// Number of steps since `Holder::moved` was last set.
    steps: u32,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Holder>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn any(&self) -> bool {
        !self.lock().is_empty()
    }
}

impl Place {
    /// Takes a free place or the place of a stalled holder. Returns `None` if there is neither. The
    /// flag is true if a stalled holder lost its place.
    pub(crate) fn take(places: &Arc<Places>, now: u32) -> Option<(Place, bool)> {
        let mut holders = places.lock();
        let ends = holders.len() >= DUMPS_MAX;
        if ends {
            let stalled = holders.iter().position(|it| it.is_stalled(now))?;
            // Relaxed: the flag orders nothing. The store pairs with the load in `keep`.
            holders.swap_remove(stalled).ended.store(!is(Fault::PlaceOfTwo), Ordering::Relaxed);
        }
        let holder = Arc::new(Holder { moved: AtomicU32::new(now), ended: AtomicBool::new(false) });
        holders.push(Arc::clone(&holder));
        drop(holders);
        Some((Place { holder, places: Arc::clone(places), steps: 0 }, ends))
    }

    /// Counts a step. Returns false if the place was given to another errand.
    pub(crate) fn keep(&mut self, now: u32) -> bool {
        self.steps += 1;
        if self.steps == DUMP_STEPS_MIN {
            self.steps = 0;
            // Relaxed: the number orders nothing. The store pairs with the load in `is_stalled`.
            self.holder.moved.store(now, Ordering::Relaxed);
        }
        !self.holder.ended.load(Ordering::Relaxed) // pairs with the store in `take`
    }
}

impl Holder {
    fn is_stalled(&self, now: u32) -> bool {
        let moved = self.moved.load(Ordering::Relaxed); // pairs with the store in `keep`
        now.saturating_sub(moved) > DUMP_STALLED_SECONDS
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().retain(|other| !Arc::ptr_eq(other, &self.holder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(places: &Arc<Places>, now: u32) -> Option<bool> {
        let (place, ended) = Place::take(places, now)?;
        // Dropping the place would free it for another errand.
        std::mem::forget(place);
        Some(ended)
    }

    #[test]
    fn who_takes_a_little_now_and_then_loses_its_place_to_another_and_who_goes_on_does_not() {
        let places = Arc::<Places>::default();
        let mut held: Vec<Place> =
            (0..DUMPS_MAX).map(|_| Place::take(&places, 0).unwrap().0).collect();
        let (slow, fast) = held.split_at_mut(1);
        for second in 1..=DUMP_STALLED_SECONDS {
            assert_eq!(taken(&places, second), None, "second {second}");
            // The slow holder takes one step every nine seconds, each other holder
            // `DUMP_STEPS_MIN` steps every second.
            assert!(second % 9 > 0 || slow[0].keep(second));
            assert!(fast.iter_mut().all(|it| (0..DUMP_STEPS_MIN).all(|_| it.keep(second))));
        }
        let late = DUMP_STALLED_SECONDS + 1;
        assert_eq!(taken(&places, late), Some(true));
        assert!(!slow[0].keep(late), "its place is another's");
        assert!(fast.iter_mut().all(|it| it.keep(late)));
        assert_eq!(taken(&places, late), None);
    }

    #[test]
    fn who_is_slow_keeps_its_place_while_nobody_asks_for_it() {
        let places = Arc::<Places>::default();
        let (mut slow, _) = Place::take(&places, 0).unwrap();
        assert!((1..100).all(|step| slow.keep(9 * step)));
        assert_eq!(taken(&places, 900), Some(false));
        assert!(slow.keep(900));
    }
}
