//! `stats items` and `stats slabs`: report all items as one slab class, for monitoring programs.
//!
//! Where: `stats::answer` calls `items` and `slabs`.
//! Invariant: names and their order are memcached's. Numbers that are meaningful only with several
//! LRU queues per class are 0. An empty store has no class, as in memcached.
//! Source: memcached 1.6.45 `item_stats`, `do_slabs_stats`.

use super::rows::{Rows, stat};
use crate::shared::Shared;

/// Writes one statistic of class 1, the class that `me` reports.
macro_rules! class {
    ($rows:expr, $group:literal, $name:literal, $value:expr) => {
        stat!($rows, concat!($group, "1:", $name), $value)
    };
}

pub(super) fn items(shared: &Shared, rows: &mut Rows<'_>) {
    let (sums, store) = shared.since_reset();
    if store.curr_items == 0 {
        return;
    }
    let opened = shared.store.usage_estimate().oldest_opened;
    class!(rows, "items:", "number", store.curr_items);
    // All items are reported in the cold queue, because memcached evicts from the cold queue.
    class!(rows, "items:", "number_hot", 0);
    class!(rows, "items:", "number_warm", 0);
    class!(rows, "items:", "number_cold", store.curr_items);
    class!(rows, "items:", "age_hot", 0);
    class!(rows, "items:", "age_warm", 0);
    class!(rows, "items:", "age", opened.map_or(0, |opened| rows.now.saturating_sub(opened)));
    class!(rows, "items:", "mem_requested", store.bytes);
    class!(rows, "items:", "evicted", store.evictions);
    class!(rows, "items:", "evicted_nonzero", store.evicted_nonzero);
    class!(rows, "items:", "evicted_time", store.eviction_age());
    class!(rows, "items:", "outofmemory", sums.requests.store_no_memory);
    class!(rows, "items:", "tailrepairs", 0);
    class!(rows, "items:", "reclaimed", store.reclaimed);
    class!(rows, "items:", "expired_unfetched", store.expired_unfetched);
    class!(rows, "items:", "evicted_unfetched", store.evicted_unfetched);
    class!(rows, "items:", "evicted_active", store.evicted_active);
    class!(rows, "items:", "crawler_reclaimed", store.crawler_reclaimed);
    class!(rows, "items:", "crawler_items_checked", store.crawler_items_checked);
    class!(rows, "items:", "lrutail_reflocked", 0);
    class!(rows, "items:", "moves_to_cold", 0);
    class!(rows, "items:", "moves_to_warm", 0);
    class!(rows, "items:", "moves_within_lru", 0);
    class!(rows, "items:", "direct_reclaims", store.drained_segments);
    class!(rows, "items:", "hits_to_hot", 0);
    class!(rows, "items:", "hits_to_warm", 0);
    class!(rows, "items:", "hits_to_cold", sums.requests.get_hits);
    class!(rows, "items:", "hits_to_temp", 0);
}

/// Number of bytes of a memcached page; programs multiply the number of pages by this number.
const PAGE_BYTES: u64 = 1 << 20;

/// Writes `stats slabs`: the used memory as pages, and the mean item length as the chunk size.
pub(super) fn slabs(shared: &Shared, rows: &mut Rows<'_>) {
    let (sums, store) = shared.since_reset();
    let usage = shared.store.usage_estimate();
    let used = usage.segments_open + usage.segments_sealed + usage.segments_frames;
    let used_bytes = (used + usage.segments_index) * usage.segment_bytes;
    if let Some(mean_bytes) = store.bytes.checked_div(store.curr_items) {
        let chunk_bytes = mean_bytes.max(1);
        let pages = used_bytes.div_ceil(PAGE_BYTES).max(1);
        let chunks_per_page = (PAGE_BYTES / chunk_bytes).max(1);
        let chunks = (chunks_per_page * pages).max(store.curr_items);
        class!(rows, "", "chunk_size", chunk_bytes);
        class!(rows, "", "chunks_per_page", chunks_per_page);
        class!(rows, "", "total_pages", pages);
        class!(rows, "", "total_chunks", chunks);
        class!(rows, "", "used_chunks", store.curr_items);
        class!(rows, "", "free_chunks", chunks - store.curr_items);
        class!(rows, "", "free_chunks_end", 0);
        class!(rows, "", "get_hits", sums.requests.get_hits);
        class!(rows, "", "cmd_set", sums.requests.set_cmds);
        class!(rows, "", "delete_hits", sums.requests.delete_hits);
        class!(rows, "", "incr_hits", sums.requests.incr_hits);
        class!(rows, "", "decr_hits", sums.requests.decr_hits);
        class!(rows, "", "cas_hits", store.cas_hits);
        class!(rows, "", "cas_badval", store.cas_badval);
        class!(rows, "", "touch_hits", sums.requests.touch_hits);
    }
    stat!(rows, "active_slabs", u8::from(store.curr_items > 0));
    stat!(rows, "total_malloced", used_bytes);
}
