//! Compares GETs whose memory is prefetched in batches with single GETs, in a store much larger
//! than the CPU's caches.
//!
//! Where: one column, keys drawn uniformly.
//! Invariant: batches and single GETs look up the same keys in the same order and check each
//! value's length; the measured windows alternate (single, batches, batches, single, ...).

use store::Column;

use crate::Options;
use crate::measure::Outcome;
use crate::measure::in_process::thread_nanoseconds;
use crate::measure::in_process::{
    KEY_BYTES, KEYS_END, Key, column_of, fill, hit, key_of, store_of,
};
use crate::measure::launched::available_bytes;
use crate::measure::report::Report;
use crate::measure::statistics::{count_of_u64, median_with_interval};
use testing::Random;

/// Size of the store, if the machine has enough memory.
const MEMORY_MB: u32 = 4096;
/// The store takes at most the machine's available memory divided by this number.
const AVAILABLE_PART: u64 = 2;
const OVERHEAD_BYTES: usize = 24;
/// Only this percentage of the memory is filled, so that nothing is evicted.
const FILLED_PERCENT: usize = 90;

const CHUNK_BATCHES: usize = 64;

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    let free_mb = u32::try_from((available_bytes()? / AVAILABLE_PART) >> 20)?.max(64);
    let memory_mb = options.memory_mb.unwrap_or(MEMORY_MB.min(free_mb));
    let memory_bytes = usize::try_from(memory_mb)? << 20;
    let value = vec![b'v'; options.value_bytes_or(64)?];
    let item_bytes = KEY_BYTES + value.len() + OVERHEAD_BYTES;
    let fit = u32::try_from(memory_bytes / 100 * FILLED_PERCENT / item_bytes)?.min(KEYS_END);
    let keys = options.keys_or(fit);
    let mut column = column_of(&store_of(memory_bytes, 1, Some(options.eviction))?);
    fill(&mut column, 0..keys, &value)?;
    report.figure("store", "MiB", f64::from(memory_mb))?;
    report.figure("items", "", f64::from(keys))?;
    let ops = options.ops.unwrap_or(2_000_000);
    let mut bench = Bench { column, keys, value_bytes: value.len(), together: options.together };
    bench.window(false, u64::MAX, ops)?;
    let (mut single, mut together) = (Vec::new(), Vec::new());
    for pair in 0..options.rounds.unwrap_or(9) {
        let seed = pair.into();
        if pair % 2 == 0 {
            single.push(bench.window(false, seed, ops)?);
            together.push(bench.window(true, seed, ops)?);
        } else {
            together.push(bench.window(true, seed, ops)?);
            single.push(bench.window(false, seed, ops)?);
        }
    }
    let ratios: Vec<f64> = single.iter().zip(&together).map(|(one, all)| one / all).collect();
    report.median("GET hit, one by one", "ns", median_with_interval(&single))?;
    let name = format!("GET hit, {} together", options.together);
    report.median(&name, "ns", median_with_interval(&together))?;
    report.median("one by one / together", "x", median_with_interval(&ratios))
}

struct Bench {
    column: Column,
    keys: u32,
    value_bytes: usize,
    together: u32,
}

impl Bench {
    /// Returns nanoseconds per GET, without the time to make keys.
    fn window(&mut self, is_together: bool, seed: u64, ops: u32) -> Outcome<f64> {
        let mut random = Random::new(seed);
        let batch_keys = usize::try_from(self.together)?;
        let mut keys: Vec<Key> = Vec::with_capacity(batch_keys * CHUNK_BATCHES);
        let mut ahead = Vec::with_capacity(batch_keys);
        let (mut nanoseconds, mut done) = (0, 0);
        while done < u64::from(ops) {
            keys.clear();
            let chunk = batch_keys * CHUNK_BATCHES;
            keys.extend((0..chunk).map(|_| key_of(random.number(self.keys))));
            let start = thread_nanoseconds();
            for batch in keys.chunks(batch_keys) {
                if is_together {
                    ahead.clear();
                    ahead.extend(batch.iter().map(|key| self.column.prefetch(key)));
                    ahead.iter().for_each(|key| self.column.prefetch_item(*key));
                }
                for key in batch {
                    hit(&mut self.column, key, self.value_bytes)?;
                }
                self.column.quiesce();
            }
            nanoseconds += thread_nanoseconds() - start;
            done += u64::try_from(chunk)?;
        }
        Ok(count_of_u64(nanoseconds) / count_of_u64(done))
    }
}
