//! Tests that compare drawn keys with the formulas of the laws.
//!
//! Where: unit tests. Invariant: see `tests`.

use super::super::popularity::{KeySampler, Popularity, power_law};
use super::super::random;
use super::super::zipf::Zipf;
use super::super::{Stream, Workload, WorkloadRequest};
use super::{DISTANCE_MAX, Files, distance, made};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use statrs::distribution::{ContinuousCDF, Normal};
use std::collections::HashSet;
use std::sync::Arc;

fn drawn(text: &str, keys: u64, draws: usize) -> Vec<u64> {
    let table = Popularity::parse(text, &Files::here("")).unwrap().table(keys).unwrap();
    let mut sampler = KeySampler::new(keys, Some(1), 0, 1);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(21);
    (0..draws).map(|_| sampler.draw(&table, &mut random)).collect()
}

/// Returns the number of draws of each key, in descending order.
fn ranked(keys: u64, drawn: &[u64]) -> Vec<u64> {
    let mut counts = vec![0; usize::try_from(keys).unwrap()];
    drawn.iter().for_each(|key| counts[usize::try_from(*key).unwrap()] += 1);
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts
}

#[test]
fn the_papers_buckets_have_the_papers_shares() {
    let shares = power_law(0.01, 0.001, 10_000);
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    assert!(shares.is_sorted_by(|one, other| one >= other));
    let top = |count: usize| format!("{:.3}", shares[..count].iter().sum::<f64>());
    assert_eq!((top(100), top(1000)), ("0.339".to_owned(), "0.660".to_owned()));
    assert_eq!(format!("{:.4}", shares[0]), "0.0133");
}

#[test]
fn the_papers_keys_are_drawn_by_those_shares() {
    // Four generators, each with 250,000 keys in 10,000 buckets of 25 keys.
    let (keys, draws) = (1_000_000, 2_000_000);
    let counts = ranked(keys, &drawn("power-law:0.01,0.001,10000,4", keys, draws));
    let top = |count: usize| counts[..count].iter().sum::<u64>() as f64 / draws as f64;
    // The expected shares are those of the top bucket of each generator, and of the top 1 % and 10
    // % of all buckets.
    assert!((top(100) - 0.0133).abs() < 0.001, "{}", top(100));
    assert!((top(10_000) - 0.339).abs() < 0.005, "{}", top(10_000));
    assert!((0.655..0.69).contains(&top(100_000)), "{}", top(100_000));
}

#[test]
fn popular_keys_are_no_neighbours() {
    for text in ["zipf:1", "power-law:0.01,0.001,10000,4"] {
        let keys = drawn(text, 1_000_000, 20_000);
        let low = keys.iter().filter(|key| **key < 100_000).count();
        // The first tenth of the keys gets about a tenth of the requests.
        assert!((1_000..3_600).contains(&low), "{text}: {low}");
        assert!(keys.iter().all(|key| *key < 1_000_000));
    }
}

fn zipf_shares(exponent: f64, keys: u32) -> Vec<f64> {
    let weight = |rank: u32| f64::from(rank).powf(-exponent);
    let sum: f64 = (1..=keys).map(weight).sum();
    (1..=keys).map(|rank| weight(rank) / sum).collect()
}

#[test]
fn zipf_is_zipf_at_every_exponent() {
    let draws = 300_000;
    for (exponent, keys) in [
        (0.0, 100),
        (0.5, 50_000),
        (0.99, 100_000),
        (1.0, 100_000),
        (1.0, 1),
        (1.01, 4096),
        (1.0001, 4097),
        (1.5, 1_000_000),
        (2.0, 10_000),
        (5.0, 1000),
        (10.0, 100_000),
    ] {
        let zipf = Zipf::new(exponent, u64::from(keys)).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(22);
        let mut counts = vec![0_u64; keys as usize];
        for _ in 0..draws {
            counts[usize::try_from(zipf.draw(&mut random)).unwrap()] += 1;
        }
        let (mut seen, mut expected, mut most) = (0, 0.0, 0.0_f64);
        for (count, share) in counts.iter().zip(zipf_shares(exponent, keys)) {
            seen += count;
            expected += share;
            most = most.max((seen as f64 / f64::from(draws) - expected).abs());
        }
        let distance = most * f64::from(draws).sqrt();
        assert!(distance < DISTANCE_MAX, "exponent {exponent}, {keys} keys: {distance}");
    }
}

