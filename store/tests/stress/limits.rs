//! The memory limit, changed by one thread while all threads read and write.
//!
//! Invariant: once the memory in use has come down to the limit, it stays within the limit until
//! the limit goes up; and under every limit the invariants of the other tests hold.

use std::sync::Arc;
use store::{Column, Store, Usage};
use testing::Random;

const STEPS_PER_CHANGE: u64 = 40;
/// Number of segments that items keep if the index takes all others.
const SEGMENTS_MIN: u64 = 16;
/// Seconds of the clock within which background work must end.
const SECONDS: u32 = 4;

/// Changes and checks the limit. Only the `Limits` of the first thread does so.
pub(crate) struct Limits {
    store: Arc<Store>,
    /// Limits to choose from, in eighths of a megabyte. If the list is empty, the limit stays.
    eighths: &'static [usize],
    /// Maximum number of segments that may be in use. The maximum falls whenever fewer segments are
    /// in use, and rises only when the limit is changed.
    most: u64,
}

impl Limits {
    pub(crate) fn new(store: &Arc<Store>, id: usize, eighths: &'static [usize]) -> Self {
        let eighths = if id == 0 { eighths } else { &[] };
        Self { store: Arc::clone(store), eighths, most: u64::MAX }
    }

    /// Checks that no more segments are in use than allowed, and sometimes changes the limit.
    pub(crate) fn step(&mut self, column: &mut Column, random: &mut Random) -> Result<(), String> {
        if self.eighths.is_empty() {
            return Ok(());
        }
        let present = self.check()?;
        if random.below(STEPS_PER_CHANGE) == 0 {
            let at = usize::try_from(random.below(self.eighths.len() as u64)).unwrap();
            let limit = column.limit_memory(self.eighths[at] << 17);
            limit.map_err(|error| format!("limit: {error}"))?;
            // Other columns may have added segments between the check and the change.
            self.most = present.max(Limits::present(&self.store.usage())).max(self.allowed());
        }
        Ok(())
    }

    fn allowed(&self) -> u64 {
        self.store.memory_bytes() as u64 / self.store.usage().segment_bytes
    }

    fn present(usage: &Usage) -> u64 {
        let log = usage.segments_open + usage.segments_sealed + usage.segments_limbo;
        log + usage.segments_frames + usage.segments_free + usage.segments_index
    }

    fn check(&mut self) -> Result<u64, String> {
        let usage = self.store.usage();
        let present = Limits::present(&usage);
        let least = self.allowed().max(usage.segments_index + SEGMENTS_MIN);
        if present > self.most.max(least) {
            return Err(format!("{present} segments of {}: {usage:?}", self.most));
        }
        self.most = self.most.min(present.max(least));
        Ok(present)
    }
}

/// Checks that the memory in use has come down to the limit, or to the limit `least` if given.
pub(crate) fn settle(store: &Arc<Store>, column: &mut Column, least: Option<usize>, now: u32) {
    if let Some(eighths) = least {
        column.limit_memory(eighths << 17).unwrap_or_else(|error| panic!("{error}"));
    }
    for now in now..now + SECONDS {
        column.set_now(now);
        while column.maintain() {
            column.quiesce();
        }
        column.quiesce();
    }
    let mut limits = Limits { store: Arc::clone(store), eighths: &[], most: 0 };
    limits.check().unwrap_or_else(|error| panic!("{error}"));
    let (stats, usage) = (store.stats(), store.usage());
    assert_eq!(stats.dead_bytes, usage.dead_bytes, "dead bytes: counted, and found");
}
