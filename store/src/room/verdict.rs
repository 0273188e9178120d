//! What becomes of an item that a walk meets: dropped, evicted, spared or moved.
//!
//! Where: each item of a segment that is compacted or drained.
//! Invariant: an item's slot changes under its group's lock, found by location; a walk that ends
//! has left no slot that names its segment; what is moved is whole, and linked at its new place,
//! before its old bytes count as dead.
//! Source: the paper's section 4.2.3 (NbQ-CLOCK).

use super::{Aim, Drain};
use crate::Store;
use crate::column::Local;
use crate::index::slot::{FETCHED, Slot};
use crate::item::{CasWidth, Fields, Item};
use crate::log::Place;
use crate::policy::{self, Queue, Verdict};
use crate::publish::{Fate, item_bytes};
use memory::plant::{self, Fault};

/// How an item's drain went.
#[derive(PartialEq, Eq)]
pub(crate) enum Drained {
    Done,
    /// It was relocated.
    Moved,
    NoRoom,
}

/// What of a relocated item is another than before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) cnt: Option<u64>,
    pub(crate) first_frame: Option<u32>,
}

impl Local {
    pub(super) fn drain_item(
        &mut self,
        store: &Store,
        drain: &mut Drain,
        item: &Item<'_>,
        loc: u64,
    ) -> Drained {
        if let Aim::Repack(from) = drain.aim {
            if item.shape().is_chained() {
                let at = (store.hash.hash(item.key()), loc);
                drain.freed_bytes += u64::from(self.repack(store, drain, at, item, from));
            }
            return Drained::Done;
        }
        let hash = store.hash.hash(item.key());
        let Some(found) = store.index.find(hash, |slot| slot.loc() == loc) else {
            return Drained::Done;
        };
        let bytes = item_bytes(item.shape());
        // What the lock says counts: alive again, or all along, it is judged as what is alive.
        if self.fate(store, item, loc) != Fate::Live
            && (self.drop_dead(store, drain, (hash, loc, bytes))
                || plant::is(Fault::DrainDropsTheLiving))
        {
            return Drained::Done;
        }
        match drain.aim {
            Aim::Sweep | Aim::Repack(_) => Drained::Done,
            Aim::Compact => {
                let (token, from) = (drain.token as usize, drain.segment);
                let place = |bytes| store.log.reserve_out(token, from, bytes);
                self.relocate(store, (hash, loc), item, Moved::default(), place)
            }
            Aim::Evict => {
                let cnt = found.slot.cnt();
                match self.judge(store, drain, cnt, bytes) {
                    Verdict::Evict => self.evict(store, drain, (hash, loc, bytes)),
                    Verdict::Spare(cnt) => {
                        let to = (self.appender(store), item.exptime());
                        let place = |bytes| store.log.reserve(Queue::Main, to, bytes, 0);
                        let moved = Moved { cnt: Some(cnt.into()), first_frame: None };
                        if self.relocate(store, (hash, loc), item, moved, place) == Drained::NoRoom
                        {
                            self.evict(store, drain, (hash, loc, bytes));
                        }
                        self.debt.spared(bytes);
                    }
                }
                Drained::Done
            }
        }
    }

    /// Asks the policy about an item of so many bytes.
    fn judge(&self, store: &Store, drain: &Drain, cnt: u64, bytes: u64) -> Verdict {
        let Some(policy) = store.config.eviction else { return Verdict::Spare(0) };
        let item = policy::Drained {
            queue: store.log.queue_of(drain.segment),
            cnt: u8::try_from(cnt).unwrap_or(policy::CNT_MAX),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            mean_bytes: drain.mean_bytes,
        };
        policy.judge(item, self.debt.pressure(store.memory_bytes() as u64))
    }

    /// False: it is not dead, or not linked any more.
    fn drop_dead(
        &mut self,
        store: &Store,
        drain: &mut Drain,
        (hash, loc, bytes): (u64, u64, u64),
    ) -> bool {
        match self.unlink_dead(store, hash, loc) {
            Fate::Live => return false,
            Fate::Expired | Fate::Flushed => self.counters(store).reclaimed.add(1),
        }
        self.freed(drain, bytes);
        true
    }

    pub(crate) fn freed(&mut self, drain: &mut Drain, bytes: u64) {
        drain.freed_bytes += bytes;
        self.debt.freed(bytes);
    }

