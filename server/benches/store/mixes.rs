//! Compares a mix of 70 % GETs, 25 % SETs and 5 % DELETEs, in a store that must evict, with GETs
//! alone, which all hit.
//!
//! Where: one column or several. Keys have 10,000 different popularities, as in the KV-Cache paper.
//! Invariant: both loads use the same keys in the same order, made in the same loop. The cost of
//! making keys is measured and subtracted. Windows of the two loads alternate.
//! Source: the KV-Cache paper, section 6: mixes A and C; popularity by the density a x^(a-1) on
//! 0.001 to 1, where a is 0.01.

use std::hint::black_box;
use std::sync::Arc;

use store::{Column, Store};

use crate::Options;
use crate::measure::Outcome;
use crate::measure::in_process::thread_nanoseconds;
use crate::measure::in_process::{
    BATCH, KEY_BYTES, between_batches, column_of, fill, hit, key_of, set, store_of,
};
use crate::measure::report::Report;
use crate::measure::statistics::{count_of, count_of_u64, median_with_interval};
use crate::threads::on_each;
use testing::random::{Random, hash};

/// Number of degrees of popularity, whose density is a x^(a-1) on `FROM` to 1; a is `EXPONENT`.
const STEPS: u32 = 10_000;
const EXPONENT: f64 = 0.01;
const FROM: f64 = 0.001;
/// Number of GETs in 100 requests of mix C. `SETS` requests are SETs, and the rest are DELETEs.
const GETS: u32 = 70;
const SETS: u32 = 25;
/// Number of keys drawn beforehand. The program requests these keys in order, again and again.
const DRAWN: usize = 1 << 20;
/// Approximate percentage of all keys that the evicting store holds.
const TIGHT_PERCENT: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Nothing,
    /// GETs that all hit.
    A,
    /// GETs, SETs and DELETEs in a store that evicts.
    C,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    nanoseconds: u64,
    gets: u64,
    hits: u64,
}

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    let keys = options.keys_or(1_000_000).next_multiple_of(STEPS);
    let value = vec![b'v'; options.value_bytes_or(64)?];
    let payload_bytes = usize::try_from(keys)? * (KEY_BYTES + value.len() + 18);
    let drawn = popular(keys);
    let requests = Requests { drawn: &drawn, value: &value, ops: options.ops.unwrap_or(2_000_000) };
    for count in options.columns.clone().unwrap_or_else(|| vec![1]) {
        let (_, mut roomy) = filled(payload_bytes * 2 + (64 << 20), keys, count, &value, options)?;
        let tight_bytes = (payload_bytes / 100 * TIGHT_PERCENT).max(8 << 20);
        let (store, mut tight) = filled(tight_bytes, keys, count, &value, options)?;
        let mut before = store.stats();
        let mut pairs = Pairs::default();
        // The first pair does not count: caches are cold, and items lie in the order of filling.
        for pair in 0..=options.rounds.unwrap_or(9) {
            if pair == 1 {
                (before, pairs) = (store.stats(), Pairs::default());
            }
            let order = if pair % 2 == 0 { [Load::A, Load::C] } else { [Load::C, Load::A] };
            for load in [Load::Nothing].into_iter().chain(order) {
                let columns = if load == Load::C { &mut tight } else { &mut roomy };
                let windows = on_each(columns, |number, column| {
                    requests.carry_out(column, load, hash(pair.into(), u64::try_from(number)?))
                })?;
                pairs.add(load, &windows, requests.ops);
            }
        }
        let evictions = store.stats().evictions - before.evictions;
        pairs.show(count, evictions, report)?;
    }
    Ok(())
}

fn filled(
    memory_bytes: usize,
    keys: u32,
    count: u32,
    value: &[u8],
    options: &Options,
) -> Outcome<(Arc<Store>, Vec<Column>)> {
    let store = store_of(memory_bytes, usize::try_from(count)?, Some(options.eviction))?;
    let mut columns: Vec<Column> = (0..count).map(|_| column_of(&store)).collect();
    columns.iter_mut().for_each(Column::offline);
    on_each(&mut columns[..1], |_, first| fill(first, 0..keys, value))?;
    Ok((store, columns))
}

