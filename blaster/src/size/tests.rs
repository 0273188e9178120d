//! What memory gives which hits, against what can be worked out.
//!
//! Where: tests of `size`. Invariant: seeds are fixed, and tolerances are of the sample's size.

use super::*;

fn question(settings: &[(&str, &str)], rate_per_s: f64) -> Question {
    let mut workload = Workload::default();
    settings.iter().for_each(|(name, value)| workload.set(name, value).unwrap());
    Question {
        workload: Arc::new(workload),
        seed: 1,
        rate_per_s,
        populates: false,
        memory_bytes: Vec::new(),
        span: None,
        threads: 2,
    }
}

#[test]
fn ttls_decide_what_lives_and_so_how_much_memory_is_worth_having() {
    // Each key is asked for every ten seconds on average, and lives for 30: of four lookups at
    // random three hit, and three keys in four live.
    let settings = [
        ("keys", "20k"),
        ("mix", "get=1"),
        ("cache-aside", "yes"),
        ("ttl", "30"),
        ("value-size", "1000"),
        ("key-size", "20"),
    ];
    let found = memory(&question(&settings, 2000.0)).unwrap();
    let (least, most) = (&found.points[0], found.points.last().unwrap());
    assert!((most.hit_ratio - 0.747).abs() < 0.01, "{found:#?}");
    assert!((most.items as f64 / 15_000.0 - 1.0).abs() < 0.03, "{found:#?}");
    assert!((16 << 20..20 << 20).contains(&most.memory_bytes), "{found:#?}");
    assert!(most.evictions_per_s < 5.0 && least.evictions_per_s > 100.0, "{found:#?}");
    assert!(found.points.is_sorted_by(|one, next| one.hit_ratio < next.hit_ratio + 0.003));
    assert!((found.keys_per_s / 2000.0 - 1.0).abs() < 0.02 && found.one_in == 1);
    assert!(found.doubts.is_empty(), "{found:#?}");
    let answer = text::Answer {
        rate_per_s: 2000.0,
        objective: String::new(),
        memory: found,
        driven: Vec::new(),
        said: Vec::new(),
    };
    let text = text::text(&question(&settings, 2000.0).workload, &answer);
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
    let mut whole = question(&settings, 50_000.0);
    (whole.populates, whole.memory_bytes) = (true, vec![20 << 20]);
    let [whole, sampled] = [1, 5].map(|one_in| {
        whole.memory_bytes = vec![20 << 20];
        let names = Names::new(&whole.workload);
        let requests = Requests {
            workload: &whole.workload,
            names: &names,
            seed: 1,
            rate_per_s: 50_000.0,
            populates: true,
            one_in,
            span_ns: 20_000_000_000,
        };
        let simulation = Simulation { requests, threads: 1, span_s: 20.0 };
        let found = simulation.curve(&whole.memory_bytes).unwrap();
        simulation.point(&found[0])
    });
    // Of a cold cache nothing would be left to get.
    assert!(whole.hit_ratio > 0.5, "{whole:?}");
    assert!((whole.hit_ratio - sampled.hit_ratio).abs() < 0.01, "{whole:?} {sampled:?}");
    assert!((whole.items as f64 / sampled.items as f64 - 1.0).abs() < 0.05);
}

#[test]
fn a_store_is_no_larger_than_its_limit_and_nothing_read_is_no_hit() {
    let mut large = question(&[("keys", "40k"), ("value-size", "500k"), ("mix", "set=1")], 1000.0);
    assert_eq!(one_in(&large), 19, "of 20 GB");
    large.memory_bytes = vec![8 << 30];
    assert_eq!(one_in(&large), 8);
    let found = memory(&question(&[("keys", "1k"), ("mix", "set=1")], 1000.0)).unwrap();
    assert!(found.doubts.iter().any(|doubt| doubt.contains("nothing is looked up")), "{found:?}");
    assert_eq!(
        found.enough_for(0.9).map(|point| point.memory_bytes),
        Some(found.points.last().unwrap().memory_bytes)
    );
}

#[test]
fn what_is_wrong_is_refused_before_anything_is_simulated() {
    let rows = [
        ("", "--rate"),
        ("-r 5 --start memcached", "{port}"),
        ("-r 5 -m 0", "--memory"),
        ("-r 5 -a p99<1ms", "--assert: not of"),
        ("-r 5 -o dir", "--out: not of"),
        ("-r 5 --agent a", "--agent: not of"),
    ];
    crate::flags::tests::refused("size", &rows);
}

#[test]
fn what_was_not_simulated_is_said() {
    let mut question = question(&[("ttl", "3600"), ("cache-aside", "yes")], 1000.0);
    question.span = Some(Duration::from_secs(60));
    let found = memory(&question).unwrap();
    let told = found.doubts.join("\n");
    assert!(told.contains("60 s of traffic were simulated"), "{told}");
    assert!(told.contains("hits still rose"), "{told}");
}
