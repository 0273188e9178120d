//! The store under schedules drawn at random: each key's history must be that of a register, and
//! in the end everything must be where it should be.
//!
//! Where: `make explore`; empty without `--cfg shuttle`.
//! Invariant: a schedule that fails is printed with its seed, and is run again by that.
//! Source: shuttle (github.com/awslabs/shuttle); "Testing and Verifying Concurrent Objects" (Wing
//! and Gong, 1993).
//!
//! From the environment: `EXPLORE_SCHEDULES` and `EXPLORE_SECONDS`, how many of each kind, or for
//! how long; `EXPLORE_FROM`, the first one's seed; `EXPLORE_SEED`, only this one.

#![cfg(shuttle)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod actor;
mod linear;
mod model;
#[path = "../ring/mod.rs"]
mod ring;
mod run;
mod scheduler;
mod script;

use scheduler::{Budget, Seeded};
use script::{Kind, Script};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Seconds of each kind, where nothing is said.
const SECONDS: u64 = 60;
const STACK_BYTES: usize = 512 << 10;
/// Accesses of one schedule, at most.
const STEPS_MAX: usize = 20_000_000;

fn given(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn explore(kind: Kind) {
    let begun = Instant::now();
    let schedules = given("EXPLORE_SCHEDULES");
    let seconds = given("EXPLORE_SECONDS").or(schedules.is_none().then_some(SECONDS));
    let one = given("EXPLORE_SEED");
    let budget = Budget {
        schedules: one.map_or(schedules.unwrap_or(u64::MAX), |_| 1),
        until: seconds.filter(|_| one.is_none()).map(|more| begun + Duration::from_secs(more)),
    };
    let current = Arc::new(AtomicU64::new(0));
    let [evictions, undecided] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let first = one.or_else(|| given("EXPLORE_FROM")).unwrap_or(1);
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    let found = Arc::new(AtomicBool::new(false));
    let scheduler = Seeded::new(first, budget, (Arc::clone(&current), Arc::clone(&found)));
    let runner = Runner::new(scheduler, config);
    let test = {
        let (current, found) = (current.clone(), found.clone());
        let (evictions, undecided) = (evictions.clone(), undecided.clone());
        move || {
            let outcome = run::run(&Script::draw(kind, current.load(SeqCst)));
            evictions.fetch_add(outcome.evictions, SeqCst);
            undecided.fetch_add(outcome.undecided, SeqCst);
            if !outcome.wrong.is_empty() {
                println!("{}", outcome.wrong.join("\n"));
                found.store(true, SeqCst);
            }
        }
    };
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(test)));
    let (seed, passed) = (current.load(SeqCst), begun.elapsed());
    match ran {
        Ok(schedules) if !found.load(SeqCst) => println!(
            "{schedules} schedules of {kind:?} from seed {first} on in {} s, {} evictions, {} \
             histories undecided",
            passed.as_secs(),
            evictions.load(SeqCst),
            undecided.load(SeqCst)
        ),
        _ => {
            let script = Script::draw(kind, seed);
            println!("{script:?}");
            let (count, thread) = (seed.wrapping_sub(first) + 1, std::thread::current());
            let test = thread.name().unwrap_or_default();
            panic!("schedule {count} failed; again: make explore SEED={seed} KIND={test}");
        }
    }
}

#[test]
fn with_room_for_everything() {
    explore(Kind::Roomy);
}

#[test]
fn with_room_to_be_made() {
    explore(Kind::Tight);
}

#[test]
fn under_changing_limits() {
    explore(Kind::Limits);
}

#[test]
fn while_the_index_grows_and_contracts() {
    explore(Kind::Index);
}
