//! Keys as registers: one thread writes each key, version after version, and all threads read it.
//!
//! Invariant: a read that begins after a write was acknowledged sees the written version, a later
//! version, or nothing; a deleted or replaced value never comes back. Without evictions only a
//! delete makes reads see nothing.

use crate::limits::Limits;
use crate::patient::at_last;
use crate::value;
use crate::{THREADS, at_once, config, each, key_of, random, settle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use store::policy::Eviction;
use store::{Body, Column, Config, Pinned, Put, PutResult, Store, StoreError, Value, Verb};
use testing::Random;

each::policies! {
    with_room_for_all_every_write_is_seen,
    at_8_mib_nothing_torn_foreign_or_old_is_seen,
    at_2_mib_nothing_torn_foreign_or_old_is_seen,
    what_is_rewritten_in_place_is_seen_whole,
    small_values_at_2_mib_nothing_torn_foreign_or_old_is_seen,
    with_room_for_all_every_write_is_seen_while_the_limit_changes,
    under_changing_limits_nothing_torn_foreign_or_old_is_seen,
}

const KEYS: u32 = 240;
/// Number of keys that are set now and then, so that other keys are evicted.
const FILL_KEYS: u32 = 40_000;

/// A test that needs evictions runs at most this number of times.
const RUNS_MAX: usize = 8;

struct Register {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

struct Run {
    store: Arc<Store>,
    registers: Vec<Register>,
    ops: usize,
    large: bool,
    fill: bool,
    /// True if all values of a key have the same length, so that they are rewritten in place.
    fixed: bool,
    eighths: &'static [usize],
}

impl Run {
    fn new(config: &Config, ops: usize, large: bool, fill: bool) -> Self {
        let register = |_| Register { begun: AtomicU64::new(0), acknowledged: AtomicU64::new(0) };
        let store = Store::new(config).expect("address space");
        let registers = (0..KEYS).map(register).collect();
        Self { store, registers, ops, large, fill, fixed: false, eighths: &[] }
    }

    fn work(&self, id: usize, column: &mut Column) -> Result<(), String> {
        let mut random = random(id + 77);
        let mut pinned: Vec<(u32, Vec<u8>, Pinned)> = Vec::new();
        let mut limits = Limits::new(&self.store, id, self.eighths);
        for op in 0..self.ops {
            if op % 8 == 0 {
                limits.step(column, &mut random)?;
            }
            match random.below(100) {
                0..30 => self.write(id, column, &mut random)?,
                30..40 if self.fill => self.fill(column, &mut random)?,
                40..42 => {
                    column.offline();
                    thread::yield_now();
                    column.online();
                }
                42..44 => _ = column.maintain(),
                44..50 => self.pin(column, &mut random, &mut pinned)?,
                _ => self.read(column, &mut random)?,
            }
            if pinned.len() > 6 {
                let (key, tail, body) = pinned.swap_remove(0);
                let bytes: Vec<u8> = body.pieces().chain([&tail[..]]).flatten().copied().collect();
                value::version(key, &bytes).map_err(|error| format!("pinned: {error}"))?;
            }
            if op % 16 == 0 {
                column.quiesce();
            }
        }
        Ok(())
    }

    fn len(&self, key: u32, random: &mut Random) -> usize {
        if self.fixed {
            return value::HEAD_BYTES + key as usize * 21 % 1009;
        }
        let len = match random.below(100) {
            0..70 => random.below(200),
            70..95 => random.below(5000),
            _ if self.large => random.below(100_000),
            _ => random.below(1000),
        };
        usize::try_from(len).unwrap()
    }

    fn write(&self, id: usize, column: &mut Column, random: &mut Random) -> Result<(), String> {
        let own = u32::try_from(random.below(u64::from(KEYS)) / THREADS as u64).unwrap();
        let key = own * u32::try_from(THREADS).unwrap() + u32::try_from(id).unwrap();
        let register = &self.registers[key as usize];
        let version = register.begun.load(Ordering::SeqCst) + 1;
        let name = key_of(key);
        let verb = match random.below(20) {
            0 => {
                let exptime = if random.below(2) == 0 { 0 } else { 500_000 };
                let touched = at_last(column, |column| column.touch(&name, exptime));
                touched.map_err(|refused| format!("touch: {refused:?}"))?;
                return Ok(());
            }
            1..4 if key % 2 == 0 => None,
            4..6 => Some(Verb::Replace),
            6..8 => Some(Verb::Add),
            _ => Some(Verb::Set),
        };
        register.begun.store(version, Ordering::SeqCst);
        let Some(verb) = verb else {
            column.delete(&name);
            register.acknowledged.store(version, Ordering::SeqCst);
            return Ok(());
        };
        let value = value::make(key, version, self.len(key, random));
        let put = Put::new(verb, &name);
        match at_last(column, |column| column.put(&put, Body::Bytes(&value))) {
            Ok(PutResult::Stored { .. }) => register.acknowledged.store(version, Ordering::SeqCst),
            Ok(PutResult::NotStored) if verb != Verb::Set => {}
            // A refused set has deleted the older value, so later reads must not see that value.
            Err(StoreError::NoMemory) if verb == Verb::Set => {
                register.acknowledged.store(version, Ordering::SeqCst);
            }
            Err(StoreError::NoMemory) => {}
            other => return Err(format!("{verb:?} of key {key}: {other:?}")),
        }
        Ok(())
    }

    fn fill(&self, column: &mut Column, random: &mut Random) -> Result<(), String> {
        for _ in 0..20 {
            let key = KEYS + u32::try_from(random.below(u64::from(FILL_KEYS))).unwrap();
            let value = value::make(key, 1, usize::try_from(random.below(300)).unwrap());
            let name = key_of(key);
            let set = Put::new(Verb::Set, &name);
            match at_last(column, |column| column.put(&set, Body::Bytes(&value))) {
                Ok(_) | Err(StoreError::NoMemory) => {}
                Err(refused) => return Err(format!("fill: {refused:?}")),
            }
        }
        Ok(())
    }

    fn read(&self, column: &mut Column, random: &mut Random) -> Result<(), String> {
        let key = u32::try_from(random.below(u64::from(KEYS))).unwrap();
        let register = &self.registers[key as usize];
        let acknowledged = register.acknowledged.load(Ordering::SeqCst);
        let hit = column.get(&key_of(key));
        let begun = register.begun.load(Ordering::SeqCst);
        let Some(hit) = hit else {
            let missed = key % 2 == 1 && acknowledged > 0;
            return match missed && self.store.stats().evictions == 0 && !self.fill {
                true => Err(format!("key {key} missed at version {acknowledged}")),
                false => Ok(()),
            };
        };
        let version = value::version(key, &value::bytes(&hit))?;
        if version < acknowledged || version > begun {
            let seen = format!("version {version} of key {key}");
            return Err(format!("{seen}, acknowledged {acknowledged}, begun {begun}"));
        }
        if random.below(8) == 0 {
            (0..random.below(30)).for_each(|_| thread::yield_now());
            let again = value::version(key, &value::bytes(&hit))?;
            if again != version {
                return Err(format!("key {key} changed in hand from {version} to {again}"));
            }
        }
        Ok(())
    }

    fn pin(
        &self,
        column: &mut Column,
        random: &mut Random,
        pinned: &mut Vec<(u32, Vec<u8>, Pinned)>,
    ) -> Result<(), String> {
        let key = u32::try_from(random.below(u64::from(KEYS))).unwrap();
        let Some(hit) = column.get(&key_of(key)) else { return Ok(()) };
        if let Value::Frames(body, tail) = hit.value {
            pinned.push((key, tail.to_vec(), body));
        }
        Ok(())
    }

    fn run(&self) -> Result<(), String> {
        at_once(&self.store, |id, column| self.work(id, column))
    }

    fn check(&self) {
        self.run().unwrap_or_else(|error| panic!("{error}"));
        let least = self.eighths.iter().min().copied();
        settle(&self.store, least, (0..KEYS + FILL_KEYS).map(|key| key_of(key).to_vec()));
    }
}

fn with_room_for_all_every_write_is_seen(eviction: Eviction) {
    let run = Run::new(&config(eviction, 64), 8_000, true, false);
    run.check();
    assert_eq!(run.store.stats().evictions, 0);
}

fn at_8_mib_nothing_torn_foreign_or_old_is_seen(eviction: Eviction) {
    // On a loaded machine, the threads may take turns in which compaction makes all the room.
    let evicts = |_| {
        let run = Run::new(&config(eviction, 8), 20_000, true, true);
        run.check();
        run.store.stats().evictions > 0
    };
    assert!((0..RUNS_MAX).any(evicts), "no run evicts");
}

fn at_2_mib_nothing_torn_foreign_or_old_is_seen(eviction: Eviction) {
    let run = Run::new(&config(eviction, 2), 5_000, true, true);
    run.check();
    assert!(run.store.stats().evictions > 0);
}

fn what_is_rewritten_in_place_is_seen_whole(eviction: Eviction) {
    for (memory_mb, fill) in [(64, false), (2, true)] {
        let config = config(eviction, memory_mb);
        let run = Run { fixed: true, ..Run::new(&config, 12_000, false, fill) };
        run.check();
        let stats = run.store.stats();
        // Not every set rewrites: deletes, touches and (at 2 MiB) evictions come in between.
        let part = if fill { 10 } else { 2 };
        assert!(stats.rewritten > 4 * 12_000 * 3 / 10 / part, "{stats:?}");
    }
}

fn small_values_at_2_mib_nothing_torn_foreign_or_old_is_seen(eviction: Eviction) {
    let run = Run::new(&Config { cas: false, ..config(eviction, 2) }, 7_000, false, true);
    run.check();
    assert!(run.store.stats().evictions > 0);
}

fn with_room_for_all_every_write_is_seen_while_the_limit_changes(eviction: Eviction) {
    let eighths = &[64 * 8, 24 * 8, 32 * 8, 200 * 8];
    let run = Run { eighths, ..Run::new(&config(eviction, 64), 3_000, true, false) };
    run.check();
    assert_eq!(run.store.stats().evictions, 0);
}

fn under_changing_limits_nothing_torn_foreign_or_old_is_seen(eviction: Eviction) {
    for (memory_mb, eighths) in [(8, &[64, 16, 5, 24, 256]), (2, &[16, 5, 12, 30, 100])] {
        let run = Run { eighths, ..Run::new(&config(eviction, memory_mb), 2_500, true, true) };
        run.check();
        assert!(run.store.stats().evictions > 0);
    }
}

/// The checks must fail if memory is reused, or given back, while readers still use it.
#[test]
#[cfg(debug_assertions)]
fn planted_early_reuse_is_caught() {
    for eighths in [&[][..], &[16, 5, 12]] {
        let caught = (0..20).any(|_| {
            let config = config(Eviction::default(), 2);
            let run = Run { eighths, ..Run::new(&config, 15_000, false, true) };
            run.store.plant_early_reuse();
            run.run().is_err()
        });
        assert!(caught, "readers saw nothing of segments reused under them, {eighths:?}");
    }
}
