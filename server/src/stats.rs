//! Answers `stats` and its subcommands.
//!
//! Where: the executor calls `answer`, which writes the whole reply or begins an errand.
//! Invariant: if memcached has the same subcommand, the answer has all of memcached's names, in
//! memcached's order, and no other names. Only `stats settings` appends settings that memcached
//! does not have. Other statistics of this server have separate subcommands. If the length of an
//! answer depends on items, keys or connections, an errand sends the answer. The length of other
//! answers depends only on the settings.
//! Source: memcached 1.6.45 `process_stat`, `process_bin_stat`.

#[cfg(debug_assertions)]
mod audit;
mod columns;
mod detail;
mod general;
mod hot;
mod items;
mod json;
mod latency;
mod memory;
mod mrc;
mod pending;
mod rows;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod udp;

use protocol::text::operator::SLAB_CLASSES;
use protocol::{Args, Outcome, Refusal, Stats};

use crate::errand::census::Census;
use crate::errand::conns::Conns;
use crate::errand::detail::Detail;
use crate::errand::dump::Lines;
use crate::errand::place::Place;
use crate::errand::{Errand, Kind};
use crate::execute::Context;
use crate::limits::ERRAND_STEPS_AT_ONCE;
use crate::shared::Shared;
use crate::shared::watch;
use ::columns::executor::{Errand as _, NextStep, Progress};
use ::columns::out::Out;
use pending::{Listing, Order, Pending};
use rows::{Rows, Target, WriteRows, stat};

pub(crate) use columns::executed;
pub(crate) use json::all;
pub(crate) use mrc::miss_ratios;

/// The slab class that `stats` reports for all items.
const CLASS: u32 = 1;

/// The answer to a subcommand.
#[derive(Clone, Copy)]
enum Answer {
    Rows(WriteRows),
    /// A check of a debug build, which may be slow or change what it reports.
    #[cfg(debug_assertions)]
    Check(WriteRows),
    Reset,
    /// The counts of requests for each key prefix. Refused with `-X`.
    Detail,
    /// A list of items, in the text protocol only. Refused with `-X`.
    Cachedump,
    /// A list of sockets, in the text protocol only.
    Conns,
    /// The number of items of each size.
    Sizes,
    /// The number and bytes of items for each key prefix. Refused with `-X`.
    Prefixes,
    /// The most requested keys. Refused with `-X`.
    Hot,
}

/// Subcommands that `Stats::asks_for` recognizes, in the order in which memcached tries them.
const SUBCOMMANDS: &[(&[u8], Answer)] = &[
    (b"reset", Answer::Reset),
    (detail::NAME, Answer::Detail),
    (b"settings", Answer::Rows(settings::write)),
    (b"cachedump", Answer::Cachedump),
    (b"conns", Answer::Conns),
    // The answer is empty, as from memcached without external storage.
    (b"extstore", Answer::Rows(|_, _| ())),
];

/// Subcommands whose name must be given in full in both protocols, tried after `SUBCOMMANDS`.
const WHOLE_NAMES: &[(&[u8], Answer)] = &[
    #[cfg(debug_assertions)]
    (b"audit", Answer::Check(audit::write)),
    (b"columns", Answer::Rows(columns::write)),
    (b"hot", Answer::Hot),
    (b"items", Answer::Rows(items::items)),
    (b"latency", Answer::Rows(latency::write)),
    (b"memory", Answer::Rows(memory::write)),
    (b"mrc", Answer::Rows(mrc::write)),
    (b"prefixes", Answer::Prefixes),
    (b"sizes", Answer::Sizes),
    (b"slabs", Answer::Rows(items::slabs)),
    #[cfg(debug_assertions)]
    (b"steps", Answer::Check(audit::steps)),
    (b"store", Answer::Rows(store::write)),
    (b"udp", Answer::Rows(udp::write)),
];

/// Appends the reply to `stats ARGUMENTS`, or begins an errand for it.
pub(crate) fn answer(context: &mut Context, request: &Stats<'_>, out: &mut Out) -> NextStep {
    let (form, now) = (request.form, context.clock.now);
    let begun = match pending(&context.shared, request) {
        Pending::Rows(write) => {
            let shared = &context.shared;
            form.stats(&mut out.buf, |out| {
                write(shared, &mut Rows { now, target: Target::Reply(form, out) });
            });
            return NextStep::Continue;
        }
        Pending::Reply(outcome) => {
            form.write_outcome(outcome, &mut out.buf);
            return NextStep::Continue;
        }
        Pending::Order(order) => {
            let outcome = match context.refuses_operators() {
                Some(refusal) => Outcome::Refused(refusal),
                None => obey(&context.shared, order),
            };
            form.write_outcome(outcome, &mut out.buf);
            // Because of this call, the order applies to the next requests of the same loop.
            context.look_who_watches();
            return NextStep::Continue;
        }
        Pending::Hot => {
            form.stats(&mut out.buf, |out| {
                hot::write(context, &mut Rows { now, target: Target::Reply(form, out) });
            });
            return NextStep::Continue;
        }
        Pending::Errand(listing) => match context.refuses_errands() {
            Some(refusal) => Err(refusal),
            None => errand(context, listing, request),
        },
    };
    match begun {
        Ok(errand) => begin(context, errand, out),
        Err(refusal) => {
            form.refuse(refusal, &mut out.buf);
            NextStep::Continue
        }
    }
}

