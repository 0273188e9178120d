//! Tests of sequences: equal seeds give equal sequences, shares are right, traces are replayed.
//!
//! Where: unit tests. Invariant: see `tests`.

use super::super::random::hash;
use super::super::{Names, Stream, VERBS, Verb, Workload, WorkloadRequest, presets};
use super::{Folder, made, requests};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use simulate::trace::Trace;
use std::path::Path;
use std::sync::Arc;

/// Returns a hash of the first requests of two threads, including names, values and gaps.
fn digest(workload: &Arc<Workload>, seed: u64) -> u64 {
    let names = Names::new(workload);
    let (mut sum, mut bytes, mut request) = (0, Vec::new(), WorkloadRequest::default());
    for thread in 0..2 {
        let mut stream = Stream::new(workload, seed, thread, 2);
        for _ in 0..2000 {
            assert!(stream.next(&mut request));
            bytes.clear();
            bytes.extend_from_slice(request.verb.name().as_bytes());
            for key in &request.keys {
                names.key(*key, &mut bytes);
                names.value(*key, request.value_bytes, &mut bytes);
            }
            bytes.extend_from_slice(&request.exptime_s.to_le_bytes());
            bytes.extend_from_slice(&stream.gap_ns(10_000.0).to_le_bytes());
            for piece in bytes.chunks(8) {
                let mut word = [0; 8];
                word[..piece.len()].copy_from_slice(piece);
                sum = hash(sum, u64::from_le_bytes(word)).rotate_left(7);
            }
        }
    }
    sum
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    // These numbers fix the sequences. If a number changes, earlier runs cannot be compared with
    // later runs, and the changelog must say this.
    let expected = [
        ("uniform", 4_880_563_454_970_651_712),
        ("zipf", 2_299_617_954_484_913_321),
        ("mix-a", 3_626_990_617_293_163_217),
        ("mix-b", 14_218_809_095_232_120_178),
        ("mix-c", 9_057_007_977_124_180_794),
        ("etc", 14_659_260_001_411_356_001),
        ("etc-as-printed", 7_911_043_678_014_776_939),
        ("facebook", 14_382_267_610_295_152_102),
        ("thesis", 12_701_436_919_633_218_846),
        ("solarflare-1", 5_859_697_896_993_055_722),
        ("solarflare-48", 1_651_383_779_117_886_561),
    ];
    let made = presets::PRESETS.map(|preset| (preset.name, digest(&made(preset.name, &[]), 1)));
    assert_eq!(made.as_slice(), expected);
    let zipf = super::made("zipf", &[]);
    assert_eq!(digest(&zipf, 7), digest(&zipf, 7));
    assert_ne!(digest(&zipf, 7), digest(&zipf, 8));
}

