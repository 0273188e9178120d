//! Tests of whole reports, for made-up results.
//!
//! Where: unit tests of `text`.
//! Invariant: the expected text of each report is in a file of this folder.

use super::found;
use crate::measure::verdict::Verdict;
use crate::result::{RunResult, sample};
use crate::run::flags::plan;
use crate::workload::Verb;

fn same(text: &str, expected: &str) {
    assert!(text == expected, "{text}");
    let wide = text.lines().find(|line| line.chars().count() > 100);
    assert_eq!(wide, None);
}

fn alone(label: &str, us: u64) -> RunResult {
    RunResult { agents: Vec::new(), ..sample::result(label, us) }
}

#[test]
fn a_closed_loop_is_told_whole() {
    let mut plan = plan(false).unwrap();
    plan.targets = vec!["localhost:11211".to_owned()];
    same(&super::text(&plan, &alone("ours", 50)), include_str!("closed.txt"));
}

#[test]
fn keys_are_told_where_gets_have_several_and_connections_only_where_they_differ() {
    let plan = plan(false).unwrap();
    let mut done = alone("ours", 50);
    let tally = &mut done.merged.as_mut().unwrap().tally;
    let get = &mut tally.verbs[Verb::Get as usize];
    (get.keys, get.hits, get.misses) = (3 * get.keys, 3 * get.hits, 3 * get.misses);
    let message = super::text(&plan, &done);
    let row = |name: &str| message.lines().find(|line| line.starts_with(name)).unwrap_or("none");
    assert_eq!(row("answered/s"), "answered/s         194          6        200", "{message}");
    assert_eq!(row("keys/s"), "keys/s             580          6        587", "{message}");
    assert!(row("fairness").starts_with("fairness   0.750 (Jain's index) over 4"), "{message}");
    // The first connection has 6,000 answers, and each of three other connections has 2,000. Each
    // step adds `more` answers to each of the three, so that the numbers become more equal.
    let told = |done: &RunResult| super::text(&plan, done).contains("fairness");
    for (more, is_told) in [(2_500, true), (1_500, false)] {
        let tally = &mut done.merged.as_mut().unwrap().tally;
        (1..4).for_each(|at| tally.connections.record(at, 1000, more));
        assert_eq!(told(&done), is_told);
    }
}

#[test]
fn an_open_loop_is_told_whole() {
    let mut plan = plan(false).unwrap();
    plan.targets = vec!["localhost:11211".to_owned()];
    (plan.rate_per_s, plan.out) = (Some(20_000.0), Some("mine".into()));
    let mut done = sample::result("ours", 1);
    let invalid =
        ("late-sends", crate::measure::verdict::Severity::Invalid, "it was late".to_owned());
    done.verdict.add(invalid.0, invalid.1, invalid.2);
    same(&super::text(&plan, &done), include_str!("open.txt"));
}

#[test]
fn a_search_is_told_whole() {
    let plan = plan(true).unwrap();
    let mut done = alone("ours", 50);
    done.verdict = Verdict::default();
    let made = done.clone();
    let found = done.search.as_mut().unwrap();
    found.capacities[0].rate_per_s = Some(45_000.0);
    found.capacities[0].rounds_per_s = vec![44_000.0, 46_000.0];
    let message = found::text(&plan, &made, found);
    same(&message, include_str!("found.txt"));
    found.curve[4].achieved_per_s = 40_000.0;
    let message = found::text(&plan, &made, found);
    let expected = "at 50,000/s it no longer met the objective; only 80.00 % of the requests were \
                    answered";
    assert!(
        message.split_whitespace().collect::<Vec<_>>().join(" ").contains(expected),
        "{message}"
    );
}

#[test]
fn the_commands_to_try_next_keep_every_option() {
    let parse = |words: &str| match crate::flags::tests::parse_words(words).unwrap() {
        crate::flags::Verb::Run(run) => run.plan,
        crate::flags::Verb::Capacity(search) => search.plan,
        other => panic!("{words}: {other:?}"),
    };
    let words = "run -w etc --keys=5m -d 4 -P binary --key-prefix a$b -o mine --no-populate \
                 -a p99<1ms a:1/2 unix:/b --server-pid 4,5";
    let message = super::text(&parse(words), &sample::result("ours", 50));
    let commands: Vec<&str> =
        message.lines().filter_map(|line| line.strip_prefix("      kvblaster ")).collect();
    let kept = "--protocol binary --key-prefix 'a$b' --no-populate";
    let kept = |goal| {
        format!("--workload etc --keys 5m {kept} --{goal} 'p99<1ms' --server-pid 4,5 a:1/2 unix:/b")
    };
    let expected = [
        format!("run --rate 100 {}", kept("assert")),
        format!("capacity {}", kept("objective")),
        "report mine".to_owned(),
    ];
    assert_eq!(commands, expected, "{message}");
    // The suggested commands parse to the options of the run.
    for command in &expected[..2] {
        let plan = parse(&command.replace('\'', ""));
        assert_eq!(
            (plan.targets.len(), plan.workload.keys(), plan.populate),
            (2, 5_000_000, false)
        );
    }
}

#[test]
fn rounds_in_which_nothing_held_and_what_held_though_kvblaster_was_behind_are_told() {
    let plan = plan(true).unwrap();
    let mut done = alone("ours", 50);
    done.verdict = Verdict::default();
    let made = done.clone();
    let found = done.search.as_mut().unwrap();
    found.capacities[0].rounds_per_s = vec![44_000.0, 0.0];
    for point in &mut found.curve[..2] {
        point.client_bound = Some("it was late".to_owned());
    }
    found.curve[1].met = found.capacities.iter().map(|one| one.name.clone()).collect();
    let message = found::text(&plan, &made, found);
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "(2 rounds; in 1 of them no rate met the objective, which counts as 0)";
    assert!(words.contains(expected), "{message}");
    assert!(message.contains("  avg *\n") && message.contains("  all\n"), "{message}");
    assert!(words.contains("in 2 of 8 trials an objective was not met while kvblaster was behind"));
}

#[test]
fn many_trials_are_few_rows() {
    let mut done = alone("ours", 50);
    done.verdict = Verdict::default();
    let made = done.clone();
    let found = done.search.as_mut().unwrap();
    let point = found.curve[0].clone();
    found.curve = (0..300_u32)
        .map(|nth| {
            let asked_per_s = 10_000.0 * 1.01_f64.powi(nth.cast_signed() % 100);
            crate::search::curve::Point { asked_per_s, ..point.clone() }
        })
        .collect();
    let plan = plan(true).unwrap();
    let message = found::text(&plan, &made, found);
    let is_row = |line: &&str| line.contains("51.3 µs   154 µs");
    let rows: Vec<&str> = message.lines().filter(is_row).collect();
    assert!((12..=24).contains(&rows.len()), "{message}");
    let trials = |row: &&str| row.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap();
    assert_eq!(rows.iter().map(trials).sum::<u32>(), 300, "{message}");
}

#[test]
fn where_nothing_was_measured_it_says_so() {
    let plan = plan(false).unwrap();
    let message = super::text(&plan, &crate::result::RunResult::default());
    assert!(message.ends_with("\n\nNothing was measured.\n\n"), "{message:?}");
}
