//! Tests that compare simulated hit ratios with closed-form solutions.
//!
//! Where: tests of `size`. Invariant: seeds are fixed. Tolerances depend on the size of the sample.

use super::*;
use std::sync::Arc;

fn parameters(settings: &[(&str, &str)], rate_per_s: f64) -> Parameters {
    let mut workload = Workload::default();
    settings.iter().for_each(|(name, value)| workload.set(name, value).unwrap());
    Parameters {
        workload: Arc::new(workload),
        seed: 1,
        rate_per_s,
        populates: false,
        memory_bytes: Vec::new(),
        span: None,
        connections: 16,
        threads: 2,
        is_quiet: true,
    }
}

#[test]
fn ttls_decide_what_lives_and_so_how_much_memory_is_worth_having() {
    // Each key is requested every ten seconds on average, and lives for 30 seconds: three of four
    // random lookups hit, and three of four keys are live.
    let settings = [
        ("keys", "20k"),
        ("mix", "get=1"),
        ("cache-aside", "yes"),
        ("ttl", "30"),
        ("value-size", "1000"),
        ("key-size", "20"),
    ];
    let found = memory(&parameters(&settings, 2000.0)).unwrap();
    let (least, most) = (&found.points[0], found.points.last().unwrap());
    assert!((most.hit_ratio - 0.747).abs() < 0.01, "{found:#?}");
    assert!((most.items as f64 / 15_000.0 - 1.0).abs() < 0.03, "{found:#?}");
    assert!((16 << 20..20 << 20).contains(&most.memory_bytes), "{found:#?}");
    assert!(most.evictions_per_s < 5.0 && least.evictions_per_s > 100.0, "{found:#?}");
    assert!(found.points.is_sorted_by(|one, next| one.hit_ratio < next.hit_ratio + 0.003));
    assert!((found.keys_per_s / 2000.0 - 1.0).abs() < 0.02 && found.one_in == 1);
    assert!(found.doubts.is_empty(), "{found:#?}");
    let answer = text::SizeReport {
        rate_per_s: 2000.0,
        objective: String::new(),
        memory: found,
        driven: Vec::new(),
        left_out: 0,
        said: Vec::new(),
    };
    let text = text::text(&parameters(&settings, 2000.0).workload, &answer);
    assert!(text.contains(" gives 99 % of the hits that -m "), "{text}");
}

#[test]
fn a_sample_of_a_zipf_population_tells_what_the_whole_does() {
    let settings = [
        ("keys", "100k"),
        ("popularity", "zipf:0.99"),
        ("value-size", "400"),
        ("mix", "get=1"),
        ("cache-aside", "yes"),
    ];
    let mut whole = parameters(&settings, 50_000.0);
    (whole.populates, whole.memory_bytes) = (true, vec![20 << 20]);
    let [whole, sampled] = [1, 5].map(|one_in| {
        whole.memory_bytes = vec![20 << 20];
        let names = Names::new(&whole.workload);
        let span_ns = 20_000_000_000;
        let requests = Requests { parameters: &whole, names: &names, one_in, span_ns };
        let simulation = Simulation { requests, span_s: 20.0 };
        let found = simulation.curve(&whole.memory_bytes).unwrap();
        simulation.point(&found[0])
    });
    // A cache that starts empty would have far fewer hits.
    assert!(whole.hit_ratio > 0.5, "{whole:?}");
    assert!((whole.hit_ratio - sampled.hit_ratio).abs() < 0.01, "{whole:?} {sampled:?}");
    assert!((whole.items as f64 / sampled.items as f64 - 1.0).abs() < 0.05);
}

