//! Compares GETs of several columns with GETs of one column, for the same and for disjoint keys.
//!
//! Where: one store, a pinned thread per column.
//! Invariant: a column does the same number of GETs in every window; windows alternate between one
//! column and several. Efficiency is the GETs per CPU second of several columns divided by the GETs
//! per CPU second of one column. CPU time excludes other load on the machine.

use std::time::Instant;

use store::Column;

use crate::Options;
use crate::measure::Outcome;
use crate::measure::in_process::thread_nanoseconds;
use crate::measure::in_process::{BATCH, KEY_BYTES, column_of, fill, hit, key_of, store_of};
use crate::measure::report::Report;
use crate::measure::statistics::{count_of, count_of_u64, median_with_interval};
use crate::threads::on_each;
use testing::Random;

/// The keys that a column looks up: all keys, or keys that no other column looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    Same,
    Disjoint,
}

struct Window {
    /// GETs per CPU second of a thread.
    per_cpu_second: f64,
    /// GETs of all threads per second of elapsed time.
    per_second: f64,
}

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    let keys = options.keys_or(1_000_000);
    let value = vec![b'v'; options.value_bytes_or(64)?];
    let all = options.columns.clone().unwrap_or_else(|| vec![1, 2]);
    let most = usize::try_from(all.iter().copied().max().unwrap_or(1))?;
    let memory_bytes = usize::try_from(keys)? * (KEY_BYTES + value.len()) * 2 + (64 << 20);
    let store = store_of(memory_bytes, most, Some(options.eviction))?;
    let mut columns: Vec<Column> = (0..most).map(|_| column_of(&store)).collect();
    columns.iter_mut().for_each(Column::offline);
    on_each(&mut columns[..1], |_, first| {
        fill(first, 0..keys, &value)?;
        // Three GETs of a key raise the key's read counter to its maximum, which popular keys have.
        for number in (0..keys).flat_map(|number| [number; 3]) {
            hit(first, &key_of(number), value.len())?;
        }
        Ok(())
    })?;
    let load = Load { keys, value_bytes: value.len(), ops: options.ops.unwrap_or(2_000_000) };
    for of in all {
        for which in [Keys::Same, Keys::Disjoint] {
            load.run(&mut columns, which, 0)?;
            let mut pairs = Vec::new();
            for pair in 0..options.rounds.unwrap_or(9) {
                let several = usize::try_from(of)?;
                let mut window = |count| load.run(&mut columns[..count], which, pair.into());
                pairs.push(match pair % 2 {
                    0 => (window(1)?, window(several)?),
                    _ => {
                        let several = window(several)?;
                        (window(1)?, several)
                    }
                });
            }
            show(of, which, &pairs, report)?;
        }
    }
    Ok(())
}

fn show(of: u32, which: Keys, pairs: &[(Window, Window)], report: &mut Report) -> Outcome<()> {
    let ratio = |figure: &dyn Fn(&Window) -> f64| {
        let ratios = pairs.iter().map(|(one, several)| figure(several) / figure(one));
        median_with_interval(&ratios.collect::<Vec<f64>>())
    };
    let name = |what: &str| format!("{of} columns, {which:?} keys: {what}");
    let single: Vec<f64> = pairs.iter().map(|(one, _)| 1e9 / one.per_cpu_second).collect();
    report.median(&name("GET hit, one column"), "CPU ns", median_with_interval(&single))?;
    report.median(&name("efficiency by CPU time"), "", ratio(&|window| window.per_cpu_second))?;
    report.median(&name("GETs per second"), "x one", ratio(&|window| window.per_second))
}

#[derive(Clone, Copy)]
struct Load {
    keys: u32,
    value_bytes: usize,
    ops: u32,
}

impl Load {
    fn run(self, columns: &mut [Column], which: Keys, seed: u64) -> Outcome<Window> {
        let count = columns.len();
        let share = match which {
            Keys::Same => self.keys,
            Keys::Disjoint => self.keys / u32::try_from(count)?,
        };
        let start = Instant::now();
        let spent = on_each(columns, |number, column| {
            let first = match which {
                Keys::Same => 0,
                Keys::Disjoint => share * u32::try_from(number)?,
            };
            let mut random = Random::new(seed * 1000 + u64::try_from(number)?);
            let start = thread_nanoseconds();
            for op in 0..self.ops {
                let number = first + random.number(share);
                hit(column, &key_of(number), self.value_bytes)?;
                if op % BATCH == 0 {
                    column.quiesce();
                }
            }
            Ok(thread_nanoseconds() - start)
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let gets = f64::from(self.ops) * count_of(count);
        let cpu_seconds = count_of_u64(spent.iter().sum()) / 1e9;
        Ok(Window { per_cpu_second: gets / cpu_seconds, per_second: gets / seconds })
    }
}
