//! Protects the items that are already on the servers: looks for them before the first write, and
//! at the end removes only items that kvblaster stored.
//!
//! Where: called before a run fills servers, and when the run is over.
//! Invariant: a server that holds items of other workloads is not filled unless the user allows it.
//! At the end, the stored items are deleted, or the server is flushed if it was empty before, or
//! the report says that the items are still there.
//! Source: memcached's `stats` (curr_items), `mg`, `flush_all`; Redis's `INFO`, `EXISTS`,
//! `FLUSHDB`.

use super::context::RunContext;
use super::error::RunError;
use super::live::{self, Live};
use super::plan::Plan;
use super::servers::Servers;
use super::stall::StallDetector;
use super::workers::Workers;
use crate::drive::{Mode, Pace};
use crate::measure::Tally;
use crate::target::version::{self, ServerInfo};
use crate::target::{Place, Target};
use crate::wire::Protocol;
use crate::words::{clock, grouped, size};
use crate::workload::{Names, Verb, Workload};
use std::io::{BufRead, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Number of keys that are looked up in a server that holds items. If the server has all these
/// keys, and at most as many items as the workload has keys, its items count as the workload's. If
/// a twentieth of all keys were missing, the sample would almost surely contain a missing key.
const SAMPLE_KEYS: u64 = 256;
/// The rate from which the announcement estimates the filling time if there is no `--fill-rate`.
const USUAL_PER_S: f64 = 100_000.0;
const DEPTH: u32 = 32;
/// Number of failed deletes after which clearing is given up if no delete has succeeded.
const FAILED_MAX: u64 = 1000;
/// Longest wait for a tally. Ctrl-C is checked between two waits.
const TICK: Duration = Duration::from_millis(100);

/// Checks that no server holds items of other workloads, or that the user allows filling anyway.
pub(super) fn check(plan: &Plan, context: &RunContext) -> Result<(), RunError> {
    let held = if plan.populate && !plan.force { foreign_items(context) } else { Vec::new() };
    match held.is_empty() || is_allowed(&held) {
        true => Ok(()),
        false => Err(RunError::ForeignItems(held.join("; "))),
    }
}

pub(super) fn announce(plan: &Plan, context: &RunContext) {
    if plan.populate {
        let too_small = context.servers.too_small(context.workload.items_bytes());
        if let Some(message) = too_small {
            live::tell(plan, &format!("warning: {message}"));
        }
        live::tell(plan, &announced(plan, &context.servers, &context.workload));
    }
}

fn announced(plan: &Plan, servers: &Servers, workload: &Workload) -> String {
    let keys = workload.keys() as f64;
    let (rate, bounds) = match plan.fill_rate_per_s {
        Some(rate) => (rate, "set by --fill-rate"),
        None => (USUAL_PER_S, "an assumed rate; --fill-rate sets a limit"),
    };
    let took = Duration::try_from_secs_f64(keys / rate).unwrap_or(Duration::MAX);
    let after = match plan.keep {
        true => "the items are kept (--keep)",
        false => "the items are removed at the end, unless --keep is given",
    };
    format!(
        "filling {} with {} keys ({} of keys and values): this takes {} at {} keys a second \
         ({bounds}); {after}",
        servers.named(&[(1, servers.names())]),
        grouped(keys),
        size(workload.items_bytes()),
        clock(took),
        grouped(rate)
    )
}

fn foreign_items(context: &RunContext) -> Vec<String> {
    let RunContext { servers, names, workload, .. } = context;
    let all = servers.targets.iter().zip(&servers.infos).enumerate();
    let held = all.filter_map(|(nth, (target, info))| {
        let items = info.items.filter(|items| *items > 0)?;
        let is_own = context.agents.is_none()
            && items <= workload.keys()
            && has_sample(servers, (nth, target), names, workload.keys());
        let bytes = info.items_bytes.map_or(String::new(), |bytes| {
            let limit = info.limit_bytes.map_or(String::new(), |limit| {
                format!("; its memory limit is {}", size(limit as f64))
            });
            format!(" ({}{limit})", size(bytes as f64))
        });
        (!is_own).then(|| format!("{} holds {} items{bytes}", target.name, grouped(items as f64)))
    });
    held.collect()
}

/// True if a server has all keys of a sample of `SAMPLE_KEYS` keys.
fn has_sample(
    servers: &Servers,
    (nth, target): (usize, &Target),
    names: &Names,
    keys: u64,
) -> bool {
    let (mut question, mut sampled, mut key) = (Vec::new(), 0_u64, Vec::new());
    let step = (keys / SAMPLE_KEYS).max(1);
    let is_resp = servers.protocol == Protocol::Resp;
    for number in (0..keys).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        key.clear();
        names.key(number, &mut key);
        if sampled >= SAMPLE_KEYS || servers.ring.place(&key) != nth {
            continue;
        }
        sampled += 1;
        if is_resp {
            question.extend_from_slice(format!("${}\r\n", key.len()).as_bytes());
            question.extend_from_slice(&[&key[..], b"\r\n"].concat());
        } else {
            question.extend_from_slice(&[b"mg ", &key[..], b" t\r\n"].concat());
        }
    }
    let question = match is_resp {
        true => [format!("*{}\r\n$6\r\nEXISTS\r\n", sampled + 1).as_bytes(), &question].concat(),
        false => [&question[..], b"mn\r\n"].concat(),
    };
    // A datagram carries only one request, so the sample is sent over TCP.
    let place = match &target.place {
        Place::Udp(address) | Place::Xdp(_, address) => Place::Tcp(*address),
        other => other.clone(),
    };
    let answer = version::answer(&Target { place, ..target.clone() }, &question);
    let answer = answer.unwrap_or_default();
    let found = match is_resp {
        true => answer.trim().strip_prefix(':').and_then(|count| count.parse().ok()).unwrap_or(0),
        false => answer.lines().filter(|line| line.starts_with("HD")).count() as u64,
    };
    sampled > 0 && found == sampled
}

