//! Items on servers that kvblaster did not store: looked for before the first write, respected at
//! the end.
//!
//! Where: around everything that fills servers.
//! Invariant: a server that holds somebody else's items is not filled unless that was asked for.
//! The stored items are deleted at the end, or flushed if the server was empty, or reported as
//! still there.
//! Source: memcached's `stats` (curr_items), `mg`, `flush_all`; Redis's `INFO`, `EXISTS`,
//! `FLUSHDB`.

use super::crew::{Crew, Ground};
use super::live::{self, Live};
use super::patience::Patience;
use super::servers::Servers;
use super::{Plan, RunError};
use crate::drive::{Mode, Pace};
use crate::measure::Tally;
use crate::result::version::{self, Said};
use crate::target::{Place, Target};
use crate::wire::Speech;
use crate::words::{clock, grouped, size};
use crate::workload::{Names, Verb, Workload};
use std::io::{BufRead, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Keys that are looked for in a server that holds something. If all are there, and the server has
/// no more items than keys, it holds this workload: if a twentieth of the keys were missing, a
/// sample of this size would show it.
const SAMPLE_KEYS: u64 = 256;
/// Keys per second that the announcement assumes without `--fill-rate`.
const USUAL_PER_S: f64 = 100_000.0;
/// Deletes under way on a connection.
const DEPTH: u32 = 32;
/// Deletes that may fail before the first succeeds.
const FAILED_MAX: u64 = 1000;
/// Longest wait for a tally; Ctrl-C is looked for between two.
const TICK: Duration = Duration::from_millis(100);

/// Checks that no server holds somebody else's items.
///
/// # Errors
/// A server holds items that are not its workload's.
pub(super) fn look(plan: &Plan, ground: &Ground) -> Result<(), RunError> {
    let held = if plan.populate && !plan.force { strange(ground) } else { Vec::new() };
    match held.is_empty() || is_allowed(&held) {
        true => Ok(()),
        false => Err(RunError::Held(held.join("; "))),
    }
}

/// Announces what is about to be stored.
pub(super) fn announce(plan: &Plan, ground: &Ground) {
    if plan.populate {
        let too_small = ground.servers.too_small(ground.workload.items_bytes());
        if let Some(told) = too_small {
            live::tell(plan, &format!("before filling: {told}"));
        }
        live::tell(plan, &announced(plan, &ground.servers, &ground.workload));
    }
}

/// Describes what is about to be stored, and how long that takes.
fn announced(plan: &Plan, servers: &Servers, workload: &Workload) -> String {
    let keys = workload.keys() as f64;
    let (rate, bounds) = match plan.fill_rate_per_s {
        Some(rate) => (rate, "--fill-rate"),
        None => (USUAL_PER_S, "if the servers take that many; --fill-rate bounds it"),
    };
    let took = Duration::try_from_secs_f64(keys / rate).unwrap_or(Duration::MAX);
    let after = if plan.keep { "kept (--keep)" } else { "removed in the end, unless --keep" };
    format!(
        "filling {}: {} keys, {} of keys and values, {} at {} a second ({bounds}); {after}",
        servers.named(&[(1, servers.names())]),
        grouped(keys),
        size(workload.items_bytes()),
        clock(took),
        grouped(rate)
    )
}

/// Describes each server that holds items of something else.
fn strange(ground: &Ground) -> Vec<String> {
    let Ground { servers, names, workload, .. } = ground;
    let all = servers.targets.iter().zip(&servers.said).enumerate();
    let held = all.filter_map(|(nth, (target, said))| {
        let items = said.items.filter(|items| *items > 0)?;
        let is_own = ground.agents.is_none()
            && items <= workload.keys()
            && has_sample(servers, (nth, target), names, workload.keys());
        let bytes = said.items_bytes.map_or(String::new(), |bytes| {
            let limit = said.limit_bytes.map_or(String::new(), |limit| {
                format!(" of the {} that it may", size(limit as f64))
            });
            format!(", {}{limit}", size(bytes as f64))
        });
        (!is_own).then(|| format!("{} holds {} items{bytes}", target.name, grouped(items as f64)))
    });
    held.collect()
}

/// True if a server has all keys of a sample.
fn has_sample(
    servers: &Servers,
    (nth, target): (usize, &Target),
    names: &Names,
    keys: u64,
) -> bool {
    let (mut question, mut asked, mut key) = (Vec::new(), 0_u64, Vec::new());
    let step = (keys / SAMPLE_KEYS).max(1);
    let is_resp = servers.speech == Speech::Resp;
    for number in (0..keys).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        key.clear();
        names.key(number, &mut key);
        if asked >= SAMPLE_KEYS || servers.ring.place(&key) != nth {
            continue;
        }
        asked += 1;
        if is_resp {
            question.extend_from_slice(format!("${}\r\n", key.len()).as_bytes());
            question.extend_from_slice(&[&key[..], b"\r\n"].concat());
        } else {
            question.extend_from_slice(&[b"mg ", &key[..], b" t\r\n"].concat());
        }
    }
    let question = match is_resp {
        true => [format!("*{}\r\n$6\r\nEXISTS\r\n", asked + 1).as_bytes(), &question].concat(),
        false => [&question[..], b"mn\r\n"].concat(),
    };
    // One datagram carries one request, so the sample is asked over TCP: such a server has it too.
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
    asked > 0 && found == asked
}

/// Asks somebody at a terminal; true if they allow it.
fn is_allowed(held: &[String]) -> bool {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return false;
    }
    let held = held.join("; ");
    let asked = write!(stderr, "{held}, not of this workload. Fill it all the same? [y/N] ");
    let mut line = String::new();
    let is_read =
        asked.and_then(|()| stderr.flush()).is_ok() && stdin.lock().read_line(&mut line).is_ok();
    is_read && matches!(line.trim(), "y" | "yes")
}

