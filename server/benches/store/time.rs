//! CPU time of each operation of the store.
//!
//! Where: the store's part of a request's cost, without protocol and kernel.
//! Invariant: keys come in a fixed pseudo-random order; an unexpected outcome is an error.

use std::hint::black_box;

use store::Column;

use crate::Options;
use crate::measure::Outcome;
use crate::measure::in_process::thread_nanoseconds;
use crate::measure::in_process::{
    BATCH, KEY_BYTES, KEYS_END, between_batches, column_of, fill, hit, key_of, miss, set, store_of,
};
use crate::measure::report::Report;
use crate::measure::statistics::{count_of_u64, median_with_interval};
use testing::Random;

const AHEAD: usize = 16;

#[derive(Clone, Copy)]
enum Op {
    /// Only makes the key. Every other operation makes its key too.
    Key,
    GetHit,
    GetHitAhead,
    GetMiss,
    Set,
    /// Stores a new key in a store that must evict.
    SetEvict,
}

const OPS: [(&str, Op); 6] = [
    ("(making the key)", Op::Key),
    ("get, hit", Op::GetHit),
    ("get, hit, read ahead", Op::GetHitAhead),
    ("get, miss", Op::GetMiss),
    ("set, overwriting", Op::Set),
    ("set, evicting", Op::SetEvict),
];

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    let all = options.keys.clone().unwrap_or_else(|| vec![100_000, 2_000_000]);
    for keys in all {
        let mut bench = Bench::new(keys, options)?;
        for (name, op) in OPS.into_iter().filter(|(name, _)| name.contains(&options.only)) {
            let mut figures = Vec::new();
            for _ in 0..options.rounds.unwrap_or(7) {
                figures.push(bench.round(op, options.ops.unwrap_or(2_000_000))?);
            }
            let name = format!("{keys} keys: {name}");
            report.median(&name, "ns", median_with_interval(&figures))?;
        }
    }
    Ok(())
}

/// Two stores with the same keys: one holds all keys, and the other must evict.
struct Bench {
    roomy: Column,
    tight: Column,
    keys: u32,
    value: Vec<u8>,
    random: Random,
    /// Number of the next key that was never stored.
    fresh: u32,
}

impl Bench {
    fn new(keys: u32, options: &Options) -> Outcome<Bench> {
        let value_bytes = options.value_bytes_or(64)?;
        let payload_bytes = usize::try_from(keys)? * (value_bytes + KEY_BYTES);
        let column = |memory_bytes| -> Outcome<Column> {
            Ok(column_of(&store_of(memory_bytes, 1, Some(options.eviction))?))
        };
        let mut bench = Bench {
            roomy: column(payload_bytes * 2 + (64 << 20))?,
            tight: column((payload_bytes / 2).max(8 << 20))?,
            keys,
            value: vec![b'v'; value_bytes],
            random: Random::new(1),
            fresh: 2 * keys,
        };
        fill(&mut bench.roomy, 0..keys, &bench.value)?;
        fill(&mut bench.tight, 0..keys, &bench.value)?;
        Ok(bench)
    }

    fn round(&mut self, op: Op, ops: u32) -> Outcome<f64> {
        let batches = ops.div_ceil(BATCH);
        let start = thread_nanoseconds();
        for _ in 0..batches {
            match op {
                Op::GetHitAhead => self.get_ahead()?,
                _ => (0..BATCH).try_for_each(|_| self.once(op))?,
            }
            match op {
                Op::Key => {}
                Op::SetEvict => between_batches(&mut self.tight),
                _ => between_batches(&mut self.roomy),
            }
        }
        Ok(count_of_u64(thread_nanoseconds() - start) / f64::from(batches * BATCH))
    }

    fn get_ahead(&mut self) -> Outcome<()> {
        let keys: [_; BATCH as usize] =
            std::array::from_fn(|_| key_of(self.random.number(self.keys)));
        let (halves, _) = keys.as_chunks::<AHEAD>();
        for half in halves {
            for ahead in half.each_ref().map(|key| self.roomy.prefetch(key)) {
                self.roomy.prefetch_item(ahead);
            }
            for key in half {
                hit(&mut self.roomy, key, self.value.len())?;
            }
        }
        Ok(())
    }

    #[inline]
    fn once(&mut self, op: Op) -> Outcome<()> {
        let number = self.random.number(self.keys);
        match op {
            Op::Key => {
                black_box(key_of(number));
                Ok(())
            }
            Op::GetHit | Op::GetHitAhead => hit(&mut self.roomy, &key_of(number), self.value.len()),
            Op::GetMiss => miss(&mut self.roomy, &key_of(number + self.keys)),
            Op::Set => set(&mut self.roomy, &key_of(number), &self.value),
            Op::SetEvict => {
                let fresh = self.fresh;
                // When the numbers start again, keys with these numbers were evicted long ago.
                self.fresh = if fresh + 1 < KEYS_END { fresh + 1 } else { 2 * self.keys };
                set(&mut self.tight, &key_of(fresh), &self.value)
            }
        }
    }
}
