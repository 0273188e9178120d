//! Answers `stats` and its subcommands.
//!
//! Where: called by the executor; writes the whole reply, or begins an errand.
//! Invariant: an answer that memcached gives too has all of memcached's names, in memcached's
//! order, and no other name; only `stats settings` has ours behind them. All other statistics of
//! this server have subcommands of their own. The length of a reply depends only on the settings;
//! an answer whose length depends on items, keys or connections is an errand.
//! Source: memcached 1.6.45 `process_stat`, `process_bin_stat`.

#[cfg(debug_assertions)]
mod audit;
mod columns;
mod detail;
mod general;
mod hot;
mod items;
mod latency;
mod memory;
mod mrc;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod udp;

pub(crate) use memory::Statm;

use std::fmt::Arguments;

use protocol::text::operator::SLAB_CLASSES;
use protocol::{Args, Form, Outcome, Refusal};

use crate::errand::census::Census;
use crate::errand::conns::Conns;
use crate::errand::detail::Detail;
use crate::errand::dump::{Dump, Lines};
use crate::errand::place::Place;
use crate::errand::{Errand, Progress};
use crate::execute::{After, Context};
use crate::limits::ERRAND_STEPS_AT_ONCE;
use crate::out::Out;
use crate::shared::Shared;
use crate::watch;

/// The slab class that `stats` reports for all items.
const CLASS: u32 = 1;

/// Writes one statistic.
macro_rules! stat {
    ($rows:expr, $name:expr, $value:expr) => {
        $rows.row($name, format_args!("{}", $value))
    };
}
use stat;

/// The reply to which statistics are appended: text lines, or binary frames.
pub(crate) struct Rows<'o> {
    form: Form,
    out: &'o mut Vec<u8>,
}

impl Rows<'_> {
    fn row(&mut self, name: &str, value: Arguments<'_>) {
        self.form.stat(name, value, self.out);
    }
}

