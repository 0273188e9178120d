//! `stats` without arguments: identity, connections, commands, memory.
//!
//! Where: `stats::answer` calls `write`.
//! Invariant: the answer has exactly memcached's names, in memcached's order. The count of an event
//! that cannot happen here is 0.
//! Source: memcached 1.6.45 `server_stats`, `get_stats`, `item_stats_totals`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rows::{Rows, stat, stats};
use crate::clock::START;
use crate::shared::{Shared, Sums};
use crate::start::process;
use crate::start::settings::MEMCACHED_VERSION;

/// The uptime is the clock minus this number, memcached's `ITEM_UPDATE_INTERVAL`; it begins at 2.
const UPTIME_OFFSET: u32 = START - 2;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let (sums, store) = shared.since_reset();
    identity(shared, rows);
    connections(shared, &sums, rows);
    commands(&sums, &store, rows);
    traffic(shared, &sums, rows);
    machinery(shared, &sums, &store, rows);
    items(shared, &store, rows);
}

fn identity(shared: &Shared, rows: &mut Rows<'_>) {
    let now = rows.now;
    stat!(rows, "pid", std::process::id());
    stat!(rows, "uptime", now.saturating_sub(UPTIME_OFFSET));
    stat!(rows, "time", shared.process_started + i64::from(now));
    stat!(rows, "version", MEMCACHED_VERSION);
    stat!(rows, "libevent", "none");
    stat!(rows, "pointer_size", usize::BITS);
    let (user, system) = process::cpu_times();
    let seconds = |time: Duration| format!("{}.{:06}", time.as_secs(), time.subsec_micros());
    stat!(rows, "rusage_user", seconds(user));
    stat!(rows, "rusage_system", seconds(system));
}

fn connections(shared: &Shared, sums: &Sums, rows: &mut Rows<'_>) {
    let settings = &shared.settings;
    stat!(rows, "max_connections", settings.columns.connections_max);
    // Relaxed: this number is only displayed; it orders nothing.
    stat!(rows, "curr_connections", shared.columns.connections.load(Ordering::Relaxed));
    stat!(rows, "total_connections", sums.columns.total_connections);
    if settings.columns.connections_max_fast {
        stat!(rows, "rejected_connections", sums.columns.rejected_connections);
    }
    stat!(rows, "connection_structures", sums.columns.connection_structures);
    // Always 0: if an allocation for replies or input fails, the process ends.
    stat!(rows, "response_obj_oom", 0);
    stats!(rows, sums.columns =>
        response_obj_count, response_obj_bytes, read_buf_count, read_buf_bytes,
        read_buf_bytes_free);
    stat!(rows, "read_buf_oom", 0);
    stat!(rows, "reserved_fds", process::files_beside_connections(settings));
}

fn commands(sums: &Sums, store: &store::Stats, rows: &mut Rows<'_>) {
    stat!(rows, "cmd_get", sums.requests.gets());
    stat!(rows, "cmd_set", sums.requests.set_cmds);
    stat!(rows, "cmd_flush", sums.requests.flush_cmds);
    stat!(rows, "cmd_touch", sums.requests.touches());
    stat!(rows, "cmd_meta", sums.requests.meta_cmds);
    stat!(rows, "get_hits", sums.requests.get_hits);
    stat!(rows, "get_misses", sums.requests.get_misses);
    stat!(rows, "get_expired", store.get_expired);
    stat!(rows, "get_flushed", store.get_flushed);
    stats!(rows, sums.requests =>
        delete_misses, delete_hits, incr_misses, incr_hits, decr_misses, decr_hits);
    stats!(rows, store => cas_misses, cas_hits, cas_badval);
    stats!(rows, sums.requests => touch_hits, touch_misses, store_too_large, store_no_memory);
    // Always 0, because there is no authentication.
    stat!(rows, "auth_cmds", 0);
    stat!(rows, "auth_errors", 0);
}

fn traffic(shared: &Shared, sums: &Sums, rows: &mut Rows<'_>) {
    let settings = &shared.settings;
    if settings.columns.idle_seconds_max != 0 {
        stat!(rows, "idle_kicks", sums.columns.idle_kicks);
    }
    stat!(rows, "bytes_read", sums.columns.bytes_read);
    stat!(rows, "bytes_written", sums.columns.bytes_written);
    stat!(rows, "limit_maxbytes", shared.memory_bytes());
    // Relaxed: this flag is only displayed; it orders nothing.
    stat!(rows, "accepting_conns", u8::from(shared.columns.accepting.load(Ordering::Relaxed)));
    stat!(rows, "listen_disabled_num", sums.columns.listen_disabled);
    stat!(rows, "time_in_listen_disabled_us", sums.columns.listen_disabled_us);
    stat!(rows, "threads", settings.columns.count);
    stat!(rows, "conn_yields", sums.columns.conn_yields);
}

/// Writes statistics of the index, and of mechanisms that only memcached has.
fn machinery(shared: &Shared, sums: &Sums, store: &store::Stats, rows: &mut Rows<'_>) {
    stat!(rows, "hash_power_level", store.hash_power_level);
    stat!(rows, "hash_bytes", store.hash_bytes);
    stat!(rows, "hash_is_expanding", u8::from(shared.store.index_is_expanding()));
    // Always 0 or "none": there are no slab classes between which pages could move.
    for name in ["rescues", "chunk_rescues", "inline_reclaim"] {
        stat!(rows, &format!("slab_reassign_{name}"), 0);
    }
    for name in ["items", "deletes", "nomem"] {
        stat!(rows, &format!("slab_reassign_busy_{name}"), 0);
    }
    stat!(rows, "slab_reassign_last_busy_status", "none");
    stat!(rows, "slab_reassign_running", 0);
    stat!(rows, "slabs_moved", 0);
    if shared.store.expires_unasked() {
        stat!(rows, "lru_crawler_running", u8::from(shared.places.any()));
        stat!(rows, "lru_crawler_starts", sums.requests.dumps);
    }
    // Always 0, because there are no LRU queues to balance.
    if shared.settings.maintainer_told {
        stat!(rows, "lru_maintainer_juggles", 0);
    }
    stat!(rows, "malloc_fails", 0);
    stats!(rows, sums.requests =>
        log_worker_dropped, log_worker_written, log_watcher_skipped, log_watcher_sent);
    stat!(rows, "log_watchers", shared.watch.watchers());
    // Always 0, because each thread has its own listeners.
    stat!(rows, "unexpected_napi_ids", 0);
    stat!(rows, "round_robin_fallback", 0);
}

fn items(shared: &Shared, store: &store::Stats, rows: &mut Rows<'_>) {
    stats!(rows, store => bytes, curr_items, total_items);
    stat!(rows, "slab_global_page_pool", shared.store.free_segments());
    stat!(rows, "expired_unfetched", store.expired_unfetched);
    stat!(rows, "evicted_unfetched", store.evicted_unfetched);
    let maintainer_told = shared.settings.maintainer_told;
    if maintainer_told {
        stat!(rows, "evicted_active", store.evicted_active);
    }
    stats!(rows, store => evictions, reclaimed, crawler_reclaimed, crawler_items_checked);
    // The numbers about moves are 0: there are no LRU queues between which items could move.
    stat!(rows, "lrutail_reflocked", 0);
    if maintainer_told {
        stat!(rows, "moves_to_cold", 0);
        stat!(rows, "moves_to_warm", 0);
        stat!(rows, "moves_within_lru", 0);
        stat!(rows, "direct_reclaims", store.drained_segments);
        stat!(rows, "lru_bumps_dropped", 0);
    }
}
