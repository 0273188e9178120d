//! The large values that a column is receiving.
//!
//! Where: a storage command whose value is too long for the log gets a `store::Draft`, a value that
//! is not stored yet. The socket is read straight into the draft; `arrive` moves other input there.
//! Invariant: frames are allocated as bytes arrive, not for the length that a peer declares. Only
//! the part of a command that its execution needs is kept. If arriving values need more frames than
//! they can get, a stalled value is given up: its command fails and its remaining bytes are
//! skipped. A value waits only if no other value is stalled, and only for a bounded time.

use protocol::Tail;
use slab::Slab;
use store::{Column, Draft, StoreError};

use crate::executor::NextStep;
use crate::limits::{ARRIVAL_STALLED_MS, ARRIVAL_STEP_BYTES, ARRIVAL_WAIT_MS_MAX, GIVE_WAY_MAX};

/// The state of a large value after some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// Some bytes of the value have not arrived.
    Hungry,
    /// The store has no frame for the value's next bytes, or no space in the log for the item.
    Wait,
    /// The value is whole and has been stored, or the command failed. The next request can begin.
    Done(NextStep),
}

#[derive(Debug)]
pub(super) struct Arrival {
    /// The command without its value, in its shortest form.
    pub(super) header: Vec<u8>,
    /// `None` after the value was given up.
    pub(super) draft: Option<Draft>,
    pub(super) missing_bytes: usize,
    /// The kind of bytes that follow the value.
    pub(super) tail: Tail,
    pub(super) received_bytes: usize,
    /// When the value last passed a multiple of `ARRIVAL_STEP_BYTES` received bytes, or last ended
    /// a wait, by `TurnState::served_ms`.
    pub(super) moved_ms: u64,
    /// When the value began to wait for a frame or, if the value is whole, for a place in the log.
    pub(super) waits_since_ms: Option<u64>,
    /// The last result of `Draft::copied_bytes`: the draft's memory outside the store.
    pub(super) copied_bytes: usize,
}

impl Arrival {
    /// True if the value does not wait, and has received too few bytes for `ARRIVAL_STALLED_MS`.
    fn is_stalled(&self, served_ms: u64) -> bool {
        self.waits_since_ms.is_none()
            && served_ms.saturating_sub(self.moved_ms) >= ARRIVAL_STALLED_MS
    }
}

#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Allocates only if more values arrive at the same time than ever before.
    pub(super) all: Slab<Arrival>,
    /// Number of values that have a draft.
    live: usize,
    /// Bytes received so far of all values that have a draft.
    bytes: usize,
    /// Bytes of memory outside the store: headers, and the copies that drafts keep.
    pub(super) beside_bytes: usize,
    /// If `bytes` exceeds this number, stalled values are given up even if no value of this column
    /// needs a frame, because other columns need frames too.
    bytes_share: usize,
    /// True if a value may wait for frames that other values hold (false with `-M`).
    waits: bool,
}

impl Arrivals {
    pub(crate) fn new(waits: bool) -> Arrivals {
        Arrivals { all: Slab::new(), live: 0, bytes: 0, beside_bytes: 0, bytes_share: 0, waits }
    }

    pub(crate) fn set_bytes_share(&mut self, bytes: usize) {
        self.bytes_share = bytes;
    }

    pub(crate) fn any(&self) -> bool {
        self.live > 0
    }

    pub(crate) fn beside_bytes(&self) -> usize {
        self.beside_bytes
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.all.capacity() * size_of::<Option<Arrival>>() + self.beside_bytes
    }

