//! Measures memory and the cost of a SET, for a working set that fits and is overwritten at random.
//!
//! Where: both servers, one after the other.
//! Invariant: both servers get the same SETs in the same order. CPU time and page faults are sums
//! over all threads of a server; counting begins after each key was stored once.

use crate::feeder::{Feeder, MOMENT};
use crate::measure::Outcome;
use crate::measure::launched::{cpu_seconds, minor_faults};
use crate::measure::report::Report;
use crate::measure::statistics::count_of_u64;
use crate::{Options, TestedServer};
use testing::Random;

use crate::equal::start;

const ROUNDS: u32 = 10;
/// The length of a value differs from the mean by at most the mean divided by this number.
const LENGTH_PART: u32 = 8;
const MEGABYTE: f64 = (1 << 20) as f64;
const SEED: u64 = 11;

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    for tested in &options.tested_servers()? {
        one(tested, options, report)?;
    }
    Ok(())
}

fn one(tested: &TestedServer, options: &Options, report: &mut Report) -> Outcome<()> {
    let server = start(tested, options.memory_mb())?;
    let mut feeder = Feeder::connect(&server)?;
    let mean = options.value_bytes;
    let keys = (options.live_mb << 20) / mean.max(1);
    let mut random = Random::new(SEED);
    let mut live = vec![0_u64; usize::try_from(keys)?];
    let mut set = |feeder: &mut Feeder, key: u32| -> Outcome<()> {
        let bytes = mean - mean / LENGTH_PART + random.number(mean / LENGTH_PART * 2 + 1);
        live[usize::try_from(key)?] = bytes.into();
        feeder.meta_set(key.into(), usize::try_from(bytes)?)
    };
    (0..keys).try_for_each(|key| set(&mut feeder, key))?;
    feeder.settle()?;
    let (cpu, faults) = (cpu_seconds(&server)?, minor_faults(&server)?);
    let mut which = Random::new(SEED + 1);
    let sets = keys.saturating_mul(ROUNDS);
    (0..sets).try_for_each(|_| set(&mut feeder, which.number(keys)))?;
    feeder.settle()?;
    let seconds = cpu_seconds(&server)? - cpu;
    let faults = count_of_u64(minor_faults(&server)? - faults);
    let resident = count_of_u64(feeder.resident_bytes(&server, MOMENT)?) / MEGABYTE;
    let live = count_of_u64(live.iter().sum()) / MEGABYTE;
    let name = |what: &str| format!("{}: {what}", tested.name);
    report.figure(&name("bytes of values"), "MiB", live)?;
    report.figure(&name("resident memory"), "MiB", resident)?;
    report.figure(&name("evictions"), "", count_of_u64(feeder.stat("evictions")?))?;
    report.figure(&name("CPU time"), "us a SET", 1e6 * seconds / f64::from(sets))?;
    report.figure(&name("page faults"), "a SET", faults / f64::from(sets))
}