/// Asks the user whether to fill the servers. Returns false if there is no terminal.
fn is_allowed(held: &[String]) -> bool {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return false;
    }
    let held = held.join("; ");
    let prompted = write!(
        stderr,
        "{held}. These items do not belong to this workload, and filling the server may overwrite \
         or evict them. Fill the server nevertheless? [y/N] "
    );
    let mut line = String::new();
    let is_read =
        prompted.and_then(|()| stderr.flush()).is_ok() && stdin.lock().read_line(&mut line).is_ok();
    is_read && matches!(line.trim(), "y" | "yes")
}

/// Removes the stored items, unless `--keep` is given. Returns the outcome for each server.
pub(super) fn clean_up(plan: &Plan, context: &RunContext, live: &Live) -> Vec<String> {
    if !plan.populate || plan.is_part || context.stored.get() == 0 {
        return Vec::new();
    }
    // Relaxed, here and below: the flag guards no other memory. The flag is cleared, so that only a
    // second Ctrl-C ends the removal.
    let was_stopped = context.stop.swap(false, Ordering::Relaxed);
    let left = match plan.keep {
        true => sentences(context, |_| "still holds the stored items (--keep)".to_owned()),
        false => removed(plan, context, live),
    };
    context.stop.fetch_or(was_stopped, Ordering::Relaxed);
    left
}

fn removed(plan: &Plan, context: &RunContext, live: &Live) -> Vec<String> {
    let servers = &context.servers;
    let now = match &context.agents {
        // The agents' servers may not be reachable from this process.
        Some(_) => Vec::new(),
        None => servers.query(),
    };
    let is_mute = |(before, now): (&ServerInfo, &std::io::Result<ServerInfo>)| match now {
        Ok(now) => before.version.is_some() && now.version.is_none(),
        Err(_) => true,
    };
    if servers.infos.iter().zip(&now).any(is_mute) {
        return sentences(context, |info| match info {
            Some(info) if info.version.is_some() => {
                format!(
                    "was not cleared, because a server did not answer: the {} keys of this \
                     workload may still be there",
                    key_count(context)
                )
            }
            _ => "does not answer: the stored items may still be there".to_owned(),
        });
    }
    let is_alone = |(before, now): (&ServerInfo, &std::io::Result<ServerInfo>)| {
        let items = now.as_ref().ok().and_then(|info| info.items);
        before.items == Some(0) && items.is_some_and(|items| items <= context.workload.keys())
    };
    let is_flushed = now.len() == servers.infos.len()
        && servers.infos.iter().zip(&now).all(is_alone)
        && servers.targets.iter().all(|target| has_flushed(target, servers.protocol));
    // Some servers count flushed items until a request reads them. Then the keys are deleted too.
    let is_empty =
        || servers.query().iter().all(|now| matches!(now, Ok(ServerInfo { items: Some(0), .. })));
    if is_flushed && is_empty() {
        return sentences(context, |_| "was empty before the run, and was flushed".to_owned());
    }
    let why = cleared(plan, context, live);
    sentences(context, |_| match &why {
        None => format!("was cleared of the {} keys of this workload", key_count(context)),
        Some(why) => {
            format!("was not cleared of all {} keys of this workload: {why}", key_count(context))
        }
    })
}

