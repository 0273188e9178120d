//! `stats store`: counts of the store for which memcached has no name.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: `stats reset` sets the counts to 0. Other numbers are current values.

use super::rows::{Rows, stat};
use crate::settings::VERSION;
use crate::shared::Shared;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let (sums, store) = shared.since_reset();
    stat!(rows, "hypostyle_version", VERSION);
    stat!(rows, "limit_maxbytes_max", shared.memory_bytes_bounds().1);
    stat!(rows, "rewritten", store.rewritten);
    stat!(rows, "eviction_age", store.eviction_age());
    stat!(rows, "evicted_nonzero", store.evicted_nonzero);
    stat!(rows, "ghost_hits", store.ghost_hits);
    stat!(rows, "probation_bytes", store.probation_bytes);
    stat!(rows, "probation_percent", store.probation_percent);
    stat!(rows, "dead_bytes", store.dead_bytes);
    stat!(rows, "spared_bytes", store.spared_bytes);
    stat!(rows, "compacted_bytes", store.compacted_bytes);
    stat!(rows, "compacted_segments", store.compacted_segments);
    stat!(rows, "drained_segments", store.drained_segments);
    stat!(rows, "arena_copied_bytes", store.arena_copied_bytes);
    stat!(rows, "arena_kept_bytes", store.arena_kept_bytes);
    stat!(rows, "arena_full", store.arena_full);
    stat!(rows, "hash_overflow_bytes", store.hash_overflow_bytes);
    stat!(rows, "dumps_stalled", sums.requests.dumps_stalled);
    stat!(rows, "prefixes_left_out", shared.prefixes.held().1);
}
