//! Disturbances of a server under load: its memory limit changes, it is flushed, its process is
//! stopped and resumed, its file descriptors run out.
//!
//! Where: beside the other actors. Invariant: after each disturbance the process runs, and has its
//! former limit of descriptors.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::THREADS;
use crate::measure::wire::{Answer, PROTOCOLS, Request, Verb, Wire};
use crate::measure::{Outcome, fail, launched};
use crate::site::{Progress, RunControl, Site};
use testing::namespace::{Namespace, WIRE};
use testing::random::{Random, hash};

/// Longest wait until memory is returned, or until a flush takes effect. The wait is long, because
/// the machine may be busy and the server may be stopped for a while.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(200);
const CROWD: usize = 30;

/// Number of threads: the columns, the main thread, and the thread that takes memory in advance.
const SERVER_THREADS: u64 = THREADS as u64 + 2;
/// Maximum bytes of stack that a thread touches.
const STACK_BYTES: u64 = 64 << 10;
/// Maximum bytes that glibc's allocator caches for a thread and counts as in use (tcache): seven
/// pieces of each of 64 sizes, up to a kilobyte.
const THREAD_CACHE_BYTES: u64 = 7 * 16 * (64 * 65 / 2);
/// Upper bound of the program's modified data and one-time allocations: counters, samples, tables
/// of prefixes. (Measured: 0.3 MB at rest.)
const DATA_BYTES: u64 = 1 << 20;

/// Upper bound of resident bytes without `others_bytes` at this memory limit.
pub(crate) fn bound_bytes(limit_bytes: u64) -> u64 {
    limit_bytes + SERVER_THREADS * (STACK_BYTES + THREAD_CACHE_BYTES) + DATA_BYTES
}

/// Sum of the statistics of memory that does not count towards the limit: the store's tables,
/// buffers of connections, freed memory that the allocator keeps, and the program's own memory.
fn others_bytes(wire: &mut Wire) -> Outcome<u64> {
    let names = [
        "table_bytes",
        "connection_bytes",
        "read_buf_bytes",
        "response_obj_bytes",
        "prefix_bytes",
        "heap_free_bytes",
        "program_bytes",
    ];
    let rows = wire.stats("stats memory")?;
    let held = rows.iter().filter(|(name, _)| names.contains(&name.as_str()));
    Ok(held.map(|(_, value)| value.parse::<u64>()).sum::<Result<u64, _>>()?)
}

/// A lower bound of the resident bytes without `others_bytes`.
fn resident_bytes(site: &Site<'_>, wire: &mut Wire) -> Outcome<u64> {
    let before = others_bytes(wire)?;
    let resident = launched::resident_bytes(&site.server)?;
    Ok(resident.saturating_sub(before.max(others_bytes(wire)?)))
}

/// True if the store has no more segments than its limit allows. Resident bytes do not show this
/// number, because the store may touch a segment's memory long after it took the segment.
fn keeps_limit(wire: &mut Wire) -> Outcome<bool> {
    let rows = wire.stats("stats memory")?;
    let number = |name: &str| -> Outcome<u64> {
        let row = rows.iter().find(|(it, _)| it == name);
        let Some((_, value)) = row else { return fail(format!("stats memory has no {name}")) };
        Ok(value.parse()?)
    };
    let taken = ["open", "sealed", "frames", "free", "limbo", "index"];
    let taken = taken.map(|state| number(&format!("segments_{state}")));
    let taken: u64 = taken.into_iter().sum::<Outcome<u64>>()?;
    Ok(taken <= number("segments_allowed")?)
}

pub(crate) fn watch(site: &Site<'_>, control: &RunControl, progress: &Progress) -> Outcome<String> {
    let mut wire = site.text()?;
    let (mut most, mut fullest) = (0, 0.0_f64);
    while control.is_running() {
        // Relaxed: orders no other memory. `limits` raises `limit_bytes` before it raises the
        // server's limit, and lowers `limit_bytes` after it has lowered the server's limit.
        let limit = site.limit_bytes.load(Ordering::Relaxed);
        let resident = resident_bytes(site, &mut wire)?;
        let limit = limit.max(site.limit_bytes.load(Ordering::Relaxed)); // orders no other memory
        let bound = bound_bytes(limit);
        if resident > bound {
            let rows = wire.stats("stats memory")?;
            let shown: Vec<_> =
                rows.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
            let shown = shown.join(", ");
            return fail(format!(
                "{resident} bytes are resident, but the limit of {limit} bytes allows only \
                 {bound}: {shown}"
            ));
        }
        most = most.max(resident);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = resident as f64 / bound as f64;
        fullest = fullest.max(share);
        progress.add(1);
        control.pause(LOOK);
    }
    let looks = progress.count();
    Ok(format!(
        "{looks} readings of resident memory: at most {most} bytes, at most {:.1} % of the bound",
        fullest * 100.0
    ))
}

