//! Counts the cache lines that one column's operation writes and that other columns' operations
//! touch. The fewer such lines, the better the operation scales with the number of cores.
//!
//! Where: `RUSTFLAGS="--cfg shuttle" cargo test -p hypostyle-store --lib shared_writes`.
//! Invariant: the test runs the server's source, and records every access through `memory::sync`
//! and to the log. A line that column A writes is shared if column B reads or writes the line in
//! operations of any kind on the same keys, on other keys or on new keys. Lines of the log are
//! counted separately, because only operations on the keys in such a line touch the line.
//!
//! Mutexes are not recorded: an operation locks a mutex only to widen the index, lay out a group
//! again, gather segments, or report a sampled key (one in 64). Under shuttle, a column takes CAS
//! uniques and reports items in smaller blocks, and drains in smaller slices: a line that one
//! operation in four writes in this test is written by one in 64 in a server.
//!
//! Source: Clements et al., "The scalable commutativity rule", SOSP 2013.

#![allow(clippy::expect_used, reason = "a test")]

use crate::index::slot::CNT_MAX;
use crate::policy::Eviction;
use crate::shared::Shared;
use crate::verbs::{Body, Put, Verb};
use crate::{Column, Config, Store};
use memory::sync::watched::{Access, watch};
use shuttle::scheduler::RandomScheduler;
use shuttle::{MaxSteps, Runner};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

const LINE: usize = 64;
/// Number of operations recorded.
const LOOKS: u32 = 256;
/// Number of other items stored before the recording. The smallest store cannot hold all of them.
const OTHERS: u32 = 10_000;
/// The name of the lines of a column's counters. Other columns read these lines only when they open
/// or drain a segment, to sum up the live bytes.
const COUNTERS: &str = "counters";
const INDEX_LINE: &str = "line of the index";
const INDEX_GROUP: &str = "group of the index";
const ENTRY_FIRST: &str = "segment's entry, first line";
const ENTRY_SECOND: &str = "segment's entry, second line";
/// The names of the lines that an append writes.
const APPENDED: [&str; 5] = [COUNTERS, INDEX_GROUP, INDEX_LINE, ENTRY_FIRST, ENTRY_SECOND];
const VALUE: [u8; 100] = [b'v'; 100];
/// A value longer than `VALUE`, so that a SET of this value does not rewrite the old item in place.
const LONGER: [u8; 120] = [b'w'; 120];

struct Scene {
    store: Arc<Store>,
    a: Column,
    b: Column,
    /// The keys of the recorded operations. None is sampled for the estimate of the miss ratio.
    keys: Vec<Vec<u8>>,
    made: u32,
}

/// The names of the shared lines, and the number of lines of the log, that an operation writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WrittenLines {
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

    fn fresh(&mut self) -> Vec<u8> {
        loop {
            self.made += 1;
            let key = format!("key{:08}", self.made).into_bytes();
            if !self.store.mrc.samples(self.store.hash.hash(&key)) {
                return key;
            }
        }
    }

    /// Lets column A store the keys and then many other keys, and moves the clock on by a second.
    fn filled(mut self) -> Self {
        let others: Vec<_> = (0..OTHERS).map(|_| self.fresh()).collect();
        for key in self.keys.iter().chain(&others) {
            set(&mut self.a, key, &VALUE);
            self.a.quiesce();
        }
        [&mut self.a, &mut self.b].into_iter().for_each(|column| column.set_now(1001));
        self
    }

    /// Returns the lines that B touches in all kinds of operations on the same, other and new keys.
    fn touched(&mut self) -> BTreeSet<usize> {
        let others: Vec<_> = (0..LOOKS).map(|_| self.fresh()).collect();
        let new: Vec<_> = (0..LOOKS).map(|_| self.fresh()).collect();
        let (keys, b) = (&self.keys, &mut self.b);
        self.a.offline();
        b.online();
        let (_, accesses) = watch(|| {
            others.iter().for_each(|key| set(b, key, &VALUE));
            for key in keys.iter().chain(&others) {
                // If memory is short, the key may have been evicted.
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
        let shared = std::ptr::from_ref::<Shared>(&self.store).addr();
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
        if (shared..shared + size_of::<Shared>()).contains(&at) {
            return format!("line of the struct Shared, at byte {}", at - shared);
        }
        "elsewhere".into()
    }

    fn look(mut self, mut operate: impl FnMut(&mut Column, &[u8])) -> Vec<WrittenLines> {
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
        let named = |lines: &BTreeSet<usize>| {
            let shared = lines.intersection(&touched).filter(|line| !in_log(line));
            let mut shared: Vec<_> = shared.map(|line| self.name(*line)).collect();
            shared.sort_unstable();
            WrittenLines { shared, log: lines.iter().filter(|line| in_log(line)).count() }
        };
        written.iter().map(named).collect()
    }
}

fn lines(access: &Access) -> RangeInclusive<usize> {
    access.at / LINE..=(access.at + access.bytes - 1) / LINE
}

fn recorded(test: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.max_steps = MaxSteps::None;
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new_from_seed(0, 1), config).run(test);
}

/// Asserts that the operations of `looks` most often write the shared lines `mostly`, and on
/// average at most `shared_mean_max` shared lines; and that an operation that writes `mostly` also
/// writes `log` lines of the log.
fn writes(
    looks: impl Fn() -> Vec<WrittenLines> + Send + Sync + 'static,
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
    writes(looks, &[], (0..=0, 0.0));
}

#[test]
fn a_get_that_hits_writes_the_slot() {
    // A hit raises the counter in the item's slot, which lies in a line of the index.
    writes(|| Scene::new(16).filled().look(get), &[INDEX_LINE], (0..=0, 1.0));
}

#[test]
fn a_set_in_place_writes_the_slot_and_the_groups_word() {
    // The group's word holds the lock, and the slot's line holds the version. One operation in four
    // takes CAS uniques. No other column reads the counters of sets.
    let looks = || Scene::new(16).filled().look(|a, key| set(a, key, &VALUE));
    writes(looks, &[INDEX_GROUP, INDEX_LINE], (2..=3, 2.3));
}

#[test]
fn a_set_of_a_new_key_writes_its_segments_entry_too() {
    // The first line of the segment's entry holds the cursor and the committed bytes; readers of
    // the segment's items read the base of CAS uniques and the queue in the same line. The second
    // line holds the live bytes. Some operations take CAS uniques, report items, or open a segment.
    let looks = || Scene::new(16).look(|a, key| set(a, key, &VALUE));
    writes(looks, &APPENDED, (2..=3, 5.6));
}

#[test]
fn a_set_with_another_length_writes_no_more_lines_than_one_of_a_new_key() {
    let looks = || Scene::new(16).filled().look(|a, key| set(a, key, &LONGER));
    writes(looks, &APPENDED, (3..=4, 5.6));
}

#[test]
fn a_set_that_evicts_writes_twice_as_many_lines_in_the_mean() {
    // Each operation writes the lines of a SET of a new key. One operation in ten also does a slice
    // of a drain. The slice writes, for each evicted item, the group's word, the lines of slot and
    // ghost, and the segment's live bytes; for each segment opened or retired, its entry, the free
    // list and a queue.
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
