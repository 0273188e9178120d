//! `stats` without arguments: identity, connections, commands, memory.
//!
//! Where: `stats::write` calls it.
//! Invariant: memcached's names in memcached's order; a number is here only if something counts it.
//! Source: memcached 1.6.45 `server_stats`, `get_stats`, `item_stats_totals`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Rows, stat};
use crate::clock::START;
use crate::process;
use crate::settings::{MEMCACHED_VERSION, VERSION};
use crate::shared::{Shared, Sums};

/// memcached's `ITEM_UPDATE_INTERVAL`: its uptime counts from 2.
const UPTIME_OFFSET: u32 = START - 2;

pub(super) fn write(shared: &Shared, now: u32, rows: &mut Rows<'_>) {
    let (sums, store) = shared.since_reset();
    identity(shared, now, rows);
    connections(shared, &sums, rows);
    commands(&sums, &store, rows);
    traffic(shared, &sums, &store, rows);
    items(&store, rows);
}

fn identity(shared: &Shared, now: u32, rows: &mut Rows<'_>) {
    stat!(rows, "pid", std::process::id());
    stat!(rows, "uptime", now.saturating_sub(UPTIME_OFFSET));
    stat!(rows, "time", shared.process_started + i64::from(now));
    stat!(rows, "version", MEMCACHED_VERSION);
    stat!(rows, "hypostyle_version", VERSION);
    stat!(rows, "pointer_size", usize::BITS);
    let (user, system) = process::cpu_times();
    let seconds = |time: Duration| format!("{}.{:06}", time.as_secs(), time.subsec_micros());
    stat!(rows, "rusage_user", seconds(user));
    stat!(rows, "rusage_system", seconds(system));
}

fn connections(shared: &Shared, sums: &Sums, rows: &mut Rows<'_>) {
    stat!(rows, "max_connections", shared.settings.connections_max);
    // Relaxed: a number to look at, ordered with nothing.
    stat!(rows, "curr_connections", shared.connections.load(Ordering::Relaxed));
    stat!(rows, "total_connections", sums.total_connections);
    if shared.settings.connections_max_fast {
        stat!(rows, "rejected_connections", sums.rejected_connections);
    }
    stat!(rows, "connection_structures", sums.connection_structures);
    stat!(rows, "response_obj_bytes", sums.response_obj_bytes);
    stat!(rows, "read_buf_bytes", sums.read_buf_bytes);
    stat!(rows, "read_buf_bytes_free", sums.read_buf_bytes_free);
}

fn commands(sums: &Sums, store: &store::Stats, rows: &mut Rows<'_>) {
    stat!(rows, "cmd_get", sums.get_cmds);
    stat!(rows, "cmd_set", sums.set_cmds);
    stat!(rows, "cmd_flush", sums.flush_cmds);
    stat!(rows, "cmd_touch", sums.touch_cmds);
    stat!(rows, "cmd_meta", sums.meta_cmds);
    stat!(rows, "get_hits", sums.get_hits);
    stat!(rows, "get_misses", sums.get_misses);
    stat!(rows, "get_expired", store.get_expired);
    stat!(rows, "get_flushed", store.get_flushed);
    stat!(rows, "delete_misses", sums.delete_misses);
    stat!(rows, "delete_hits", sums.delete_hits);
    stat!(rows, "incr_misses", sums.incr_misses);
    stat!(rows, "incr_hits", sums.incr_hits);
    stat!(rows, "decr_misses", sums.decr_misses);
    stat!(rows, "decr_hits", sums.decr_hits);
    stat!(rows, "cas_misses", store.cas_misses);
    stat!(rows, "cas_hits", store.cas_hits);
    stat!(rows, "cas_badval", store.cas_badval);
    stat!(rows, "touch_hits", sums.touch_hits);
    stat!(rows, "touch_misses", sums.touch_misses);
    stat!(rows, "store_too_large", sums.store_too_large);
    stat!(rows, "store_no_memory", sums.store_no_memory);
}

fn traffic(shared: &Shared, sums: &Sums, store: &store::Stats, rows: &mut Rows<'_>) {
    let settings = &shared.settings;
    if settings.idle_seconds_max != 0 {
        stat!(rows, "idle_kicks", sums.idle_kicks);
    }
    if !settings.datagrams.is_empty() {
        stat!(rows, "udp_received", sums.udp_received);
        stat!(rows, "udp_sent", sums.udp_sent);
        stat!(rows, "udp_unsent", sums.udp_unsent);
        stat!(rows, "udp_dropped_frame", sums.udp_dropped_frame);
        stat!(rows, "udp_dropped_sender", sums.udp_dropped_sender);
        stat!(rows, "udp_dropped_answer", sums.udp_dropped_answer);
        stat!(rows, "udp_dropped_network", sums.udp_dropped_network);
        stat!(rows, "udp_dropped_length", sums.udp_dropped_length);
        stat!(rows, "udp_dropped_incomplete", sums.udp_dropped_incomplete);
        stat!(rows, "udp_replies_too_long", sums.udp_replies_too_long);
    }
    if let Some(bypass) = shared.bypass.get() {
        let dropped = bypass.dropped();
        stat!(rows, "udp_dropped_damaged", sums.udp_dropped_damaged);
        stat!(rows, "xdp_dropped", dropped.dropped);
        stat!(rows, "xdp_ring_full", dropped.ring_full);
        stat!(rows, "xdp_no_chunk", dropped.no_chunk);
        stat!(rows, "xdp_invalid", dropped.invalid);
    }
    stat!(rows, "bytes_read", sums.bytes_read);
    stat!(rows, "bytes_written", sums.bytes_written);
    stat!(rows, "limit_maxbytes", shared.memory_bytes());
    // Relaxed: as for `curr_connections`.
    stat!(rows, "accepting_conns", u8::from(shared.accepting.load(Ordering::Relaxed)));
    stat!(rows, "listen_disabled_num", sums.listen_disabled);
    stat!(rows, "threads", settings.columns);
    stat!(rows, "conn_yields", sums.conn_yields);
    stat!(rows, "hash_power_level", store.hash_power_level);
    stat!(rows, "hash_bytes", store.hash_bytes);
}

fn items(store: &store::Stats, rows: &mut Rows<'_>) {
    stat!(rows, "bytes", store.bytes);
    stat!(rows, "curr_items", store.curr_items);
    stat!(rows, "total_items", store.total_items);
    stat!(rows, "expired_unfetched", store.expired_unfetched);
    stat!(rows, "evicted_unfetched", store.evicted_unfetched);
    stat!(rows, "evictions", store.evictions);
    stat!(rows, "reclaimed", store.reclaimed);
    stat!(rows, "crawler_reclaimed", store.crawler_reclaimed);
    stat!(rows, "crawler_items_checked", store.crawler_items_checked);
    // Statistics that memcached does not have.
    stat!(rows, "rewritten", store.rewritten);
    stat!(rows, "eviction_age", store.eviction_age());
    stat!(rows, "ghost_hits", store.ghost_hits);
    stat!(rows, "probation_bytes", store.probation_bytes);
    stat!(rows, "probation_percent", store.probation_percent);
    stat!(rows, "dead_bytes", store.dead_bytes);
    stat!(rows, "spared_bytes", store.spared_bytes);
    stat!(rows, "compacted_bytes", store.compacted_bytes);
    stat!(rows, "compacted_segments", store.compacted_segments);
    stat!(rows, "drained_segments", store.drained_segments);
}