fn errand(context: &Context, listing: Listing, request: &Stats<'_>) -> Result<Errand, Refusal> {
    let form = request.form;
    match listing {
        Listing::Items => cachedump(context, request.args),
        Listing::Sockets => {
            Ok(Errand(Kind::Conns(Conns::begin(&context.shared.columns, context.column, form))))
        }
        Listing::Sizes => census(context, |place| Census::of_sizes(place, form)),
        Listing::Prefixes => census(context, |place| Census::of_prefixes(place, form)),
        Listing::Detail if request.lists => Ok(Errand(Kind::Detail(Detail::of_lines()))),
        Listing::Detail => {
            let place = context.take_place().ok_or(Refusal::CrawlerBusy)?;
            Ok(Errand(Kind::Detail(Detail::of_value(place, form))))
        }
    }
}

fn obey(shared: &Shared, order: Order) -> Outcome {
    match order {
        Order::Reset => {
            shared.reset();
            Outcome::StatsReset
        }
        Order::CountPrefixes(on) => {
            shared.watch.set(watch::DETAIL, on);
            Outcome::Done
        }
    }
}

/// Does the first `ERRAND_STEPS_AT_ONCE` steps of an errand. The connection does the later steps.
fn begin(context: &mut Context, mut errand: Errand, out: &mut Out) -> NextStep {
    for _ in 0..ERRAND_STEPS_AT_ONCE {
        match errand.step(context, out) {
            Progress::Done => return NextStep::Continue,
            Progress::More => {}
            Progress::Idle | Progress::Ended => break,
        }
    }
    context.errand = Some(Box::new(errand));
    NextStep::Errand
}

/// Returns the step that answers the request.
fn pending(shared: &Shared, request: &Stats<'_>) -> Pending {
    let refused = |refusal| Pending::Reply(Outcome::Refused(refusal));
    let Some(subcommand) = request.name() else { return Pending::Rows(general::write) };
    let found = SUBCOMMANDS.iter().find(|(name, _)| request.asks_for(name));
    let found = found.or_else(|| WHOLE_NAMES.iter().find(|(name, _)| *name == subcommand));
    let Some((_, answer)) = found else {
        return refused(Refusal::StatsUnknown);
    };
    let off = !shared.settings.dump_enabled;
    match answer {
        Answer::Rows(write) => Pending::Rows(*write),
        #[cfg(debug_assertions)]
        Answer::Check(write) => Pending::Rows(*write),
        Answer::Reset => Pending::Order(Order::Reset),
        Answer::Detail | Answer::Prefixes | Answer::Hot if off => refused(Refusal::StatsDetailOff),
        Answer::Hot => Pending::Hot,
        Answer::Detail => detail::pending(request),
        Answer::Cachedump if off => refused(Refusal::StatsCachedumpOff),
        Answer::Cachedump if request.lists => Pending::Errand(Listing::Items),
        Answer::Conns if request.lists => Pending::Errand(Listing::Sockets),
        Answer::Cachedump | Answer::Conns => refused(Refusal::StatsUnknown),
        Answer::Sizes if shared.settings.sizes => Pending::Errand(Listing::Sizes),
        Answer::Sizes => Pending::Rows(|_, rows| stat!(rows, "sizes_status", "disabled")),
        Answer::Prefixes => Pending::Errand(Listing::Prefixes),
    }
}

/// Begins a count of all items. Refuses the count if too many dumps or counts run already.
fn census(context: &Context, of: impl FnOnce(Place) -> Census) -> Result<Errand, Refusal> {
    let place = context.take_place().ok_or(Refusal::CrawlerBusy)?;
    Ok(Errand(Kind::Census(of(place))))
}

fn cachedump(context: &Context, args: Args<'_>) -> Result<Errand, Refusal> {
    let number = |at| args.token(at).and_then(protocol::number::strict_u32);
    match (number(1), number(2)) {
        _ if args.count() < 3 => Err(Refusal::StatsCachedumpWords),
        (Some(SLAB_CLASSES..), Some(_)) => Err(Refusal::StatsCachedumpClass),
        (Some(class), Some(limit)) => {
            let dump = context.begin_dump(Lines::items(limit), class == CLASS);
            dump.map(|dump| Errand(Kind::Dump(dump))).ok_or(Refusal::CrawlerBusy)
        }
        _ => Err(Refusal::BadFormat),
    }
}