#[test]
fn zipf_holds_beyond_any_table() {
    // With exponent 1, ranks are uniform on a logarithmic scale, except the first few ranks.
    let keys = 1_u64 << 40;
    let zipf = Zipf::new(1.0, keys).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(23);
    let sum = |rank: f64| rank.ln() + 0.577_215_664_9 + 1.0 / (2.0 * rank);
    let all = sum(keys as f64);
    let mut ranks: Vec<f64> = (0..100_000).map(|_| zipf.draw(&mut random) as f64 + 1.0).collect();
    assert!(ranks.iter().all(|rank| *rank <= keys as f64));
    ranks.retain(|rank| *rank > 1000.0);
    let share = 1.0 - sum(1000.0) / all;
    assert!((ranks.len() as f64 / 1e5 - share).abs() < 0.006, "{} above 1000", ranks.len());
    let below = |rank: f64| (sum(rank) - sum(1000.0)) / (all - sum(1000.0));
    assert!(distance(&mut ranks, below) < DISTANCE_MAX);
}

#[test]
fn gaussian_is_statrs_normal_cut_off() {
    for (text, deviation, middle) in
        [("gaussian", 1.0 / 6.0, 0.5), ("gaussian:0.05,0.2", 0.05, 0.2), ("gaussian:1,0", 1.0, 0.0)]
    {
        let keys = 1_000_000_000;
        let normal = Normal::new(middle, deviation).unwrap();
        let places = drawn(text, keys, 100_000);
        let mut places: Vec<f64> = places.iter().map(|key| *key as f64 / keys as f64).collect();
        let (low, high) = (normal.cdf(0.0), normal.cdf(1.0));
        let below = |place: f64| (normal.cdf(place) - low) / (high - low);
        let distance = distance(&mut places, below);
        assert!(distance < DISTANCE_MAX, "{text}: {distance}");
    }
}

#[test]
fn uniform_is_uniform() {
    let keys = drawn("uniform", 1000, 200_000);
    let mut places: Vec<f64> = keys
        .iter()
        .zip(0..)
        // A random place within each key makes the distribution continuous.
        .map(|(key, n)| (*key as f64 + random::fraction(random::hash(9, n))) / 1000.0)
        .collect();
    assert!(distance(&mut places, |place| place) < DISTANCE_MAX);
}