fn key_count(context: &RunContext) -> String {
    grouped(context.workload.keys() as f64)
}

fn has_flushed(target: &Target, protocol: Protocol) -> bool {
    let question: &[u8] = match protocol {
        Protocol::Resp => b"*1\r\n$7\r\nFLUSHDB\r\n",
        _ => b"flush_all\r\n",
    };
    let answer = version::answer(target, question).unwrap_or_default();
    matches!(answer.trim(), "OK" | "+OK")
}

/// Deletes each key. Returns the reason if some keys may be left.
fn cleared(plan: &Plan, context: &RunContext, live: &Live) -> Option<String> {
    live.clearing(context.workload.keys());
    let is_udp = context.servers.targets.iter().any(|target| target.place.datagrams().is_some());
    let depth = if is_udp { 1 } else { DEPTH };
    let pace = Pace::Closed { connections: plan.connections, depth };
    let workers = match Workers::start(plan, context, (Mode::Clear, pace), live.is_watched()) {
        Ok(workers) => workers,
        Err(error) => return Some(error.to_string()),
    };
    let mut detector = StallDetector::new(plan.timeout, context.workload.keys());
    let (mut tally, mut epoch, mut is_hopeless) = (Tally::default(), 0, false);
    while !is_hopeless && !workers.group.is_over() && !context.is_stopped() {
        if let Some(handed) = workers.next(TICK) {
            tally.merge(&handed.tally);
        }
        let delete = tally.verb(Verb::Delete);
        let is_vain = delete.answered == delete.errors && delete.failed() > FAILED_MAX;
        let looked = detector.observe(workers.start.elapsed(), delete.answered, delete.never());
        is_hopeless = is_vain || looked.is_some();
        epoch += 1;
        workers.move_on(epoch);
        live.tick(workers.start.elapsed(), 0, || workers.group.snapshot(), None);
    }
    let (rest, failed) = workers.end();
    rest.into_iter().for_each(|handed| tally.merge(&handed.tally));
    live.done();
    let delete = tally.verb(Verb::Delete);
    let over = delete.answered - delete.errors;
    failed.map(|error| error.to_string()).or_else(|| {
        let is_whole = over >= context.workload.keys();
        (!is_whole).then(|| format!("kvblaster gave up after {} keys", grouped(over as f64)))
    })
}

/// Returns a sentence for each server, with the server's number of items now and before the run.
fn sentences(context: &RunContext, what: impl Fn(Option<&ServerInfo>) -> String) -> Vec<String> {
    let servers = &context.servers;
    let now = if context.agents.is_some() { Vec::new() } else { servers.query() };
    let all = servers.targets.iter().zip(&servers.infos).enumerate();
    let sentence = |(nth, (target, before)): (usize, (&Target, &ServerInfo))| {
        let now = now.get(nth).and_then(|info| info.as_ref().ok());
        let items = now.and_then(|info| info.items).zip(before.items);
        let items = items.map_or(String::new(), |(now, before)| {
            let [now, before] = [now, before].map(|items| grouped(items as f64));
            format!("; it reports {now} items now, and reported {before} items before the run")
        });
        format!("{} {}{items}", target.name, what(now))
    };
    all.map(sentence).collect()
}
