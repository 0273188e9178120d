//! Work that makes room: continues a column's walk through a segment, or begins the next walk.
//!
//! Where: appends make room if few segments are free, and columns make room while they are idle.
//! Invariant: a walk begins only while a free segment is kept for the items that it moves. A column
//! has one walk at a time; while the column sleeps, any other column may continue the walk.
//! Source: the KV-Cache paper, section 4.2.3.

use super::Room;
use super::drain::{Aim, Drain, SliceEnd};
use crate::column::handle::View;
use crate::item::Walk;
use crate::policy::room::SLICE_BYTES_MAX;
use memory::sync::Ordering;

impl Room {
    /// Makes room by walking about `budget` bytes of records. Returns false if there is no work.
    pub(crate) fn make_room(&mut self, view: View<'_>, budget: u32) -> bool {
        self.work_off(view, budget, |room| {
            room.take_parked() || room.begin(view, |room, token| room.claim(view, token))
        })
    }

    /// Like `make_room`, for use while enough segments are free: drops only dead items, and
    /// compacts only segments of which at least `dead_percent` is dead.
    pub(crate) fn make_reusable(&mut self, view: View<'_>, budget: u32, dead_percent: u64) -> bool {
        self.stop_evicting(view);
        self.work_off(view, budget, |room| {
            if room.take_parked() {
                room.stop_evicting(view);
            }
            room.drain.is_some()
                || room.begin(view, |room, token| room.claim_dead(view, token, dead_percent))
        })
    }

    /// Makes room ahead of need, if few segments are free. Returns false if there is no work.
    pub(crate) fn make_ahead(&mut self, view: View<'_>, budget: u32) -> bool {
        let segments = &view.memory().segments;
        let is_low = segments.free() + segments.limbo() < view.high();
        if !is_low || self.rest > 0 || self.is_full(view) {
            return false;
        }
        let made = self.make_room(view, budget);
        self.rest = u32::from(!made);
        made
    }

    fn work_off(&mut self, view: View<'_>, budget: u32, start: impl Fn(&mut Self) -> bool) -> bool {
        let mut done = 0;
        while done < budget {
            // Gathered segments come first, because dropping their dead items costs no live item.
            let harvested = self.chores.harvest.work(view, budget - done);
            if harvested > 0 {
                done = done.saturating_add(harvested);
                continue;
            }
            self.stop_for_repack(view);
            if self.drain.is_none() && !start(self) {
                break;
            }
            let did = self.slice(view, budget - done);
            if did == 0 {
                // There is no room to move items until other columns free a segment.
                break;
            }
            done += did;
        }
        done > 0
    }

    pub(crate) fn go_on(&mut self, view: View<'_>, budget: u32) -> bool {
        if !self.take_parked() {
            return false;
        }
        // A walk that evicts may have made enough room before its end, because an evicted item may
        // have had frames in another segment.
        let segments = &view.memory().segments;
        let has_room = segments.free() + segments.limbo() >= view.high();
        if has_room && view.lacking() == 0 {
            self.stop_evicting(view);
        }
        self.stop_for_repack(view);
        self.slice(view, budget);
        true
    }

    fn slice(&mut self, view: View<'_>, budget: u32) -> u32 {
        let Some(mut drain) = self.drain.take() else { return 0 };
        let (done, slice) = drain.slice(view, &mut self.debt, budget);
        match slice {
            SliceEnd::Part => self.drain = Some(drain),
            SliceEnd::Whole => drain.finish(view, &self.chores, &mut self.debt),
            SliceEnd::NoRoom => drain.stop(view, &self.chores),
        }
        done
    }

    pub(crate) fn begin_harvested(&mut self, view: View<'_>) -> bool {
        !self.chores.harvest.is_empty() && self.begin(view, |room, _| room.harvested(view))
    }

    /// Begins a walk through a segment from `claim`. Returns false if no segment or token is free.
    fn begin(
        &mut self,
        view: View<'_>,
        claim: impl FnOnce(&mut Self, u32) -> Option<(u32, Aim)>,
    ) -> bool {
        let Some(token) = self.chores.take_token(view.shared) else { return false };
        let Some((segment, aim)) = claim(self, token) else {
            self.chores.give_token(view.shared, token);
            return false;
        };
        let walk = Walk::begin(view.memory(), segment);
        let counters = view.counters();
        let mut mean_bytes = 0;
        match aim {
            Aim::Compact => counters.compacted_segments.add(1),
            Aim::Evict => {
                counters.drained_segments.add(1);
                mean_bytes = view.mean_item_bytes();
            }
            Aim::Sweep(_) | Aim::Repack(_) => {}
        }
        self.drain = Some(Drain { walk, aim, token, freed_bytes: 0, mean_bytes });
        view.log.note_change();
        true
    }

    /// Does a slice of work to bring the store within its limit. Returns true if work is left.
    pub(crate) fn adjust(&mut self, view: View<'_>) -> bool {
        let memory = view.memory();
        if memory.present() == memory.allowed() {
            return false;
        }
        // `adjust` leaves fewer than `high` segments free, so that appends go on making room.
        if !memory.adjust(view.keep() + 1) {
            return true;
        }
        let stuck = &view.limit.stuck;
        if view.excess() == 0 {
            return memory.excess() > 0 && view.index_gives();
        }
        // Stops if retired segments suffice, or if an attempt in this second has failed.
        if view.lacking() == 0 || stuck.load(Ordering::Relaxed) == view.handle.now {
            return false;
        }
        let made = self.make_room(view, SLICE_BYTES_MAX);
        if !made {
            stuck.store(view.handle.now, Ordering::Relaxed); // tried again in another second
        }
        made
    }

    fn stop_evicting(&mut self, view: View<'_>) {
        if let Some(drain) = self.drain.take_if(|drain| matches!(drain.aim, Aim::Evict)) {
            drain.stop(view, &self.chores);
        }
    }

    /// Like `stop_evicting`, but only if repacking would free the segments that the limit demands.
    fn stop_for_repack(&mut self, view: View<'_>) {
        let evicts = |drain: &Drain| matches!(drain.aim, Aim::Evict);
        if self.drain.as_ref().is_some_and(evicts) && view.scattered().is_some() {
            self.stop_evicting(view);
        }
    }

    /// Leaves a walk and its token to other columns. Called before the column sleeps.
    pub(crate) fn park(&self, view: View<'_>, drain: Drain) {
        match self.chores.parked.try_lock() {
            Ok(mut parked) => {
                parked.push(drain);
                view.log.note_change();
            }
            Err(_) => drain.stop(view, &self.chores),
        }
    }

    /// Takes over a parked walk if the column has none. Returns false if it still has none.
    fn take_parked(&mut self) -> bool {
        // Relaxed: a hint. While no token is taken, no walk is parked.
        if self.drain.is_none()
            && self.chores.tokens.load(Ordering::Relaxed) != 0
            && let Ok(mut parked) = self.chores.parked.try_lock()
        {
            self.drain = parked.pop();
        }
        self.drain.is_some()
    }
}
