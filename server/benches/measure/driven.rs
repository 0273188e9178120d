//! Runs kvblaster in this process, with the arguments of its command line.
//!
//! Where: the load on live servers. Invariant: the same code runs as in the program `kvblaster`.

use blaster::flags::{self, Refusal, Verb};
use blaster::measure::Interval;

use super::{Outcome, fail};

pub(crate) fn verb(words: impl IntoIterator<Item = String>) -> Outcome<Verb> {
    let words = std::iter::once("kvblaster".to_owned()).chain(words);
    match flags::parse(words.map(Into::into)) {
        Ok(verb) => Ok(verb),
        Err(Refusal::Wrong(why)) => fail(why),
        Err(Refusal::Help(help)) => fail(help.to_string()),
    }
}

pub(crate) fn run(words: &str) -> Outcome<Interval> {
    let all = ["run", "--quiet"].into_iter().chain(words.split_whitespace());
    match verb(all.map(str::to_owned))? {
        Verb::Run(run) => match blaster::run::run(&run.plan)?.merged {
            Some(measured) => Ok(measured),
            None => fail(format!("{words}: nothing was measured")),
        },
        _ => fail(format!("{words}: these are not arguments of `kvblaster run`")),
    }
}