    /// Adds a value. Returns its index, a `u32`, because fewer than 2^32 values arrive at a time.
    pub(super) fn add(&mut self, arrival: Arrival) -> u32 {
        self.beside_bytes += arrival.header.capacity();
        self.live += 1;
        u32::try_from(self.all.insert(arrival)).unwrap_or(u32::MAX)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Vec<u8> {
        self.end(index);
        let header = self.all.try_remove(index as usize).map_or_else(Vec::new, |it| it.header);
        self.beside_bytes -= header.capacity();
        header
    }

    /// Removes the draft from a value, so that the draft can be stored or dropped.
    fn end(&mut self, index: u32) -> Option<Draft> {
        let arrival = self.all.get_mut(index as usize)?;
        let draft = arrival.draft.take()?;
        self.bytes -= arrival.received_bytes;
        self.beside_bytes -= arrival.copied_bytes;
        self.live -= 1;
        Some(draft)
    }

    /// Returns why there is no space for the value's next bytes; `None` if there is space.
    fn refused(&mut self, index: u32, store: &mut Column) -> Option<StoreError> {
        self.all.get_mut(index as usize)?.draft.as_mut()?.space(store).err()
    }

    /// Makes space for the value's next bytes, and gives up other values if necessary. Returns true
    /// if there is no space yet; the caller must then call again later. If the value has waited too
    /// long, drops its draft and returns false.
    pub(crate) fn must_wait(
        &mut self,
        index: u32,
        store: Option<&mut Column>,
        served_ms: u64,
    ) -> bool {
        let Some(store) = store else { return false };
        for _ in 0..GIVE_WAY_MAX {
            let Some(refused) = self.refused(index, store) else {
                if let Some(arrival) = self.all.get_mut(index as usize)
                    && arrival.waits_since_ms.take().is_some()
                {
                    arrival.moved_ms = served_ms;
                }
                return false;
            };
            if self.give_way(index, Some(served_ms)) {
                continue;
            }
            let Some(arrival) = self.all.get_mut(index as usize) else { return false };
            let since_ms = *arrival.waits_since_ms.get_or_insert(served_ms);
            let waits = self.waits || refused == StoreError::Later;
            if waits && served_ms.saturating_sub(since_ms) < ARRIVAL_WAIT_MS_MAX {
                return true;
            }
            if !self.waits || !self.give_way(index, None) {
                break;
            }
        }
        self.end(index);
        false
    }

    /// Returns space for about `bytes_max` of the value's next bytes, and how many bytes of the
    /// value are missing; no space and 0 if the value was given up. The caller must call
    /// `must_wait` before `spaces`, and `filled` after it has written into the space.
    pub(crate) fn spaces(
        &mut self,
        index: u32,
        store: Option<&mut Column>,
        bytes_max: usize,
    ) -> (impl Iterator<Item = &mut [u8]>, usize) {
        let arrival = self.all.get_mut(index as usize);
        let draft = arrival.and_then(|it| Some((it.draft.as_mut()?, it.missing_bytes)));
        let spaces = draft
            .and_then(|(draft, missing)| Some((draft.spaces(store?, bytes_max).ok()?, missing)));
        let missing = spaces.as_ref().map_or(0, |(_, missing)| *missing);
        (spaces.into_iter().flat_map(|(spaces, _)| spaces), missing)
    }

    pub(crate) fn filled(&mut self, index: u32, bytes: usize, served_ms: u64) {
        let Some(arrival) = self.all.get_mut(index as usize) else { return };
        let Some(draft) = arrival.draft.as_mut() else { return };
        draft.filled(bytes);
        let steps = arrival.received_bytes / ARRIVAL_STEP_BYTES;
        arrival.missing_bytes -= bytes;
        arrival.received_bytes += bytes;
        self.bytes += bytes;
        if arrival.received_bytes / ARRIVAL_STEP_BYTES > steps {
            arrival.moved_ms = served_ms;
        }
    }

    /// Drops the draft that has gone longest without progress, except the draft of value `except`.
    /// If `stalled_at_ms` is given, drops only a draft that was stalled then. Returns true if it
    /// dropped a draft.
    fn give_way(&mut self, except: u32, stalled_at_ms: Option<u64>) -> bool {
        let oldest = self
            .all
            .iter()
            .filter(|(index, arrival)| {
                *index != except as usize
                    && arrival.draft.is_some()
                    && arrival.received_bytes > 0
                    && stalled_at_ms.is_none_or(|served_ms| arrival.is_stalled(served_ms))
            })
            .min_by_key(|(_, arrival)| arrival.moved_ms)
            .map(|(index, _)| index);
        oldest.and_then(|index| self.end(u32::try_from(index).ok()?)).is_some()
    }

    /// Drops stalled drafts while all drafts together hold more bytes than the column's share.
    pub(crate) fn drop_stalled(&mut self, served_ms: u64) {
        while self.bytes > self.bytes_share && self.give_way(u32::MAX, Some(served_ms)) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_of;

    #[test]
    fn stalled_values_are_dropped_oldest_first_down_to_the_share() {
        const VALUE_BYTES: u32 = 500_000;
        const RECEIVED_BYTES: usize = 100_000;
        let mut column = store_of(64).column();
        let mut arrivals = Arrivals::new(true);
        arrivals.set_bytes_share(2 * RECEIVED_BYTES);
        for moved_ms in [20, 10, 30] {
            let index = arrivals.add(Arrival {
                header: Vec::new(),
                draft: Some(column.draft(VALUE_BYTES)),
                missing_bytes: VALUE_BYTES as usize,
                tail: Tail::LineEnd,
                received_bytes: 0,
                moved_ms: 0,
                waits_since_ms: None,
                copied_bytes: 0,
            });
            while arrivals.all[index as usize].received_bytes < RECEIVED_BYTES {
                assert!(!arrivals.must_wait(index, Some(&mut column), moved_ms));
                let left = RECEIVED_BYTES - arrivals.all[index as usize].received_bytes;
                let filled =
                    arrivals.spaces(index, Some(&mut column), left).0.map(|it| it.len()).sum();
                arrivals.filled(index, left.min(filled), moved_ms);
            }
        }
        let live = |arrivals: &Arrivals| [0, 1, 2].map(|at| arrivals.all[at].draft.is_some());
        arrivals.drop_stalled(10 + ARRIVAL_STALLED_MS - 1);
        assert_eq!(live(&arrivals), [true; 3], "none is stalled");
        arrivals.drop_stalled(30 + ARRIVAL_STALLED_MS);
        assert_eq!(live(&arrivals), [true, false, true], "all are stalled, and one is too much");
    }
}
