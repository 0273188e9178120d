//! Compares how many items the two servers hold in equal memory.
//!
//! Where: both servers, filled until they evict.
//! Invariant: equal memory means equal resident memory of the whole process, while the server
//! steadily evicts. The rival's `-m` is varied until both servers have equal resident memory.

use std::time::Duration;

use blaster::launch::Server;

use crate::feeder::{Feeder, PLAIN};
use crate::measure::Outcome;
use crate::measure::launched::Launch;
use crate::measure::report::{Report, say};
use crate::measure::statistics::count_of_u64;
use crate::sizes::Mix;
use crate::{Options, TestedServer};

const ATTEMPTS_MAX: u32 = 10;
const STEP_ITEMS: u64 = 20_000;
const MEGABYTE: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub(crate) struct FullServer {
    pub(crate) memory_mb: u32,
    pub(crate) items: u64,
    pub(crate) resident_bytes: u64,
}

/// A server's memory statistics in bytes, and the mean length of an item's key and value.
pub(crate) struct Account {
    rows: Vec<(String, u64)>,
    payload_bytes: f64,
}

pub(crate) fn start(tested: &TestedServer, memory_mb: u32) -> Outcome<Server> {
    let TestedServer { program, extra, .. } = tested;
    Launch { program, threads: 1, memory_mb, connections: 64, extra }.start(&[])
}

/// Stores new keys until the server has evicted as many items as it holds.
pub(crate) fn fill(
    tested: &TestedServer,
    mix: Mix,
    memory_mb: u32,
    settle: Duration,
) -> Outcome<(FullServer, Account)> {
    let server = start(tested, memory_mb)?;
    let mut feeder = Feeder::connect(&server)?;
    let mut next = 0;
    loop {
        for id in next..next + STEP_ITEMS {
            feeder.set(mix, id, PLAIN)?;
        }
        next += STEP_ITEMS;
        let (items, evictions) = (feeder.stat("curr_items")?, feeder.stat("evictions")?);
        if evictions >= items {
            let resident_bytes = feeder.resident_bytes(&server, settle)?;
            let mut key = Vec::new();
            let kept = next - items.min(next)..next;
            let payload = |id| {
                key.clear();
                mix.key(id, &mut key) + mix.value_bytes(id)
            };
            let payload_bytes = u64::try_from(kept.map(payload).sum::<usize>())?;
            let payload_bytes = count_of_u64(payload_bytes) / count_of_u64(items);
            let account = Account { rows: feeder.memory()?, payload_bytes };
            return Ok((FullServer { memory_mb, items, resident_bytes }, account));
        }
    }
}

pub(crate) fn matched(mix: Mix, options: &Options) -> Outcome<([FullServer; 2], Account)> {
    let [subject, rival] = options.tested_servers()?;
    let (ours, account) = fill(&subject, mix, options.memory_mb(), options.settle())?;
    let (mut theirs, _) = fill(&rival, mix, options.memory_mb(), options.settle())?;
    let mut best = theirs;
    let off = |full: &FullServer| full.resident_bytes.abs_diff(ours.resident_bytes);
    let mut tried = vec![theirs.memory_mb];
    for _ in 0..ATTEMPTS_MAX {
        // One more megabyte of `-m` means about one more megabyte of resident memory.
        let step = off(&theirs).div_ceil(MEGABYTE).max(1);
        let step = u32::try_from(step)?;
        let memory_mb = match theirs.resident_bytes > ours.resident_bytes {
            true => theirs.memory_mb.saturating_sub(step).max(1),
            false => theirs.memory_mb + step,
        };
        if off(&theirs) < MEGABYTE / 2 || tried.contains(&memory_mb) {
            break;
        }
        tried.push(memory_mb);
        (theirs, _) = fill(&rival, mix, memory_mb, options.settle())?;
        if off(&theirs) < off(&best) {
            best = theirs;
        }
    }
    Ok(([ours, best], account))
}

fn say_account(mix: Mix, full: FullServer, account: &Account) -> Outcome<()> {
    let Account { rows, payload_bytes } = account;
    let items = count_of_u64(full.items);
    let all = count_of_u64(full.resident_bytes);
    say(&format!(
        "  {:<10} {:<22} {:>9} {:>9} {:>7}\n  {:<10} {:<22} {:>9} {:>9.3} {:>6.2}%\n",
        "",
        "subject's memory",
        "MiB",
        "an item",
        "of all",
        mix.name(),
        "key and value",
        "",
        payload_bytes,
        payload_bytes * items / all * 100.0,
    ))?;
    let is_bytes = |name: &str| name.ends_with("_bytes") && name != "segment_bytes";
    for (name, bytes) in rows.iter().filter(|(name, _)| is_bytes(name)) {
        let bytes = count_of_u64(*bytes);
        say(&format!(
            "  {:<10} {name:<22} {:>9.3} {:>9.3} {:>6.2}%\n",
            mix.name(),
            bytes / count_of_u64(MEGABYTE),
            bytes / items,
            bytes / all * 100.0,
        ))?;
    }
    Ok(())
}

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    for &mix in options.mixes() {
        let ([ours, theirs], account) = matched(mix, options)?;
        say_account(mix, ours, &account)?;
        for (name, full) in [("subject", ours), ("rival", theirs)] {
            say(&format!(
                "  {:<10} {name:<8} -m {:>5}  {:>6.1} MiB resident  {:>9} items\n",
                mix.name(),
                full.memory_mb,
                count_of_u64(full.resident_bytes) / count_of_u64(MEGABYTE),
                full.items
            ))?;
        }
        let resident = count_of_u64(ours.resident_bytes) / count_of_u64(theirs.resident_bytes);
        report.figure(&format!("resident memory, {}", mix.name()), "x the rival's", resident)?;
        let items = count_of_u64(ours.items) / count_of_u64(theirs.items);
        report.figure(&format!("items, {}", mix.name()), "x the rival's", items)?;
        // Resident memory still differs, as `-m` has steps of a megabyte; the ratio corrects this.
        let name = format!("items a resident byte, {}", mix.name());
        report.figure(&name, "x the rival's", items / resident)?;
    }
    Ok(())
}
