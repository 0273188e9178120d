//! The options of `-o`: memcached's, and this server's own.
//!
//! Where: the row of `-o` in `flags` passes the value of `-o` to `apply`.
//! Invariant: every `-o` option of memcached 1.6.45, of any build, has a row; an option without a
//! row is refused.
//! Source: memcached 1.6.45 `main` (`subopts_tokens`), `storage_read_config`; getsubopt(3).

use std::net::IpAddr;

use ipnet::IpNet;
use store::policy::Eviction;

use super::flag::{BadFlag, Choices, Flag, Handler, ValueKind, meant, number};
use crate::start::settings::ZeroCopy;
use columns::settings::Migrate;

/// The lines of `-h` for `-o eviction`: an explanation, and one line for each policy.
const EVICTION_HELP: [&str; 1 + Eviction::HELP.len()] = {
    let mut lines =
        ["how to choose the items to evict (default: clock2q):"; 1 + Eviction::HELP.len()];
    let mut policy = 0;
    while policy < Eviction::HELP.len() {
        lines[1 + policy] = Eviction::HELP[policy];
        policy += 1;
    }
    lines
};

const UDP_ALLOW: &str = "udp_allow";

/// Maximum number of bytes of a UDP reply: 65,535 datagrams carry them with the smallest MTU.
const UDP_REPLY_BYTES_MAX: i64 = u16::MAX as i64 * UDP_PAYLOAD_BYTES_MIN;
const UDP_PAYLOAD_BYTES_MIN: i64 = columns::datapath::PAYLOAD_BYTES_MIN as i64;

const SLABS: &str = "items are stored in a log, not in slab classes";
const LRU: &str = "there are no LRU lists";
const CRAWLER: &str = "expired items are removed without an LRU crawler";
const INDEX: &str = "the index grows and shrinks with the number of items";
const BUFFERS: &str = "the buffers of connections have fixed limits";
const FLASH: &str = "there is no external storage (extstore)";
const NO_FLASH: &str =
    "this version has no external storage (extstore); set -m to the memory that all items need.";
const NO_TLS: &str = "this version has no TLS, so all data would be sent unencrypted.";
const NO_PROXY: &str = "this version has no proxy.";

