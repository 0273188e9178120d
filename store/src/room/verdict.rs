//! Decides if a walk drops, evicts or moves an item that it meets. (To spare an item is to move it
//! instead of evicting it.)
//!
//! Where: a walk calls `drain_item` for each item of its segment.
//! Invariant: an item's slot is found by location, and changed under the lock of its group. After a
//! segment was compacted or drained, no slot names an item in the segment. A moved item is
//! complete, and linked at its new place, before its old bytes count as dead.
//! Source: the KV-Cache paper, section 4.2.3 (NbQ-CLOCK).

use super::drain::{Aim, Drain};
use crate::column::handle::View;
use crate::engine::find::Fate;
use crate::engine::link::{MoveResult, MovedFields};
use crate::index::slot::FETCHED;
use crate::item::Item;
use crate::policy::room::Debt;
use crate::policy::{self, Queue, Verdict};
use memory::plant::{self, Fault};

impl Drain {
    /// Drops, evicts, spares or moves an item. Returns false if there is no room to move the item.
    pub(super) fn drain_item(
        &mut self,
        view: View<'_>,
        debt: &mut Debt,
        item: &Item<'_>,
        loc: u64,
    ) -> bool {
        if let Aim::Repack(from) = self.aim {
            if item.shape().is_chained() {
                let at = (view.hash.hash(item.key()), loc);
                self.freed_bytes += u64::from(view.repack(at, item, from, self.token()));
            }
            return true;
        }
        let hash = view.hash.hash(item.key());
        let Some(found) = view.index.find(view.moment(), hash, |at| at.offset() == loc) else {
            return true;
        };
        let bytes = item.all_bytes();
        // `drop_dead` checks again under the lock; an item that is live then is handled below.
        if view.fate(item, loc) != Fate::Live
            && (self.drop_dead(view, debt, (hash, loc, bytes))
                || plant::is(Fault::DrainDropsLiveItems))
        {
            return true;
        }
        match self.aim {
            Aim::Sweep(_) | Aim::Repack(_) => true,
            Aim::Compact => {
                let (token, from) = (self.token(), self.segment());
                let place = |bytes| view.log.reserve_out(token, from, bytes);
                view.relocate((hash, loc), item, MovedFields::default(), place)
                    != MoveResult::NoRoom
            }
            Aim::Evict => {
                let cnt = found.slot().cnt();
                match self.judge(view, debt, cnt, bytes) {
                    Verdict::Evict => self.evict(view, debt, (hash, loc, bytes)),
                    Verdict::Spare(cnt) => {
                        let to = (view.appender(), item.exptime());
                        let place = |bytes| view.log.reserve(Queue::Main, to, bytes, 0);
                        let moved = MovedFields { cnt: Some(cnt.into()), first_frame: None };
                        if view.relocate((hash, loc), item, moved, place) == MoveResult::NoRoom {
                            self.evict(view, debt, (hash, loc, bytes));
                        }
                        debt.spared(bytes);
                    }
                }
                true
            }
        }
    }

    fn judge(&self, view: View<'_>, debt: &Debt, cnt: u64, bytes: u64) -> Verdict {
        let Some(policy) = view.config.eviction else { return Verdict::Spare(0) };
        let item = policy::DrainedItem {
            queue: view.log.queue_of(self.segment()),
            cnt: u8::try_from(cnt).unwrap_or(policy::CNT_MAX),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            mean_bytes: self.mean_bytes,
        };
        policy.judge(item, debt.pressure(view.memory_bytes() as u64))
    }

    /// Unlinks an item that is dead. Returns false if the item is not dead, or no longer linked.
    fn drop_dead(
        &mut self,
        view: View<'_>,
        debt: &mut Debt,
        (hash, loc, bytes): (u64, u64, u64),
    ) -> bool {
        let (fate, slot) = view.unlink_dead(hash, loc);
        if fate == Fate::Live {
            return false;
        }
        view.counters().reclaimed.add(1);
        view.counters().expired_unfetched.add((!slot.has(FETCHED)).into());
        self.freed(debt, bytes);
        true
    }

    /// Evicts the item at `loc`, if the item is still linked, and notes its key in the ghost.
    fn evict(&mut self, view: View<'_>, debt: &mut Debt, (hash, loc, bytes): (u64, u64, u64)) {
        let mut locked = view.index.lock(view.moment(), hash);
        let Some(found) = locked.find_loc(loc) else { return };
        let (slot, item) = (found.slot(), view.item(found.loc()));
        #[cfg(shuttle)]
        crate::stats::evicted::report_eviction(view.handle.id, item.key(), false);
        locked.remove(found.at());
        #[cfg(shuttle)]
        crate::stats::evicted::report_eviction(view.handle.id, item.key(), true);
        let from = view.log.queue_of(self.segment());
        let main = (from == Queue::Main) != plant::is(Fault::GhostQueueWrong);
        locked.remember(if main { Queue::Main } else { Queue::Probation });
        drop(locked);
        let counters = view.counters();
        counters.evictions.add(1);
        let age = view.handle.now.saturating_sub(view.log.segment(self.segment()).opened());
        counters.note_eviction_age(age);
        view.handle.evictions.note(view.handle.now, slot, &item);
        counters.evicted_unfetched.add((!slot.has(FETCHED)).into());
        counters.evicted_active.add((slot.cnt() > 0).into());
        counters.evicted_nonzero.add((item.exptime() != 0).into());
        view.unlinked(loc, &item);
        self.freed(debt, bytes);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::expect_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::policy::Eviction;
    use crate::verbs::{Body, Put, Verb};
    use crate::{Config, Store};

    #[test]
    fn what_is_flushed_between_the_look_and_the_lock_is_not_moved() {
        let config = Config {
            memory_bytes: 1 << 20,
            item_bytes_max: 1 << 10,
            columns: 1,
            eviction: Some(Eviction::default()),
            cas: true,
            now: 1,
        };
        let mut column = Store::new(&config).expect("address space").column();
        column.put(&Put::new(Verb::Set, b"key"), Body::Bytes(b"value")).expect("room");
        let view = column.handle.view();
        let hash = view.hash.hash(b"key");
        view.flush(None);
        let found = view.index.find(view.moment(), hash, |_| true).expect("linked");
        let (loc, item) = (found.slot().loc(), view.item(found.loc()));
        let place = |bytes| view.log.reserve(Queue::Main, (0, 0), bytes, 0);
        let drained = view.relocate((hash, loc), &item, MovedFields::default(), place);
        assert!(
            drained == MoveResult::Gone && view.index.find(view.moment(), hash, |_| true).is_none()
        );
        assert_eq!(view.stats().curr_items, 0);
    }
}
