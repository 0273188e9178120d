//! Stores more short and very long values than fit in memory, then sets a much lower memory limit
//! while the server answers requests, and then flushes the server.
//!
//! Where: the subject alone, without a rival.
//! Invariant: the run fails if a value is refused, if resident memory exceeds the limit by more
//! than `within` allows, or if less than `AVAILABLE_BYTES_MIN` of the machine's memory is free.

use std::time::Instant;

use blaster::launch::Server;

use crate::equal::start;
use crate::feeder::{Feeder, LOOK, MOMENT};
use crate::measure::launched::{available_bytes, resident_bytes};
use crate::measure::report::{Report, say};
use crate::measure::statistics::count_of_u64;
use crate::measure::{Outcome, fail};
use crate::{Options, TestedServer};
use testing::random::hash;

const SHORT_BYTES: usize = 100;
/// Almost a megabyte, which is the longest item that `-I` allows by default.
const LONG_BYTES: usize = (1 << 20) - 512;
/// In total, the program writes this number of times the limit, with `HEAD_BYTES` for each item.
const PASSES: f64 = 1.3;
const HEAD_BYTES: usize = 40;
const STEP_SETS: u64 = 50_000;
/// Resident memory may exceed the limit by this share or by `BEYOND_BYTES`, whichever is more.
const BEYOND_PART: f64 = 0.03;
const BEYOND_BYTES: u64 = 8 << 20;
const AVAILABLE_BYTES_MIN: u64 = 3 << 30;
const DOWN_MB_MIN: u32 = 8;
const MEGABYTE: u64 = 1 << 20;
const SALT: u64 = 3;

struct FilledServer {
    server: Server,
    feeder: Feeder,
}

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    let [subject, _] = options.tested_servers()?;
    let mut filled = fill(&subject, options, report)?;
    shrink(&mut filled, options, report)?;
    flush(&mut filled, report)
}

fn fill(tested: &TestedServer, options: &Options, report: &mut Report) -> Outcome<FilledServer> {
    let server = start(tested, options.memory_mb())?;
    let mut feeder = Feeder::connect(&server)?;
    let limit_bytes = u64::from(options.memory_mb()) * MEGABYTE;
    let is_long = |id: u64| hash(id, SALT).is_multiple_of(u64::from(options.one_in));
    let (mut sets, mut written_bytes, mut most_bytes) = (0, 0, 0);
    let begin = Instant::now();
    while count_of_u64(written_bytes) < PASSES * count_of_u64(limit_bytes) {
        for id in sets..sets + STEP_SETS {
            let bytes = if is_long(id) { LONG_BYTES } else { SHORT_BYTES };
            feeder.meta_set(id, bytes)?;
            written_bytes += u64::try_from(bytes + HEAD_BYTES)?;
        }
        sets += STEP_SETS;
        feeder.settle()?;
        most_bytes = most_bytes.max(resident_bytes(&server)?);
        within(most_bytes, limit_bytes)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let stats = |feeder: &mut Feeder, name| feeder.stat(name).map(count_of_u64);
    report.figure("sets, none refused", "", count_of_u64(sets))?;
    report.figure("sets a second", "", count_of_u64(sets) / seconds)?;
    report.figure("items held", "", stats(&mut feeder, "curr_items")?)?;
    report.figure("items evicted", "", stats(&mut feeder, "evictions")?)?;
    let live = stats(&mut feeder, "bytes")? / count_of_u64(limit_bytes);
    report.figure("bytes of items", "of the limit", live)?;
    let resident = count_of_u64(most_bytes) / count_of_u64(limit_bytes);
    report.figure("resident memory at most", "of the limit", resident)?;
    Ok(FilledServer { server, feeder })
}

fn shrink(filled: &mut FilledServer, options: &Options, report: &mut Report) -> Outcome<()> {
    let FilledServer { server, feeder } = filled;
    let megabytes = options.down_mb.unwrap_or(options.memory_mb() / 4).max(DOWN_MB_MIN);
    if megabytes >= options.memory_mb() {
        return say("  the limit cannot be lowered, because -m is too small\n");
    }
    let limit_bytes = u64::from(megabytes) * MEGABYTE;
    let (items, evictions) = (feeder.stat("curr_items")?, feeder.stat("evictions")?);
    let begin = Instant::now();
    let said = feeder.line(&format!("cache_memlimit {megabytes}"))?;
    if said != "OK" {
        return fail(format!("the answer to cache_memlimit {megabytes} is {said}"));
    }
    let mut slowest = 0.0_f64;
    while within(resident_bytes(server)?, limit_bytes).is_err() {
        let sent = Instant::now();
        feeder.settle()?;
        slowest = slowest.max(sent.elapsed().as_secs_f64());
        std::thread::sleep(LOOK);
        if begin.elapsed().as_secs() > u64::from(options.seconds_max) {
            return fail(format!(
                "{} bytes are still resident after {} seconds at a limit of {limit_bytes} bytes",
                resident_bytes(server)?,
                options.seconds_max
            ));
        }
    }
    report.figure("time until the lower limit is kept", "s", begin.elapsed().as_secs_f64())?;
    report.figure("slowest answer in this time", "ms", 1000.0 * slowest)?;
    let resident = feeder.resident_bytes(server, MOMENT)?;
    let resident = count_of_u64(resident) / count_of_u64(limit_bytes);
    report.figure("resident memory afterwards", "of the limit", resident)?;
    let live = count_of_u64(feeder.stat("bytes")?) / count_of_u64(limit_bytes);
    report.figure("bytes of items afterwards", "of the limit", live)?;
    report.figure("items before", "", count_of_u64(items))?;
    let evicted = feeder.stat("evictions")? - evictions;
    report.figure("items evicted for the lower limit", "", count_of_u64(evicted))
}

fn flush(filled: &mut FilledServer, report: &mut Report) -> Outcome<()> {
    let FilledServer { feeder, .. } = filled;
    let begin = Instant::now();
    let said = feeder.line("flush_all")?;
    if said != "OK" {
        return fail(format!("the answer to flush_all is {said}"));
    }
    while feeder.stat("curr_items")? > 0 {
        std::thread::sleep(LOOK);
    }
    report.figure("time until all flushed items are freed", "s", begin.elapsed().as_secs_f64())
}

fn within(resident_bytes: u64, limit_bytes: u64) -> Outcome<()> {
    let available_bytes = available_bytes()?;
    if available_bytes < AVAILABLE_BYTES_MIN {
        return fail(format!(
            "the machine has only {available_bytes} bytes of memory available, and needs \
             {AVAILABLE_BYTES_MIN}"
        ));
    }
    let beyond = BEYOND_PART * count_of_u64(limit_bytes);
    let most = count_of_u64(limit_bytes) + beyond.max(count_of_u64(BEYOND_BYTES));
    if count_of_u64(resident_bytes) > most {
        return fail(format!(
            "{resident_bytes} bytes are resident, which is too much at a limit of {limit_bytes}"
        ));
    }
    Ok(())
}
