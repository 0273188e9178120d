//! Items that live from a second to a day, by a simulated clock: the time from an item's expiry
//! until its memory is free, and the CPU time of freeing the memory of all items.
//!
//! Where: one column that only does background work, in each second until no work is left.
//! Invariant: the program computes the number of live items in each second without the store. CPU
//! time is the time of background work alone, contraction of the index included; the CPU time for
//! an empty store is reported too. Memory counts as freed in time if the store without its index
//! uses at most 1.1 times the bytes of live items plus eight segments. The expired memory that is
//! not reusable is the bytes of segments that are not free minus the bytes of live items.

use store::{Column, Put, Store, Verb};

use crate::measure::in_process::thread_nanoseconds;
use crate::measure::in_process::{
    self, BATCH, START, between_batches, column_of, key_of, store_of,
};
use crate::measure::report::Report;
use crate::measure::statistics::count_of_u64;
use crate::measure::{Outcome, fail};
use crate::{Options, Ttl};
use testing::random::{hash, unit};

const DAY: u32 = 86_400;
/// Seconds measured after the longest time to live.
const AFTERWARDS: u32 = 60;
/// After this CPU time, the rest of the day is skipped.
const CPU_NANOSECONDS_MAX: u64 = 60_000_000_000;
/// Maximum number of slices of background work in a second. With more slices, the program fails.
const SLICES_MAX: u32 = 1_000_000;
const ROOM_BYTES_AN_ITEM: usize = 40;
/// The log may use this percentage more than live bytes, plus `SEGMENTS_MORE` other segments.
const LOG_PERCENT_MORE: u64 = 10;
const SEGMENTS_MORE: u64 = 8;
const SEGMENT_BYTES_MAX: u64 = 2 << 20;

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    let items = options.keys_or(10_000_000);
    let value = vec![b'v'; options.value_bytes_or(20)?];
    let item_bytes = value.len() + 36 + ROOM_BYTES_AN_ITEM;
    let memory_bytes = (usize::try_from(items)? * item_bytes).max(64 << 20);
    let store = store_of(memory_bytes, 1, Some(options.eviction))?;
    let mut column = column_of(&store);
    let mut ends = vec![0_u32; usize::try_from(DAY + 2)?];
    for number in 0..items {
        let seconds = ttl(options.ttl, number);
        ends[usize::try_from(seconds)?] += 1;
        let key = key_of(number);
        let put = Put { exptime: START + seconds, ..Put::new(Verb::Set, &key) };
        in_process::put(&mut column, &put, &value)?;
        if number % BATCH == 0 {
            between_batches(&mut column);
        }
    }
    if store.stats().evictions > 0 {
        return fail("items were evicted, because not all fit".to_owned());
    }
    let watched = watch(&store, &mut column, &ends, items)?;
    let empty = store_of(memory_bytes, 1, Some(options.eviction))?;
    let idle = watch(&empty, &mut column_of(&empty), &ends, 0)?;
    let seconds = |nanoseconds: u64| count_of_u64(nanoseconds) / 1e9;
    report.figure("items", "", f64::from(items))?;
    report.figure("seconds that passed (60 CPU-seconds at most)", "s", watched.seconds.into())?;
    report.figure("CPU time of background work", "s", seconds(watched.nanoseconds))?;
    report.figure("the same with an empty store", "s", seconds(idle.nanoseconds))?;
    report.figure("slices of work", "", f64::from(watched.slices))?;
    let microseconds = |slice: Option<&u64>| slice.map_or(0.0, |ns| count_of_u64(*ns) / 1e3);
    report.figure("worst slice", "CPU us", microseconds(watched.busy.last()))?;
    let late = watched.busy.len() - watched.busy.len() / 1000;
    report.figure("one slice in a thousand is worse than", "CPU us", {
        microseconds(watched.busy.get(late.saturating_sub(1)))
    })?;
    report.figure("worst second", "CPU ms", seconds(watched.worst) * 1e3)?;
    report.figure("items checked per expired item", "", watched.looks_per_item)?;
    for (name, lag) in [("an item is unlinked", &watched.unlink), ("memory is free", &watched.free)]
    {
        report.figure(&format!("{name} after, worst"), "s", f64::from(lag.worst))?;
        report.figure(&format!("{name} after, mean over seconds"), "s", lag.mean())?;
    }
    report.figure("used beyond live items and index, worst", "MiB", watched.beyond_mib)?;
    let UnusableMemory { worst_bytes, byte_seconds, soon_bytes, expired_bytes } = watched.waiting;
    let percent = |part: f64, all: f64| part * 100.0 / all.max(1.0);
    let memory = count_of_u64(store.memory_bytes() as u64);
    let mean = byte_seconds / f64::from(watched.seconds.max(1));
    let soon = percent(count_of_u64(soon_bytes), count_of_u64(expired_bytes));
    let worst = percent(count_of_u64(worst_bytes), memory);
    report.figure("expired and not yet reusable, worst", "% of memory", worst)?;
    report.figure("the same, mean over seconds", "% of memory", percent(mean, memory))?;
    report.figure("reusable in the second of expiry, at least", "% of bytes", soon)?;
    report.figure("items left at the end", "", count_of_u64(store.stats().curr_items))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and the result is bounded"
)]
fn ttl(how: Ttl, number: u32) -> u32 {
    let random = unit(hash(number.into(), 3));
    let seconds = match how {
        Ttl::Log => f64::from(DAY).powf(random),
        Ttl::Even => 1.0 + random * f64::from(DAY),
    };
    (seconds as u32).clamp(1, DAY)
}

