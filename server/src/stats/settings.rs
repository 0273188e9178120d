//! `stats settings`: what the command line came to.
//!
//! Where: `stats::answer` calls it.
//! Invariant: memcached's names in memcached's order; a setting of machinery that is not there is
//! left out, or said to be off.
//! Source: memcached 1.6.45 `process_stat_settings`.

use std::sync::atomic::Ordering;

use protocol::{Speak, flow};

use super::{Rows, stat};
use crate::settings::{Port, Settings};
use crate::shared::Shared;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let settings = &*shared.settings;
    let yes = |on: bool| if on { "yes" } else { "no" };
    stat!(rows, "maxbytes", shared.memory_bytes());
    stat!(rows, "maxconns", settings.connections_max);
    stat!(rows, "tcpport", port_number(settings.port));
    stat!(rows, "udpport", port_number(settings.udp_port));
    stat!(rows, "flow_function", flow::NAME);
    stat!(rows, "flow_version", flow::VERSION);
    stat!(rows, "udp_reply_max", settings.udp_reply_bytes_max);
    if let Some(bypass) = shared.bypass.get() {
        let (first, queues) = bypass.queues();
        stat!(rows, "xdp_interface", bypass.facts().interface);
        stat!(rows, "xdp_first_queue", first);
        stat!(rows, "xdp_queues", queues);
        stat!(rows, "xdp_mode", bypass.mode());
    }
    stat!(rows, "busy_poll", settings.busy_poll_us);
    stat!(rows, "steal", yes(settings.steal));
    stat!(rows, "inter", settings.inter.as_deref().unwrap_or("NULL"));
    // Relaxed: a number to look at, ordered with nothing.
    stat!(rows, "verbosity", shared.verbosity.load(Ordering::Relaxed));
    stat!(rows, "evictions", if settings.evict { "on" } else { "off" });
    // Ours.
    stat!(rows, "eviction", policy_name(settings));
    match &settings.unix_path {
        Some(path) => stat!(rows, "domain_socket", path.display()),
        None => stat!(rows, "domain_socket", "NULL"),
    }
    stat!(rows, "umask", format_args!("{:o}", settings.unix_mask));
    stat!(rows, "shutdown_command", yes(settings.shutdown_enabled));
    stat!(rows, "num_threads", settings.columns);
    stat!(rows, "detail_enabled", "no");
    stat!(rows, "reqs_per_event", settings.requests_per_event);
    stat!(rows, "cas_enabled", yes(settings.cas));
    stat!(rows, "tcp_backlog", settings.backlog);
    stat!(rows, "binding_protocol", protocol_name(settings.protocol));
    stat!(rows, "auth_enabled_sasl", "no");
    stat!(rows, "auth_enabled_ascii", "no");
    stat!(rows, "item_size_max", settings.item_bytes_max);
    stat!(rows, "maxconns_fast", yes(settings.connections_max_fast));
    stat!(rows, "slab_reassign", yes(settings.slab_reassign));
    // Relaxed: as above.
    stat!(rows, "lru_crawler", yes(shared.crawler.load(Ordering::Relaxed)));
    stat!(rows, "flush_enabled", yes(settings.flush_enabled));
    stat!(rows, "dump_enabled", yes(settings.dump_enabled));
    stat!(rows, "lru_maintainer_thread", "no");
    stat!(rows, "lru_segmented", "no");
    stat!(rows, "temp_lru", "no");
    stat!(rows, "idle_timeout", settings.idle_seconds_max);
    stat!(rows, "track_sizes", "no");
    stat!(rows, "inline_ascii_response", "no");
    stat!(rows, "client_flags_size", size_of::<u32>());
}

fn policy_name(settings: &Settings) -> &'static str {
    if settings.evict { settings.eviction.name() } else { "none" }
}

fn port_number(port: Port) -> i32 {
    match port {
        Port::Off => 0,
        Port::Any => -1,
        Port::Number(number) => i32::from(number),
    }
}

fn protocol_name(protocol: Speak) -> &'static str {
    match protocol {
        Speak::Auto => "auto-negotiate",
        Speak::Ascii => "ascii",
        Speak::Binary => "binary",
    }
}