pub(crate) fn limits(
    site: &Site<'_>,
    seed: u64,
    control: &RunControl,
    progress: &Progress,
) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 4000));
    let (least, most) = site.limits_mb;
    let mut wire = site.text()?;
    let mut lowered = 0_u64;
    while control.is_running() {
        let megabytes = least + random.number(most - least + 1);
        let limit = u64::from(megabytes) << 20;
        // Relaxed: orders no other memory. Only `plant` stores the limit in another thread.
        let is_lower = limit < site.limit_bytes.load(Ordering::Relaxed);
        if !is_lower {
            site.limit_bytes.store(limit, Ordering::Relaxed); // orders no other memory
        }
        let said = wire.line(&format!("cache_memlimit {megabytes}"))?;
        if said != "OK" {
            return fail(format!("the answer to cache_memlimit {megabytes} is {said}"));
        }
        if is_lower {
            let start = Instant::now();
            while !keeps_limit(&mut wire)? || resident_bytes(site, &mut wire)? > bound_bytes(limit)
            {
                if start.elapsed() > PATIENCE {
                    return fail(format!(
                        "memory is above the new limit of {limit} bytes after {PATIENCE:?}"
                    ));
                }
                std::thread::sleep(LOOK);
            }
            site.limit_bytes.store(limit, Ordering::Relaxed); // orders no other memory
            lowered += 1;
        }
        progress.add(1);
        control.pause(Duration::from_secs(u64::from(2 + random.number(15))));
    }
    Ok(format!("{} changes of the limit, {lowered} of them to a lower limit", progress.count()))
}

/// Flushes the server with delays of 0 to 2 seconds. Items set before a flush must vanish.
pub(crate) fn flushes(
    site: &Site<'_>,
    seed: u64,
    control: &RunControl,
    progress: &Progress,
) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 5000));
    let mut later = 0_u64;
    while control.is_running() {
        let protocol = PROTOCOLS[random.number(3) as usize];
        let mut wire = Wire::connect(site.address(), protocol)?;
        let mut ask = |verb| wire.ask(&Request { verb, key: "flushed", exptime: 0 });
        ask(Verb::Set(b"before"))?;
        let delay = random.number(3);
        let command =
            if delay == 0 { "flush_all".to_owned() } else { format!("flush_all {delay}") };
        let said = site.text()?.line(&command)?;
        if said != "OK" {
            return fail(format!("the answer to {command} is {said}"));
        }
        let start = Instant::now();
        while let Answer::Value(_) = ask(Verb::Get)? {
            if delay == 0 || start.elapsed() > PATIENCE {
                return fail(format!(
                    "an item is still present {:?} after {command}",
                    start.elapsed()
                ));
            }
            std::thread::sleep(LOOK);
        }
        later += u64::from(delay > 0);
        progress.add(1);
        // With pauses of this length, memory is full most of the time.
        control.pause(Duration::from_secs(u64::from(1 + random.number(90))));
    }
    Ok(format!("{} flushes, {later} of them with a delay", progress.count()))
}

/// The process is stopped for up to four seconds, so that its columns see the clock jump.
pub(crate) fn stops(
    site: &Site<'_>,
    seed: u64,
    control: &RunControl,
    progress: &Progress,
) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 6000));
    let mut stopped = Duration::ZERO;
    while control.is_running() {
        control.pause(Duration::from_secs(u64::from(3 + random.number(20))));
        let time = Duration::from_millis(u64::from(20 + random.number(4000)));
        site.server.pause()?;
        std::thread::sleep(time);
        site.server.resume()?;
        stopped += time;
        progress.add(1);
    }
    Ok(format!("{} stops of the process, {:.0} s in all", progress.count(), stopped.as_secs_f64()))
}

/// The server's end of the link is down for up to a second; packets are lost or delayed.
pub(crate) fn links(
    far: &Namespace,
    seed: u64,
    control: &RunControl,
    progress: &Progress,
) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 9000));
    while control.is_running() {
        control.pause(Duration::from_secs(u64::from(3 + random.number(30))));
        far.ip(&format!("link set {WIRE} down"));
        std::thread::sleep(Duration::from_millis(u64::from(random.number(1000))));
        far.ip(&format!("link set {WIRE} up"));
        progress.add(1);
    }
    Ok(format!("the link was down {} times", progress.count()))
}

/// A fault that the other actors must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Plant {
    Wrong,
    Lost,
    /// The memory watch assumes a lower limit than the server has.
    Memory,
}

pub(crate) fn plant(
    site: &Site<'_>,
    (plant, key): (Plant, &str),
    control: &RunControl,
    progress: &Progress,
) -> Outcome<String> {
    let verb = if plant == Plant::Wrong { Verb::Set(b"planted") } else { Verb::Delete };
    let mut wire = site.text()?;
    while control.is_running() {
        if plant == Plant::Memory {
            site.limit_bytes.store(1 << 20, Ordering::Relaxed); // orders no other memory
        } else {
            wire.ask(&Request { verb, key, exptime: 0 })?;
        }
        progress.add(1);
        control.pause(LOOK);
    }
    Ok(format!("{} faults caused on purpose", progress.count()))
}

/// Leaves the server three free descriptors while `CROWD` clients connect, and then restores the
/// limit of descriptors. Afterwards each connection must be served.
pub(crate) fn descriptors(
    site: &Site<'_>,
    seed: u64,
    control: &RunControl,
    progress: &Progress,
) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 7000));
    while control.is_running() {
        control.pause(Duration::from_secs(u64::from(5 + random.number(30))));
        let limit = site.limit_files(3)?;
        let crowd: Outcome<Vec<Wire>> = (0..CROWD).map(|_| site.text()).collect();
        std::thread::sleep(Duration::from_millis(u64::from(random.number(3000))));
        site.set_files(limit)?;
        for mut wire in crowd? {
            let said = wire.line("version")?;
            if !said.starts_with("VERSION ") {
                return fail(format!("the answer to version is {said:?}"));
            }
        }
        progress.add(1);
    }
    Ok(format!("{} times, {CROWD} clients connected while descriptors ran out", progress.count()))
}
