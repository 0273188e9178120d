//! Runs the store under random schedules, and checks that each key's history is that of a register
//! and that the store's audits and gauges show no fault in the end.
//!
//! Where: run by `make explore`; without `--cfg shuttle` this file compiles to nothing.
//! Invariant: a schedule depends only on its seed (see `testing::schedules`).
//! Source: shuttle (github.com/awslabs/shuttle); see `linear` for the search.

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
mod register;
#[path = "../ring/mod.rs"]
mod ring;
mod run;
mod script;
#[path = "../verbs/mod.rs"]
mod verbs;

use script::{Kind, Script};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use testing::schedules::{self, Explored};

/// Seconds for which each kind is explored, unless an environment variable sets another limit.
const SECONDS: u64 = 60;

fn explore(kind: Kind) {
    let [evictions, undecided] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let test = {
        let (evictions, undecided) = (evictions.clone(), undecided.clone());
        move |seed| {
            let outcome = run::run(Script::draw(kind, seed));
            evictions.fetch_add(outcome.evictions, SeqCst);
            undecided.fetch_add(outcome.undecided, SeqCst);
            if !outcome.wrong.is_empty() {
                println!("{}", outcome.wrong.join("\n"));
            }
            outcome.wrong.is_empty()
        }
    };
    let show = |seed| println!("{:?}", Script::draw(kind, seed));
    let Explored { schedules, first, seconds } = schedules::explore(SECONDS, test, show);
    println!(
        "{schedules} schedules of {kind:?} from seed {first} on in {seconds} s, {} evictions, {} \
         histories undecided",
        evictions.load(SeqCst),
        undecided.load(SeqCst)
    );
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