fn popular(workload: &Arc<Workload>, seed: u64) -> Vec<u64> {
    let mut counts = std::collections::BTreeMap::new();
    for request in requests(workload, seed, 200_000) {
        *counts.entry(request.keys[0]).or_insert(0_u32) += 1;
    }
    let mut keys: Vec<(u64, u32)> = counts.into_iter().collect();
    keys.sort_by_key(|(key, count)| (std::cmp::Reverse(*count), *key));
    let mut keys: Vec<u64> = keys.into_iter().take(5).map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn another_seed_is_another_sample_of_the_same_population() {
    let settings = [("popularity", "zipf:1.2"), ("value-size", "1-9999"), ("key-size", "20-40")];
    let made = |population| {
        let settings = [&settings[..], &[("population-seed", population)]].concat();
        super::made("uniform", &settings)
    };
    let [one, other] = [made("1"), made("2")];
    assert_ne!(requests(&one, 1, 100), requests(&one, 2, 100));
    assert_eq!(popular(&one, 1), popular(&one, 2));
    assert_ne!(popular(&one, 1), popular(&other, 1));
    // The SETs of a key write the same size in both samples.
    let written = |seed| {
        let sets =
            requests(&one, seed, 5000).into_iter().filter(|request| request.verb == Verb::Set);
        sets.map(|request| (request.keys[0], request.value_bytes)).collect::<Vec<_>>()
    };
    let names = Names::new(&one);
    for (key, bytes) in [written(1), written(2)].concat() {
        assert_eq!(names.value_bytes(key), bytes);
    }
}

#[test]
fn threads_do_not_repeat_each_other() {
    let workload = made("uniform", &[("keys", "1099511627776")]);
    let keys = |thread| {
        let mut stream = Stream::new(&workload, 1, thread, 4);
        let mut request = WorkloadRequest::default();
        let mut next = || stream.next(&mut request).then(|| request.keys[0]).unwrap();
        (0..20_000).map(|_| next()).collect::<Vec<_>>()
    };
    let mut all: Vec<u64> = (0..4).flat_map(keys).collect();
    all.sort_unstable();
    // Among 80,000 random keys out of 2^40, two are equal with a probability of only 1 in 300.
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn a_rate_does_not_change_the_requests() {
    let workload = made("etc", &[]);
    let run = |mean_ns: Option<f64>| {
        let mut stream = Stream::new(&workload, 1, 0, 1);
        let mut request = WorkloadRequest::default();
        let mut next = |_| {
            assert!(stream.next(&mut request));
            mean_ns.map(|mean_ns| stream.gap_ns(mean_ns));
            request.clone()
        };
        (0..1000).map(&mut next).collect::<Vec<_>>()
    };
    assert_eq!(run(None), run(Some(5.0)));
}

#[test]
fn mixes_have_their_shares() {
    for (preset, shares) in [
        ("mix-a", [100.0, 0.0, 0.0, 0.0]),
        ("mix-b", [96.77, 3.23, 0.0, 0.0]),
        ("mix-c", [70.0, 25.0, 5.0, 0.0]),
        ("thesis", [100.0 / 1.1, 10.0 / 1.1, 0.0, 0.0]),
        ("solarflare-1", [90.0, 10.0, 0.0, 0.0]),
        ("solarflare-48", [90.0, 10.0, 0.0, 0.0]),
    ] {
        let (mut keys, mut all) = ([0; VERBS.len()], 0);
        for request in requests(&made(preset, &[]), 1, 100_000) {
            keys[request.verb as usize] += request.keys.len();
            all += request.keys.len();
            assert!(
                (request.verb == Verb::Set) == (request.value_bytes > 0),
                "{preset}: {request:?}"
            );
            assert!(
                request.keys.len() == 1 || (preset == "solarflare-48" && request.keys.len() == 48)
            );
        }
        for (count, share) in keys.iter().zip(shares) {
            let percent = *count as f64 * 100.0 / all as f64;
            assert!((percent - share).abs() < 0.5, "{preset}: {keys:?}");
        }
    }
}

#[test]
fn sizes_and_times_to_live_are_drawn() {
    let settings = [("mix", "set"), ("value-size", "10-20"), ("ttl", "60-90"), ("keys", "50")];
    let by_key = made("uniform", &settings);
    let names = Names::new(&by_key);
    for request in requests(&by_key, 1, 1000) {
        assert_eq!(
            request.value_bytes,
            names.value_bytes(request.keys[0]),
            "the same at every use"
        );
        assert!((60..=90).contains(&request.exptime_s));
    }
    let by_request = made("uniform", &[&settings[..], &[("value-size-per", "request")]].concat());
    let mut first_key = requests(&by_request, 1, 1000);
    first_key.retain(|request| request.keys == [0]);
    assert!(first_key.windows(2).any(|pair| pair[0].value_bytes != pair[1].value_bytes));
    let batches = made("uniform", &[("batch", "1-3"), ("mix", "get")]);
    let mut counts = [0; 4];
    requests(&batches, 1, 3000).iter().for_each(|request| counts[request.keys.len()] += 1);
    assert!(counts[0] == 0 && counts[1..].iter().all(|count| (900..1100).contains(count)));
}

#[test]
fn steady_streams_take_no_memory() {
    let workload = made("solarflare-48", &[("popularity", "zipf:1")]);
    let mut stream = Stream::new(&workload, 1, 0, 1);
    let mut request = WorkloadRequest::default();
    (0..100).for_each(|_| assert!(stream.next(&mut request)));
    let (place, room) = (request.keys.as_ptr(), request.keys.capacity());
    (0..10_000).for_each(|_| assert!(stream.next(&mut request)));
    assert_eq!((request.keys.as_ptr(), request.keys.capacity()), (place, room));
}

fn replaying(trace: &Path, settings: &[(&str, &str)]) -> Arc<Workload> {
    made("uniform", &[&[("trace", trace.to_str().unwrap())], settings].concat())
}

const ROWS: &str = "\
5,a,20,7,1,get,0
5,b,30,8,1,set,60
6,a,20,7,1,delete,0
6,b,30,9,1,append,0
";

#[test]
fn a_recording_is_replayed_as_it_was() {
    let folder = Folder::new("replayed");
    let trace = folder.file("rows.csv", ROWS.as_bytes());
    let workload = replaying(&trace, &[("gap", "trace"), ("trace-loops", "2")]);
    let all = requests(&workload, 1, 100);
    let told: Vec<_> =
        all.iter().map(|request| (request.verb, request.keys[0], request.value_bytes)).collect();
    let once = [(Verb::Get, 0, 0), (Verb::Set, 1, 8), (Verb::Delete, 0, 0), (Verb::Append, 1, 9)];
    assert_eq!(told, [once, once].concat());
    assert_eq!(all[1].exptime_s, 60);
    let names = Names::new(&workload);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    names.key(0, &mut a);
    names.key(1, &mut b);
    assert_eq!((a.len(), b.len()), (20, 30));
    assert_eq!((names.value_bytes(0), names.value_bytes(1)), (7, 8));
    // Two requests per second have gaps of half a second; at twice the rate, of a quarter second.
    assert_eq!(workload.own_gap_ns(1), Some(5e8));
    let gaps = |mean_ns: f64| {
        let mut stream = Stream::new(&workload, 1, 0, 1);
        let mut request = WorkloadRequest::default();
        let mut gaps = Vec::new();
        while stream.next(&mut request) {
            gaps.push(stream.gap_ns(mean_ns) / 1_000_000);
        }
        gaps
    };
    assert_eq!(gaps(f64::NAN), [0, 500, 500, 500, 500, 500, 500, 500]);
    assert_eq!(gaps(2.5e8)[1..4], [250, 250, 250]);
}

#[test]
fn threads_share_a_recording() {
    let folder = Folder::new("shared");
    let trace = folder.file("rows.csv", ROWS.as_bytes());
    let workload = replaying(&trace, &[("gap", "trace")]);
    let mut seen = Vec::new();
    for thread in 0..3 {
        let mut stream = Stream::new(&workload, 1, thread, 3);
        let (mut request, mut due_ns) = (WorkloadRequest::default(), 0);
        while stream.next(&mut request) {
            due_ns += stream.gap_ns(f64::NAN);
            seen.push((due_ns / 1_000_000, request.verb));
        }
    }
    seen.sort_unstable_by_key(|one| one.0);
    let whole = [(0, Verb::Get), (500, Verb::Set), (1000, Verb::Delete), (1500, Verb::Append)];
    assert_eq!(seen, whole);
}

#[test]
fn recorded_keys_take_the_rest_from_the_workload() {
    let keys: Vec<u8> = [3_u32, 5, 3, 9, 5].iter().flat_map(|key| key.to_le_bytes()).collect();
    let packed = compress_to_vec(keys.as_slice(), CompressionLevel::Fastest);
    let folder = Folder::new("numbers");
    let trace = folder.file("keys.u32.zst", &packed);
    assert_eq!(Trace::read(&trace).unwrap().requests, [0, 1, 0, 2, 1]);
    let singly = replaying(&trace, &[("mix", "set"), ("value-size", "100")]);
    let told: Vec<_> = requests(&singly, 1, 99)
        .iter()
        .map(|request| (request.keys[0], request.value_bytes))
        .collect();
    assert_eq!(told, [(0, 100), (1, 100), (0, 100), (2, 100), (1, 100)]);
    let batched = replaying(&trace, &[("mix", "get"), ("batch", "2")]);
    let told: Vec<_> = requests(&batched, 1, 99).into_iter().map(|request| request.keys).collect();
    assert_eq!(told, [vec![0, 1], vec![0, 2], vec![1]]);
    // With 0 loops, the trace is repeated without end.
    let endless = replaying(&trace, &[("trace-loops", "0")]);
    assert_eq!(requests(&endless, 1, 1234).len(), 1234);
    assert_eq!(endless.keys(), 3);
}
