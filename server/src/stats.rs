//! What `stats` answers.
//!
//! Where: called by the executor; writes the whole reply.
//! Invariant: a line is printed only if its number is true; names and order are memcached's. What
//! a reply is made of is bounded by the settings, not by the items.
//! Source: memcached 1.6.45 `process_stat`.

mod general;
mod settings;
#[cfg(test)]
mod tests;

use crate::shared::Shared;

/// One `STAT name value` line. Writing to a `Vec` does not fail.
macro_rules! stat {
    ($out:expr, $name:expr, $value:expr) => {{
        use std::io::Write;
        let _ = write!($out, "STAT {} {}\r\n", $name, $value);
    }};
}
use stat;

/// Appends a whole reply.
type Answer = fn(&Shared, &mut Vec<u8>);

/// The subcommands there are, in the order memcached tries them.
const SUBCOMMANDS: &[(&[u8], Answer)] = &[
    (b"reset", |shared, out| {
        shared.reset();
        out.extend_from_slice(b"RESET\r\n");
    }),
    (b"detail", |shared, out| dump(shared, "CLIENT_ERROR stats detail not allowed\r\n", out)),
    (b"settings", |shared, out| {
        settings::write(shared, out);
        out.extend_from_slice(END);
    }),
    (b"cachedump", |shared, out| dump(shared, "CLIENT_ERROR stats cachedump not allowed\r\n", out)),
];

const END: &[u8] = b"END\r\n";
/// memcached's answer to a subcommand it does not have, and ours.
const UNKNOWN: &[u8] = b"ERROR\r\n";

/// Appends the reply to `stats ARGUMENTS` (without the word `stats`; empty for the general ones).
/// `now` is the store's clock, in seconds.
pub fn write(shared: &Shared, now: u32, arguments: &[u8], out: &mut Vec<u8>) {
    let mut words = arguments.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let Some(subcommand) = words.next() else {
        general::write(shared, now, out);
        out.extend_from_slice(END);
        return;
    };
    // As in memcached, the beginning of a name is enough.
    match SUBCOMMANDS.iter().find(|(name, _)| name.starts_with(subcommand)) {
        Some((_, answer)) => answer(shared, out),
        None => out.extend_from_slice(UNKNOWN),
    }
}

/// A listing of items: forbidden with `-X`, and otherwise not there yet.
fn dump(shared: &Shared, forbidden: &str, out: &mut Vec<u8>) {
    if shared.settings.dump_enabled {
        out.extend_from_slice(UNKNOWN);
    } else {
        out.extend_from_slice(forbidden.as_bytes());
    }
}
