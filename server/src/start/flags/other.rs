//! All other flags of memcached: some work, such as -o; some have no effect; some are refused.
//!
//! Where: `flags::flags` lists these rows.
//! Invariant: a flag is refused if it promises security, a listener, durability or a command that
//! this server does not have. A flag that tunes a mechanism that this server does not have is
//! checked and reported.
//! Source: memcached 1.6.45 `main`.

use super::extended;
use super::flag::{BadFlag, Flag, Handler, ValueKind, number};

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        short: Some('o'),
        long: "extended",
        takes: ValueKind::Value("<list>"),
        help: &["comma separated list of extended options, see below"],
        handler: Handler::Sets(extended::apply),
    },
    Flag {
        short: Some('X'),
        long: "disable-dumping",
        takes: ValueKind::Nothing,
        help: &[
            "disable stats cachedump, stats detail, stats hot, stats prefixes,",
            "lru_crawler metadump and lru_crawler mgdump",
        ],
        handler: Handler::Switches(|choices| choices.settings.dump_enabled = false),
    },
    Flag {
        short: Some('f'),
        long: "slab-growth-factor",
        takes: ValueKind::Value("<num>"),
        help: &["chunk size growth factor"],
        handler: Handler::Nothing {
            check: |value| match value.parse::<f64>() {
                Ok(factor) if factor > 1.0 => Ok(()),
                _ => Err(BadFlag::value("Factor must be greater than 1")),
            },
            why: "items are stored in a log, not in slab classes",
        },
    },
    Flag {
        short: Some('n'),
        long: "slab-min-size",
        takes: ValueKind::Value("<bytes>"),
        help: &["min space used for key+value+flags"],
        handler: Handler::Nothing {
            check: |value| at_least_one(value, "Chunk size must be greater than 0"),
            why: "items are stored in a log, not in slab classes",
        },
    },
    Flag {
        short: Some('L'),
        long: "enable-largepages",
        takes: ValueKind::Nothing,
        help: &[
            "request huge pages for all memory; the stats memory command",
            "shows if they are in use (default: on if -m is 342 or more)",
        ],
        handler: Handler::Switches(|choices| choices.settings.huge_pages = true),
    },
    Flag {
        short: Some('D'),
        long: "",
        takes: ValueKind::Value("<char>"),
        help: &[
            "count requests by key prefix (see stats detail); the prefix",
            "ends at this character (default: ':')",
        ],
        handler: Handler::Sets(|choices, value| {
            let first = value.bytes().next();
            let prefix_end = first.ok_or_else(|| BadFlag::value("No delimiter specified"))?;
            choices.settings.prefix_end = prefix_end;
            choices.settings.detail = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('N'),
        long: "napi-ids",
        takes: ValueKind::Value("<num>"),
        help: &["number of receive queues of the network card (NAPI ids)"],
        handler: Handler::Nothing {
            check: |value| at_least_one(value, "Maximum number of NAPI IDs must be greater than 0"),
            why: "each thread has its own listeners, and does not select connections by NAPI id",
        },
    },
    Flag {
        short: Some('W'),
        long: "disable-watch",
        takes: ValueKind::Nothing,
        help: &["disable watch commands"],
        handler: Handler::Switches(|choices| choices.settings.watch_enabled = false),
    },
    Flag {
        short: Some('A'),
        long: "enable-shutdown",
        takes: ValueKind::Nothing,
        help: &["enable ascii \"shutdown\" command"],
        handler: Handler::Switches(|choices| choices.settings.shutdown_enabled = true),
    },
    Flag {
        short: Some('S'),
        long: "enable-sasl",
        takes: ValueKind::Nothing,
        help: &["turn on SASL authentication"],
        handler: Handler::Refused("this version has no SASL, so every client would be let in."),
    },
    Flag {
        short: Some('Y'),
        long: "auth-file",
        takes: ValueKind::Value("<file>"),
        help: &["enable ASCII protocol authentication"],
        handler: Handler::Refused(
            "this version has no authentication, so every client would be let in.",
        ),
    },
    Flag {
        short: Some('Z'),
        long: "enable-ssl",
        takes: ValueKind::Nothing,
        help: &["enable TLS"],
        handler: Handler::Refused(
            "this version has no TLS, so all data would be sent unencrypted.",
        ),
    },
    Flag {
        short: Some('e'),
        long: "memory-file",
        takes: ValueKind::Value("<file>"),
        help: &["restartable cache"],
        handler: Handler::Refused("this version cannot restart without losing its items."),
    },
];

fn at_least_one(value: &str, wrong: &str) -> Result<(), BadFlag> {
    number(value, 1..=i64::from(i32::MAX), wrong).map(|_: i64| ())
}
