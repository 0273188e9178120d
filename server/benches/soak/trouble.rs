//! What happens to a server while it is at work: its limit changes, all is flushed, it is stopped
//! and goes on, descriptors run out.
//!
//! Where: beside the other actors. Invariant: a server is left as it was found: running, with the
//! descriptors it had.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::THREADS;
use crate::measure::wire::{Answer, Ask, SPEECHES, Verb, Wire};
use crate::measure::{Outcome, fail, launched};
use crate::site::{Bell, Deeds, Site};
use testing::namespace::{Namespace, WIRE};
use testing::random::{Random, hash};

/// The server may take so long to give memory back, to flush, to accept again: longer than it ever
/// should, even stopped now and then on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(200);
/// Connections that come while there are no descriptors for them.
const CROWD: usize = 30;

/// The server's threads: its columns, the one that takes memory ahead of need, and the first.
const SERVER_THREADS: u64 = THREADS as u64 + 2;
/// What a thread touches of its stack, at most.
const STACK_BYTES: u64 = 64 << 10;
/// What the allocator keeps for a thread and counts as in use: of each of 64 sizes, up to a
/// kilobyte, seven pieces (glibc's tcache).
const THREAD_CACHE_BYTES: u64 = 7 * 16 * (64 * 65 / 2);
/// The program's own data that it has changed, and what it allocates once: counters, samples, the
/// shelves of prefixes. (Measured: 0.3 MB at rest.)
const DATA_BYTES: u64 = 1 << 20;

/// What may be resident at this limit, beside what `others_bytes` tells.
pub(crate) fn bound_bytes(limit_bytes: u64) -> u64 {
    limit_bytes + SERVER_THREADS * (STACK_BYTES + THREAD_CACHE_BYTES) + DATA_BYTES
}

/// What is beside the limit and has a row: the store's tables, what connections hold, what the
/// allocator keeps of what they held, and the program's own, as the server tells.
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

/// Resident bytes, but for these: at least so many.
fn resident_bytes(site: &Site<'_>, wire: &mut Wire) -> Outcome<u64> {
    let before = others_bytes(wire)?;
    let resident = launched::resident_bytes(&site.server)?;
    Ok(resident.saturating_sub(before.max(others_bytes(wire)?)))
}

/// Whether the store has no more segments than its limit allows. Resident bytes do not tell: a
/// segment may be taken whose memory is touched later.
fn keeps_limit(wire: &mut Wire) -> Outcome<bool> {
    let rows = wire.stats("stats memory")?;
    let number = |name: &str| -> Outcome<u64> {
        let row = rows.iter().find(|(it, _)| it == name);
        let Some((_, value)) = row else { return fail(format!("no {name} in stats memory")) };
        Ok(value.parse()?)
    };
    let taken = ["open", "sealed", "frames", "free", "limbo", "index"];
    let taken = taken.map(|state| number(&format!("segments_{state}")));
    let taken: u64 = taken.into_iter().sum::<Outcome<u64>>()?;
    Ok(taken <= number("segments_allowed")?)
}

/// Looks at what is resident, all the time.
pub(crate) fn watch(site: &Site<'_>, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
    let mut wire = site.text()?;
    let (mut most, mut fullest) = (0, 0.0_f64);
    while bell.goes_on() {
        // Relaxed: the limit was raised before the server heard of it, and lowered after it did it.
        let limit = site.limit_bytes.load(Ordering::Relaxed);
        let resident = resident_bytes(site, &mut wire)?;
        let limit = limit.max(site.limit_bytes.load(Ordering::Relaxed)); // as above
        let bound = bound_bytes(limit);
        if resident > bound {
            let rows = wire.stats("stats memory")?;
            let told: Vec<_> = rows.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
            let told = told.join(", ");
            return fail(format!(
                "{resident} bytes resident, {bound} at a limit of {limit}: {told}"
            ));
        }
        most = most.max(resident);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = resident as f64 / bound as f64;
        fullest = fullest.max(share);
        deeds.add(1);
        bell.pause(LOOK);
    }
    let looks = deeds.count();
    Ok(format!(
        "{looks} looks, {most} bytes resident at most, {:.1} % of the bound",
        fullest * 100.0
    ))
}

/// `cache_memlimit`, up and down.
pub(crate) fn limits(site: &Site<'_>, seed: u64, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 4000));
    let (least, most) = site.limits_mb;
    let mut wire = site.text()?;
    let mut lowered = 0_u64;
    while bell.goes_on() {
        let megabytes = least + random.number(most - least + 1);
        let limit = u64::from(megabytes) << 20;
        // Relaxed: see `watch`; nobody else stores it.
        let is_lower = limit < site.limit_bytes.load(Ordering::Relaxed);
        if !is_lower {
            site.limit_bytes.store(limit, Ordering::Relaxed); // as above
        }
        let said = wire.line(&format!("cache_memlimit {megabytes}"))?;
        if said != "OK" {
            return fail(format!("cache_memlimit {megabytes}: {said}"));
        }
        if is_lower {
            let start = Instant::now();
            while !keeps_limit(&mut wire)? || resident_bytes(site, &mut wire)? > bound_bytes(limit)
            {
                if start.elapsed() > PATIENCE {
                    return fail(format!("more than {limit} bytes for {PATIENCE:?}"));
                }
                std::thread::sleep(LOOK);
            }
            site.limit_bytes.store(limit, Ordering::Relaxed); // as above
            lowered += 1;
        }
        deeds.add(1);
        bell.pause(Duration::from_secs(u64::from(2 + random.number(15))));
    }
    Ok(format!("{} changes of the limit, {lowered} down", deeds.count()))
}