/// The CPU nanoseconds per request of each window, by load, and the number of GETs of mix C.
#[derive(Default)]
struct Pairs {
    nothing: Vec<f64>,
    a: Vec<f64>,
    c: Vec<f64>,
    gets: u64,
    hits: u64,
}

impl Pairs {
    fn add(&mut self, load: Load, windows: &[Window], ops: u32) {
        let sum = |figure: fn(&Window) -> u64| windows.iter().map(figure).sum::<u64>();
        let nanoseconds = count_of_u64(sum(|window| window.nanoseconds));
        let each = nanoseconds / (f64::from(ops) * count_of(windows.len()));
        match load {
            Load::Nothing => self.nothing.push(each),
            Load::A => self.a.push(each),
            Load::C => self.c.push(each),
        }
        self.gets += sum(|window| window.gets);
        self.hits += sum(|window| window.hits);
    }

    fn show(&self, count: u32, evictions: u64, report: &mut Report) -> Outcome<()> {
        let less = |all: &[f64]| -> Vec<f64> {
            all.iter().zip(&self.nothing).map(|(one, nothing)| one - nothing).collect()
        };
        let (a, c) = (less(&self.a), less(&self.c));
        let ratios: Vec<f64> = a.iter().zip(&c).map(|(a, c)| a / c).collect();
        let name = |what: &str| format!("{count} columns: {what}");
        report.median(&name("mix A, all hits"), "CPU ns", median_with_interval(&a))?;
        report.median(&name("mix C, evicting"), "CPU ns", median_with_interval(&c))?;
        let hits = 100.0 * count_of_u64(self.hits) / count_of_u64(self.gets.max(1));
        report.figure(&name("mix C: GETs that hit"), "%", hits)?;
        report.figure(&name("mix C: evictions"), "", count_of_u64(evictions))?;
        let name = name("requests per CPU-second, C / A");
        report.median(&name, "", median_with_interval(&ratios))
    }
}

#[derive(Clone, Copy)]
struct Requests<'a> {
    drawn: &'a [u32],
    value: &'a [u8],
    ops: u32,
}

impl Requests<'_> {
    fn carry_out(self, column: &mut Column, load: Load, seed: u64) -> Outcome<Window> {
        let Requests { drawn, value, ops } = self;
        let mut random = Random::new(seed);
        let mut at = usize::try_from(seed >> 32)? % drawn.len();
        let mut window = Window::default();
        let start = thread_nanoseconds();
        for op in 0..ops {
            at = if at + 1 == drawn.len() { 0 } else { at + 1 };
            let key = key_of(drawn[at]);
            let chance = random.number(100);
            match load {
                Load::Nothing => {
                    black_box((&key, chance));
                }
                Load::A => hit(column, &key, value.len())?,
                Load::C if chance < GETS => {
                    window.gets += 1;
                    window.hits += u64::from(black_box(column.get(&key)).is_some());
                }
                Load::C if chance < GETS + SETS => set(column, &key, value)?,
                Load::C => {
                    black_box(column.delete(&key));
                }
            }
            if op % BATCH == 0 && load != Load::Nothing {
                between_batches(column);
            }
        }
        window.nanoseconds = thread_nanoseconds() - start;
        Ok(window)
    }
}

fn popular(keys: u32) -> Vec<u32> {
    let mut random = Random::new(2);
    let low = FROM.powf(EXPONENT);
    let draw = |_| {
        let x = (low + random.unit() * (1.0 - low)).powf(1.0 / EXPONENT);
        let step = step_of((x - FROM) / (1.0 - FROM));
        step * (keys / STEPS) + random.number(keys / STEPS)
    };
    (0..DRAWN).map(draw).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and the result is bounded"
)]
fn step_of(x: f64) -> u32 {
    ((x * f64::from(STEPS)) as u32).min(STEPS - 1)
}
