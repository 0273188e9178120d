//! The limit of memory, changed by one thread while all of them read and write.
//!
//! Invariant: once as little is in use as the limit says, no more is until the limit goes up; and
//! whatever the limit does, the other tests' laws hold.

use std::sync::Arc;
use store::{Column, Store};
use testing::Random;

/// One step in so many changes the limit.
const STEPS_PER_CHANGE: u64 = 40;
/// Segments that items keep where the index takes all.
const SEGMENTS_MIN: u64 = 16;
/// Seconds of the clock in which background work must have come to an end.
const SECONDS: u32 = 4;

/// What a thread does about the limit: the first one changes it.
pub(crate) struct Limits {
    store: Arc<Store>,
    /// Limits to choose from, in eighths of a megabyte; none: it stays.
    eighths: &'static [usize],
    /// Segments that may be in use: as many as at the last change, or fewer since.
    most: u64,
}

impl Limits {
    pub(crate) fn new(store: &Arc<Store>, id: usize, eighths: &'static [usize]) -> Self {
        let eighths = if id == 0 { eighths } else { &[] };
        Self { store: Arc::clone(store), eighths, most: u64::MAX }
    }

    /// Looks whether no more is in use than may be, and changes the limit once in a while.
    pub(crate) fn step(&mut self, column: &mut Column, random: &mut Random) -> Result<(), String> {
        if self.eighths.is_empty() {
            return Ok(());
        }
        let present = self.check()?;
        if random.below(STEPS_PER_CHANGE) == 0 {
            let at = usize::try_from(random.below(self.eighths.len() as u64)).unwrap();
            let limit = column.limit_memory(self.eighths[at] << 17);
            limit.map_err(|error| format!("limit: {error}"))?;
            self.most = present.max(self.allowed());
        }
        Ok(())
    }

    fn allowed(&self) -> u64 {
        self.store.memory_bytes() as u64 / self.store.usage().segment_bytes
    }

    fn check(&mut self) -> Result<u64, String> {
        let usage = self.store.usage();
        let log = usage.segments_open + usage.segments_sealed + usage.segments_limbo;
        let present = log + usage.segments_frames + usage.segments_free + usage.segments_index;
        let least = self.allowed().max(usage.segments_index + SEGMENTS_MIN);
        if present > self.most.max(least) {
            return Err(format!("{present} segments of {}: {usage:?}", self.most));
        }
        self.most = self.most.min(present.max(least));
        Ok(present)
    }
}

/// Where nobody else is at work any more, the limit is kept: the last one, or this one.
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
