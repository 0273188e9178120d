//! Flags for the server's limits and permitted actions: -m -M -c -t -R -C -I -F.
//!
//! Where: `flags::flags` lists these rows.
//! Invariant: `parse` returns no settings that `check_item_bytes` refuses.
//! Source: memcached 1.6.45 `main`.

use super::flag::{BadFlag, COLUMNS_MAX, Choices, Flag, Handler, ValueKind, number};
use crate::start::settings::Settings;

const ITEM_BYTES_MIN: usize = 1 << 10;
const ITEM_BYTES_MAX: usize = 1 << 30;
const INT_MAX: i64 = i32::MAX as i64;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        short: Some('m'),
        long: "memory-limit",
        takes: ValueKind::Value("<num>"),
        help: &[
            "item memory in megabytes, in gigabytes (e.g. 2g), or as a",
            "percentage of the memory that this process may use, e.g. 80%",
            "(default: 64)",
        ],
        handler: Handler::Sets(set_memory),
    },
    Flag {
        short: Some('M'),
        long: "disable-evictions",
        takes: ValueKind::Nothing,
        help: &["return error on memory exhausted instead of evicting"],
        handler: Handler::Switches(|choices| choices.settings.columns.evict = false),
    },
    Flag {
        short: Some('c'),
        long: "conn-limit",
        takes: ValueKind::Value("<num>"),
        help: &["max simultaneous connections (default: 1024)"],
        handler: Handler::Sets(|choices, value| {
            let wrong = "Maximum connections must be greater than 0";
            choices.settings.columns.connections_max = number(value, 1..=INT_MAX, wrong)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('t'),
        long: "threads",
        takes: ValueKind::Value("<num>"),
        help: &[
            "number of threads to use (default: the number of cores",
            "that this process may use)",
        ],
        handler: Handler::Sets(set_columns),
    },
    Flag {
        short: Some('R'),
        long: "max-reqs-per-event",
        takes: ValueKind::Value("<num>"),
        help: &[
            "maximum number of requests per event, limits the",
            "requests processed per connection to prevent",
            "starvation (default: 20)",
        ],
        handler: Handler::Sets(|choices, value| {
            let wrong = "Number of requests per event must be greater than 0";
            choices.settings.columns.requests_per_event = number(value, 1..=INT_MAX, wrong)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('C'),
        long: "disable-cas",
        takes: ValueKind::Nothing,
        help: &["disable use of CAS"],
        handler: Handler::Switches(|choices| choices.settings.cas = false),
    },
    Flag {
        short: Some('I'),
        long: "max-item-size",
        takes: ValueKind::Value("<num>"),
        help: &[
            "adjusts max item size, in bytes or with k or m",
            "(default: 1m, min: 1k, max: 1024m)",
        ],
        handler: Handler::Sets(set_item_bytes),
    },
    Flag {
        short: Some('F'),
        long: "disable-flush-all",
        takes: ValueKind::Nothing,
        help: &["disable flush_all command"],
        handler: Handler::Switches(|choices| choices.settings.flush_enabled = false),
    },
];

/// Sets `-m` to a number of megabytes, or to a percentage of the memory that this process may have.
/// An `m` may follow the number, as in memcached, or a `g` for gigabytes.
fn set_memory(choices: &mut Choices, value: &str) -> Result<(), BadFlag> {
    let wrong = "-m takes a number of megabytes, 1 or greater, a number of gigabytes such as 1g, \
                 or a percentage such as 80%";
    let megabytes = match value.strip_suffix('%') {
        Some(digits) => {
            let part = number::<u64>(digits, 1..=100, wrong)?;
            let (bytes, _) = choices.ram.least().ok_or_else(|| {
                let unknown = "the system does not tell how much memory this process may use; \
                               give a number of megabytes";
                BadFlag::value(format!("-m {value} is refused: {unknown}"))
            })?;
            ((bytes / 100 * part) >> 20).max(1)
        }
        None => match value.strip_suffix(['g', 'G']) {
            Some(digits) => number::<u64>(digits, 1..=INT_MAX >> 10, wrong)? << 10,
            None => number(value.strip_suffix(['m', 'M']).unwrap_or(value), 1..=INT_MAX, wrong)?,
        },
    };
    choices.settings.memory_bytes = usize::try_from(megabytes).unwrap_or(usize::MAX >> 20) << 20;
    Ok(())
}

/// Adds a note if `-m` exceeds this process's memory: the system may then kill the process.
pub(super) fn compare_memory(choices: &mut Choices) {
    let Some((bytes, whose)) = choices.ram.least() else { return };
    let wanted = u64::try_from(choices.settings.memory_bytes).unwrap_or(u64::MAX);
    if wanted > bytes {
        choices.notes.push(format!(
            "WARNING: -m {} is more than the {} megabytes that {whose}. The system will swap, or \
             end this server, before all of -m is used. -m 80% uses 80 percent of the memory that \
             this server may use.",
            wanted >> 20,
            bytes >> 20
        ));
    }
}

fn set_columns(choices: &mut Choices, value: &str) -> Result<(), BadFlag> {
    let wrong = "Number of threads must be greater than 0";
    choices.settings.columns.count = number(value, 1..=INT_MAX, wrong)?;
    if choices.settings.columns.count > COLUMNS_MAX {
        return Err(BadFlag::value(format!(
            "Number of threads must be at most {COLUMNS_MAX} (given: '{value}')"
        )));
    }
    Ok(())
}

fn set_item_bytes(choices: &mut Choices, value: &str) -> Result<(), BadFlag> {
    let unit = match value.as_bytes().last() {
        Some(b'k' | b'K') => 1 << 10,
        Some(b'm' | b'M') => 1 << 20,
        _ => 1,
    };
    let digits = if unit > 1 { &value[..value.len() - 1] } else { value };
    let wrong = "-I takes a number of bytes, or a number followed by k or m";
    let count = number::<usize>(digits, 0..=INT_MAX, wrong)?;
    choices.settings.columns.item_bytes_max = count.saturating_mul(unit);
    Ok(())
}

/// Checks the bounds of `-I`, which depend on `-m`.
pub(super) fn check_item_bytes(settings: &Settings) -> Result<(), BadFlag> {
    if settings.columns.item_bytes_max < ITEM_BYTES_MIN {
        return Err(BadFlag::usage("Item max size cannot be less than 1024 bytes."));
    }
    if settings.columns.item_bytes_max > ITEM_BYTES_MAX {
        return Err(BadFlag::usage("Cannot set item size limit higher than a gigabyte."));
    }
    if settings.columns.item_bytes_max > settings.memory_bytes / 2 {
        return Err(BadFlag::usage(format!(
            "Cannot set item size limit higher than 1/2 of memory max. (-I is {} bytes; half of -m \
             is {} bytes)",
            settings.columns.item_bytes_max,
            settings.memory_bytes / 2
        )));
    }
    Ok(())
}
