//! Flushes and clock changes while other threads set and touch items.
//!
//! Invariant: once a flush has ended, no item set before the flush began is seen, but items set
//! after the flush ended are seen. An item is seen until its exptime, and not later.

use crate::patient::at_last;
use crate::value;
use crate::{THREADS, at_once, config, each, key_of, random};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use store::policy::Eviction;
use store::{Body, Column, Put, Store, Verb};

each::policies! {
    what_a_flush_took_stays_away_and_what_came_after_it_stays,
    what_is_touched_in_time_stays_until_then,
}

const ROUNDS: u64 = 2500;
const OWN_KEYS: usize = 40;

/// The last set of a key by its owner thread, and the phases in which that set began and ended.
#[derive(Clone, Copy, Default)]
struct OwnedKey {
    version: u64,
    began: u64,
    ended: u64,
}

/// The first phase by which a flush that begins after `phase` is over. Flush k is phase 2k + 1.
fn surely_flushed(phase: u64) -> u64 {
    phase.next_multiple_of(2) + 2
}

fn key(id: usize, at: usize) -> u32 {
    u32::try_from(id * 1000 + at).unwrap()
}

fn check(
    column: &mut Column,
    phase: &AtomicU64,
    key: u32,
    own: OwnedKey,
    evicts: bool,
) -> Result<(), String> {
    let before = phase.load(Ordering::SeqCst);
    let found = column.get(&key_of(key)).map(|hit| value::version(key, &value::bytes(&hit)));
    let found = found.transpose()?;
    let after = phase.load(Ordering::SeqCst);
    match found {
        Some(version) if version != own.version => {
            Err(format!("key {key} has version {version}, not {}", own.version))
        }
        Some(_) if before >= surely_flushed(own.ended) => {
            Err(format!("key {key} of phase {} is back in phase {before}", own.ended))
        }
        None if !evicts && own.version > 0 && own.began.is_multiple_of(2) && after == own.began => {
            Err(format!("key {key} set in phase {after} is missed in it"))
        }
        _ => Ok(()),
    }
}

fn what_a_flush_took_stays_away_and_what_came_after_it_stays(eviction: Eviction) {
    for (memory_mb, evicts) in [(2, true), (16, false)] {
        let store = Store::new(&config(eviction, memory_mb)).expect("address space");
        let phase = AtomicU64::new(0);
        let all = at_once(&store, |id, column| {
            let mut random = random(id);
            let mut own = [OwnedKey::default(); OWN_KEYS];
            for round in 0..ROUNDS {
                let at = usize::try_from(random.below(OWN_KEYS as u64)).unwrap();
                match random.below(10) {
                    0..4 => {
                        let version = round + 1;
                        let len = usize::try_from(random.below(3000)).unwrap();
                        let value = value::make(key(id, at), version, len);
                        let began = phase.load(Ordering::SeqCst);
                        let set = Put::new(Verb::Set, b"");
                        let name = key_of(key(id, at));
                        let set = at_last(column, |column| {
                            column.put(&Put { key: &name, ..set }, Body::Bytes(&value))
                        });
                        set.map_err(|refused| format!("set: {refused:?}"))?;
                        let ended = phase.load(Ordering::SeqCst);
                        own[at] = OwnedKey { version, began, ended };
                    }
                    4 if id == 0 && round % 8 == 0 => {
                        phase.fetch_add(1, Ordering::SeqCst);
                        column.flush(None);
                        phase.fetch_add(1, Ordering::SeqCst);
                    }
                    4 => _ = column.maintain(),
                    _ => check(column, &phase, key(id, at), own[at], evicts)?,
                }
                if evicts && round % 4 == 0 {
                    // Overwrites make work for compaction, which must not bring flushed items back.
                    let other = key(50 + id, usize::try_from(random.below(300)).unwrap());
                    let set = Put::new(Verb::Set, b"");
                    let set = Put { key: &key_of(other), ..set };
                    at_last(column, |column| column.put(&set, Body::Bytes(&[7; 900])))
                        .map_err(|e| format!("{e:?}"))?;
                }
                column.quiesce();
            }
            Ok(())
        });
        all.unwrap_or_else(|error| panic!("{error}"));
        assert!(phase.load(Ordering::SeqCst) > 20, "there were flushes");
    }
}

fn what_is_touched_in_time_stays_until_then(eviction: Eviction) {
    let store = Store::new(&config(eviction, 16)).expect("address space");
    let clock = AtomicU32::new(1000);
    let all = at_once(&store, |id, column| {
        let mut random = random(id);
        let mut expires = [0_u32; OWN_KEYS];
        for round in 0..ROUNDS {
            if id == 0 && round % 4 == 0 {
                clock.fetch_add(1, Ordering::SeqCst);
            }
            let now = clock.load(Ordering::SeqCst);
            column.set_now(now);
            let at = usize::try_from(random.below(OWN_KEYS as u64)).unwrap();
            let (key, exptime) = (key(id, at), now + 1 + u32::try_from(random.below(40)).unwrap());
            let name = key_of(key);
            match random.below(8) {
                0 => {
                    let value = value::make(key, 1, 100);
                    let never = Put::new(Verb::Set, &name);
                    // Half of the items are set without an exptime: a touch must add the field.
                    let set = if round % 2 == 0 { never } else { Put { exptime, ..never } };
                    at_last(column, |column| column.put(&set, Body::Bytes(&value)))
                        .map_err(|e| format!("{e:?}"))?;
                    expires[at] = if round % 2 == 0 { u32::MAX } else { exptime };
                }
                1 | 2 => {
                    let touched = at_last(column, |column| column.touch(&name, exptime));
                    let touched = touched.map_err(|e| format!("{e:?}"))?;
                    let later = clock.load(Ordering::SeqCst);
                    if touched != (now < expires[at]) && later < expires[at] {
                        return Err(format!("touch at {now} of what expires at {}", expires[at]));
                    }
                    expires[at] = if touched { exptime } else { 0 };
                }
                3 => {
                    // Another thread owns this key and may be touching it.
                    let other = self::key((id + 1) % THREADS, at);
                    if let Some(hit) = column.get(&key_of(other)) {
                        value::version(other, &value::bytes(&hit))?;
                    }
                }
                4 => _ = column.maintain(),
                _ => {
                    let there = column.get(&name).is_some();
                    let later = clock.load(Ordering::SeqCst);
                    if there && now >= expires[at] || !there && later < expires[at] {
                        let seen = if there { "there" } else { "missed" };
                        return Err(format!("{seen} at {now}, expires at {}", expires[at]));
                    }
                }
            }
            column.quiesce();
        }
        Ok(())
    });
    all.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(store.stats().evictions, 0);
}
