//! `stats memory`: the memory of the process, by use.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: `accounted_bytes` is the sum of the lines from `live_bytes` to `program_bytes`. The
//! system counts `resident_bytes`, which differs from this sum because of the threads' stacks, the
//! allocator's own data and per-thread caches, and partly used pages. A test bounds the
//! difference. The bytes of segments are an estimate if there are very many segments.
//! On a machine of several NUMA nodes, `node_N_bytes` are the bytes of segments on each node.
//! Source: `store::Store::usage_estimate`, the columns' own counts, /proc/self/statm.

use super::rows::{Rows, stat};
use crate::process;
use crate::shared::Shared;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let (usage, sums) = (shared.store.usage_estimate(), shared.sums());
    stat!(rows, "limit_maxbytes", shared.memory_bytes());
    let huge_pages = match shared.huge_pages.get() {
        None => "off",
        Some(true) => "given",
        Some(false) => "refused",
    };
    stat!(rows, "huge_pages", huge_pages);
    stat!(rows, "segment_bytes", usage.segment_bytes);
    stat!(rows, "segments_allowed", usage.segments_allowed);
    stat!(rows, "segments_open", usage.segments_open);
    stat!(rows, "segments_sealed", usage.segments_sealed);
    stat!(rows, "segments_frames", usage.segments_frames);
    stat!(rows, "segments_free", usage.segments_free);
    stat!(rows, "segments_limbo", usage.segments_limbo);
    stat!(rows, "segments_index", usage.segments_index);
    stat!(rows, "segments_withheld", usage.segments_withheld);
    for (node, bytes) in shared.store.node_bytes_estimate() {
        rows.row(&format!("node_{node}_bytes"), format_args!("{bytes}"));
    }
    stat!(rows, "live_bytes", usage.live_bytes);
    stat!(rows, "dead_bytes", usage.dead_bytes);
    stat!(rows, "tail_bytes", usage.tail_bytes);
    stat!(rows, "frame_bytes", usage.frame_bytes);
    stat!(rows, "frame_free_bytes", usage.frame_free_bytes);
    stat!(rows, "free_bytes", usage.free_bytes);
    stat!(rows, "limbo_bytes", usage.limbo_bytes);
    stat!(rows, "index_bytes", usage.index_bytes);
    stat!(rows, "ghost_bytes", usage.ghost_bytes);
    stat!(rows, "table_bytes", usage.table_bytes);
    stat!(rows, "ring_bytes", shared.ring_bytes());
    stat!(rows, "arena_bytes", usage.arena_bytes);
    stat!(rows, "arena_free_bytes", usage.arena_free_bytes);
    stat!(rows, "connection_bytes", sums.columns.connection_bytes);
    stat!(rows, "read_buf_bytes", sums.columns.read_buf_bytes);
    stat!(rows, "response_obj_bytes", sums.columns.response_obj_bytes);
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
