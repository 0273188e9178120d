//! Compares streams with known results: lives of items with TTLs, hit ratios, and samples.
//!
//! Where: tests of `stream`. Invariant: a tolerance is several standard errors of the numbers.

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn request(operation: Operation, key: u64, at_s: u64) -> Request {
    let size = Size { key: 20, value: 100 };
    Request { key, size, ttl_s: 0, operation, at_ns: at_s * SECOND_NS }
}

/// Makes `count` requests that fetch evenly drawn keys, `per_s` requests in each second.
fn even(keys: u64, count: u64, per_s: u64, ttl_s: u32) -> impl Iterator<Item = Request> {
    (0..count).map(move |at| Request {
        key: mix(at) % keys,
        size: Size { key: 20, value: 1000 },
        ttl_s,
        operation: Operation::Fetch,
        at_ns: at * SECOND_NS / per_s,
    })
}

#[test]
fn each_operation_does_what_it_says() {
    let mut live = LiveStore::new(1 << 20, Eviction::default()).unwrap();
    let large = Size { key: 20, value: 2 << 20 };
    for (operation, key, answer) in [
        (Operation::Get, 1, Answer::Miss),
        (Operation::Get, 1, Answer::Miss),
        (Operation::Fetch, 1, Answer::Miss),
        (Operation::Fetch, 1, Answer::Hit),
        (Operation::Append, 1, Answer::Stored),
        (Operation::Add, 1, Answer::NotStored),
        (Operation::Replace, 1, Answer::Stored),
        (Operation::Delete, 1, Answer::Hit),
        (Operation::Delete, 1, Answer::Miss),
        (Operation::Append, 1, Answer::NotStored),
        (Operation::Replace, 1, Answer::NotStored),
        (Operation::Add, 1, Answer::Stored),
        (Operation::Delete, 1, Answer::Hit),
        (Operation::Set, u64::from(u32::MAX) + 2, Answer::Stored),
        (Operation::Get, 1, Answer::Miss),
        (Operation::Get, u64::from(u32::MAX) + 2, Answer::Hit),
    ] {
        assert_eq!(live.execute(&request(operation, key, 0)), answer, "{operation:?} of {key}");
    }
    let refused = Request { size: large, ..request(Operation::Set, 7, 0) };
    assert_eq!(live.execute(&refused), Answer::Refused);
    let missed = Request { size: large, ..request(Operation::Fetch, 7, 0) };
    assert_eq!([live.execute(&missed), live.execute(&missed)], [Answer::Miss; 2]);
}

#[test]
fn what_is_stored_lives_as_long_as_it_is_told_by_the_requests_clock() {
    let mut live = LiveStore::new(1 << 20, Eviction::default()).unwrap();
    let mut ask = |operation, at_s| {
        let mortal = Request { ttl_s: 60, ..request(operation, 1, at_s) };
        live.execute(&mortal)
    };
    assert_eq!(ask(Operation::Set, 100), Answer::Stored);
    assert_eq!(ask(Operation::Get, 159), Answer::Hit);
    assert_eq!(ask(Operation::Get, 160), Answer::Miss);
    assert_eq!(ask(Operation::Set, 170), Answer::Stored);
    assert_eq!(ask(Operation::Get, 120), Answer::Hit);
    live.execute(&request(Operation::Get, 2, 240));
    assert_eq!(live.store().stats().bytes, 0);
}

#[test]
fn hit_ratios_with_ttls_are_those_of_the_formula() {
    // Each key is requested once in ten seconds on average. After a miss, the key hits until its
    // TTL ends. The clock counts whole seconds, which shortens a TTL by half a second on average.
    for (ttl_s, lives_s) in [(30, 29.5), (5, 4.5)] {
        let requests = even(1000, 300_000, 100, ttl_s);
        let counted =
            run(8 << 20, Eviction::default(), 100 * SECOND_NS..u64::MAX, requests).unwrap();
        let expected = 0.1 * lives_s / (1.0 + 0.1 * lives_s);
        assert!((counted.hit_ratio() - expected).abs() < 0.01, "{counted:?}, not {expected}");
        assert_eq!(counted.lookups().gets, 300_000 - 10_000);
        assert_eq!((counted.refused, counted.stats.evictions), (0, 0));
    }
}

#[test]
fn more_memory_gives_more_hits_up_to_all() {
    let requests = || even(6000, 60_000, 1000, 0);
    let sizes = [2 << 20, 4 << 20, 16 << 20];
    let curve = curve(&sizes, Eviction::default(), 3, 30 * SECOND_NS..u64::MAX, requests).unwrap();
    assert_eq!(curve.iter().map(|one| one.memory_bytes).collect::<Vec<_>>(), sizes);
    // The hit ratio of a small store is about the share of the keys for which it has room.
    for (counted, mib) in curve.iter().zip([2.0, 4.0]) {
        let room = mib * 1_048_576.0 / (1020.0 + 18.0) / 6000.0;
        let hits = counted.hit_ratio();
        assert!((room * 0.8..room).contains(&hits), "{hits} in {mib} MiB, room for {room}");
    }
    assert!(curve[2].hit_ratio() > 0.995, "{:?}", curve[2]);
    assert!(matches!(
        super::curve(&[1 << 30, 1], Eviction::default(), 2, 0..1, requests),
        Err(MakeError::Map(1, _))
    ));
}

#[test]
fn a_sample_of_the_keys_says_what_all_would() {
    let requests = || even(40_000, 400_000, 1000, 0);
    let whole = run(16 << 20, Eviction::Fifo, 200 * SECOND_NS..u64::MAX, requests()).unwrap();
    let part = requests().filter(sampled(4));
    let part = run(4 << 20, Eviction::Fifo, 200 * SECOND_NS..u64::MAX, part).unwrap();
    let sample: Vec<u64> = sample(4, 39_999).collect();
    let is_chosen = |key: &u64| sampled(4)(&request(Operation::Get, *key, 0));
    assert!((0..39_999).filter(is_chosen).eq(sample.iter().copied()) && sample.len() >= 9_999);
    assert!((part.lookups().gets as f64 / whole.lookups().gets as f64 - 0.25).abs() < 0.01);
    let (whole, part) = (whole.hit_ratio(), part.hit_ratio());
    assert!((part / whole - 1.0).abs() < 0.05, "{part} of a sample, {whole} of all");
}
