//! What `stats` answers.
//!
//! Where: called by the executor; writes the whole reply.
//! Invariant: a statistic is shown only if something counts it; names and order are memcached's.
//! How long a reply is depends on the settings, not on the items.
//! Source: memcached 1.6.45 `process_stat`, `process_bin_stat`.

#[cfg(debug_assertions)]
mod audit;
mod columns;
mod general;
mod items;
mod memory;
mod mrc;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt::Arguments;

use protocol::{Form, Outcome, Refusal};

use crate::shared::Shared;

/// One statistic.
macro_rules! stat {
    ($rows:expr, $name:expr, $value:expr) => {
        $rows.row($name, format_args!("{}", $value))
    };
}
use stat;

/// Where statistics are written: lines, or frames.
pub(crate) struct Rows<'o> {
    form: Form,
    out: &'o mut Vec<u8>,
}

impl Rows<'_> {
    fn row(&mut self, name: &str, value: Arguments<'_>) {
        self.form.stat(name, value, self.out);
    }
}

/// What a subcommand answers.
#[derive(Clone, Copy)]
enum Answer {
    /// Statistics.
    Rows(fn(&Shared, &mut Rows<'_>)),
    /// That counts start from 0.
    Reset,
    /// With `-X` this refusal. Otherwise that it is unknown: what memcached shows is not here.
    Dump(Refusal),
}

/// Subcommands that `Form::asks_for` finds, in the order in which memcached tries them.
const SUBCOMMANDS: &[(&[u8], Answer)] = &[
    (b"reset", Answer::Reset),
    (b"detail", Answer::Dump(Refusal::StatsDetailOff)),
    (b"settings", Answer::Rows(settings::write)),
    (b"cachedump", Answer::Dump(Refusal::StatsCachedumpOff)),
];

/// Subcommands that need their whole name in either protocol, tried after `SUBCOMMANDS`.
const WHOLE_NAMES: &[(&[u8], Answer)] = &[
    #[cfg(debug_assertions)]
    (b"audit", Answer::Rows(audit::write)),
    (b"columns", Answer::Rows(columns::write)),
    (b"items", Answer::Rows(items::items)),
    (b"memory", Answer::Rows(memory::write)),
    (b"mrc", Answer::Rows(mrc::write)),
    (b"slabs", Answer::Rows(items::slabs)),
    // memcached's answer without `-o track_sizes`.
    (b"sizes", Answer::Rows(|_, rows| stat!(rows, "sizes_status", "disabled"))),
];

/// Appends the reply to `stats ARGUMENTS` (without the word `stats`; empty for the general ones).
/// `now` is the store's clock, in seconds.
pub fn write(shared: &Shared, now: u32, arguments: &[u8], form: Form, out: &mut Vec<u8>) {
    let rows = &mut Rows { form, out };
    let mut words = arguments.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let outcome = match words.next() {
        None => {
            general::write(shared, now, rows);
            Outcome::StatsEnd
        }
        Some(subcommand) => {
            let found = SUBCOMMANDS.iter().find(|(name, _)| form.asks_for(name, arguments));
            let found = found.or_else(|| WHOLE_NAMES.iter().find(|(name, _)| *name == subcommand));
            match found.map(|(_, answer)| *answer) {
                Some(Answer::Rows(write)) => {
                    write(shared, rows);
                    Outcome::StatsEnd
                }
                Some(Answer::Reset) => {
                    shared.reset();
                    Outcome::StatsReset
                }
                Some(Answer::Dump(off)) if !shared.settings.dump_enabled => Outcome::Refused(off),
                Some(Answer::Dump(_)) | None => Outcome::Refused(Refusal::StatsUnknown),
            }
        }
    };
    form.say(outcome, out);
}
