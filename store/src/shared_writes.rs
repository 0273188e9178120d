//! Counts the cache lines an operation writes that other columns' operations touch: the fewer, the
//! better the operation scales with the number of cores.
//!
//! Where: `RUSTFLAGS="--cfg shuttle" cargo test -p hypostyle-store --lib shared_writes`.
//! Invariant: every access through `memory::sync`, and every byte of the log, is recorded as the
//! shipped source makes it. A line that column A writes is shared if column B reads or writes it in
//! operations of all kinds on the same keys, on others and on new ones; lines of the log, which
//! only the readers of their keys read, are counted apart.
//!
//! Mutexes are not recorded. An operation tries one if it widens the index, lays out a group anew,
//! gathers segments that are due or reports a sampled key, one key in 64; the operations recorded
//! here do none of that. Under shuttle, blocks of CAS uniques, lumps of reported items and slices
//! of drains are shorter: a line written once in four operations here is written once in 64
//! elsewhere.
//!
//! Source: Clements et al., "The scalable commutativity rule", SOSP 2013: an operation scales if it
//! writes no line that others touch.

#![allow(clippy::expect_used, reason = "a test")]

use crate::index::slot::CNT_MAX;
use crate::policy::Eviction;
use crate::verbs::{Body, Put, Verb};
use crate::{Column, Config, Store};
use memory::sync::watched::{Access, watch};
use shuttle::scheduler::RandomScheduler;
use shuttle::{MaxSteps, Runner};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

const LINE: usize = 64;
/// Number of operations looked at.
const LOOKS: u32 = 256;
/// Number of other items stored before the look. In the smallest store more than fit.
const OTHERS: u32 = 10_000;
/// Names of lines: of the index, of a segment's entry, and the column's own counters. Other columns
/// do not read the counters in each operation, only once for each segment that they open or drain,
/// to sum up the live bytes.
const COUNTERS: &str = "counters";
const INDEX_LINE: &str = "line of the index";
const INDEX_GROUP: &str = "group of the index";
const ENTRY_FIRST: &str = "segment's entry, first line";
const ENTRY_SECOND: &str = "segment's entry, second line";
/// The lines that an append writes.
const APPENDED: [&str; 5] = [COUNTERS, INDEX_GROUP, INDEX_LINE, ENTRY_FIRST, ENTRY_SECOND];
const VALUE: [u8; 100] = [b'v'; 100];
/// A value of another length, so that it is not written in place.
const LONGER: [u8; 120] = [b'w'; 120];

struct Scene {
    store: Arc<Store>,
    a: Column,
    b: Column,
    /// The keys looked at. None is sampled for the estimate of the miss ratio.
    keys: Vec<Vec<u8>>,
    made: u32,
}

/// Names of the lines that an operation writes and others touch; number of lines of the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Written {
    shared: Vec<String>,
    log: usize,
}

fn set(column: &mut Column, key: &[u8], value: &[u8]) {
    column.put(&Put::new(Verb::Set, key), Body::Bytes(value)).expect("room");
}

fn get(column: &mut Column, key: &[u8]) {
    assert!(column.get(key).is_some(), "there");
}

impl Scene {
    fn new(memory_mb: usize) -> Self {
        let config = Config {
            memory_bytes: memory_mb << 20,
            item_bytes_max: 100 << 10,
            columns: 2,
            eviction: Some(Eviction::default()),
            cas: true,
            now: 1000,
        };
        let store = Store::new(&config).expect("address space");
        let (a, mut b) = (store.column(), store.column());
        b.offline();
        let mut scene = Self { store, a, b, keys: Vec::new(), made: 0 };
        scene.keys = (0..LOOKS).map(|_| scene.fresh()).collect();
        scene
    }

    /// A key that was not there before.
    fn fresh(&mut self) -> Vec<u8> {
        loop {
            self.made += 1;
            let key = format!("key{:08}", self.made).into_bytes();
            if !self.store.mrc.samples(self.store.hash.hash(&key)) {
                return key;
            }
        }
    }

