//! `stats items` and `stats slabs`: all items as those of one slab class, for programs that read
//! these statistics.
//!
//! Where: `stats::write` calls it.
//! Invariant: names are memcached's. What exists only with slab classes, or with several queues in
//! each, is left out. An empty store has no class, as in memcached.
//! Source: memcached 1.6.45 `item_stats`, `do_slabs_stats`.

use super::{Rows, stat};
use crate::shared::Shared;

/// One statistic of class 1, the class that `me` names.
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
    class!(rows, "items:", "number", store.curr_items);
    class!(rows, "items:", "mem_requested", store.bytes);
    class!(rows, "items:", "evicted", store.evictions);
    class!(rows, "items:", "evicted_time", store.eviction_age());
    class!(rows, "items:", "outofmemory", sums.store_no_memory);
    class!(rows, "items:", "reclaimed", store.reclaimed);
    class!(rows, "items:", "expired_unfetched", store.expired_unfetched);
    class!(rows, "items:", "evicted_unfetched", store.evicted_unfetched);
    class!(rows, "items:", "crawler_reclaimed", store.crawler_reclaimed);
    class!(rows, "items:", "crawler_items_checked", store.crawler_items_checked);
}

pub(super) fn slabs(shared: &Shared, rows: &mut Rows<'_>) {
    let (sums, store) = shared.since_reset();
    let used_bytes = shared.store.used_bytes();
    if store.curr_items > 0 {
        class!(rows, "", "used_chunks", store.curr_items);
        class!(rows, "", "mem_requested", store.bytes);
        class!(rows, "", "get_hits", sums.get_hits);
        class!(rows, "", "cmd_set", sums.set_cmds);
        class!(rows, "", "delete_hits", sums.delete_hits);
        class!(rows, "", "incr_hits", sums.incr_hits);
        class!(rows, "", "decr_hits", sums.decr_hits);
        class!(rows, "", "cas_hits", store.cas_hits);
        class!(rows, "", "cas_badval", store.cas_badval);
        class!(rows, "", "touch_hits", sums.touch_hits);
    }
    stat!(rows, "active_slabs", u8::from(store.curr_items > 0));
    stat!(rows, "total_malloced", used_bytes);
}
