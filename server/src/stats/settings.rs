//! `stats settings`: the effective settings, after the command line is applied.
//!
//! Where: `stats::answer` calls `write`.
//! Invariant: first come all names of memcached, in memcached's order, then names that only this
//! server has. A setting of a mechanism that only memcached has is 0 or off, even if it is given.
//! Source: memcached 1.6.45 `process_stat_settings`.

use std::sync::atomic::Ordering;

use protocol::{ProtocolMode, flow};

use super::rows::{Rows, stat};
use crate::run::bypass;
use crate::shared::Shared;
use crate::shared::watch;
use crate::start::settings::{Port, Settings};
use ::columns::settings::Migrate;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let settings = &*shared.settings;
    let yes = |on: bool| if on { "yes" } else { "no" };
    // Relaxed, here and below: these numbers are only displayed; they order nothing.
    let verbosity = shared.verbosity.load(Ordering::Relaxed);
    let crawler = shared.store.expires_unasked();
    stat!(rows, "maxbytes", shared.memory_bytes());
    stat!(rows, "maxconns", settings.columns.connections_max);
    stat!(rows, "tcpport", port_number(settings.port));
    stat!(rows, "udpport", port_number(settings.udp_port));
    stat!(rows, "inter", settings.inter.as_deref().unwrap_or("NULL"));
    stat!(rows, "verbosity", verbosity);
    stat!(rows, "oldest", shared.store.flush_pending());
    stat!(rows, "evictions", if settings.columns.evict { "on" } else { "off" });
    match &settings.unix_path {
        Some(path) => stat!(rows, "domain_socket", path.display()),
        None => stat!(rows, "domain_socket", "NULL"),
    }
    stat!(rows, "umask", format_args!("{:o}", settings.unix_mask));
    stat!(rows, "shutdown_command", yes(settings.shutdown_enabled));
    // `growth_factor` and the chunk and automove rows are 0: there are no slab classes.
    stat!(rows, "growth_factor", "0.00");
    stat!(rows, "chunk_size", 0);
    stat!(rows, "num_threads", settings.columns.count);
    let sockets_columns = if settings.datagrams.is_empty() { 0 } else { settings.columns.count };
    stat!(rows, "num_threads_per_udp", sockets_columns);
    stat!(rows, "stat_key_prefix", char::from(settings.prefix_end));
    stat!(rows, "detail_enabled", yes(shared.watch.watched().intersects(watch::DETAIL)));
    stat!(rows, "reqs_per_event", settings.columns.requests_per_event);
    stat!(rows, "cas_enabled", yes(settings.cas));
    stat!(rows, "tcp_backlog", settings.backlog);
    stat!(rows, "binding_protocol", protocol_name(settings.protocol));
    stat!(rows, "auth_enabled_sasl", "no");
    stat!(rows, "auth_enabled_ascii", "no");
    stat!(rows, "item_size_max", settings.columns.item_bytes_max);
    stat!(rows, "maxconns_fast", yes(settings.columns.connections_max_fast));
    // `-o hashpower=N` stands for an index of 1.5 * 2^N items.
    let hash_power = (settings.index_items / 3 * 2).checked_ilog2().unwrap_or(0);
    stat!(rows, "hashpower_init", hash_power);
    stat!(rows, "slab_reassign", yes(settings.slab_reassign));
    stat!(rows, "slab_automove", 0);
    stat!(rows, "slab_automove_ratio", "0.00");
    stat!(rows, "slab_automove_window", 0);
    stat!(rows, "slab_chunk_max", 0);
    stat!(rows, "lru_crawler", yes(crawler));
    stat!(rows, "lru_crawler_sleep", 0);
    stat!(rows, "lru_crawler_tocrawl", 0);
    stat!(rows, "tail_repair_time", 0);
    stat!(rows, "flush_enabled", yes(settings.flush_enabled));
    stat!(rows, "dump_enabled", yes(settings.dump_enabled));
    stat!(rows, "hash_algorithm", store::HASH_NAME);
    lrus(rows);
    stat!(rows, "idle_timeout", settings.columns.idle_seconds_max);
    stat!(rows, "watcher_logbuf_size", settings.watcher_log_bytes);
    stat!(rows, "worker_logbuf_size", settings.worker_log_bytes);
    stat!(rows, "read_buf_mem_limit", 0);
    stat!(rows, "track_sizes", yes(settings.sizes));
    stat!(rows, "inline_ascii_response", "no");
    storage(rows);
    stat!(rows, "num_napi_ids", 0);
    stat!(rows, "memory_file", "(null)");
    stat!(rows, "client_flags_size", size_of::<u32>());
    ours(shared, rows);
}

/// Writes the settings of LRU queues, which this server does not have.
fn lrus(rows: &mut Rows<'_>) {
    stat!(rows, "lru_maintainer_thread", "no");
    stat!(rows, "lru_segmented", "no");
    stat!(rows, "hot_lru_pct", 0);
    stat!(rows, "warm_lru_pct", 0);
    stat!(rows, "hot_max_factor", "0.00");
    stat!(rows, "warm_max_factor", "0.00");
    stat!(rows, "temp_lru", "no");
    stat!(rows, "temporary_ttl", 0);
}

/// Writes the settings of external storage, which this server does not have.
fn storage(rows: &mut Rows<'_>) {
    for name in ["item_size", "item_age", "low_ttl", "recache_rate", "wbuf_size", "compact_under"] {
        stat!(rows, &format!("ext_{name}"), 0);
    }
    stat!(rows, "ext_drop_under", 0);
    stat!(rows, "ext_max_sleep", 0);
    stat!(rows, "ext_max_frag", "0.00");
    stat!(rows, "slab_automove_freeratio", "0.000");
    stat!(rows, "ext_drop_unread", "no");
}

/// Writes the settings that only this server has.
fn ours(shared: &Shared, rows: &mut Rows<'_>) {
    let settings = &*shared.settings;
    stat!(rows, "eviction", policy_name(settings));
    stat!(rows, "flow_function", flow::NAME);
    stat!(rows, "flow_version", flow::VERSION);
    stat!(rows, "udp_reply_max", settings.udp_reply_bytes_max());
    stat!(rows, "udp_admin", if settings.udp_admin { "yes" } else { "no" });
    if let Some(interface) = shared.bypass.get() {
        let (first, queues) = interface.queues();
        stat!(rows, "xdp_interface", interface.facts().interface);
        stat!(rows, "xdp_first_queue", first);
        stat!(rows, "xdp_queues", queues);
        stat!(rows, "xdp_mode", interface.mode());
        stat!(rows, "zero_copy", bypass::zero_copy(settings, interface).name());
        stat!(rows, "zero_copy_min", settings.zero_copy_bytes_min);
    }
    stat!(rows, "busy_poll", settings.columns.busy_poll_us);
    let yes = |on: bool| if on { "yes" } else { "no" };
    stat!(rows, "steal", yes(settings.steal));
    let rings = shared.bypass.get().is_some_and(|it| bypass::may_steal(settings, it));
    stat!(rows, "steal_rings", yes(rings));
    stat!(rows, "migrate", yes(settings.columns.migrate != Migrate::Never));
}

fn policy_name(settings: &Settings) -> &'static str {
    if settings.columns.evict { settings.eviction.name() } else { "none" }
}

fn port_number(port: Port) -> i32 {
    match port {
        Port::Off => 0,
        Port::Any => -1,
        Port::Number(number) => i32::from(number),
    }
}

fn protocol_name(protocol: ProtocolMode) -> &'static str {
    ProtocolMode::NAMES.iter().find(|names| names.mode == protocol).map_or("", |names| names.stat)
}