    /// Stores the keys, and then many others, by column A; then a second passes.
    fn filled(mut self) -> Self {
        let others: Vec<_> = (0..OTHERS).map(|_| self.fresh()).collect();
        for key in self.keys.iter().chain(&others) {
            set(&mut self.a, key, &VALUE);
            self.a.quiesce();
        }
        [&mut self.a, &mut self.b].into_iter().for_each(|column| column.set_now(1001));
        self
    }

    /// Lines that column B touches in operations of all kinds on the keys, others and new ones.
    fn touched(&mut self) -> BTreeSet<usize> {
        let others: Vec<_> = (0..LOOKS).map(|_| self.fresh()).collect();
        let new: Vec<_> = (0..LOOKS).map(|_| self.fresh()).collect();
        let (keys, b) = (&self.keys, &mut self.b);
        self.a.offline();
        b.online();
        let (_, accesses) = watch(|| {
            others.iter().for_each(|key| set(b, key, &VALUE));
            for key in keys.iter().chain(&others) {
                // If memory is short, the key may be gone.
                let _ = b.get(key);
                set(b, key, &VALUE);
                set(b, key, &VALUE);
                get(b, key);
                set(b, key, &LONGER);
                b.quiesce();
            }
            new.iter().for_each(|key| set(b, key, &VALUE));
        });
        accesses.iter().flat_map(lines).collect()
    }

    fn name(&self, line: usize) -> String {
        let at = line * LINE;
        let memory = self.store.memory();
        let segments = std::ptr::from_ref(memory.segments.get(0)).addr();
        let segments_end = segments + memory.segments.count_max() as usize * 2 * LINE;
        let store = std::ptr::from_ref(&*self.store).addr();
        let counters = self.store.counters.as_ptr_range();
        let mut parts = self.store.index.parts().into_iter();
        if let Some((name, _)) = parts.find(|(_, part)| part.contains(&at)) {
            return name.into();
        }
        if (segments..segments_end).contains(&at) {
            let is_first = ((at - segments) / LINE).is_multiple_of(2);
            return if is_first { ENTRY_FIRST } else { ENTRY_SECOND }.into();
        }
        if (counters.start.addr()..counters.end.addr()).contains(&at) {
            return COUNTERS.into();
        }
        if (store..store + size_of::<Store>()).contains(&at) {
            return format!("the store's own, from byte {}", at - store);
        }
        "elsewhere".into()
    }

    /// Calls `operate` for each key, and returns what each call has written.
    fn look(mut self, mut operate: impl FnMut(&mut Column, &[u8])) -> Vec<Written> {
        let mut written = Vec::new();
        for key in &self.keys {
            let (_, accesses) = watch(|| operate(&mut self.a, key));
            let writes = accesses.iter().filter(|access| access.is_write);
            written.push(writes.flat_map(lines).collect::<BTreeSet<_>>());
            self.a.quiesce();
        }
        let touched = self.touched();
        let region = &self.store.memory().region;
        let first = region.at(0).addr() / LINE;
        let bytes = (region.segments_max() as usize) << region.segment_bytes().ilog2();
        let in_log = |line: &usize| (first..first + bytes / LINE).contains(line);
        let told = |lines: &BTreeSet<usize>| {
            let shared = lines.intersection(&touched).filter(|line| !in_log(line));
            let mut shared: Vec<_> = shared.map(|line| self.name(*line)).collect();
            shared.sort_unstable();
            Written { shared, log: lines.iter().filter(|line| in_log(line)).count() }
        };
        written.iter().map(told).collect()
    }
}

fn lines(access: &Access) -> RangeInclusive<usize> {
    access.at / LINE..=(access.at + access.bytes - 1) / LINE
}

/// Runs `test` in one thread where accesses are recorded.
fn recorded(test: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.max_steps = MaxSteps::None;
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new_from_seed(0, 1), config).run(test);
}