#[test]
fn a_store_is_no_larger_than_its_limit_and_nothing_read_is_no_hit() {
    let mut large =
        parameters(&[("keys", "40k"), ("value-size", "500k"), ("mix", "set=1")], 1000.0);
    assert_eq!(one_in(&large), 19, "of 20 GB");
    large.memory_bytes = vec![8 << 30];
    assert_eq!(one_in(&large), 8);
    let found = memory(&parameters(&[("keys", "1k"), ("mix", "set=1")], 1000.0)).unwrap();
    assert!(found.doubts.iter().any(|doubt| doubt.contains("looks up no key")), "{found:?}");
    assert_eq!(
        found.enough_for(0.9).map(|point| point.memory_bytes),
        Some(found.points.last().unwrap().memory_bytes)
    );
}

fn drawn(parameters: &Parameters, one_in: u64, span_ns: u64) -> Vec<simulate::stream::Request> {
    let names = Names::new(&parameters.workload);
    let requests = Requests { parameters, names: &names, one_in, span_ns };
    requests.of_sample(0..u64::MAX, (&AtomicU64::new(0), &AtomicU64::new(0))).collect()
}

#[test]
fn filling_walks_the_keys_of_the_sample_only() {
    let mut parameters = parameters(&[("keys", "1000g"), ("mix", "get=1")], 1.0);
    parameters.populates = true;
    let one_in = 1 << 32;
    let keys: Vec<u64> = drawn(&parameters, one_in, 0).iter().map(|one| one.key).collect();
    let blocks: Vec<u64> = keys.iter().map(|key| key / one_in).collect();
    assert!(blocks.len() >= 232 && blocks.iter().copied().eq(0..blocks.len() as u64), "{keys:?}");
}

#[test]
fn each_connection_asks_for_keys_of_its_own_if_it_has_such() {
    let hottest = |of: &str| {
        let settings = [("keys", "10k"), ("popularity", "zipf:1.2"), ("keys-per", of)];
        let parameters = Parameters { connections: 100, ..parameters(&settings, 1000.0) };
        let mut counts = std::collections::HashMap::new();
        let requests = drawn(&parameters, 1, 20_000_000_000);
        requests.iter().for_each(|one| *counts.entry(one.key).or_insert(0) += 1);
        f64::from(counts.into_values().max().unwrap()) / requests.len() as f64
    };
    // The hottest of 100 keys gets 0.28 of the requests, and the hottest of 10,000 keys gets 0.21.
    let (own, all) = (hottest("connection"), hottest("run"));
    assert!((0.002..0.006).contains(&own) && (0.15..0.25).contains(&all), "{own} {all}");
}

#[test]
fn values_beyond_the_longest_item_are_told_of_wherever_they_are_written() {
    let large = ("value-size", "2m");
    for settings in [
        vec![("keys", "8"), ("mix", "get=1"), ("cache-aside", "yes"), large],
        vec![("keys", "8"), ("mix", "get=1"), large],
    ] {
        let mut parameters = parameters(&settings, 1000.0);
        (parameters.populates, parameters.span) = (true, Some(Duration::from_secs(1)));
        let found = memory(&parameters).unwrap();
        assert!(found.doubts.join("\n").contains("(-I)"), "{settings:?}: {found:?}");
    }
}

#[test]
fn what_is_wrong_is_refused_before_anything_is_simulated() {
    let rows = [
        ("", "--rate"),
        ("-r 5 --start memcached", "{port}"),
        ("-r 5 -m 0", "--memory"),
        ("-r 5 -a p99<1ms", "'-a'"),
        ("-r 5 -o dir", "'-o'"),
        ("-r 5 --agent a", "'--agent'"),
    ];
    crate::flags::tests::refused("size", &rows);
}

#[test]
fn what_was_not_simulated_is_said() {
    let mut parameters = parameters(&[("ttl", "3600"), ("cache-aside", "yes")], 1000.0);
    parameters.span = Some(Duration::from_secs(60));
    let found = memory(&parameters).unwrap();
    let told = found.doubts.join("\n");
    assert!(told.contains("60 s of traffic were simulated"), "{told}");
    assert!(told.contains("hits still rose"), "{told}");
}
