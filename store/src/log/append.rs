//! Appends each item to the open segment of its queue and, if the item expires, of its class.
//!
//! Where: used for each item that a verb writes, or that a drain moves instead of evicting it.
//! Invariant: a segment takes items only in the flush epoch for which it was opened. An appender
//! may hold the number of a segment that was later drained and opened for another appender. Such a
//! number is harmless: a reservation in the segment either fails or is valid.
//! Source: Segcache's TTL buckets (Yang, Yue and Rashmi, NSDI 2021), see `timed`.

use super::timed::class_of;
use super::{CLASS_AT, KIND, Lane, Log, ORDER_AT, PROBATION, Place, TIMED};
use crate::item::EXPTIME_TO_COME;
use crate::policy;
use memory::segments::{NONE, Reservation};
use memory::sync::Ordering;

/// The exptimes of items that do not expire, or whose exptime is set later.
const NEVER: [u32; 2] = [0, EXPTIME_TO_COME];
/// One segment in `TIMED_PART` may be open for items that expire. While more than one segment in
/// `FREE_PART` is free, one in `TIMED_PART_WHILE_FREE` may be open for such items.
pub(super) const TIMED_PART: u32 = 16;
const TIMED_PART_WHILE_FREE: u32 = 8;
const FREE_PART: u32 = 8;

impl Log {
    /// Reserves `bytes` bytes in an open segment of `queue`, for an item with this exptime (0:
    /// never). If no such segment has room, opens another, if more than `keep` are free.
    pub(crate) fn reserve(
        &self,
        queue: policy::Queue,
        (appender, exptime): (usize, u32),
        bytes: u32,
        keep: u32,
    ) -> Option<Place> {
        if !NEVER.contains(&exptime)
            && let Some(place) = self.reserve_timed(queue, (appender, exptime), bytes, keep)
        {
            return Some(place);
        }
        let place = self.reserve_untimed(queue, appender, bytes, keep)?;
        if !NEVER.contains(&exptime) && self.segment(place.segment()).due() == u32::MAX {
            self.note_due(place.segment(), exptime);
        }
        Some(place)
    }

    fn reserve_untimed(
        &self,
        queue: policy::Queue,
        appender: usize,
        bytes: u32,
        keep: u32,
    ) -> Option<Place> {
        let open = &self.lane(queue).appenders[appender];
        let kind = kind(queue);
        loop {
            // Acquire pairs with the Release below: the fields set by `open` are visible.
            let segment = open.load(Ordering::Acquire);
            if segment != NONE
                && self.segment(segment).birth() & KIND == kind
                && let Some(place) = self.reserve_in(segment, bytes)
            {
                return Some(place);
            }
            let fresh = self.open(queue, appender, kind, keep)?;
            // AcqRel: Release pairs with the Acquire above.
            let (opened, before) = (Ordering::AcqRel, Ordering::Relaxed);
            match open.compare_exchange(segment, fresh, opened, before) {
                Ok(_) => self.displaced(segment, fresh),
                // `fresh` is sealed, not given back: another column may know its number from an
                // earlier use of the segment, and may already have appended to it.
                Err(_) => self.seal(fresh),
            }
        }
    }

    /// Seals `segment`, which an appender has replaced because it was full or another appender's.
    /// If the segment was then opened again for this appender, no other column would seal it.
    fn displaced(&self, segment: u32, by: u32) {
        if segment != NONE && segment != by {
            self.seal(segment);
        }
    }

    /// Like `reserve`, for an item that expires: uses its class, or a class of longer lives.
    fn reserve_timed(
        &self,
        queue: policy::Queue,
        (appender, exptime): (usize, u32),
        bytes: u32,
        keep: u32,
    ) -> Option<Place> {
        let timed = &self.lane(queue).timed;
        let stripe = self.stripe_of[appender];
        let now = self.now.load(Ordering::Relaxed); // orders no other data
        let own = class_of(exptime.saturating_sub(now));
        let mut class = own;
        loop {
            let segment = timed.of(stripe, class);
            let kind = kind(queue) | TIMED | (u64::from(class) << CLASS_AT);
            if segment != NONE {
                if self.segment(segment).birth() & KIND == kind
                    && let Some(place) = self.reserve_in(segment, bytes)
                {
                    return Some(place);
                }
                // The segment is full or of another class, so this class has no open segment.
                if timed.replace(stripe, class, segment, NONE) {
                    self.displaced(segment, NONE);
                }
            }
            if class == own
                && self.may_open_timed(stripe)
                && let Some(fresh) = self.open(queue, appender, kind, keep)
            {
                if !timed.replace(stripe, class, NONE, fresh) {
                    self.seal(fresh); // another column may have appended to it
                }
                // Later items of the segment will expire in second `exptime` or a little later.
                self.note_due(fresh, exptime);
                continue;
            }
            // The loop ends, since each round closes a class's segment or goes on to a later class.
            class = timed.at_least(stripe, class + u32::from(segment == NONE))?;
        }
    }

