//! Executes operators' commands, which act on a running server.
//!
//! Where: called by `execute`.
//! Invariant: `flush_all` flushes items stored up to a given second, and keeps items stored later.
//! This module only sets a new memory limit; the store then frees memory slice by slice until it is
//! within the limit. A long command becomes the connection's errand. Commands in datagrams are
//! obeyed only with `-o udp_admin`, because anybody can forge a sender. A command for a mechanism
//! that only memcached has gets memcached's answer.
//! Source: memcached 1.6.45 `process_flush_all_command`, `item_flush_expired`, `item_is_flushed`,
//! `process_memlimit_command`, `process_lru_crawler_command`, `process_slabs_command`,
//! `process_shutdown_command`.

use memory::plant::{Fault, is};
use protocol::command::Operator;
use protocol::text::operator::{self, Classes, Control, Listing, Shutdown, Streams};
use protocol::{Args, Form, Outcome, Refusal};
use store::OutOfBounds;

use super::Context;
use crate::errand::dump::Lines;
use crate::errand::{Errand, Kind};
use crate::shared::watch::WatchGuard;
use crate::start::process::{self, Stop};
use columns::executor::NextStep;
use columns::out::Out;

/// Smallest and largest `cache_memlimit`, in MiB.
const MEMLIMIT_MIN: u32 = 8;
const MEMLIMIT_MAX: u32 = 1_000_000_000;

/// Number of slab classes in memcached.
const CLASSES: i32 = operator::SLAB_CLASSES as i32;

/// Executes `flush_all`, now or at a given time. `exptime` is `None` if the client gave no number.
pub(super) fn flush_all(context: &mut Context, exptime: Option<i64>) -> Outcome {
    if let Some(refusal) = context.refuses_operators() {
        return Outcome::Refused(refusal);
    }
    context.counters.flush_cmds.add(1);
    if !context.shared.settings.flush_enabled {
        return Outcome::Refused(Refusal::FlushOff);
    }
    let Some(exptime) = exptime else { return Outcome::Refused(Refusal::BadExptime) };
    let oldest_live = match exptime {
        // A time before the server's start becomes 0: nothing is flushed, and a planned flush is
        // cancelled.
        1.. => Some(context.clock.realtime(exptime) - u32::from(!is(Fault::FlushTakesItsSecond))),
        _ => None,
    };
    // memcached drops at once all items stored at or before the given time. If that time is in the
    // past, memcached drops all items.
    let past = oldest_live.is_some_and(|second| second > 0 && second < context.clock.now);
    context.store.flush(oldest_live.filter(|_| !past));
    Outcome::Done
}

/// Obeys a command that only operators may give.
pub(super) fn obey(
    context: &mut Context,
    command: Operator,
    args: Args<'_>,
    form: Form,
    out: &mut Out,
) -> NextStep {
    let control = operator::read(command, args).and_then(|control| {
        let begins_errand = matches!(control, Control::Dump(..) | Control::Watch(_));
        let refusal = if begins_errand { None } else { context.refuses_operators() };
        refusal.map_or(Ok(control), Err)
    });
    let outcome = match control {
        Err(refusal) => Outcome::Refused(refusal),
        Ok(Control::Nothing) => Outcome::Done,
        Ok(Control::LimitMemory(megabytes)) => limit_memory(context, megabytes),
        Ok(Control::Crawler(on)) => crawler(context, on),
        Ok(Control::Crawl(classes)) => crawl(context, classes),
        Ok(Control::Dump(listing, classes)) => match dump(context, listing, classes) {
            Ok(errand) => {
                context.errand = Some(Box::new(errand));
                form.write_outcome(Outcome::Done, &mut out.buf);
                return NextStep::Errand;
            }
            Err(refusal) => Outcome::Refused(refusal),
        },
        Ok(Control::Reassign(classes)) => Outcome::Refused(reassign(context, classes)),
        Ok(Control::Shutdown(mode)) => match shutdown(context, mode) {
            Ok(stop) => {
                process::ask_to_stop(stop);
                return NextStep::Close;
            }
            Err(refusal) => Outcome::Refused(refusal),
        },
        Ok(Control::Watch(streams)) => match watch(context, streams) {
            Ok(guard) => {
                context.errand = Some(Box::new(Errand(Kind::Watch(guard))));
                form.write_outcome(Outcome::Done, &mut out.buf);
                return NextStep::Errand;
            }
            Err(refusal) => Outcome::Refused(refusal),
        },
    };
    form.write_outcome(outcome, &mut out.buf);
    NextStep::Continue
}

