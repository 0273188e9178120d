//! `stats settings`: what the command line came to.
//!
//! Where: `stats::write` calls it.
//! Invariant: memcached's names in memcached's order; a setting of machinery that is not there is
//! left out, or said to be off.
//! Source: memcached 1.6.45 `process_stat_settings`.

use std::sync::atomic::Ordering;

use super::stat;
use crate::settings::{Port, Protocol};
use crate::shared::Shared;

pub(super) fn write(shared: &Shared, out: &mut Vec<u8>) {
    let settings = &*shared.settings;
    let yes = |on: bool| if on { "yes" } else { "no" };
    stat!(out, "maxbytes", settings.memory_bytes);
    stat!(out, "maxconns", settings.connections_max);
    stat!(out, "tcpport", port_number(settings.port));
    stat!(out, "udpport", 0);
    stat!(out, "inter", settings.inter.as_deref().unwrap_or("NULL"));
    // Relaxed: a number to look at, ordered with nothing.
    stat!(out, "verbosity", shared.verbosity.load(Ordering::Relaxed));
    stat!(out, "evictions", if settings.evict { "on" } else { "off" });
    match &settings.unix_path {
        Some(path) => stat!(out, "domain_socket", path.display()),
        None => stat!(out, "domain_socket", "NULL"),
    }
    stat!(out, "umask", format_args!("{:o}", settings.unix_mask));
    stat!(out, "shutdown_command", "no");
    stat!(out, "num_threads", settings.columns);
    stat!(out, "detail_enabled", "no");
    stat!(out, "reqs_per_event", settings.requests_per_event);
    stat!(out, "cas_enabled", yes(settings.cas));
    stat!(out, "tcp_backlog", settings.backlog);
    stat!(out, "binding_protocol", protocol_name(settings.protocol));
    stat!(out, "auth_enabled_sasl", "no");
    stat!(out, "auth_enabled_ascii", "no");
    stat!(out, "item_size_max", settings.item_bytes_max);
    stat!(out, "maxconns_fast", yes(settings.connections_max_fast));
    stat!(out, "slab_reassign", "no");
    stat!(out, "lru_crawler", "no");
    stat!(out, "flush_enabled", yes(settings.flush_enabled));
    stat!(out, "dump_enabled", yes(settings.dump_enabled));
    stat!(out, "lru_maintainer_thread", "no");
    stat!(out, "lru_segmented", "no");
    stat!(out, "temp_lru", "no");
    stat!(out, "idle_timeout", settings.idle_seconds_max);
    stat!(out, "track_sizes", "no");
    stat!(out, "inline_ascii_response", "no");
    stat!(out, "client_flags_size", size_of::<u32>());
}

fn port_number(port: Port) -> i32 {
    match port {
        Port::Off => 0,
        Port::Any => -1,
        Port::Number(number) => i32::from(number),
    }
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Auto => "auto-negotiate",
        Protocol::Ascii => "ascii",
    }
}
