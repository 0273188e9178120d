//! `stats store`: counts of the store for which memcached has no name.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: `stats reset` sets the counts to 0. Other numbers are current values.

use super::rows::{Rows, stat, stats};
use crate::shared::Shared;
use crate::start::settings::VERSION;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let (sums, store) = shared.since_reset();
    stat!(rows, "hypostyle_version", VERSION);
    stat!(rows, "limit_maxbytes_max", shared.memory_bytes_bounds().1);
    stat!(rows, "rewritten", store.rewritten);
    stat!(rows, "eviction_age", store.eviction_age());
    stats!(rows, store =>
        evicted_nonzero, ghost_hits, probation_bytes, probation_percent, dead_bytes, spared_bytes,
        compacted_bytes, compacted_segments, drained_segments, arena_copied_bytes, arena_kept_bytes,
        arena_full, hash_overflow_bytes);
    stat!(rows, "dumps_stalled", sums.requests.dumps_stalled);
    stat!(rows, "prefixes_left_out", shared.prefixes.held().1);
}
