//! `stats` without arguments: identity, connections, commands, memory.
//!
//! Where: `stats::write` calls it.
//! Invariant: memcached's names in memcached's order; a number is here only if something counts it.
//! Source: memcached 1.6.45 `server_stats`, `get_stats`, `item_stats_totals`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::stat;
use crate::clock::START;
use crate::process;
use crate::settings::{MEMCACHED_VERSION, VERSION};
use crate::shared::{Shared, Sums};

/// memcached's `ITEM_UPDATE_INTERVAL`: its uptime counts from 2.
const UPTIME_OFFSET: u32 = START - 2;

pub(super) fn write(shared: &Shared, now: u32, out: &mut Vec<u8>) {
    let (sums, store) = shared.since_reset();
    identity(shared, now, out);
    connections(shared, &sums, out);
    commands(&sums, &store, out);
    traffic(shared, &sums, &store, out);
    items(&store, out);
}

fn identity(shared: &Shared, now: u32, out: &mut Vec<u8>) {
    stat!(out, "pid", std::process::id());
    stat!(out, "uptime", now.saturating_sub(UPTIME_OFFSET));
    stat!(out, "time", shared.process_started + i64::from(now));
    stat!(out, "version", MEMCACHED_VERSION);
    stat!(out, "hypostyle_version", VERSION);
    stat!(out, "pointer_size", usize::BITS);
    let (user, system) = process::cpu_times();
    let seconds = |time: Duration| format!("{}.{:06}", time.as_secs(), time.subsec_micros());
    stat!(out, "rusage_user", seconds(user));
    stat!(out, "rusage_system", seconds(system));
}

fn connections(shared: &Shared, sums: &Sums, out: &mut Vec<u8>) {
    stat!(out, "max_connections", shared.settings.connections_max);
    // Relaxed: a number to look at, ordered with nothing.
    stat!(out, "curr_connections", shared.connections.load(Ordering::Relaxed));
    stat!(out, "total_connections", sums.total_connections);
    if shared.settings.connections_max_fast {
        stat!(out, "rejected_connections", sums.rejected_connections);
    }
}

fn commands(sums: &Sums, store: &store::Stats, out: &mut Vec<u8>) {
    stat!(out, "cmd_get", sums.get_cmds);
    stat!(out, "cmd_set", sums.set_cmds);
    stat!(out, "cmd_flush", sums.flush_cmds);
    stat!(out, "cmd_touch", sums.touch_cmds);
    stat!(out, "cmd_meta", sums.meta_cmds);
    stat!(out, "get_hits", sums.get_hits);
    stat!(out, "get_misses", sums.get_misses);
    stat!(out, "get_expired", store.get_expired);
    stat!(out, "get_flushed", store.get_flushed);
    stat!(out, "delete_misses", sums.delete_misses);
    stat!(out, "delete_hits", sums.delete_hits);
    stat!(out, "incr_misses", sums.incr_misses);
    stat!(out, "incr_hits", sums.incr_hits);
    stat!(out, "decr_misses", sums.decr_misses);
    stat!(out, "decr_hits", sums.decr_hits);
    stat!(out, "cas_misses", store.cas_misses);
    stat!(out, "cas_hits", store.cas_hits);
    stat!(out, "cas_badval", store.cas_badval);
    stat!(out, "touch_hits", sums.touch_hits);
    stat!(out, "touch_misses", sums.touch_misses);
    stat!(out, "store_too_large", sums.store_too_large);
    stat!(out, "store_no_memory", sums.store_no_memory);
}

fn traffic(shared: &Shared, sums: &Sums, store: &store::Stats, out: &mut Vec<u8>) {
    let settings = &shared.settings;
    if settings.idle_seconds_max != 0 {
        stat!(out, "idle_kicks", sums.idle_kicks);
    }
    stat!(out, "bytes_read", sums.bytes_read);
    stat!(out, "bytes_written", sums.bytes_written);
    stat!(out, "limit_maxbytes", settings.memory_bytes);
    // Relaxed: as for `curr_connections`.
    stat!(out, "accepting_conns", u8::from(shared.accepting.load(Ordering::Relaxed)));
    stat!(out, "listen_disabled_num", sums.listen_disabled);
    stat!(out, "threads", settings.columns);
    stat!(out, "conn_yields", sums.conn_yields);
    stat!(out, "hash_power_level", store.hash_power_level);
    stat!(out, "hash_bytes", store.hash_bytes);
}

fn items(store: &store::Stats, out: &mut Vec<u8>) {
    stat!(out, "bytes", store.bytes);
    stat!(out, "curr_items", store.curr_items);
    stat!(out, "total_items", store.total_items);
    stat!(out, "expired_unfetched", store.expired_unfetched);
    stat!(out, "evicted_unfetched", store.evicted_unfetched);
    stat!(out, "evictions", store.evictions);
    stat!(out, "reclaimed", store.reclaimed);
    stat!(out, "crawler_reclaimed", store.crawler_reclaimed);
    stat!(out, "crawler_items_checked", store.crawler_items_checked);
}