    /// Evicts the item at a location, if it is still linked; the ghost is told.
    fn evict(&mut self, store: &Store, drain: &mut Drain, (hash, loc, bytes): (u64, u64, u64)) {
        let mut locked = store.index.lock(hash);
        let Some(at) = locked.find_loc(loc) else { return };
        let slot = at.slot();
        #[cfg(shuttle)]
        crate::evicted::tell(self.id, store.item(loc).key(), false);
        locked.remove(at);
        #[cfg(shuttle)]
        crate::evicted::tell(self.id, store.item(loc).key(), true);
        let from = store.log.queue_of(drain.segment);
        let main = (from == Queue::Main) != plant::is(Fault::GhostMisled);
        locked.remember(if main { Queue::Main } else { Queue::Probation });
        drop(locked);
        self.items -= 1;
        let counters = self.counters(store);
        counters.evictions.add(1);
        let age = self.now.saturating_sub(store.log.segment(drain.segment).opened());
        counters.note_eviction_age(age);
        if !slot.has(FETCHED) {
            counters.evicted_unfetched.add(1);
        }
        self.dispose(store, loc, &store.item(loc));
        self.freed(drain, bytes);
    }

    /// Moves the item at `loc`, if it is still linked, to where `place` says; with another counter,
    /// if it is spared, and as it is, if it is only moved together with others; naming a copy of
    /// its frames, if there is one.
    pub(crate) fn relocate(
        &mut self,
        store: &Store,
        (hash, loc): (u64, u64),
        item: &Item<'_>,
        Moved { cnt, first_frame }: Moved,
        place: impl FnOnce(u32) -> Option<Place>,
    ) -> Drained {
        let region = &store.memory().region;
        let from = store.log.segment_of(loc);
        // A guess: it may be rewritten before it is locked.
        let shape = item.shape().with_cas(store.cas_width(item.cas(|| from.cas_base())));
        let Some(place) = place(shape.extent()) else { return Drained::NoRoom };
        let mut locked = store.index.lock(hash);
        let Some(at) = locked.find_loc(loc) else {
            drop(locked);
            store.log.void(place);
            return Drained::Done;
        };
        let cas = item.cas(|| from.cas_base());
        if shape.cas() == CasWidth::Short && store.cas_width(cas) == CasWidth::Long {
            drop(locked);
            store.log.void(place);
            return Drained::NoRoom;
        }
        // Flushed since it was looked at: among what is stored after the flush it would be back.
        if store.log.segment(place.segment()).epoch() != from.epoch()
            && !plant::is(Fault::FlushedMoved)
        {
            locked.remove(at);
            drop(locked);
            self.items -= 1;
            store.log.void(place);
            self.dispose(store, loc, item);
            return Drained::Done;
        }
        let fields = item.fields();
        let first_frame = first_frame.unwrap_or(fields.first_frame);
        let fields = Fields { cas, first_frame, ..fields };
        let written = store.log.write(place, store.layout, shape, &fields);
        let place = written.place();
        let never = fields.exptime == 0;
        let exptime = if never { u32::MAX } else { fields.exptime };
        let to = store.log.segment(place.segment());
        to.link(place.bytes(), exptime, shape.is_chained());
        if !never && to.due() == u32::MAX {
            // Compaction's own open segment: nobody else says when to look at it.
            store.log.note_due(place.segment(), exptime);
        }
        locked.update(at, |slot| {
            let moved: Slot = slot.at(place.loc());
            cnt.map_or(moved, |cnt| moved.with_cnt(cnt))
        });
        drop(locked);
        let counters = self.counters(store);
        counters.link(store.log.queue_of(place.segment()), item_bytes(shape));
        let (from, old) = (region.segment_of(loc), item.shape());
        counters.unlink(store.log.queue_of(from), item_bytes(old), old.extent());
        match cnt {
            None => counters.compacted_bytes.add(u64::from(shape.extent())),
            Some(_) => counters.spared_bytes.add(u64::from(shape.extent())),
        }
        store.log.unlink(loc, item.extent());
        store.log.commit(written);
        Drained::Moved
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::expect_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::policy::Eviction;
    use crate::verbs::{Body, Put, Verb};
    use crate::{Column, Config};

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
        let Column { store, local } = &mut column;
        let hash = store.hash.hash(b"key");
        let loc = store.index.find(hash, |_| true).expect("linked").slot.loc();
        let item = store.item(loc);
        local.flush(store, None);
        let place = |bytes| store.log.reserve(Queue::Main, (0, 0), bytes, 0);
        let drained = local.relocate(store, (hash, loc), &item, Moved::default(), place);
        assert!(drained == Drained::Done && store.index.find(hash, |_| true).is_none());
        assert_eq!(store.stats().curr_items, 0);
    }
}