/// Obeys `lru_crawler enable` and `disable`: switches dumps and removal of expired items on or off.
fn crawler(context: &Context, on: bool) -> Outcome {
    match (context.shared.store.set_expires_unasked(on), on) {
        (true, true) => Outcome::Refused(Refusal::CrawlerStart),
        _ => Outcome::Done,
    }
}

fn crawler_is_on(context: &Context) -> bool {
    context.shared.store.expires_unasked()
}

/// Obeys `lru_crawler crawl`. Does nothing, because expired items are removed in the background.
fn crawl(context: &Context, classes: Option<Classes>) -> Outcome {
    Outcome::Refused(match classes {
        _ if !crawler_is_on(context) => Refusal::CrawlerOff,
        None => Refusal::CrawlerClass,
        Some(Classes::Hash) => Refusal::CrawlerUnable,
        Some(Classes::All | Classes::Listed(_)) => return Outcome::Done,
    })
}

fn dump(context: &Context, listing: Listing, classes: Option<Classes>) -> Result<Errand, Refusal> {
    let (lines, off) = match listing {
        Listing::Metadata => (Lines::Metadata, Refusal::MetadumpOff),
        Listing::Requests => (Lines::Requests, Refusal::MgdumpOff),
    };
    if !crawler_is_on(context) {
        return Err(Refusal::CrawlerOff);
    }
    if !context.shared.settings.dump_enabled {
        return Err(off);
    }
    let all = match classes.ok_or(Refusal::CrawlerClass)? {
        Classes::All | Classes::Hash => true,
        Classes::Listed(first) => first,
    };
    if let Some(refusal) = context.refuses_errands() {
        return Err(refusal);
    }
    context.begin_dump(lines, all).map(|dump| Errand(Kind::Dump(dump))).ok_or(Refusal::CrawlerBusy)
}

fn watch(context: &Context, streams: Streams) -> Result<WatchGuard, Refusal> {
    if !context.shared.settings.watch_enabled {
        return Err(Refusal::WatchOff);
    }
    if let Some(refusal) = context.refuses_errands() {
        return Err(refusal);
    }
    WatchGuard::take(&context.shared.watch, streams).ok_or(Refusal::WatchTooMany)
}

/// Refuses `slabs reassign`, because no slab class has pages to move.
fn reassign(context: &Context, classes: Option<(i32, i32)>) -> Refusal {
    if !context.shared.settings.slab_reassign {
        return Refusal::SlabsOff;
    }
    match classes {
        None => Refusal::BadFormat,
        Some((from, to)) if from == to => Refusal::SlabsSame,
        Some((-1..CLASSES, 0..CLASSES)) => Refusal::SlabsNoSpare,
        Some(_) => Refusal::SlabsClass,
    }
}

fn shutdown(context: &Context, mode: Option<Shutdown>) -> Result<Stop, Refusal> {
    match mode {
        _ if !context.shared.settings.shutdown_enabled => Err(Refusal::ShutdownOff),
        None => Err(Refusal::ShutdownMode),
        Some(Shutdown::Now) => Ok(Stop::Normally),
        Some(Shutdown::Gracefully) => Ok(Stop::Gracefully),
    }
}

fn limit_memory(context: &mut Context, megabytes: u32) -> Outcome {
    Outcome::Refused(match megabytes {
        ..MEMLIMIT_MIN => Refusal::LimitTooSmall,
        MEMLIMIT_MIN..=MEMLIMIT_MAX => {
            let store_bytes =
                ((megabytes as usize) << 20).saturating_sub(context.shared.fixed_bytes());
            match context.store.limit_memory(store_bytes) {
                Ok(()) => {
                    log::info!("maxbytes adjusted to {megabytes}m");
                    return Outcome::Done;
                }
                Err(OutOfBounds) => {
                    let (least, most) = context.shared.memory_bytes_bounds();
                    log::info!(
                        "cache_memlimit {megabytes} is refused: the limit must be {} to {} MiB",
                        least.div_ceil(1 << 20).max(MEMLIMIT_MIN as usize),
                        most >> 20
                    );
                    Refusal::LimitOutOfBounds
                }
            }
        }
        _ => Refusal::LimitInBytes,
    })
}
