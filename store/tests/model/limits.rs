//! Checks that the memory limit is kept: after each operation, and when background work is done.
//!
//! Invariant: an item is evicted only if room was short; once no background work is left, no more
//! memory is in use than the limit allows.

use crate::ops::COLUMNS;
use crate::run::Run;
use store::{OutOfBounds, Usage};

const HEAD_BYTES: usize = 64;
/// Number of segments that may be empty, kept free, or open for a queue or a class.
const OPEN_SEGMENTS: usize = 16;
/// Open segments for items that expire may take at most the memory divided by this number.
const TIMED_PART: usize = 8;
/// Minimum number of segments that a limit leaves to items.
const SEGMENTS_MIN: usize = 16;
/// Rounds of background work. The clock advances a second before each, so that work is retried.
const ROUNDS: usize = 4;

#[derive(Default)]
pub(crate) struct Room {
    peak_bytes: usize,
    /// True if room was short at some time, so that items may have been evicted.
    tight: bool,
}

impl Run {
    /// Sets the limit to `tenths` tenths of the first limit. A limit out of bounds must be refused.
    pub(crate) fn limit(&mut self, tenths: u8) -> Result<(), String> {
        let segment = segment_bytes(&self.usage()?);
        let (first, before) = (self.memory_bytes, self.store.memory_bytes());
        let bytes = first / 10 * usize::from(tenths);
        let least = (2 * self.rules.item_bytes_max).max(SEGMENTS_MIN * segment);
        let due = match bytes >= least && bytes / segment <= 16 * first / segment {
            true => (Ok(()), bytes),
            false => (Err(OutOfBounds), before),
        };
        let got = (self.column().limit_memory(bytes), self.store.memory_bytes());
        match got == due {
            true => Ok(()),
            false => Err(format!("limit {bytes} after {before}: {got:?}, not {due:?}")),
        }
    }

    /// Does all background work, then checks the segments and bytes in use against the limit.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.unpin()?;
        let at = self.at;
        for _ in 0..ROUNDS {
            self.tick(1);
            for at in 0..COLUMNS {
                self.at = at;
                while self.column().maintain() {
                    self.column().quiesce();
                }
                self.column().quiesce();
            }
        }
        self.at = at;
        let usage = self.usage()?;
        let (segment, present) = (segment_bytes(&usage), present(&usage));
        let allowed = self.store.memory_bytes() / segment;
        let least = number(usage.segments_index) + SEGMENTS_MIN;
        let items = OPEN_SEGMENTS + least + 2 * self.item_bytes() / segment;
        let most = if self.evict { allowed.max(least) } else { allowed.max(items) };
        if present > most || present < allowed {
            return Err(format!("{present} segments, at most {most}: {usage:?}"));
        }
        let taken = usage.sum_bytes() - usage.table_bytes;
        if number(taken) > present * segment {
            return Err(format!("{taken} bytes taken of {}: {usage:?}", present * segment));
        }
        Ok(())
    }

    /// Checks that nothing is evicted while there is room, and that gauges are within their bounds.
    pub(crate) fn check_room(&mut self) -> Result<(), String> {
        let usage = self.usage()?;
        let memory = self.store.memory_bytes();
        let open = OPEN_SEGMENTS * segment_bytes(&usage) + memory / TIMED_PART;
        self.room.peak_bytes = self.room.peak_bytes.max(self.item_bytes());
        let needed = 2 * (self.room.peak_bytes + self.rules.item_bytes_max) + open;
        self.room.tight |= self.evict && memory < needed;
        let stats = self.store.stats();
        if stats.evictions > 0 && !self.room.tight {
            return Err(format!("evicted where there was room: {stats:?}\n  {usage:?}"));
        }
        let bounds = [
            ("items", stats.curr_items, stats.total_items),
            ("evictions", stats.evictions, stats.total_items),
            ("unfetched evictions", stats.evicted_unfetched, stats.evictions),
            ("bytes in probation", stats.probation_bytes, stats.bytes),
            ("bytes", stats.bytes, usage.live_bytes + usage.frame_bytes + usage.arena_bytes),
            ("percent", stats.probation_percent, 100),
            // `stats` counts dead bytes all the time; `usage` sums the dead bytes of all segments.
            ("dead bytes counted", stats.dead_bytes, usage.dead_bytes),
            ("dead bytes found", usage.dead_bytes, stats.dead_bytes),
        ];
        match bounds.into_iter().find(|(_, is, most)| is > most) {
            Some((what, is, most)) => Err(format!("{is} {what} of {most}: {stats:?}\n  {usage:?}")),
            None => Ok(()),
        }
    }

    fn item_bytes(&self) -> usize {
        self.items.iter().map(|(key, known)| key.len() + known.item.value.len() + HEAD_BYTES).sum()
    }

    /// Returns the memory usage, after a check that it counts no segment twice.
    fn usage(&self) -> Result<Usage, String> {
        let usage = self.store.usage();
        let most = (16 * self.memory_bytes) as u64 / usage.segment_bytes;
        match present(&usage) as u64 + usage.segments_withheld <= most {
            true => Ok(usage),
            false => Err(format!("more than {most} segments: {usage:?}")),
        }
    }
}

fn present(usage: &Usage) -> usize {
    let log = usage.segments_open + usage.segments_sealed + usage.segments_limbo;
    let others = usage.segments_frames + usage.segments_free + usage.segments_index;
    number(log + others)
}

fn segment_bytes(usage: &Usage) -> usize {
    number(usage.segment_bytes)
}

fn number(of: u64) -> usize {
    usize::try_from(of).unwrap()
}