pub(super) const OPTIONS: &[Flag] = &[
    Flag {
        short: None,
        long: "no_pin",
        takes: ValueKind::Nothing,
        help: &["do not pin threads to CPUs; useful if a machine has several servers"],
        handler: Handler::Switches(|choices| choices.pin = false),
    },
    Flag {
        short: None,
        long: "maxconns_fast",
        takes: ValueKind::Nothing,
        help: &["immediately close new connections after limit", "(default: enabled)"],
        handler: Handler::Switches(|choices| choices.settings.columns.connections_max_fast = true),
    },
    Flag {
        short: None,
        long: "no_maxconns_fast",
        takes: ValueKind::Nothing,
        help: &["let connections above the limit of -c wait in the backlog"],
        handler: Handler::Switches(|choices| choices.settings.columns.connections_max_fast = false),
    },
    Flag {
        short: None,
        long: "idle_timeout",
        takes: ValueKind::Value("<num>"),
        help: &["seconds after which idle connections are closed", "(default: 0, no timeout)"],
        handler: Handler::Sets(|choices, value| {
            let wrong = "idle_timeout takes a number of seconds, 0 for no timeout";
            choices.settings.columns.idle_seconds_max = number(value, 0..=INT_MAX, wrong)?;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "eviction",
        takes: ValueKind::Value("<policy>"),
        help: &EVICTION_HELP,
        handler: Handler::Sets(|choices, value| {
            let names = Eviction::ALL.map(|(name, _)| name);
            choices.settings.eviction = Eviction::named(value).ok_or_else(|| {
                let names = names.join(", ");
                BadFlag::value(format!("eviction must be one of {names} (given: '{value}')"))
            })?;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: UDP_ALLOW,
        takes: ValueKind::Value("<networks>"),
        help: &[
            "client networks whose UDP requests are answered, such as",
            "10.0.0.0/8,2001:db8::/32 (default: all, but then each network",
            "gets only about 1 MiB per second in replies that are more than",
            "three times as long as their requests)",
        ],
        handler: Handler::Sets(|choices, value| {
            let network = network(value).ok_or_else(|| {
                let wrong = "udp_allow takes networks such as 10.0.0.0/8 or 2001:db8::1";
                BadFlag::value(format!("{wrong} (given: '{value}')"))
            })?;
            choices.settings.udp_allow.push(network);
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "udp_reply_max",
        takes: ValueKind::Value("<bytes>"),
        help: &[
            "maximum length of a reply over UDP, in bytes (default: 1048576,",
            "or 65536 if clients in all networks are answered)",
        ],
        handler: Handler::Sets(|choices, value| {
            let wrong = format!(
                "udp_reply_max takes 2048 to {UDP_REPLY_BYTES_MAX} bytes: a reply has at most \
                 65535 datagrams, and at the smallest MTU a datagram carries \
                 {UDP_PAYLOAD_BYTES_MIN} bytes of it"
            );
            choices.settings.udp_reply_max =
                Some(number(value, 2048..=UDP_REPLY_BYTES_MAX, &wrong)?);
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "udp_admin",
        takes: ValueKind::Nothing,
        help: &[
            "also obey flush_all, shutdown, cache_memlimit, verbosity and",
            "other administrative commands over UDP, where sender",
            "addresses can be forged",
        ],
        handler: Handler::Switches(|choices| choices.settings.udp_admin = true),
    },
    Flag {
        short: None,
        long: "udp_port_per_column",
        takes: ValueKind::Nothing,
        help: &["each thread has its own UDP port: -U, -U + 1 and so on"],
        handler: Handler::Switches(|choices| choices.settings.udp_port_per_column = true),
    },
    Flag {
        short: None,
        long: "zero_copy",
        takes: ValueKind::Value("<mode>"),
        help: &[
            "how --xdp handles values of zero_copy_min bytes or more:",
            "off (default): copy the values into packets;",
            "send: store the values in the memory of packets and send them",
            "from there, so that only the kernel may copy them;",
            "full: like send, and do not copy values that arrive over --xdp;",
            "send and full need more memory",
        ],
        handler: Handler::Sets(|choices, value| {
            let known = ZeroCopy::ALL.into_iter().find(|(name, _)| *name == value);
            let (_, known) = known.ok_or_else(|| {
                BadFlag::value(format!("zero_copy must be off, send or full (given: '{value}')"))
            })?;
            choices.settings.zero_copy = known;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "zero_copy_min",
        takes: ValueKind::Value("<bytes>"),
        help: &["minimum length of values to which zero_copy applies, in bytes", "(default: 1024)"],
        handler: Handler::Sets(|choices, value| {
            let wrong = "zero_copy_min takes 1 to 1048576 bytes";
            choices.settings.zero_copy_bytes_min = number(value, 1..=1 << 20, wrong)?;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "busy_poll",
        takes: ValueKind::Value("<us>"),
        help: &[
            "microseconds for which an idle thread polls for work before it",
            "sleeps (default: 0); polling shortens response times, but uses",
            "CPU time",
        ],
        handler: Handler::Sets(|choices, value| {
            let wrong = "busy_poll takes 0 to 1000000 microseconds";
            choices.settings.columns.busy_poll_us = number(value, 0..=1_000_000, wrong)?;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "no_steal",
        takes: ValueKind::Nothing,
        help: &["idle threads do not take over datagrams of busy threads"],
        handler: Handler::Switches(|choices| choices.settings.steal = false),
    },
    Flag {
        short: None,
        long: "steal_rings",
        takes: ValueKind::Nothing,
        help: &[
            "with --xdp, idle threads take over datagrams of busy threads even",
            "if the kernel copies packets; useful if requests have many keys",
        ],
        handler: Handler::Switches(|choices| choices.settings.steal_rings = true),
    },
    Flag {
        short: None,
        long: "no_migrate",
        takes: ValueKind::Nothing,
        help: &[
            "connections stay with the thread that accepted them, even",
            "if other threads are idle",
        ],
        handler: Handler::Switches(|choices| choices.settings.columns.migrate = Migrate::Never),
    },
    flag("no_hashexpand", INDEX),
    Flag {
        short: None,
        long: "hashpower",
        takes: ValueKind::Value("<num>"),
        help: &[
            "initial size of the index: room for 1.5 * 2^num items (num is 12",
            "to 32), but at most a quarter of -m (default: a small index)",
        ],
        handler: Handler::Sets(|choices, value| {
            let power: u32 = number(value, 12..=32, "hashpower must be between 12 and 32")?;
            choices.settings.index_items = 3 << (power - 1);
            Ok(())
        }),
    },
    value(
        "hash_algorithm",
        |value| match value {
            "jenkins" | "murmur3" | "xxh3" => Ok(()),
            _ => Err(BadFlag::value("Unknown hash_algorithm option (jenkins, murmur3, xxh3)")),
        },
        "the index has its own hash function",
    ),
    flag("slab_reassign", SLABS),
    Flag {
        short: None,
        long: "no_slab_reassign",
        takes: ValueKind::Nothing,
        help: &["refuse the slabs reassign command, which has no effect here"],
        handler: Handler::Switches(|choices| choices.settings.slab_reassign = false),
    },
    Flag {
        short: None,
        long: "slab_automove",
        takes: ValueKind::Optional,
        help: &[],
        handler: Handler::Nothing {
            check: |value| match value {
                "" => Ok(()),
                _ => between(value, "slab_automove", 0, 2),
            },
            why: SLABS,
        },
    },
    flag("no_slab_automove", SLABS),
    value("slab_automove_ratio", |value| fraction(value, "slab_automove_ratio", 1.0), SLABS),
    value("slab_automove_window", |value| between(value, "slab_automove_window", 3, 1800), SLABS),
    value(
        "slab_automove_freeratio",
        |value| fraction(value, "slab_automove_freeratio", 1.0),
        SLABS,
    ),
    value("slab_sizes", |_| Ok(()), SLABS),
    value("slab_chunk_max", |value| between(value, "slab_chunk_max", 1, 1024), SLABS),
    flag("no_chunked_items", SLABS),
    value("tail_repair_time", |value| between(value, "tail_repair_time", 10, INT_MAX), LRU),
    Flag {
        short: None,
        long: "lru_crawler",
        takes: ValueKind::Nothing,
        help: &[
            "allow the lru_crawler command to list items, and let the server",
            "remove expired items in the background (default: enabled)",
        ],
        handler: Handler::Switches(|choices| choices.settings.crawler = true),
    },
    Flag {
        short: None,
        long: "no_lru_crawler",
        takes: ValueKind::Nothing,
        help: &[
            "until a client sends lru_crawler enable, the lru_crawler",
            "command lists no items, and expired items are removed only if",
            "they are read or if new items need the memory",
        ],
        handler: Handler::Switches(|choices| choices.settings.crawler = false),
    },
    value("lru_crawler_sleep", |value| between(value, "lru_crawler_sleep", 0, 1_000_000), CRAWLER),
    value(
        "lru_crawler_tocrawl",
        |value| between(value, "lru_crawler_tocrawl", 0, U32_MAX),
        CRAWLER,
    ),
    Flag {
        short: None,
        long: "lru_maintainer",
        takes: ValueKind::Nothing,
        help: &[
            "the stats command shows the seven fields of the LRU of memcached",
            "maintainer (default: enabled)",
        ],
        handler: Handler::Switches(|choices| choices.settings.maintainer_told = true),
    },
    Flag {
        short: None,
        long: "no_lru_maintainer",
        takes: ValueKind::Nothing,
        help: &[
            "the stats command omits the seven fields of the LRU maintainer,",
            "as memcached does with this option",
        ],
        handler: Handler::Switches(|choices| choices.settings.maintainer_told = false),
    },
    value("hot_lru_pct", |value| between(value, "hot_lru_pct", 1, 79), LRU),
    value("warm_lru_pct", |value| between(value, "warm_lru_pct", 1, 79), LRU),
    value("hot_max_factor", |value| fraction(value, "hot_max_factor", f64::MAX), LRU),
    value("warm_max_factor", |value| fraction(value, "warm_max_factor", f64::MAX), LRU),
    value("temporary_ttl", |value| between(value, "temporary_ttl", 0, INT_MAX), LRU),
    Flag {
        short: None,
        long: "watcher_logbuf_size",
        takes: ValueKind::Value("<kb>"),
        help: &[
            "kilobytes of watch lines that may wait for each watching client",
            "(default: 256)",
        ],
        handler: Handler::Sets(|choices, value| {
            choices.settings.watcher_log_bytes = kilobytes(value, "watcher_logbuf_size")?;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "worker_logbuf_size",
        takes: ValueKind::Value("<kb>"),
        help: &[
            "kilobytes of watch lines that one thread may collect in one pass",
            "of its event loop (default: 64)",
        ],
        handler: Handler::Sets(|choices, value| {
            choices.settings.worker_log_bytes = kilobytes(value, "worker_logbuf_size")?;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "track_sizes",
        takes: ValueKind::Nothing,
        help: &["enable the stats sizes command, which counts items by size"],
        handler: Handler::Switches(|choices| choices.settings.sizes = true),
    },
    value("read_buf_mem_limit", |value| between(value, "read_buf_mem_limit", 0, U32_MAX), BUFFERS),
    Flag {
        short: None,
        long: "resp_obj_mem_limit",
        takes: ValueKind::Optional,
        help: &[],
        handler: Handler::Nothing { check: |_| Ok(()), why: BUFFERS },
    },
    flag("inline_ascii_resp", "memcached ignores this option too"),
    flag("no_inline_ascii_resp", "memcached ignores this option too"),
    flag("modern", "this option has no effect in memcached 1.6.45 either"),
    flag("no_modern", SLABS),
    flag("no_drop_privileges", "this option is the default"),
    refused(
        "drop_privileges",
        ValueKind::Nothing,
        "this version has no system call filter (seccomp).",
    ),
    flag("relaxed_privileges", "there is no system call filter (seccomp)"),
    refused(
        "sock_cookie_id",
        ValueKind::Value("<num>"),
        "this server does not mark sockets for firewalls.",
    ),
    refused("ext_path", ValueKind::Value("<path>"), NO_FLASH),
    value("ext_page_size", |_| Ok(()), FLASH),
    value("ext_wbuf_size", |_| Ok(()), FLASH),
    value("ext_threads", |_| Ok(()), FLASH),
    value("ext_io_depth", |_| Ok(()), FLASH),
    value("ext_item_size", |_| Ok(()), FLASH),
    value("ext_item_age", |_| Ok(()), FLASH),
    value("ext_low_ttl", |_| Ok(()), FLASH),
    flag("ext_drop_unread", FLASH),
    value("ext_recache_rate", |_| Ok(()), FLASH),
    value("ext_compact_under", |_| Ok(()), FLASH),
    value("ext_drop_under", |_| Ok(()), FLASH),
    value("ext_max_frag", |_| Ok(()), FLASH),
    value("ext_max_sleep", |_| Ok(()), FLASH),
    refused("ssl_chain_cert", ValueKind::Value("<file>"), NO_TLS),
    refused("ssl_key", ValueKind::Value("<file>"), NO_TLS),
    refused("ssl_verify_mode", ValueKind::Value("<num>"), NO_TLS),
    refused("ssl_keyformat", ValueKind::Value("<num>"), NO_TLS),
    refused("ssl_ciphers", ValueKind::Value("<list>"), NO_TLS),
    refused("ssl_ca_cert", ValueKind::Value("<file>"), NO_TLS),
    refused("ssl_wbuf_size", ValueKind::Value("<num>"), NO_TLS),
    refused("ssl_session_cache", ValueKind::Nothing, NO_TLS),
    refused("ssl_kernel_tls", ValueKind::Nothing, NO_TLS),
    refused("ssl_min_version", ValueKind::Value("<num>"), NO_TLS),
    refused("proxy_config", ValueKind::Value("<file>"), NO_PROXY),
    refused("proxy_arg", ValueKind::Value("<arg>"), NO_PROXY),
    refused("proxy_uring", ValueKind::Nothing, NO_PROXY),
    refused("proxy_memprofile", ValueKind::Nothing, NO_PROXY),
];

const INT_MAX: i64 = i32::MAX as i64;
const U32_MAX: i64 = u32::MAX as i64;

/// Makes the row of an option that has no effect and takes no value.
const fn flag(name: &'static str, why: &'static str) -> Flag {
    let handler = Handler::Nothing { check: |_| Ok(()), why };
    Flag { short: None, long: name, takes: ValueKind::Nothing, help: &[], handler }
}

/// Makes the row of an option that has no effect, but whose value is checked.
const fn value(
    name: &'static str,
    check: fn(&str) -> Result<(), BadFlag>,
    why: &'static str,
) -> Flag {
    let handler = Handler::Nothing { check, why };
    Flag { short: None, long: name, takes: ValueKind::Value("<value>"), help: &[], handler }
}

const fn refused(name: &'static str, takes: ValueKind, why: &'static str) -> Flag {
    Flag { short: None, long: name, takes, help: &[], handler: Handler::Refused(why) }
}

/// Splits the value of `-o` into options and applies them in order.
pub(super) fn apply(choices: &mut Choices, list: &str) -> Result<(), BadFlag> {
    let mut before = "";
    for option in list.split(',').filter(|option| !option.is_empty()) {
        // A network without an option's name belongs to the `udp_allow` that precedes the network.
        let (name, value) = match option.split_once('=') {
            None if before == UDP_ALLOW && network(option).is_some() => (UDP_ALLOW, Some(option)),
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let Some(row) = OPTIONS.iter().find(|row| row.long == name) else {
            let meant = meant(name, OPTIONS.iter().map(|row| row.long));
            return Err(BadFlag::value(format!(
                "Illegal suboption \"{option}\"{meant}\n\
                 Try 'hypostyle -h' for all options of -o."
            )));
        };
        if value.is_none() && matches!(row.takes, ValueKind::Value(_)) {
            return Err(BadFlag::value(format!("Missing argument for {name}: -o {name}=<value>")));
        }
        choices.act(&format!("-o {name}"), row.handler, value.unwrap_or(""))?;
        before = row.long;
    }
    Ok(())
}

/// Parses a network, or an address, which becomes a network of only that address.
pub(super) fn network(text: &str) -> Option<IpNet> {
    text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()
}

/// Parses a size in kilobytes, at most a gigabyte, and returns it in bytes.
fn kilobytes(text: &str, name: &str) -> Result<usize, BadFlag> {
    let wrong = format!("{name} must be between 1 and 1048576 kilobytes");
    Ok(number::<usize>(text, 1..=1 << 20, &wrong)? << 10)
}

fn between(text: &str, name: &str, low: i64, high: i64) -> Result<(), BadFlag> {
    number(text, low..=high, &format!("{name} must be between {low} and {high}")).map(|_: i64| ())
}

fn fraction(text: &str, name: &str, high: f64) -> Result<(), BadFlag> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= high => Ok(()),
        _ if high < f64::MAX => {
            Err(BadFlag::value(format!("{name} must be > 0 and <= {high} (given: '{text}')")))
        }
        _ => Err(BadFlag::value(format!("{name} must be > 0 (given: '{text}')"))),
    }
}
