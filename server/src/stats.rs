//! What `stats` answers.
//!
//! Where: called by the executor; writes the whole reply.
//! Invariant: a statistic is shown only if something counts it; names and order are memcached's.
//! How long a reply is depends on the settings, not on the items.
//! Source: memcached 1.6.45 `process_stat`, `process_bin_stat`.

#[cfg(debug_assertions)]
mod audit;
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

    /// After the last row, or instead of any.
    fn say(&mut self, outcome: Outcome) {
        self.form.say(outcome, self.out);
    }
}

/// Appends a whole reply.
type Answer = fn(&Shared, &mut Rows<'_>);

/// Subcommands that `Form::asks_for` finds, in the order in which memcached tries them.
const SUBCOMMANDS: &[(&[u8], Answer)] = &[
    (b"reset", |shared, rows| {
        shared.reset();
        rows.say(Outcome::StatsReset);
    }),
    (b"detail", |shared, rows| dump(shared, Refusal::StatsDetailOff, rows)),
    (b"settings", |shared, rows| {
        settings::write(shared, rows);
        rows.say(Outcome::StatsEnd);
    }),
    (b"cachedump", |shared, rows| dump(shared, Refusal::StatsCachedumpOff, rows)),
];

/// Subcommands that need their whole name in either protocol, tried after `SUBCOMMANDS`.
const WHOLE_NAMES: &[(&[u8], Answer)] = &[
    #[cfg(debug_assertions)]
    (b"audit", |shared, rows| {
        audit::write(shared, rows);
        rows.say(Outcome::StatsEnd);
    }),
    (b"items", |shared, rows| {
        items::items(shared, rows);
        rows.say(Outcome::StatsEnd);
    }),
    (b"memory", |shared, rows| {
        memory::write(shared, rows);
        rows.say(Outcome::StatsEnd);
    }),
    (b"mrc", |shared, rows| {
        mrc::write(shared, rows);
        rows.say(Outcome::StatsEnd);
    }),
    (b"slabs", |shared, rows| {
        items::slabs(shared, rows);
        rows.say(Outcome::StatsEnd);
    }),
    // memcached's answer without `-o track_sizes`.
    (b"sizes", |_, rows| {
        stat!(rows, "sizes_status", "disabled");
        rows.say(Outcome::StatsEnd);
    }),
];

/// Appends the reply to `stats ARGUMENTS` (without the word `stats`; empty for the general ones).
/// `now` is the store's clock, in seconds.
pub fn write(shared: &Shared, now: u32, arguments: &[u8], form: Form, out: &mut Vec<u8>) {
    let rows = &mut Rows { form, out };
    let mut words = arguments.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let Some(subcommand) = words.next() else {
        general::write(shared, now, rows);
        rows.say(Outcome::StatsEnd);
        return;
    };
    let found = SUBCOMMANDS.iter().find(|(name, _)| form.asks_for(name, arguments));
    let found = found.or_else(|| WHOLE_NAMES.iter().find(|(name, _)| *name == subcommand));
    match found {
        Some((_, answer)) => answer(shared, rows),
        None => rows.say(Outcome::Refused(Refusal::StatsUnknown)),
    }
}

/// `detail` or `cachedump`: `forbidden` with `-X`, and unknown otherwise, for neither exists here.
fn dump(shared: &Shared, forbidden: Refusal, rows: &mut Rows<'_>) {
    let allowed = shared.settings.dump_enabled;
    rows.say(Outcome::Refused(if allowed { Refusal::StatsUnknown } else { forbidden }));
}
