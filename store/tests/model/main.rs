//! Everything a column offers, against a simple map under a virtual clock: every reply is compared.
//!
//! Invariant: where memory is short a miss is allowed only if the store counted an eviction since
//! the item was last seen; a wrong, expired, flushed or resurrected value never is.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

#[path = "../each/mod.rs"]
mod each;
mod map;
mod ops;
mod run;

use ops::op;
use proptest::prelude::{Strategy, prop};
use proptest::test_runner::{Config as Runs, TestCaseError, TestRunner};
use run::Run;
use store::Config;
use store::policy::Eviction;

each::policies! {
    with_room_for_all_nothing_is_evicted_and_every_reply_is_the_maps,
    without_cas_uniques_too,
    at_8_mib_only_what_was_evicted_is_missed,
    at_2_mib_only_what_was_evicted_is_missed,
    at_2_mib_without_cas_uniques_too,
}

/// Operations of one run.
const OPS: usize = 220;

fn config(eviction: Eviction, memory_mb: usize) -> Config {
    Config {
        memory_bytes: memory_mb << 20,
        item_bytes_max: 400 << 10,
        columns: ops::COLUMNS,
        eviction: Some(eviction),
        cas: true,
        now: 1000,
    }
}

/// Runs `cases` random histories, or as many as PROPTEST_CASES says, against a store of `config`.
/// There are as many of each as there are policies.
fn check(config: &Config, cases: u32, large: usize, fills: bool) {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = asked.unwrap_or(cases);
    let runs = Runs { cases, failure_persistence: None, max_shrink_iters: 4000, ..Runs::default() };
    let ops = prop::collection::vec(op(large, fills), 1..OPS);
    let ops = ops.prop_map(|ops| ops.into_iter().enumerate().collect::<Vec<_>>());
    let tried = TestRunner::new(runs).run(&ops, |ops| {
        let mut run = Run::new(config);
        for (seed, op) in &ops {
            run.step(*seed, op).map_err(TestCaseError::fail)?;
        }
        run.end().map_err(TestCaseError::fail)
    });
    tried.unwrap_or_else(|failure| panic!("{failure}"));
}

fn with_room_for_all_nothing_is_evicted_and_every_reply_is_the_maps(eviction: Eviction) {
    check(&config(eviction, 64), 25, 300 << 10, false);
}

fn without_cas_uniques_too(eviction: Eviction) {
    check(&Config { cas: false, ..config(eviction, 64) }, 12, 100 << 10, false);
}

fn at_8_mib_only_what_was_evicted_is_missed(eviction: Eviction) {
    check(&config(eviction, 8), 20, 300 << 10, true);
}

fn at_2_mib_only_what_was_evicted_is_missed(eviction: Eviction) {
    check(&config(eviction, 2), 20, 100 << 10, true);
}

fn at_2_mib_without_cas_uniques_too(eviction: Eviction) {
    check(&Config { cas: false, ..config(eviction, 2) }, 10, 60 << 10, true);
}

#[test]
fn without_eviction_nothing_is_missed_but_much_refused() {
    check(&Config { eviction: None, ..config(Eviction::Fifo, 2) }, 20, 60 << 10, true);
}