/// `flush_all`, now and in a second or two: what was there before is gone, and what comes after it
/// is not.
pub(crate) fn flushes(site: &Site<'_>, seed: u64, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 5000));
    let mut later = 0_u64;
    while bell.goes_on() {
        let speech = SPEECHES[random.number(3) as usize];
        let mut wire = Wire::connect(site.address(), speech)?;
        let mut ask = |verb| wire.ask(&Ask { verb, key: "flushed", exptime: 0 });
        ask(Verb::Set(b"before"))?;
        let delay = random.number(3);
        let command =
            if delay == 0 { "flush_all".to_owned() } else { format!("flush_all {delay}") };
        let said = site.text()?.line(&command)?;
        if said != "OK" {
            return fail(format!("{command}: {said}"));
        }
        let start = Instant::now();
        while let Answer::Value(_) = ask(Verb::Get)? {
            if delay == 0 || start.elapsed() > PATIENCE {
                return fail(format!("there {:?} after {command}", start.elapsed()));
            }
            std::thread::sleep(LOOK);
        }
        later += u64::from(delay > 0);
        deeds.add(1);
        // Rarely enough that the memory is full most of the time.
        bell.pause(Duration::from_secs(u64::from(1 + random.number(90))));
    }
    Ok(format!("{} flushes, {later} of them announced", deeds.count()))
}

/// Stops the process for up to four seconds: to its columns, the clock leaps.
pub(crate) fn stops(site: &Site<'_>, seed: u64, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 6000));
    let mut stopped = Duration::ZERO;
    while bell.goes_on() {
        bell.pause(Duration::from_secs(u64::from(3 + random.number(20))));
        let time = Duration::from_millis(u64::from(20 + random.number(4000)));
        site.server.pause()?;
        std::thread::sleep(time);
        site.server.resume()?;
        stopped += time;
        deeds.add(1);
    }
    Ok(format!("{} stops of the process, {:.0} s in all", deeds.count(), stopped.as_secs_f64()))
}

/// Takes the server's end of its link down for up to a second: what is on its way to or from there
/// is lost, or waits.
pub(crate) fn links(far: &Namespace, seed: u64, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 9000));
    while bell.goes_on() {
        bell.pause(Duration::from_secs(u64::from(3 + random.number(30))));
        far.ip(&format!("link set {WIRE} down"));
        std::thread::sleep(Duration::from_millis(u64::from(random.number(1000))));
        far.ip(&format!("link set {WIRE} up"));
        deeds.add(1);
    }
    Ok(format!("the link was down {} times", deeds.count()))
}

/// A fault that the other actors must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Plant {
    /// A key's value is another.
    Wrong,
    /// A key is deleted.
    Lost,
    /// The limit is lower than the server was told.
    Memory,
}

/// Plants it behind the others' backs, again and again until it is found.
pub(crate) fn plant(
    site: &Site<'_>,
    (plant, key): (Plant, &str),
    bell: &Bell,
    deeds: &Deeds,
) -> Outcome<String> {
    let verb = if plant == Plant::Wrong { Verb::Set(b"planted") } else { Verb::Delete };
    let mut wire = site.text()?;
    while bell.goes_on() {
        if plant == Plant::Memory {
            site.limit_bytes.store(1 << 20, Ordering::Relaxed); // see `watch`
        } else {
            wire.ask(&Ask { verb, key, exptime: 0 })?;
        }
        deeds.add(1);
        bell.pause(LOOK);
    }
    Ok(format!("{} faults planted", deeds.count()))
}

/// Has no descriptors left for a crowd of connections, and then has: each is served.
pub(crate) fn descriptors(
    site: &Site<'_>,
    seed: u64,
    bell: &Bell,
    deeds: &Deeds,
) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 7000));
    while bell.goes_on() {
        bell.pause(Duration::from_secs(u64::from(5 + random.number(30))));
        let limit = site.limit_files(3)?;
        let crowd: Outcome<Vec<Wire>> = (0..CROWD).map(|_| site.text()).collect();
        std::thread::sleep(Duration::from_millis(u64::from(random.number(3000))));
        site.set_files(limit)?;
        for mut wire in crowd? {
            let said = wire.line("version")?;
            if !said.starts_with("VERSION ") {
                return fail(format!("the version is {said:?}"));
            }
        }
        deeds.add(1);
    }
    Ok(format!("{} times without descriptors for {CROWD} connections", deeds.count()))
}
