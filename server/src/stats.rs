//! What `stats` answers.
//!
//! Where: called by the executor; writes the whole reply.
//! Invariant: what memcached answers too has memcached's names, all of them and no other, in its
//! order; what is shown only here has a subcommand of its own. How long a reply is depends on the
//! settings, not on the items: where it does, it is an errand.
//! Source: memcached 1.6.45 `process_stat`, `process_bin_stat`.

#[cfg(debug_assertions)]
mod audit;
mod columns;
mod general;
mod items;
mod memory;
mod mrc;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod udp;

use std::fmt::Arguments;

use protocol::text::operator::SLAB_CLASSES;
use protocol::{Args, Form, Outcome, Refusal};

use crate::errand::Errand;
use crate::errand::dump::{Dump, Lines};
use crate::execute::{After, Context};
use crate::shared::Shared;

/// The slab class that all items are said to be of.
const CLASS: u32 = 1;

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
    /// Statistics that depend on the store's clock, in seconds.
    Timed(fn(&Shared, u32, &mut Rows<'_>)),
    /// That counts start from 0.
    Reset,
    /// In text, items; with `-X`, a refusal.
    Cachedump,
    /// With `-X` this refusal. Otherwise that it is unknown: what memcached shows is not here.
    Dump(Refusal),
}

/// Subcommands that `Form::asks_for` finds, in the order in which memcached tries them.
const SUBCOMMANDS: &[(&[u8], Answer)] = &[
    (b"reset", Answer::Reset),
    (b"detail", Answer::Dump(Refusal::StatsDetailOff)),
    (b"settings", Answer::Rows(settings::write)),
    (b"cachedump", Answer::Cachedump),
    // memcached's answer without external storage.
    (b"extstore", Answer::Rows(|_, _| ())),
];

/// Subcommands that need their whole name in either protocol, tried after `SUBCOMMANDS`.
const WHOLE_NAMES: &[(&[u8], Answer)] = &[
    #[cfg(debug_assertions)]
    (b"audit", Answer::Rows(audit::write)),
    (b"columns", Answer::Rows(columns::write)),
    (b"items", Answer::Timed(items::items)),
    (b"memory", Answer::Rows(memory::write)),
    (b"mrc", Answer::Rows(mrc::write)),
    (b"slabs", Answer::Rows(items::slabs)),
    (b"store", Answer::Rows(store::write)),
    (b"udp", Answer::Rows(udp::write)),
    // memcached's answer without `-o track_sizes`.
    (b"sizes", Answer::Rows(|_, rows| stat!(rows, "sizes_status", "disabled"))),
];

/// Appends the reply to `stats ARGUMENTS`.
pub(crate) fn answer(
    context: &mut Context,
    args: Args<'_>,
    form: Form,
    out: &mut Vec<u8>,
) -> After {
    let written = write(&context.shared, context.clock.now, args, form, out);
    let Some(outcome) = written else { return cachedump(context, args, form, out) };
    form.say(outcome, out);
    After::Continue
}

/// Appends statistics. What came of it; `None`: it is items that are asked for.
fn write(
    shared: &Shared,
    now: u32,
    args: Args<'_>,
    form: Form,
    out: &mut Vec<u8>,
) -> Option<Outcome> {
    let rows = &mut Rows { form, out };
    let Some(subcommand) = args.token(0) else {
        general::write(shared, now, rows);
        return Some(Outcome::StatsEnd);
    };
    let found = SUBCOMMANDS.iter().find(|(name, _)| form.asks_for(name, args.text));
    let found = found.or_else(|| WHOLE_NAMES.iter().find(|(name, _)| *name == subcommand));
    let off = !shared.settings.dump_enabled;
    Some(match found.map(|(_, answer)| *answer) {
        Some(Answer::Rows(write)) => {
            write(shared, rows);
            Outcome::StatsEnd
        }
        Some(Answer::Timed(write)) => {
            write(shared, now, rows);
            Outcome::StatsEnd
        }
        Some(Answer::Reset) => {
            shared.reset();
            Outcome::StatsReset
        }
        Some(Answer::Cachedump) if off => Outcome::Refused(Refusal::StatsCachedumpOff),
        Some(Answer::Cachedump) if form.lists_items() => return None,
        Some(Answer::Dump(refusal)) if off => Outcome::Refused(refusal),
        Some(Answer::Cachedump | Answer::Dump(_)) | None => Outcome::Refused(Refusal::StatsUnknown),
    })
}

/// Begins `stats cachedump`, or appends why not.
fn cachedump(context: &mut Context, args: Args<'_>, form: Form, out: &mut Vec<u8>) -> After {
    let number = |at| args.token(at).and_then(protocol::number::strict_u32);
    let refusal = match (number(1), number(2)) {
        _ if args.count < 3 => Refusal::StatsCachedumpWords,
        (Some(SLAB_CLASSES..), Some(_)) => Refusal::StatsCachedumpClass,
        (Some(class), Some(limit)) => {
            match Dump::begin(&context.shared, Lines::items(limit), class == CLASS) {
                Some(dump) => {
                    context.counters.dumps.add(1);
                    context.errand = Some(Box::new(Errand::Dump(dump)));
                    return After::Errand;
                }
                None => Refusal::CrawlerBusy,
            }
        }
        _ => Refusal::BadFormat,
    };
    form.refuse(refusal, out);
    After::Continue
}
