//! Measures the slowest single insert, in CPU time of the thread, while an empty store grows to
//! millions of items.
//!
//! Where: one column. All memory is touched beforehand, because the first access to a page costs
//! time in the kernel, not in the store.
//! Invariant: each insert is timed by itself, less the cost of reading the clock. The same inserts
//! are repeated on new stores: a cost that recurs at the same insert is caused by the store, and a
//! cost that does not recur is caused by the machine.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::Options;
use crate::measure::Outcome;
use crate::measure::in_process::thread_nanoseconds;
use crate::measure::in_process::{BATCH, KEY_BYTES, column_of, key_of, set, store_of};
use crate::measure::report::{Report, say};
use crate::measure::statistics::{count_of, count_of_u64, median};

const CLOCK_LOOKS: usize = 100_001;
const ROOM_BYTES_AN_ITEM: usize = 40;
const PAGE_BYTES: u64 = 4096;
/// Number of bars of the histogram. Bar number n, counted from 0, ends at 2^n µs.
const BARS: usize = 16;
const WORST: usize = 5;

/// Reports the least cost of each insert over all rounds.
pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    let items = options.keys_or(10_000_000);
    let value = vec![b'v'; options.value_bytes_or(20)?];
    let clock = clock_nanoseconds();
    report.figure("reading the clock, subtracted", "ns", count_of_u64(clock))?;
    let mut least: Vec<u32> = Vec::new();
    let mut background = 0;
    for round in 0..options.rounds.unwrap_or(3) {
        let (each, worst_background) = grow(items, &value, clock, options)?;
        let worst = each.iter().max().copied().unwrap_or(0);
        let name = format!("round {}: worst insert", round + 1);
        report.figure(&name, "us", f64::from(worst) / 1e3)?;
        background = background.max(worst_background);
        least = match round {
            0 => each,
            _ => least.iter().zip(&each).map(|(one, other)| *one.min(other)).collect(),
        };
    }
    let mut worst: Vec<(u32, usize)> =
        least.iter().enumerate().map(|(number, cost)| (*cost, number)).collect();
    worst.sort_unstable_by(|one, other| other.cmp(one));
    let first = worst.first().map_or(0, |(cost, _)| *cost);
    report.figure("worst insert that all rounds share", "us", f64::from(first) / 1e3)?;
    report.figure("worst slice of background work", "us", f64::from(background) / 1e3)?;
    let all: f64 = least.iter().map(|cost| f64::from(*cost)).sum();
    report.figure("mean insert", "ns", all / count_of(least.len()))?;
    let shown: Vec<String> = worst
        .iter()
        .take(WORST)
        .map(|(cost, number)| format!("{:.1} us (insert number {number})", f64::from(*cost) / 1e3))
        .collect();
    say(&format!("  the worst inserts: {}\n{}", shown.join(", "), histogram(&least)))
}

fn clock_nanoseconds() -> u64 {
    let mut last = thread_nanoseconds();
    let costs: Vec<f64> = (0..CLOCK_LOOKS)
        .map(|_| {
            let now = thread_nanoseconds();
            let cost = now - last;
            last = now;
            count_of_u64(cost)
        })
        .collect();
    let middle = median(&costs);
    (0..100_000).find(|cost| count_of_u64(*cost) >= middle).unwrap_or(0)
}

const ADDRESS_BYTES_MAX: u64 = 1 << 46;

/// Returns the nanoseconds of each insert into a new store, and of the slowest background slice.
fn grow(items: u32, value: &[u8], clock: u64, options: &Options) -> Outcome<(Vec<u32>, u32)> {
    let item_bytes = value.len() + KEY_BYTES + ROOM_BYTES_AN_ITEM;
    let memory_bytes = usize::try_from(items)? * item_bytes + (64 << 20);
    // Under a limit on address space, a store reserves only memory that it will use.
    let limit = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(ADDRESS_BYTES_MAX), ..limit })?;
    let before = mappings()?;
    let store = store_of(memory_bytes, 1, Some(options.eviction))?;
    let new: Vec<(u64, u64)> =
        mappings()?.into_iter().filter(|mapping| !before.contains(mapping)).collect();
    touch(&new)?;
    let mut column = column_of(&store);
    let mut each = Vec::with_capacity(usize::try_from(items)?);
    let mut background = 0;
    let cost = |from: u64, to: u64| u32::try_from((to - from).saturating_sub(clock));
    for number in 0..items {
        let key = key_of(number);
        let start = thread_nanoseconds();
        set(&mut column, &key, value)?;
        let end = thread_nanoseconds();
        each.push(cost(start, end)?);
        if number % BATCH == 0 {
            column.quiesce();
            let start = thread_nanoseconds();
            column.maintain();
            background = background.max(cost(start, thread_nanoseconds())?);
        }
    }
    Ok((each, background))
}

fn mappings() -> Outcome<Vec<(u64, u64)>> {
    let text = fs::read_to_string("/proc/self/maps")?;
    let mapping = |line: &str| {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let is_anonymous = words.nth(2) == Some("0") && words.next().is_none();
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        (rights == "rw-p" && is_anonymous).then_some((number(start)?, number(end)?))
    };
    Ok(text.lines().filter_map(mapping).collect())
}

/// Rewrites a byte of each page, so that the kernel has to allocate the page.
fn touch(mappings: &[(u64, u64)]) -> Outcome<()> {
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    for &(start, end) in mappings {
        let mut at = start;
        while at < end {
            let mut byte = [0];
            memory.read_exact_at(&mut byte, at)?;
            memory.write_all_at(&byte, at)?;
            at += PAGE_BYTES;
        }
    }
    Ok(())
}

fn histogram(each: &[u32]) -> String {
    let mut bars = [0_usize; BARS];
    for cost in each {
        let microseconds = cost / 1000;
        let bar = usize::try_from(u32::BITS - microseconds.leading_zeros()).unwrap_or(0);
        bars[bar.min(BARS - 1)] += 1;
    }
    let last = bars.iter().rposition(|bar| *bar > 0).unwrap_or(0);
    let lines = bars.iter().enumerate().take(last + 1);
    lines.map(|(at, bar)| format!("  below {:>6} us {bar:>10} inserts\n", 1_u32 << at)).collect()
}
