//! Misses of hypostyle and of memcached with equal resident memory, on a recorded order of keys.
//!
//! Where: a trace of key numbers is replayed through a socket; each key that misses is stored.
//! Invariant: both servers get the same requests in the same order. A trace with few keys is
//! extended: each number stands for `k` keys, requested one after the other. The number of keys and
//! the distance between two requests of a key grow `k`-fold, which leaves the hit ratio unchanged.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::equal::{self, FullServer};
use crate::feeder::{Feeder, MOMENT, PLAIN};
use crate::measure::report::{Report, say};
use crate::measure::statistics::count_of_u64;
use crate::measure::{Outcome, fail};
use crate::sizes::Mix;
use crate::{Options, TestedServer};

const IN_FLIGHT: usize = 512;
const SHOWN_REQUESTS: u64 = 50_000_000;
const MEGABYTE: u64 = 1 << 20;

struct Trace {
    ids: Vec<u32>,
    distinct: u64,
}

struct Replay {
    requests: u64,
    misses: u64,
    items: u64,
    resident_bytes: u64,
}

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    if options.traces.is_empty() {
        return fail("hits needs a trace: give --trace PATH; see --help".to_owned());
    }
    for &mix in options.mixes() {
        let (sizes, _) = equal::matched(mix, options)?;
        let mut fewer = 0.0;
        for path in &options.traces {
            let trace = Trace::read(path, options.requests)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = format!("{name}, {}", mix.name());
            fewer += compare(&name, &trace, mix, sizes, options, report)?;
        }
        let traces = count_of_u64(u64::try_from(options.traces.len())?);
        report.figure(&format!("mean, {}: fewer misses", mix.name()), "%", fewer / traces)?;
    }
    Ok(())
}

fn compare(
    name: &str,
    trace: &Trace,
    mix: Mix,
    sizes: [FullServer; 2],
    options: &Options,
    report: &mut Report,
) -> Outcome<f64> {
    // Each number stands for `copies` keys, so that the rival can hold `part` of all keys.
    let [_, theirs] = sizes;
    let keys = count_of_u64(theirs.items) / options.part;
    let copies = whole_part(keys / count_of_u64(trace.distinct)).max(1);
    say(&format!("  {name}: {} requests of each server\n", trace.requests(copies)))?;
    let mut replays = Vec::new();
    for (tested, full) in options.tested_servers()?.iter().zip(sizes) {
        let replay = replay(tested, full, trace, copies, mix)?;
        say(&format!(
            "  {name}: {:<8} -m {:>5} {:>6.1} MiB resident, {} items of {}, {} misses of {}\n",
            tested.name,
            full.memory_mb,
            count_of_u64(replay.resident_bytes) / count_of_u64(MEGABYTE),
            replay.items,
            trace.distinct * copies,
            replay.misses,
            replay.requests,
        ))?;
        replays.push(replay);
    }
    let [ours, theirs] = replays.as_slice() else { return fail("not two servers".to_owned()) };
    let part = |replay: &Replay| count_of_u64(replay.misses) / count_of_u64(replay.requests);
    report.figure(&format!("{name}: miss ratio, subject"), "", part(ours))?;
    report.figure(&format!("{name}: miss ratio, rival"), "", part(theirs))?;
    let resident = count_of_u64(ours.resident_bytes) / count_of_u64(theirs.resident_bytes);
    report.figure(&format!("{name}: resident memory"), "x the rival's", resident)?;
    let fewer = 100.0 * (1.0 - part(ours) / part(theirs));
    report.figure(&format!("{name}: fewer misses"), "%", fewer)?;
    Ok(fewer)
}

fn replay(
    tested: &TestedServer,
    full: FullServer,
    trace: &Trace,
    copies: u64,
    mix: Mix,
) -> Outcome<Replay> {
    let server = equal::start(tested, full.memory_mb)?;
    let mut feeder = Feeder::connect(&server)?;
    let (mut batch, mut missing) = (Vec::new(), Vec::new());
    let mut among = HashSet::new();
    let (mut requests, mut misses) = (0, 0);
    let mut ask = |batch: &mut Vec<u64>, among: &mut HashSet<u32>| -> Outcome<()> {
        feeder.get(mix, batch, &mut missing)?;
        for &id in &missing {
            feeder.set(mix, id, PLAIN)?;
        }
        let before: u64 = requests;
        requests += u64::try_from(batch.len())?;
        if before / SHOWN_REQUESTS != requests / SHOWN_REQUESTS {
            say(&format!("    {} {requests} requests, {misses} misses\n", tested.name))?;
        }
        misses += u64::try_from(missing.len())?;
        missing.clear();
        batch.clear();
        among.clear();
        Ok(())
    };
    for &id in &trace.ids {
        // A missing key is stored after the batch, so a number must not occur twice in a batch.
        if !among.insert(id) {
            ask(&mut batch, &mut among)?;
            among.insert(id);
        }
        for copy in 0..copies {
            batch.push(u64::from(id) * copies + copy);
            if batch.len() == IN_FLIGHT {
                ask(&mut batch, &mut among)?;
            }
        }
    }
    ask(&mut batch, &mut among)?;
    let items = feeder.stat("curr_items")?;
    let resident_bytes = feeder.resident_bytes(&server, MOMENT)?;
    Ok(Replay { requests, misses, items, resident_bytes })
}

impl Trace {
    fn requests(&self, copies: u64) -> u64 {
        copies.saturating_mul(u64::try_from(self.ids.len()).unwrap_or(u64::MAX))
    }

    /// Reads little-endian `u32` numbers, compressed by zstd if the path ends in `.zst`.
    fn read(path: &Path, requests_max: Option<u32>) -> Outcome<Trace> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut bytes = Vec::new();
        if path.extension().is_some_and(|extension| extension == "zst") {
            ruzstd::decoding::StreamingDecoder::new(file)?.read_to_end(&mut bytes)?;
        } else {
            let mut file = file;
            file.read_to_end(&mut bytes)?;
        }
        let (ids, _) = bytes.as_chunks::<4>();
        let mut ids: Vec<u32> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
        ids.truncate(requests_max.map_or(Ok(usize::MAX), usize::try_from)?);
        let distinct = ids.iter().collect::<HashSet<&u32>>().len();
        match distinct {
            0 => fail(format!("{}: the trace has no requests", path.display())),
            _ => Ok(Trace { ids, distinct: u64::try_from(distinct)? }),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates; a quotient of positive numbers"
)]
fn whole_part(number: f64) -> u64 {
    number as u64
}
