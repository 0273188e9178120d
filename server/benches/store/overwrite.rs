//! A working set that fits and is overwritten repeatedly: no item may be evicted, and the memory of
//! overwritten values must be reclaimed at a bounded cost.
//!
//! Where: one column; keys are drawn uniformly, or mostly from a part (`--hot-percent`).
//! Invariant: items and index take the share of memory that `--live-percent` sets. With random
//! lengths they may by chance take a little more. At the end each key is looked up.

use store::{Column, Stats};

use crate::measure::in_process::thread_nanoseconds;
use crate::measure::in_process::{
    BATCH, KEY_BYTES, KEYS_END, between_batches, column_of, key_of, set, store_of,
};
use crate::measure::report::Report;
use crate::measure::statistics::count_of_u64;
use crate::measure::{Outcome, fail};
use crate::{Options, Sizes};
use testing::Random;

const STEP_KEYS: u32 = 512;

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    for &sizes in &options.sizes {
        let mut usable = 0;
        for &percent in &options.live_percent {
            let evictions = one(sizes, percent, options, report)?;
            if evictions == 0 {
                usable = usable.max(percent);
            }
        }
        let name = format!("{sizes:?} sizes: largest share without an eviction");
        report.figure(&name, "% of memory", f64::from(usable))?;
    }
    Ok(())
}

struct Draw {
    sizes: Sizes,
    mean_bytes: u32,
    random: Random,
}

impl Draw {
    fn next(&mut self) -> Outcome<usize> {
        let bytes = match self.sizes {
            Sizes::Same => self.mean_bytes,
            Sizes::Random => 1 + self.random.number(2 * self.mean_bytes),
        };
        Ok(usize::try_from(bytes)?)
    }
}

fn one(sizes: Sizes, percent: u32, options: &Options, report: &mut Report) -> Outcome<u64> {
    let memory_bytes = usize::try_from(options.memory_mb.unwrap_or(256))? << 20;
    let store = store_of(memory_bytes, 1, Some(options.eviction))?;
    let mut column = column_of(&store);
    let value_bytes_max = 2 * options.value_bytes_or(64)?;
    let value = vec![b'v'; value_bytes_max];
    let mean_bytes = u32::try_from(value_bytes_max / 2)?;
    let mut draw = Draw { sizes, mean_bytes, random: Random::new(7) };
    let memory = count_of_u64(u64::try_from(memory_bytes)?);
    let share = |stats: &Stats| count_of_u64(stats.bytes + stats.hash_bytes) / memory;
    let mut keys = 0;
    while share(&store.stats()) < f64::from(percent) / 100.0 {
        for number in keys..keys + STEP_KEYS {
            set(&mut column, &key_of(number), &value[..draw.next()?])?;
            if number % BATCH == 0 {
                between_batches(&mut column);
            }
        }
        keys += STEP_KEYS;
        if keys >= KEYS_END || store.stats().evictions > 0 {
            break;
        }
    }
    let before = store.stats();
    let ops = options.ops.unwrap_or_else(|| keys.saturating_mul(10));
    let mut random = Random::new(1);
    let start = thread_nanoseconds();
    let mut set_bytes = 0;
    for op in 0..ops {
        let bytes = draw.next()?;
        set_bytes += u64::try_from(bytes + KEY_BYTES)?;
        // Nine of ten SETs go to hot keys, which are spread evenly over the stored keys.
        let hot = keys / 100 * options.hot_percent;
        let below = if random.number(10) < 9 { hot.max(1) } else { keys };
        let number = u64::from(random.number(below)) * u64::from(keys / below);
        set(&mut column, &key_of(u32::try_from(number)?), &value[..bytes])?;
        if op % BATCH == 0 {
            between_batches(&mut column);
        }
    }
    let nanoseconds = thread_nanoseconds() - start;
    let after = store.stats();
    let evictions = after.evictions;
    let missing = missing(&mut column, keys);
    // There may be fewer missing keys than evictions, because an evicted key may be stored again.
    if missing > evictions {
        return fail(format!(
            "{missing} keys are missing, but only {evictions} items were evicted"
        ));
    }
    let name = |what: &str| format!("{sizes:?} sizes, {percent} % live: {what}");
    let of_ops = |count: u64| count_of_u64(count) / f64::from(ops);
    let moved = after.compacted_bytes - before.compacted_bytes;
    let spared = after.spared_bytes - before.spared_bytes;
    report.figure(&name("items"), "", f64::from(keys))?;
    report.figure(&name("live and index at the end"), "% of memory", 100.0 * share(&after))?;
    report.figure(&name("evictions (must be 0)"), "", count_of_u64(evictions))?;
    report.figure(&name("moved by compaction"), "bytes a SET", of_ops(moved))?;
    report.figure(&name("spared by eviction"), "bytes a SET", of_ops(spared))?;
    let amplification = 1.0 + count_of_u64(moved + spared) / count_of_u64(set_bytes);
    report.figure(&name("bytes written per byte set"), "bytes", amplification)?;
    report.figure(&name("CPU time"), "ns a SET", of_ops(nanoseconds))?;
    Ok(evictions)
}

fn missing(column: &mut Column, keys: u32) -> u64 {
    let mut missing = 0;
    for number in 0..keys {
        missing += u64::from(column.get(&key_of(number)).is_none());
        if number % BATCH == 0 {
            column.quiesce();
        }
    }
    missing
}
