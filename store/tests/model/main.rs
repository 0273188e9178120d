//! Compares every reply of a column with the reply of a simple map under a virtual clock.
//!
//! Invariant: a miss of an item is allowed only if the store counted an eviction since the item was
//! last seen. A wrong, expired, flushed or resurrected value is never allowed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

#[path = "../each/mod.rs"]
mod each;
mod limits;
mod ops;
#[path = "../patient/mod.rs"]
mod patient;
#[path = "../ring/mod.rs"]
mod ring;
mod run;
#[path = "../verbs/mod.rs"]
mod verbs;

use ops::{DrawSettings, op};
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
    while_the_limit_changes_nothing_that_has_room_is_evicted,
    at_8_mib_up_and_down_only_what_was_evicted_is_missed,
    at_2_mib_up_and_down_only_what_was_evicted_is_missed,
    where_values_lie_in_an_arena_every_reply_is_the_maps,
    where_values_stay_where_they_were_received_every_reply_is_the_maps,
    where_the_arena_is_full_only_what_was_evicted_is_missed,
}

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

/// Runs `cases` (or PROPTEST_CASES) random histories, each against a new store of `config`.
fn check(config: &Config, cases: u32, drawn: DrawSettings) {
    check_in(config, None, cases, drawn);
}

/// Like `check`, but with an arena if `chunks` is given: the arena's number of chunks, the minimum
/// number of bytes of its values, and true if its values stay where they were received.
fn check_in(config: &Config, chunks: Option<(u32, usize, bool)>, cases: u32, drawn: DrawSettings) {
    let requested = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = requested.unwrap_or(cases);
    let runs = Runs { cases, failure_persistence: None, max_shrink_iters: 4000, ..Runs::default() };
    let ops = prop::collection::vec(op(drawn), 1..OPS);
    let ops = ops.prop_map(|ops| ops.into_iter().enumerate().collect::<Vec<_>>());
    let tried = TestRunner::new(runs).run(&ops, |ops| {
        let mut run = Run::new(config, chunks);
        for (seed, op) in &ops {
            run.step(*seed, op).map_err(TestCaseError::fail)?;
        }
        run.end().map_err(TestCaseError::fail)
    });
    tried.unwrap_or_else(|failure| panic!("{failure}"));
}

fn drawn(large_kb: usize, fills: bool) -> DrawSettings {
    DrawSettings { large: large_kb << 10, fills, limits_from: None }
}

/// Adds changes of the memory limit to `drawn`, down to `from` tenths of the first limit.
fn limits(from: u8, drawn: DrawSettings) -> DrawSettings {
    DrawSettings { limits_from: Some(from), ..drawn }
}

fn with_room_for_all_nothing_is_evicted_and_every_reply_is_the_maps(eviction: Eviction) {
    check(&config(eviction, 64), 25, drawn(300, false));
}

fn without_cas_uniques_too(eviction: Eviction) {
    check(&Config { cas: false, ..config(eviction, 64) }, 12, drawn(100, false));
}

fn at_8_mib_only_what_was_evicted_is_missed(eviction: Eviction) {
    check(&config(eviction, 8), 20, drawn(300, true));
}

fn at_2_mib_only_what_was_evicted_is_missed(eviction: Eviction) {
    check(&config(eviction, 2), 20, drawn(100, true));
}

fn at_2_mib_without_cas_uniques_too(eviction: Eviction) {
    check(&Config { cas: false, ..config(eviction, 2) }, 10, drawn(60, true));
}

fn while_the_limit_changes_nothing_that_has_room_is_evicted(eviction: Eviction) {
    check(&config(eviction, 64), 8, limits(3, drawn(300, true)));
}

fn at_8_mib_up_and_down_only_what_was_evicted_is_missed(eviction: Eviction) {
    check(&config(eviction, 8), 12, limits(1, drawn(300, true)));
}

fn at_2_mib_up_and_down_only_what_was_evicted_is_missed(eviction: Eviction) {
    check(&config(eviction, 2), 12, limits(4, drawn(100, true)));
}

fn where_values_lie_in_an_arena_every_reply_is_the_maps(eviction: Eviction) {
    check_in(&config(eviction, 64), Some((8192, 1, false)), 15, drawn(300, false));
}

fn where_values_stay_where_they_were_received_every_reply_is_the_maps(eviction: Eviction) {
    check_in(&config(eviction, 64), Some((8192, 1, true)), 15, drawn(2, false));
}

fn where_the_arena_is_full_only_what_was_evicted_is_missed(eviction: Eviction) {
    check_in(&config(eviction, 8), Some((200, 1, true)), 12, limits(1, drawn(300, true)));
    check_in(&config(eviction, 2), Some((40, 700, false)), 12, drawn(100, true));
}

#[test]
fn without_eviction_nothing_is_missed_but_much_refused() {
    check(&Config { eviction: None, ..config(Eviction::Fifo, 2) }, 20, drawn(60, true));
}

#[test]
fn without_eviction_a_lower_limit_loses_nothing() {
    let config = Config { eviction: None, ..config(Eviction::Fifo, 8) };
    check(&config, 20, limits(1, drawn(60, true)));
}