#[test]
fn histograms_take_the_place_of_every_law() {
    let folder = super::Folder::new("histograms");
    let of = |name: &str, text: &str| format!("file:{}", folder.file(name, text).display());
    // Three buckets of ten keys each, in the order of their values. The middle bucket has weight 0.
    let keys = of("keys", "30 3\n10 1\n20 0\n");
    let workload = made(
        "uniform",
        &[
            ("keys", "30"),
            ("popularity", &keys),
            ("key-size", &of("names", "20 1\n40 1\n")),
            ("value-size", &of("values", "7,1\n9,3\n")),
            ("mix", &of("verbs", "set 3\ndelete,1\n")),
            ("ttl", &of("lives", "60 1\n")),
            ("gap", &of("gaps", "# us\n0.5 9\n10.5 1\n")),
        ],
    );
    let names = super::super::Names::new(&workload);
    let requests = super::requests(&workload, 1, 40_000);
    let share = |is: &dyn Fn(&super::WorkloadRequest) -> bool| {
        requests.iter().filter(|request| is(request)).count() as f64 / requests.len() as f64
    };
    let sets = share(&|request| request.verb.name() == "set");
    assert!(
        (sets - 0.75).abs() < 0.01 && share(&|request| request.exptime_s == 60) == sets,
        "{sets}"
    );
    assert!(share(&|request| request.verb.name() == "delete") + sets == 1.0);
    let mut counts = [0; 30];
    requests.iter().for_each(|request| counts[usize::try_from(request.keys[0]).unwrap()] += 1);
    counts.sort_unstable();
    let thirds = [0..10, 10..20, 20..30].map(|third| counts[third].iter().sum::<i32>());
    assert_eq!(thirds[0], 0);
    assert!((f64::from(thirds[2]) / 40_000.0 - 0.75).abs() < 0.01, "{thirds:?}");
    let mut key = Vec::new();
    for number in 0..30 {
        key.clear();
        names.key(number, &mut key);
        assert!([20, 40].contains(&key.len()) && [7, 9].contains(&names.value_bytes(number)));
    }
    assert!((workload.own_gap_ns(3).unwrap() - 1500.0).abs() < 1e-9);
    let mut stream = super::Stream::new(&workload, 1, 0, 3);
    assert!((0..1000).all(|_| [500, 10_500].contains(&stream.gap_ns(f64::NAN))));
    let error = Popularity::parse(&of("words", "get 1\n"), &Files::here("")).unwrap_err();
    assert!(error.to_string().ends_with("line 1: get is not a number"), "{error}");
}

#[test]
fn keys_of_a_file_are_as_popular_as_their_lines_say() {
    let folder = super::Folder::new("listed");
    let text: String = (0..1000).map(|line| format!("user:{line}\n")).collect();
    let listed = folder.file("keys", &text);
    let made = |popularity: &str| {
        let listed = ("key-file", listed.to_str().unwrap());
        made("uniform", &[("popularity", popularity), listed, ("value-size", "20-90")])
    };
    let share = |workload, below: u64| {
        let requests = super::requests(workload, 1, 100_000);
        requests.iter().filter(|request| request.keys[0] < below).count() as f64
            / requests.len() as f64
    };
    // The key in the first line is the most popular. Its share is 1 / (1/1 + 1/2 + ... + 1/1000).
    let workload = made("zipf:1");
    assert!((share(&workload, 1) - 1.0 / 7.485_471).abs() < 0.005);
    assert!((share(&workload, 10) - 2.928_968 / 7.485_471).abs() < 0.005);
    assert_eq!((workload.keys(), workload.items_bytes()), (1000, 7890.0 + 55_000.0));
    let names = super::super::Names::new(&workload);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    names.key(7, &mut key);
    names.value(7, names.value_bytes(7), &mut value);
    assert_eq!(key, b"user:7");
    assert!(names.verify(7, &value) && !names.verify(8, &value) && names.pattern().is_none());
    // A histogram with one row per key gives each key its own weight.
    let rows: String = (0..1000).map(|row| format!("{row} {}\n", row % 2)).collect();
    let workload = made(&format!("file:{}", folder.file("weights", &rows).display()));
    assert!(super::requests(&workload, 1, 1000).iter().all(|request| request.keys[0] % 2 == 1));
    // The setting `keys` has no effect, whether it is set before the key file or after it.
    let mut later = super::Workload::clone(&workload);
    later.set("keys", "7").unwrap();
    assert_eq!(later.keys(), 1000);
    let later = std::sync::Arc::new(later);
    assert_eq!(super::requests(&later, 1, 1000), super::requests(&workload, 1, 1000));
}

#[test]
fn sequential_threads_share_the_keys_out() {
    let workload = made("uniform", &[("popularity", "sequential"), ("keys", "10"), ("mix", "set")]);
    let mut seen = vec![0; 10];
    for thread in 0..3 {
        let mut stream = super::Stream::new(&workload, 1, thread, 3);
        let mut request = super::WorkloadRequest::default();
        let keys: Vec<u64> = (0..10)
            .map(|_| {
                assert!(stream.next(&mut request));
                request.keys[0]
            })
            .collect();
        let first = u64::from(thread);
        assert_eq!(keys[..4], [first, first + 3, first + 6, (first + 9) % 10]);
        keys.iter().for_each(|key| seen[usize::try_from(*key).unwrap()] += 1);
    }
    assert_eq!(seen, [3; 10]);
}

