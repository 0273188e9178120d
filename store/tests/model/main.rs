//! Everything a column offers, against a simple map under a virtual clock: every reply is compared.
//!
//! Invariant: where memory is short a miss is allowed only if the store counted an eviction since
//! the item was last seen; a wrong, expired, flushed or resurrected value never is.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod map;
mod ops;
mod run;

use ops::op;
use proptest::prelude::{Strategy, prop};
use proptest::test_runner::{Config as Runs, TestCaseError, TestRunner};
use run::Run;
use store::Config;

/// Operations of one run.
const OPS: usize = 220;

fn config(memory_mb: usize) -> Config {
    Config {
        memory_bytes: memory_mb << 20,
        item_bytes_max: 400 << 10,
        columns: ops::COLUMNS,
        eviction: Some(store::policy::Eviction::default()),
        cas: true,
        now: 1000,
    }
}

/// Runs `cases` random histories, or as many as PROPTEST_CASES says, against a store of `config`.
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

#[test]
fn with_room_for_all_nothing_is_evicted_and_every_reply_is_the_maps() {
    check(&config(64), 60, 300 << 10, false);
}

#[test]
fn without_cas_uniques_too() {
    check(&Config { cas: false, ..config(64) }, 30, 100 << 10, false);
}

#[test]
fn at_8_mib_only_what_was_evicted_is_missed() {
    check(&config(8), 40, 300 << 10, true);
}

#[test]
fn at_2_mib_only_what_was_evicted_is_missed() {
    check(&config(2), 40, 100 << 10, true);
}

#[test]
fn at_2_mib_without_cas_uniques_too() {
    check(&Config { cas: false, ..config(2) }, 20, 60 << 10, true);
}

#[test]
fn without_eviction_nothing_is_missed_but_much_refused() {
    check(&Config { eviction: None, ..config(2) }, 20, 60 << 10, true);
}