/// Runs `looks` and asserts which shared lines most operations write, the greatest mean of their
/// number, and the number of lines of the log, which are the item's own.
fn writes(
    looks: impl Fn() -> Vec<Written> + Send + Sync + 'static,
    mostly: &'static [&'static str],
    (log, shared_mean_max): (RangeInclusive<usize>, f64),
) {
    recorded(move || {
        let looks = looks();
        let mut counts: BTreeMap<&[String], usize> = BTreeMap::new();
        looks.iter().for_each(|look| *counts.entry(&look.shared).or_default() += 1);
        let most = counts.iter().max_by_key(|(_, count)| **count).map(|(shared, _)| *shared);
        assert_eq!(
            most,
            Some(&mostly.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>()[..])
        );
        let shared: usize = looks.iter().map(|look| look.shared.len()).sum();
        let mean = shared as f64 / looks.len() as f64;
        assert!(mean <= shared_mean_max, "{mean} shared lines in the mean: {counts:?}");
        let others = looks.iter().find(|look| look.shared == mostly && !log.contains(&look.log));
        assert_eq!(others, None, "lines of the log: {log:?}");
    });
}

#[test]
fn a_get_of_a_saturated_item_writes_nothing() {
    let looks = || {
        let mut scene = Scene::new(16).filled();
        for _ in 0..=CNT_MAX {
            scene.keys.iter().for_each(|key| get(&mut scene.a, key));
        }
        scene.look(get)
    };
    // The mean is exact: no operation writes.
    writes(looks, &[], (0..=0, 0.0));
}

#[test]
fn a_get_that_hits_writes_the_slot() {
    // The line with the item's slot, where the use is counted.
    writes(|| Scene::new(16).filled().look(get), &[INDEX_LINE], (0..=0, 1.0));
}

#[test]
fn a_set_in_place_writes_the_slot_and_the_groups_word() {
    // The group's word has the lock, the slot's line the version. One operation in four takes CAS
    // uniques. The counters: see `COUNTERS`.
    let looks = || Scene::new(16).filled().look(|a, key| set(a, key, &VALUE));
    writes(looks, &[COUNTERS, INDEX_GROUP, INDEX_LINE], (2..=3, 3.3));
}

#[test]
fn a_set_of_a_new_key_writes_its_segments_entry_too() {
    // The entry's first line has cursor and committed bytes; it is shared because readers of the
    // segment's items read there the base of CAS uniques and the queue. Its second line has the
    // live bytes. Some operations take CAS uniques, report items to the index, or open a segment.
    let looks = || Scene::new(16).look(|a, key| set(a, key, &VALUE));
    writes(looks, &APPENDED, (2..=3, 5.6));
}

#[test]
fn a_set_with_another_length_writes_no_more_lines_than_one_of_a_new_key() {
    // All overwrite items of one segment, so the second line is mostly that segment's.
    let looks = || Scene::new(16).filled().look(|a, key| set(a, key, &LONGER));
    writes(looks, &APPENDED, (3..=4, 5.6));
}

#[test]
fn a_set_that_evicts_writes_twice_as_many_lines_in_the_mean() {
    // The lines of a SET of a new key. About every tenth also does a slice of a drain: for each
    // item evicted it writes the group's word, the slot's line and the ghost's, and the segment's
    // live bytes; for segments that come and go, their entries, the free list and the queues.
    let looks = || {
        let mut scene = Scene::new(1).filled();
        scene.keys = (0..LOOKS).map(|_| scene.fresh()).collect();
        let store = Arc::clone(&scene.store);
        let before = store.stats().evictions;
        let looks = scene.look(|a, key| set(a, key, &VALUE));
        assert!(store.stats().evictions > before + u64::from(LOOKS), "one each, and more");
        looks
    };
    writes(looks, &APPENDED, (2..=3, 12.0));
}