    fn may_open_timed(&self, stripe: usize) -> bool {
        let [main, probation] = &self.lanes;
        let open = main.timed.count(stripe) + probation.timed.count(stripe);
        let all = self.memory.present();
        let much_is_free = self.memory.segments.free() > all / FREE_PART;
        let part = if much_is_free { TIMED_PART_WHILE_FREE } else { TIMED_PART };
        let stripes = u32::try_from(main.timed.stripes()).unwrap_or(u32::MAX);
        open < all / part / stripes
    }

    /// Opens a free segment on the appender's node or near it, if more than `keep` are free.
    fn open(&self, queue: policy::Queue, appender: usize, kind: u64, keep: u32) -> Option<u32> {
        let segments = &self.memory.segments;
        let segment = segments.take_near(keep, segments.nodes().of_column(appender))?;
        let Lane { count, .. } = self.lane(queue);
        // Relaxed, here and below: no other data depends on these counts.
        let birth = count.opened.fetch_add(1, Ordering::Relaxed);
        let segments = count.segments.fetch_add(1, Ordering::Relaxed) + 1;
        let young_from = policy::room::young_from(birth, segments, self.window_percent);
        count.young_from.fetch_max(young_from, Ordering::Relaxed);
        self.begin(segment, (birth << ORDER_AT) | kind);
        Some(segment)
    }

    /// Reserves `bytes` bytes in a segment. Returns `None` if the segment is full or of an earlier
    /// epoch; the segment is then sealed.
    fn reserve_in(&self, segment: u32, bytes: u32) -> Option<Place> {
        match self.try_reserve(segment, bytes) {
            Reservation::At(offset) => Some(self.place(segment, offset, bytes)),
            Reservation::Sealed => {
                self.sealed(segment);
                None
            }
            Reservation::Full => None,
        }
    }

    /// Seals the oldest open segment of items that expire, if more than one segment in `TIMED_PART`
    /// is open for such items. Then a drain can take the segment and free its unused bytes.
    pub(crate) fn trim_timed(&self) {
        let all = self.memory.present();
        let open = || self.lanes.iter().flat_map(|lane| lane.timed.all());
        let hints = self
            .lanes
            .iter()
            .flat_map(|lane| (0..lane.timed.stripes()).map(|stripe| lane.timed.count(stripe)));
        if hints.sum::<u32>() > (all / TIMED_PART).max(1)
            && let Some(oldest) = open().min_by_key(|segment| self.segment(*segment).opened())
        {
            self.seal(oldest);
        }
    }
}

fn kind(queue: policy::Queue) -> u64 {
    if queue == policy::Queue::Probation { PROBATION } else { 0 }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::policy::Eviction;
    use crate::{Body, Column, Config, Put, Start, Store, Verb};
    use memory::nodes::Nodes;
    use memory::segments::State::{Draining, Frames, Open, Sealed};

    fn held(store: &Store) -> [usize; 2] {
        let segments = &store.memory().segments;
        [0, 1].map(|node| {
            let all = (0..segments.count()).filter(|segment| segments.node_of(*segment) == node);
            let holds = |segment: &u32| {
                [Open, Sealed, Draining, Frames].map(|it| segments.get(*segment).is(it))
            };
            all.filter(|segment| holds(segment).contains(&true)).count()
        })
    }

    fn set(column: &mut Column, keys: std::ops::Range<u32>, exptime: u32, value: &[u8]) {
        for key in keys {
            let key = key.to_le_bytes();
            let put = Put { exptime, ..Put::new(Verb::Set, &key) };
            assert!(column.put(&put, Body::Bytes(value)).is_ok());
            column.quiesce();
        }
    }

    #[test]
    fn what_a_column_stores_lies_on_its_node_as_long_as_that_has_room() {
        // Makes 512 segments of 32 KiB.
        let config = Config {
            memory_bytes: 16 << 20,
            item_bytes_max: 1 << 20,
            columns: 2,
            eviction: Some(Eviction::default()),
            cas: true,
            now: 100,
        };
        for (exptime, value_bytes) in [(0, 1000), (5000, 1000), (0, 60_000)] {
            let nodes = Nodes::new(&[1, 0], |_, _| 20);
            let start = Start { nodes, ..Start::default() };
            let store = Store::with_start(&config, start).expect("address space");
            let [mut one, mut other] = [store.column(), store.column()];
            other.offline();
            let value = vec![7; value_bytes];
            // A quarter of the memory is half of a node's memory.
            let quarter = u32::try_from((4 << 20) / value_bytes).unwrap();
            set(&mut one, 0..quarter, exptime, &value);
            let [none, some] = held(&store);
            assert!(none == 0 && some >= 100, "{none} and {some}, {exptime}, {value_bytes}");
            one.offline();
            other.online();
            set(&mut other, quarter..2 * quarter, exptime, &value);
            let [first, second] = held(&store);
            assert!(first >= 100 && second == some, "{first} and {second}");
            other.offline();
            one.online();
            set(&mut one, 2 * quarter..3 * quarter + quarter / 4, exptime, &value);
            let [more, all] = held(&store);
            assert!(more > first && all >= 240, "{more} and {all}: it has borrowed");
            let faults = store.audit();
            assert!(faults.is_empty(), "{faults:?}");
        }
    }
}
