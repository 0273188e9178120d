//! Counters, cas loops and appends by many threads: nothing acknowledged is lost.
//!
//! Invariant: meanwhile other keys are overwritten, so that items move, but nothing is evicted.

use crate::limits::Limits;
use crate::patient::at_last;
use crate::{THREADS, at_once, config, each, key_of, random};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::policy::Eviction;
use store::{Body, Column, Delta, DeltaResult, Hit, Put, PutResult, Store, Value, Verb, Vivify};
use testing::Random;

each::policies! {
    every_acknowledged_incr_counts,
    every_acknowledged_cas_counts,
    every_acknowledged_append_is_there_once,
}

const KEYS: u32 = 5;
const ROUNDS: usize = 1200;
/// First limit in MiB, later limits in eighths of a MiB, and the bound of other values' lengths.
const LIMITS: [(usize, &[usize], u64); 3] =
    [(2, &[], 600), (64, &[], 600), (8, &[36, 64, 40, 100], 2400)];
/// Number of other keys, which are overwritten all the time. Even the smallest memory holds more.
const CHURN_KEYS: u64 = 2000;

fn churn(column: &mut Column, random: &mut Random, longest: u64) -> Result<(), String> {
    let key = 1000 + u32::try_from(random.below(CHURN_KEYS)).unwrap();
    let value = vec![b'c'; usize::try_from(random.below(longest)).unwrap()];
    let name = key_of(key);
    let set = Put::new(Verb::Set, &name);
    match at_last(column, |column| column.put(&set, Body::Bytes(&value))) {
        Ok(_) => Ok(()),
        Err(refused) => Err(format!("churn: {refused:?}")),
    }
}

fn number(hit: &Hit<'_>) -> u64 {
    let Value::Log(text) = &hit.value else { panic!("a number in frames") };
    std::str::from_utf8(text).expect("digits").trim_end().parse().expect("a number")
}

fn read(column: &mut Column, key: u32) -> u64 {
    number(&column.get(&key_of(key)).expect("not evicted"))
}

fn churned(eviction: Eviction, memory_mb: usize) -> Arc<Store> {
    Store::new(&config(eviction, memory_mb)).expect("address space")
}

fn every_acknowledged_incr_counts(eviction: Eviction) {
    for (memory_mb, eighths, longest) in LIMITS {
        let store = churned(eviction, memory_mb);
        let sums: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let all = at_once(&store, |id, column| {
            let mut random = random(id);
            let mut limits = Limits::new(&store, id, eighths);
            let mut last = [0; KEYS as usize];
            for round in 0..ROUNDS {
                let key = u32::try_from(random.below(u64::from(KEYS))).unwrap();
                let by = random.below(1000);
                let delta = Delta {
                    key: &key_of(key),
                    incr: true,
                    delta: by,
                    cas: 0,
                    cas_in: None,
                    vivify: Some(Vivify { initial: by, exptime: 0 }),
                    exptime: None,
                };
                match at_last(column, |column| column.delta(&delta)) {
                    Ok(DeltaResult::Stored { value, .. }) if value >= last[key as usize] => {
                        last[key as usize] = value;
                    }
                    other => return Err(format!("incr: {other:?} after {last:?}")),
                }
                sums[key as usize].fetch_add(by, Ordering::SeqCst);
                if read(column, key) < last[key as usize] {
                    return Err(format!("key {key} counts down"));
                }
                churn(column, &mut random, longest)?;
                limits.step(column, &mut random)?;
                if round % 8 == 0 {
                    column.quiesce();
                }
            }
            Ok(())
        });
        all.unwrap_or_else(|error| panic!("{error}"));
        let stats = store.stats();
        assert_eq!(stats.evictions, 0, "{stats:?}");
        let mut column = store.column();
        for (key, sum) in sums.iter().enumerate() {
            assert_eq!(read(&mut column, u32::try_from(key).unwrap()), sum.load(Ordering::SeqCst));
        }
    }
}

fn every_acknowledged_cas_counts(eviction: Eviction) {
    for (memory_mb, eighths, longest) in LIMITS {
        let store = churned(eviction, memory_mb);
        let all = at_once(&store, |id, column| {
            let mut random = random(id);
            let mut limits = Limits::new(&store, id, eighths);
            let mut lowest = [0; KEYS as usize];
            for round in 0..ROUNDS {
                let key = u32::try_from(round).unwrap() % KEYS;
                increment(column, key, &mut lowest[key as usize])?;
                churn(column, &mut random, longest)?;
                limits.step(column, &mut random)?;
                if round % 8 == 0 {
                    column.quiesce();
                }
            }
            Ok(())
        });
        all.unwrap_or_else(|error| panic!("{error}"));
        let mut column = store.column();
        let sum: u64 = (0..KEYS).map(|key| read(&mut column, key)).sum();
        assert_eq!(sum, (THREADS * ROUNDS) as u64);
        assert_eq!(store.stats().evictions, 0);
    }
}

/// Repeats get and cas until the cas succeeds; `lowest` is the key's CAS unique seen last.
fn increment(column: &mut Column, key: u32, lowest: &mut u64) -> Result<(), String> {
    let name = key_of(key);
    loop {
        let (value, cas) = match column.get(&name) {
            Some(hit) => (number(&hit), hit.cas),
            None => (0, 0),
        };
        if cas < *lowest {
            return Err(format!("CAS unique of key {key} went back from {lowest} to {cas}"));
        }
        *lowest = cas;
        let verb = if cas == 0 { Verb::Add } else { Verb::Cas };
        let next = (value + 1).to_string();
        let put = Put { cas, ..Put::new(verb, &name) };
        match at_last(column, |column| column.put(&put, Body::Bytes(next.as_bytes()))) {
            Ok(PutResult::Stored { cas, .. }) if cas <= *lowest => {
                return Err(format!("CAS unique {cas} of key {key} after {lowest}"));
            }
            Ok(PutResult::Stored { cas, .. }) => {
                *lowest = cas;
                return Ok(());
            }
            Ok(PutResult::Exists | PutResult::NotStored) => {}
            other => return Err(format!("cas: {other:?}")),
        }
    }
}

fn every_acknowledged_append_is_there_once(eviction: Eviction) {
    const APPENDS: usize = 300;
    for (memory_mb, eighths, longest) in LIMITS {
        let store = churned(eviction, memory_mb.max(4));
        let all = at_once(&store, |id, column| {
            let mut random = random(id);
            let mut limits = Limits::new(&store, id, eighths);
            for round in 0..APPENDS {
                let record = format!("{id:02}:{round:06}:{};", "x".repeat(10 * (round % 5)));
                let appended = Put::new(Verb::AppendVivify, b"log");
                match at_last(column, |column| {
                    column.put(&appended, Body::Bytes(record.as_bytes()))
                }) {
                    Ok(PutResult::Stored { .. }) => {}
                    other => return Err(format!("append: {other:?}")),
                }
                churn(column, &mut random, longest)?;
                limits.step(column, &mut random)?;
                column.quiesce();
            }
            Ok(())
        });
        all.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(store.stats().evictions, 0);
        let mut column = store.column();
        let hit = column.get(b"log").expect("there");
        let log = String::from_utf8(crate::value::bytes(&hit)).expect("text");
        let mut next = [0; THREADS];
        for record in log.split_terminator(';') {
            let id: usize = record[..2].parse().expect("a thread");
            let round: usize = record[3..9].parse().expect("a round");
            assert_eq!(round, next[id], "in each thread's order, each once");
            next[id] += 1;
        }
        assert_eq!(next, [APPENDS; THREADS]);
    }
}