/// Returns, for each connection, the keys of the requests with `verb`. The connections take turns.
fn of_verb(workload: &Arc<Workload>, connections: u32, verb: &str) -> Vec<Vec<u64>> {
    let mut seen = vec![Vec::new(); connections as usize];
    for thread in 0..2 {
        let stream = Stream::new(workload, 1, thread, 2);
        let (mut request, half) = (WorkloadRequest::default(), connections / 2);
        let mut stream = stream.over(thread * half..(thread + 1) * half, connections);
        let each = half as usize;
        for n in 0..4000 {
            assert!(stream.next_on(n % each, &mut request));
            if request.verb.name() == verb {
                seen[thread as usize * each + n % each].extend(&request.keys);
            }
        }
    }
    seen
}

#[test]
fn each_connection_has_keys_of_its_own() {
    for popularity in ["uniform", "zipf:1", "sequential", "gaussian"] {
        let settings = [("keys", "403"), ("keys-per", "connection"), ("popularity", popularity)];
        let workload = made("uniform", &settings);
        for (n, keys) in of_verb(&workload, 8, "get").into_iter().enumerate() {
            let edges = [0, 50, 100, 151, 201, 251, 302, 352, 403];
            let is_own = |key: &u64| (edges[n]..edges[n + 1]).contains(key);
            assert!(keys.iter().all(is_own), "{popularity}, connection {n}: {keys:?}");
            let all: HashSet<u64> = keys.iter().copied().collect();
            assert!(all.len() > 40, "{popularity}, connection {n}: {} keys", all.len());
        }
    }
    // If there are more connections than keys, connections share keys.
    let settings = [("keys", "3"), ("keys-per", "connection"), ("set-order", "oldest")];
    for keys in of_verb(&made("uniform", &settings), 16, "get") {
        assert!(!keys.is_empty() && keys.iter().all(|key| *key < 3));
    }
}

#[test]
fn each_agent_has_keys_of_its_own_and_they_are_all_requested() {
    // The first agent has two threads, the second agent has one thread.
    let agents = [(0, (0, 2), 0..201), (0, (1, 2), 0..201), (1, (0, 1), 201..403)];
    for popularity in ["uniform", "zipf:1", "sequential", "gaussian:0.3"] {
        let settings = [("keys", "403"), ("keys-per", "agent"), ("popularity", popularity)];
        let order = [("set-order", "oldest"), ("batch", "1-3")];
        for settings in [settings.to_vec(), [&settings[..], &order].concat()] {
            let workload = made("uniform", &settings);
            let mut requested = HashSet::new();
            for (thread, (agent, here, own)) in (0..).zip(agents.clone()) {
                let stream = Stream::new(&workload, 1, thread, 3);
                let mut stream = stream.of_agent((agent, 2), here);
                let mut request = WorkloadRequest::default();
                for _ in 0..20_000 {
                    assert!(stream.next(&mut request));
                    assert!(request.keys.iter().all(|key| own.contains(key)), "{request:?}");
                    requested.extend(request.keys.iter().copied());
                }
                if let Some((_, key)) = stream.pick() {
                    assert!(own.contains(&key), "{key}");
                }
            }
            assert_eq!(requested.len(), 403, "{settings:?}");
        }
    }
}

