//! Items that live from a second to a day, under a clock of this program's own: how soon after its
//! expiry an item's memory is free, and the CPU time of freeing it all.
//!
//! Where: one column that only does background work: in each second, until no work is left.
//! Invariant: the number of items alive in each second is known without asking the store. CPU time
//! is that of background work alone, in which the index contracts too; beside it stands the same
//! for an empty store. Memory is free in time if the store uses, beside the index, at most what the
//! live items need, a tenth more, and eight segments. Memory that has expired and cannot be used
//! again is that of segments that are not free, by the store's own account, less the live items'.

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

/// The longest time to live, in seconds.
const DAY: u32 = 86_400;
/// Seconds watched after the last item's expiry.
const AFTERWARDS: u32 = 60;
/// CPU time after which the rest of the day is skipped.
const CPU_NANOSECONDS_MAX: u64 = 60_000_000_000;
/// Most slices in one second; with more, the store never rests.
const SLICES_MAX: u32 = 1_000_000;
/// Bytes of room beyond keys and values.
const ROOM_BYTES_AN_ITEM: usize = 40;
/// A log may use this percentage more than its live bytes, and this many open or spare segments.
const LOG_PERCENT_MORE: u64 = 10;
const SEGMENTS_MORE: u64 = 8;
const SEGMENT_BYTES_MAX: u64 = 2 << 20;

/// Fills the store, watches it for a day, and reports.
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
        return fail("items were evicted: not all fit".to_owned());
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
    report.figure("items looked at for each expired", "", watched.looks_per_item)?;
    for (name, lag) in [("an item is unlinked", &watched.unlink), ("memory is free", &watched.free)]
    {
        report.figure(&format!("{name} after, worst"), "s", f64::from(lag.worst))?;
        report.figure(&format!("{name} after, mean over seconds"), "s", lag.mean())?;
    }
    report.figure("used beyond what lives and the index, worst", "MiB", watched.beyond_mib)?;
    let Waiting { worst_bytes, byte_seconds, soon_bytes, expired_bytes } = watched.waiting;
    let percent = |part: f64, all: f64| part * 100.0 / all.max(1.0);
    let memory = count_of_u64(store.memory_bytes() as u64);
    let mean = byte_seconds / f64::from(watched.seconds.max(1));
    let soon = percent(count_of_u64(soon_bytes), count_of_u64(expired_bytes));
    let worst = percent(count_of_u64(worst_bytes), memory);
    report.figure("expired and not yet reusable, worst", "% of memory", worst)?;
    report.figure("the same, mean over seconds", "% of memory", percent(mean, memory))?;
    report.figure("reusable in the second it expired in, at least", "% of bytes", soon)?;
    report.figure("items left in the end", "", count_of_u64(store.stats().curr_items))
}

/// Seconds that an item lives: 1 to `DAY`.
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

/// The lag of the store, in seconds.
#[derive(Default)]
struct Lag {
    worst: u32,
    sum: u64,
    looks: u64,
}

impl Lag {
    /// Adds one look. `live` has the number of items alive in each second so far. The lag is the
    /// number of latest seconds whose items are not `are_enough` for what the store uses.
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

/// Memory that has expired and cannot be used again yet.
#[derive(Clone, Copy, Default)]
struct Waiting {
    worst_bytes: u64,
    /// Summed over seconds.
    byte_seconds: f64,
    /// Expired bytes usable again by the end of the same second, if none had waited from before.
    soon_bytes: u64,
    expired_bytes: u64,
}

impl Waiting {
    /// Adds a second: bytes that expired in it, and all expired bytes that are not free at its end.
    fn note(&mut self, expired_bytes: u64, waiting_bytes: u64) {
        self.worst_bytes = self.worst_bytes.max(waiting_bytes);
        self.byte_seconds += count_of_u64(waiting_bytes);
        self.soon_bytes += expired_bytes.saturating_sub(waiting_bytes);
        self.expired_bytes += expired_bytes;
    }
}

#[derive(Default)]
struct Watched {
    nanoseconds: u64,
    worst: u64,
    seconds: u32,
    slices: u32,
    looks_per_item: f64,
    unlink: Lag,
    free: Lag,
    /// Most memory in use beyond the index and the live items, from the first expiry on.
    beyond_mib: f64,
    waiting: Waiting,
    /// CPU time of each slice that left more to do; sorted in the end.
    busy: Vec<u64>,
}

/// Lets the seconds pass, and measures each.
fn watch(store: &Store, column: &mut Column, ends: &[u32], items: u32) -> Outcome<Watched> {
    let mut live = vec![u64::from(items)];
    let mut watched = Watched::default();
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
        // An empty store uses this: its index, and segments that are open or kept free.
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
