//! `stats memory`: the memory of the process, by use.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: `accounted_bytes` is the sum of the lines from `live_bytes` to `program_bytes`. The
//! system counts `resident_bytes`, which differs from this sum because of the threads' stacks, the
//! allocator's own data and per-thread caches, and partly used pages. A test bounds the
//! difference. The bytes of segments are an estimate if there are very many segments.
//! On a machine of several NUMA nodes, `node_N_bytes` are the bytes of segments on each node.
//! Source: `store::Store::usage_estimate`, the columns' own counts, /proc/self/statm.

use super::rows::{Rows, stat, stats};
use crate::shared::Shared;
use crate::start::process;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let (usage, sums) = (shared.store.usage_estimate(), shared.sums());
    stat!(rows, "limit_maxbytes", shared.memory_bytes());
    let huge_pages = match shared.huge_pages.get() {
        None => "off",
        Some(true) => "given",
        Some(false) => "refused",
    };
    stat!(rows, "huge_pages", huge_pages);
    stats!(rows, usage =>
        segment_bytes, segments_allowed, segments_open, segments_sealed, segments_frames,
        segments_free, segments_limbo, segments_index, segments_withheld);
    for (node, bytes) in shared.store.node_bytes_estimate() {
        rows.row(&format!("node_{node}_bytes"), format_args!("{bytes}"));
    }
    stats!(rows, usage =>
        live_bytes, dead_bytes, tail_bytes, frame_bytes, frame_free_bytes, free_bytes, limbo_bytes,
        index_bytes, ghost_bytes, table_bytes);
    stat!(rows, "ring_bytes", shared.ring_bytes());
    stat!(rows, "arena_bytes", usage.arena_bytes);
    stat!(rows, "arena_free_bytes", usage.arena_free_bytes);
    stats!(rows, sums.columns => connection_bytes, read_buf_bytes, response_obj_bytes);
    let (prefix_bytes, _) = shared.prefixes.held();
    stat!(rows, "prefix_bytes", prefix_bytes);
    let beside_store = sums.columns.connection_bytes
        + sums.columns.read_buf_bytes
        + sums.columns.response_obj_bytes;
    let beside_store = beside_store + prefix_bytes as u64;
    let beside_store = beside_store + shared.fixed_bytes() as u64;
    let heap_free_bytes = process::heap_free_bytes() as u64;
    stat!(rows, "heap_free_bytes", heap_free_bytes);
    let mut accounted = usage.sum_bytes() + beside_store + heap_free_bytes;
    let resident = shared.statm.now();
    if let Some(resident) = resident {
        accounted += resident.program_bytes;
        stat!(rows, "program_bytes", resident.program_bytes);
    }
    stat!(rows, "accounted_bytes", accounted);
    if let Some(resident) = resident {
        stat!(rows, "resident_bytes", resident.all_bytes);
    }
}