/// The answer to a subcommand.
#[derive(Clone, Copy)]
enum Answer {
    /// Statistics.
    Rows(fn(&Shared, &mut Rows<'_>)),
    /// Statistics that depend on the store's clock, in seconds.
    Timed(fn(&Shared, u32, &mut Rows<'_>)),
    /// Counts begin at 0 again.
    Reset,
    /// Requests by the prefixes of their keys; with `-X`, a refusal.
    Detail,
    /// In text, a list of items; with `-X`, a refusal.
    Cachedump,
    /// In text, a list of sockets.
    Conns,
    /// The number of items of each size.
    Sizes,
    /// Items and their bytes by the prefixes of their keys; with `-X`, a refusal.
    Prefixes,
    /// The keys that are asked for most; with `-X`, a refusal.
    Hot,
}

/// Subcommands that `Form::asks_for` finds, in the order in which memcached tries them.
const SUBCOMMANDS: &[(&[u8], Answer)] = &[
    (b"reset", Answer::Reset),
    (DETAIL, Answer::Detail),
    (b"settings", Answer::Rows(settings::write)),
    (b"cachedump", Answer::Cachedump),
    (b"conns", Answer::Conns),
    // memcached's answer without external storage.
    (b"extstore", Answer::Rows(|_, _| ())),
];

const DETAIL: &[u8] = b"detail";

/// Subcommands that need their whole name in either protocol, tried after `SUBCOMMANDS`.
const WHOLE_NAMES: &[(&[u8], Answer)] = &[
    #[cfg(debug_assertions)]
    (b"audit", Answer::Rows(audit::write)),
    (b"columns", Answer::Rows(columns::write)),
    (b"hot", Answer::Hot),
    (b"items", Answer::Timed(items::items)),
    (b"latency", Answer::Rows(latency::write)),
    (b"memory", Answer::Rows(memory::write)),
    (b"mrc", Answer::Rows(mrc::write)),
    (b"prefixes", Answer::Prefixes),
    (b"sizes", Answer::Sizes),
    (b"slabs", Answer::Rows(items::slabs)),
    #[cfg(debug_assertions)]
    (b"steps", Answer::Rows(audit::steps)),
    (b"store", Answer::Rows(store::write)),
    (b"udp", Answer::Rows(udp::write)),
];

/// The rest of an answer, after the rows that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Write this outcome.
    Say(Outcome),
    /// Obey this order, if operators are obeyed.
    Act(Act),
    /// List items, as `stats cachedump` does.
    Items,
    Sockets,
    Sizes,
    Prefixes,
    /// List the requests by prefixes.
    Detail,
    /// List the keys that are asked for most.
    Hot,
}

/// Orders given by `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Counts begin at 0 again.
    Reset,
    /// Requests are counted by the prefixes of their keys, if true.
    CountPrefixes(bool),
}

/// Appends the reply to `stats ARGUMENTS`, or the part that is known at once.
pub(crate) fn answer(context: &mut Context, args: Args<'_>, form: Form, out: &mut Out) -> After {
    let begun = match write(&context.shared, context.clock.now, args, form, &mut out.buf) {
        Left::Say(outcome) => {
            form.say(outcome, &mut out.buf);
            return After::Continue;
        }
        Left::Act(act) => {
            let outcome = match context.refuses_operators() {
                Some(refusal) => Outcome::Refused(refusal),
                None => obey(&context.shared, act, form),
            };
            form.say(outcome, &mut out.buf);
            // The order holds for the next requests of this loop as well.
            context.look_who_watches();
            return After::Continue;
        }
        Left::Hot => {
            hot::write(context, form, &mut out.buf);
            form.say(Outcome::StatsEnd, &mut out.buf);
            return After::Continue;
        }
        left => match context.refuses_errands() {
            Some(refusal) => Err(refusal),
            None => errand(context, left, args, form),
        },
    };
    match begun {
        Ok(errand) => begin(context, errand, out),
        Err(refusal) => {
            form.refuse(refusal, &mut out.buf);
            After::Continue
        }
    }
}

/// Returns the errand that answers the rest, or the refusal.
fn errand(context: &Context, left: Left, args: Args<'_>, form: Form) -> Result<Errand, Refusal> {
    match left {
        Left::Items => cachedump(context, args),
        Left::Sockets => Ok(Errand::Conns(Conns::begin(context, form))),
        Left::Sizes => census(context, |place| Census::of_sizes(place, form)),
        Left::Prefixes => census(context, |place| Census::of_prefixes(place, form)),
        Left::Detail if form.lists_items() => Ok(Errand::Detail(Detail::of_lines())),
        Left::Detail => {
            let place = Place::take(context).ok_or(Refusal::CrawlerBusy)?;
            Ok(Errand::Detail(Detail::of_value(place, form)))
        }
        Left::Say(_) | Left::Act(_) | Left::Hot => Err(Refusal::StatsUnknown),
    }
}

fn obey(shared: &Shared, act: Act, form: Form) -> Outcome {
    match act {
        Act::Reset => {
            shared.reset();
            Outcome::StatsReset
        }
        Act::CountPrefixes(on) => {
            shared.watch.set(watch::DETAIL, on);
            if form.lists_items() { Outcome::Done } else { Outcome::StatsEnd }
        }
    }
}

/// Takes the first steps of an errand; the connection goes on with the others.
fn begin(context: &mut Context, mut errand: Errand, out: &mut Out) -> After {
    for _ in 0..ERRAND_STEPS_AT_ONCE {
        match errand.step(context, out) {
            Progress::Done => return After::Continue,
            Progress::More => {}
            Progress::Idle | Progress::Ended => break,
        }
    }
    context.errand = Some(Box::new(errand));
    After::Errand
}

/// Appends statistics. Returns the rest of the answer.
fn write(shared: &Shared, now: u32, args: Args<'_>, form: Form, out: &mut Vec<u8>) -> Left {
    let rows = &mut Rows { form, out };
    let Some(subcommand) = args.token(0) else {
        general::write(shared, now, rows);
        return Left::Say(Outcome::StatsEnd);
    };
    let found = SUBCOMMANDS.iter().find(|(name, _)| form.asks_for(name, args.text));
    let found = found.or_else(|| WHOLE_NAMES.iter().find(|(name, _)| *name == subcommand));
    let Some((_, answer)) = found else {
        return Left::Say(Outcome::Refused(Refusal::StatsUnknown));
    };
    let off = !shared.settings.dump_enabled;
    Left::Say(match answer {
        Answer::Rows(write) => {
            write(shared, rows);
            Outcome::StatsEnd
        }
        Answer::Timed(write) => {
            write(shared, now, rows);
            Outcome::StatsEnd
        }
        Answer::Reset => return Left::Act(Act::Reset),
        Answer::Detail | Answer::Prefixes | Answer::Hot if off => {
            Outcome::Refused(Refusal::StatsDetailOff)
        }
        Answer::Hot => return Left::Hot,
        Answer::Detail => return detail::asked(args, form),
        Answer::Cachedump if off => Outcome::Refused(Refusal::StatsCachedumpOff),
        Answer::Cachedump if form.lists_items() => return Left::Items,
        Answer::Conns if form.lists_items() => return Left::Sockets,
        Answer::Cachedump | Answer::Conns => Outcome::Refused(Refusal::StatsUnknown),
        Answer::Sizes if shared.settings.sizes => return Left::Sizes,
        Answer::Sizes => {
            stat!(rows, "sizes_status", "disabled");
            Outcome::StatsEnd
        }
        Answer::Prefixes => return Left::Prefixes,
    })
}

/// Begins a count of all items, if there is a place for it.
fn census(context: &Context, of: impl FnOnce(Place) -> Census) -> Result<Errand, Refusal> {
    let place = Place::take(context).ok_or(Refusal::CrawlerBusy)?;
    Ok(Errand::Census(of(place)))
}

/// Begins the dump of `stats cachedump`, or returns its refusal.
fn cachedump(context: &Context, args: Args<'_>) -> Result<Errand, Refusal> {
    let number = |at| args.token(at).and_then(protocol::number::strict_u32);
    match (number(1), number(2)) {
        _ if args.count < 3 => Err(Refusal::StatsCachedumpWords),
        (Some(SLAB_CLASSES..), Some(_)) => Err(Refusal::StatsCachedumpClass),
        (Some(class), Some(limit)) => {
            let dump = Dump::begin(context, Lines::items(limit), class == CLASS);
            dump.map(Errand::Dump).ok_or(Refusal::CrawlerBusy)
        }
        _ => Err(Refusal::BadFormat),
    }
}