#[test]
fn keys_of_a_connection_keep_the_weights_that_a_file_gives_them() {
    let folder = super::Folder::new("connections");
    let names: String = (0..10).map(|line| format!("user:{line}\n")).collect();
    let names = folder.file("keys", &names);
    // Cases: one row per key; fewer rows than keys, with one row divided between two connections;
    // more rows than keys; a connection whose keys have weight 0.
    for (rows, weights) in [
        (&[1, 3, 0, 0, 6, 1, 1, 1, 1, 1][..], [[1, 3, 0, 0, 6], [1; 5]]),
        (&[6, 3, 8], [[2, 2, 2, 1, 1], [1, 2, 2, 2, 2]]),
        (
            &[1, 0, 1, 1, 1, 1, 1, 1, 3, 3, 5, 5, 0, 0, 0, 0, 0, 0, 0, 0],
            [[1, 2, 2, 2, 6], [10, 0, 0, 0, 0]],
        ),
        (&[1, 1, 1, 1, 1, 0, 0, 0, 0, 0], [[1; 5]; 2]),
    ] {
        let text: String = rows.iter().enumerate().map(|(n, row)| format!("{n} {row}\n")).collect();
        let file = format!("file:{}", folder.file(&format!("rows{}", rows.len()), &text).display());
        let listed = ("key-file", names.to_str().unwrap());
        let workload =
            made("uniform", &[("popularity", &file), listed, ("keys-per", "connection")]);
        for (n, keys) in of_verb(&workload, 2, "get").into_iter().enumerate() {
            let all = f64::from(weights[n].iter().sum::<i32>());
            for (key, weight) in (5 * n as u64..).zip(weights[n]) {
                let drawn = keys.iter().filter(|one| **one == key).count() as f64;
                let (drawn, share) = (drawn / keys.len() as f64, f64::from(weight) / all);
                assert!((drawn - share).abs() < 0.03, "{rows:?}, {key}: {drawn}, not {share}");
            }
        }
    }
}

#[test]
fn sets_overwrite_the_oldest() {
    let settings = [("keys", "100"), ("set-order", "oldest"), ("mix", "get=9,set=1")];
    let own = [&settings[..], &[("keys-per", "connection"), ("batch", "1-3")]].concat();
    for (settings, connections, each) in [(&settings[..], 2, 50), (&own, 4, 25)] {
        let workload = made("uniform", settings);
        for (n, keys) in of_verb(&workload, connections, "set").into_iter().enumerate() {
            // A connection repeatedly sets its keys in the order in which they were filled.
            let from = n as u64 * each;
            let expected: Vec<u64> =
                (0..keys.len() as u64).map(|turn| from + turn % each).collect();
            assert!(keys.len() as u64 > each && keys == expected, "{n}: {keys:?}");
        }
        let gets = of_verb(&workload, connections, "get").concat();
        assert_eq!(gets.iter().collect::<HashSet<_>>().len(), 100);
    }
}

#[test]
fn few_keys_are_enough_for_any_popularity() {
    for text in
        ["uniform", "zipf:1.2", "power-law:0.01,0.001,10000,4", "gaussian", "sequential", "zipf:0"]
    {
        for keys in [1, 2, 3, 7] {
            let drawn = drawn(text, keys, 2000);
            assert!(drawn.iter().all(|key| *key < keys), "{text}, {keys} keys");
            assert!((0..keys).all(|key| drawn.contains(&key)), "{text}, {keys} keys");
        }
    }
}

#[test]
fn what_is_no_popularity_is_refused() {
    let texts = "zip zipf zipf:-1 zipf:11 zipf:nan zipf:1,2 uniform:1 gaussian:0 gaussian:2 \
                 gaussian:0.1,1.1 power-law power-law:0.01 power-law:0,0.001 power-law:0.01,1 \
                 power-law:0.01,0.001,0 power-law:0.01,0.001,2.5 \
                 power-law:0.01,0.001,10000,1025 power-law:0.01,0.001,1048576,9 \
                 file:/no/such/file";
    for text in texts.split(' ').chain([""]) {
        let error = Popularity::parse(text, &Files::here("")).unwrap_err();
        assert!(error.to_string().contains(text.split(':').next_back().unwrap()), "{error}");
    }
}