/// The number of seconds by which the store lags behind the expiry of items.
#[derive(Default)]
struct Lag {
    worst: u32,
    sum: u64,
    looks: u64,
}

impl Lag {
    /// Adds the present lag. `live` has the number of live items in each second so far. The lag is
    /// the number of latest seconds with too few live items, by `are_enough`, to explain the
    /// present use.
    fn note(&mut self, live: &[u64], are_enough: impl Fn(u64) -> bool) {
        let caught_up = live.partition_point(|live| are_enough(*live));
        let lag = u32::try_from(live.len() - caught_up).unwrap_or(u32::MAX);
        self.worst = self.worst.max(lag);
        self.sum += u64::from(lag);
        self.looks += 1;
    }

    fn mean(&self) -> f64 {
        count_of_u64(self.sum) / count_of_u64(self.looks.max(1))
    }
}

/// Memory of expired items that is not reusable yet.
#[derive(Clone, Copy, Default)]
struct UnusableMemory {
    worst_bytes: u64,
    /// The sum, over all seconds, of the bytes that were not reusable.
    byte_seconds: f64,
    /// Lower bound of the bytes that are reusable by the end of the second in which they expired.
    soon_bytes: u64,
    expired_bytes: u64,
}

impl UnusableMemory {
    /// Adds a second: the bytes that expired in it, and the bytes not yet reusable at its end.
    fn note(&mut self, expired_bytes: u64, waiting_bytes: u64) {
        self.worst_bytes = self.worst_bytes.max(waiting_bytes);
        self.byte_seconds += count_of_u64(waiting_bytes);
        self.soon_bytes += expired_bytes.saturating_sub(waiting_bytes);
        self.expired_bytes += expired_bytes;
    }
}

#[derive(Default)]
struct DayFigures {
    nanoseconds: u64,
    worst: u64,
    seconds: u32,
    slices: u32,
    looks_per_item: f64,
    unlink: Lag,
    free: Lag,
    /// Maximum memory in use in any second, without the index and the live items.
    beyond_mib: f64,
    waiting: UnusableMemory,
    /// CPU time of each slice of work after which work was left, in nanoseconds; sorted at the end.
    busy: Vec<u64>,
}

fn watch(store: &Store, column: &mut Column, ends: &[u32], items: u32) -> Outcome<DayFigures> {
    let mut live = vec![u64::from(items)];
    let mut watched = DayFigures::default();
    let first = store.stats();
    let item_bytes = first.bytes / first.curr_items.max(1);
    for second in 1..=DAY + AFTERWARDS {
        let at = usize::try_from(second)?;
        let ended = ends.get(at).copied().unwrap_or(0).min(items);
        let before = live.last().copied().unwrap_or(0);
        live.push(before.saturating_sub(ended.into()));
        let start = thread_nanoseconds();
        column.online();
        column.set_now(START + second);
        let mut slices = 1;
        let mut slice_start = start;
        while column.maintain() {
            column.quiesce();
            slices += 1;
            let slice_end = thread_nanoseconds();
            watched.busy.push(slice_end - slice_start);
            slice_start = slice_end;
            if slices > SLICES_MAX {
                return fail(format!("second {second}: background work does not end"));
            }
        }
        column.offline();
        let nanoseconds = thread_nanoseconds() - start;
        watched.nanoseconds += nanoseconds;
        watched.worst = watched.worst.max(nanoseconds);
        watched.slices += slices;
        watched.seconds = second;
        let (stats, used_bytes) = (store.stats(), u64::try_from(store.used_bytes())?);
        watched.unlink.note(&live, |live| stats.curr_items <= live);
        // Memory that an empty store may use: its index, and open or spare segments.
        let base_bytes = stats.hash_bytes + SEGMENTS_MORE * SEGMENT_BYTES_MAX;
        let lives_bytes = live.last().copied().unwrap_or(0) * item_bytes;
        let beyond_bytes = used_bytes.saturating_sub(stats.hash_bytes + lives_bytes);
        let usage = store.usage();
        let log_bytes = usage.live_bytes + usage.dead_bytes;
        watched.waiting.note(u64::from(ended) * item_bytes, log_bytes.saturating_sub(lives_bytes));
        watched.beyond_mib = watched.beyond_mib.max(count_of_u64(beyond_bytes >> 10) / 1024.0);
        watched.free.note(&live, |live| {
            let log_bytes = live * item_bytes * (100 + LOG_PERCENT_MORE) / 100;
            used_bytes <= base_bytes + log_bytes
        });
        if watched.nanoseconds > CPU_NANOSECONDS_MAX {
            break;
        }
    }
    let looked = store.stats().crawler_items_checked - first.crawler_items_checked;
    watched.busy.sort_unstable();
    watched.looks_per_item = count_of_u64(looked) / f64::from(items.max(1));
    Ok(watched)
}