/// Removes the stored items, unless they are to stay. Describes what is left behind, by server.
pub(super) fn leave(plan: &Plan, ground: &Ground, live: &Live) -> Vec<String> {
    if !plan.populate || plan.is_part || ground.stored.get() == 0 {
        return Vec::new();
    }
    // Relaxed, here and below: a flag by itself. The Ctrl-C that ended the run does not end the
    // removal; a second one does.
    let was_stopped = ground.stop.swap(false, Ordering::Relaxed);
    let left = match plan.keep {
        true => told(ground, |_| "is left with what was stored (--keep)".to_owned()),
        false => removed(plan, ground, live),
    };
    ground.stop.fetch_or(was_stopped, Ordering::Relaxed);
    left
}

fn removed(plan: &Plan, ground: &Ground, live: &Live) -> Vec<String> {
    let servers = &ground.servers;
    let now = match &ground.agents {
        // This process may not reach the servers that its agents see.
        Some(_) => Vec::new(),
        None => servers.ask(),
    };
    let is_mute = |(before, now): (&Said, &std::io::Result<Said>)| match now {
        Ok(now) => before.version.is_some() && now.version.is_none(),
        Err(_) => true,
    };
    if servers.said.iter().zip(&now).any(is_mute) {
        return told(ground, |said| match said {
            Some(said) if said.version.is_some() => {
                format!("was not cleared of the {} keys", grouped_keys(ground))
            }
            _ => "does not answer: what was stored may still be there".to_owned(),
        });
    }
    let is_alone = |(before, now): (&Said, &std::io::Result<Said>)| {
        let items = now.as_ref().ok().and_then(|said| said.items);
        before.items == Some(0) && items.is_some_and(|items| items <= ground.workload.keys())
    };
    let is_flushed = now.len() == servers.said.len()
        && servers.said.iter().zip(&now).all(is_alone)
        && servers.targets.iter().all(|target| has_flushed(target, servers.speech));
    // Some servers count flushed items until they are asked for.
    let is_empty =
        || servers.ask().iter().all(|now| matches!(now, Ok(Said { items: Some(0), .. })));
    if is_flushed && is_empty() {
        return told(ground, |_| "was empty before, and was flushed".to_owned());
    }
    let why = cleared(plan, ground, live);
    told(ground, |_| match &why {
        None => format!("was cleared of the {} keys of this workload", grouped_keys(ground)),
        Some(why) => {
            format!("was not cleared of all {} keys of this workload: {why}", grouped_keys(ground))
        }
    })
}

fn grouped_keys(ground: &Ground) -> String {
    grouped(ground.workload.keys() as f64)
}

fn has_flushed(target: &Target, speech: Speech) -> bool {
    let question: &[u8] = match speech {
        Speech::Resp => b"*1\r\n$7\r\nFLUSHDB\r\n",
        _ => b"flush_all\r\n",
    };
    let answer = version::answer(target, question).unwrap_or_default();
    matches!(answer.trim(), "OK" | "+OK")
}

/// Deletes each key. Returns the reason if some may be left.
fn cleared(plan: &Plan, ground: &Ground, live: &Live) -> Option<String> {
    live.clearing(ground.workload.keys());
    let is_udp = ground.servers.targets.iter().any(|target| target.place.datagrams().is_some());
    let depth = if is_udp { 1 } else { DEPTH };
    let pace = Pace::Closed { connections: plan.connections, depth };
    let crew = match Crew::start(plan, ground, (Mode::Clear, pace), live.is_watched()) {
        Ok(crew) => crew,
        Err(error) => return Some(error.to_string()),
    };
    let mut patience = Patience::new(plan.timeout, ground.workload.keys());
    let (mut tally, mut epoch, mut hopeless) = (Tally::default(), 0, false);
    while !hopeless && !crew.hands.is_over() && !ground.is_stopped() {
        if let Some(handed) = crew.next(TICK) {
            tally.merge(&handed.tally);
        }
        let delete = tally.verb(Verb::Delete);
        let is_vain = delete.answered == delete.errors && delete.failed() > FAILED_MAX;
        let looked = patience.look(crew.start.elapsed(), delete.answered, delete.never());
        hopeless = is_vain || looked.is_some();
        epoch += 1;
        crew.move_on(epoch);
        live.tick(crew.start.elapsed(), 0, || crew.hands.sight(), None);
    }
    let (rest, failed) = crew.end();
    rest.into_iter().for_each(|handed| tally.merge(&handed.tally));
    live.done();
    let delete = tally.verb(Verb::Delete);
    let over = delete.answered - delete.errors;
    failed.map(|error| error.to_string()).or_else(|| {
        let is_whole = over >= ground.workload.keys();
        (!is_whole).then(|| format!("{} were, and then it was given up", grouped(over as f64)))
    })
}

/// Writes a sentence for each server, with its number of items now and before.
fn told(ground: &Ground, what: impl Fn(Option<&Said>) -> String) -> Vec<String> {
    let servers = &ground.servers;
    let now = if ground.agents.is_some() { Vec::new() } else { servers.ask() };
    let all = servers.targets.iter().zip(&servers.said).enumerate();
    let sentence = |(nth, (target, before)): (usize, (&Target, &Said))| {
        let now = now.get(nth).and_then(|said| said.as_ref().ok());
        let items = now.and_then(|said| said.items).zip(before.items);
        let items = items.map_or(String::new(), |(now, before)| {
            let [now, before] = [now, before].map(|items| grouped(items as f64));
            format!("; it says that it holds {now} items, and held {before} before")
        });
        format!("{} {}{items}", target.name, what(now))
    };
    all.map(sentence).collect()
}
