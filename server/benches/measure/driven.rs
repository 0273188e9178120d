//! kvblaster, told what to do as on its command line.
//!
//! Where: the load on live servers. Invariant: what is measured is what `kvblaster` of these words
//! measures: it is the same code.

use blaster::flags::{self, Refusal, Verb};
use blaster::measure::Interval;

use super::{Outcome, fail};

/// What these words, behind the program's name, ask for.
pub(crate) fn verb(words: impl IntoIterator<Item = String>) -> Outcome<Verb> {
    let words = std::iter::once("kvblaster".to_owned()).chain(words);
    match flags::parse(words.map(Into::into)) {
        Ok(verb) => Ok(verb),
        Err(Refusal::Wrong(why)) => fail(why),
        Err(Refusal::Help(help)) => fail(help.to_string()),
    }
}

/// What `kvblaster run` of these words measures, all reports together.
pub(crate) fn run(words: &str) -> Outcome<Interval> {
    let all = ["run", "--quiet"].into_iter().chain(words.split_whitespace());
    match verb(all.map(str::to_owned))? {
        Verb::Run(run) => match blaster::run::run(&run.plan)?.merged {
            Some(measured) => Ok(measured),
            None => fail(format!("{words}: nothing was measured")),
        },
        _ => fail(format!("{words}: another verb")),
    }
}
