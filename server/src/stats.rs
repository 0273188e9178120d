//! What `stats` answers.
//!
//! Where: called by the executor; writes the whole reply.
//! Invariant: a line is printed only if its number is true; names and order are memcached's. What
//! a reply is made of is bounded by the settings, not by the items.
//! Source: memcached 1.6.45 `process_stat`, `process_bin_stat`.

#[cfg(debug_assertions)]
mod audit;
mod general;
mod items;
mod memory;
mod mrc;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt::Arguments;
use std::io::Write;

use protocol::{Form, Refusal, binary};

use crate::shared::Shared;

/// One statistic.
macro_rules! stat {
    ($rows:expr, $name:expr, $value:expr) => {
        $rows.row($name, format_args!("{}", $value))
    };
}
use stat;

/// Where statistics are written: lines, or frames.
pub(crate) struct Rows<'o> {
    form: Form,
    out: &'o mut Vec<u8>,
}

impl Rows<'_> {
    fn row(&mut self, name: &str, value: Arguments<'_>) {
        // Writing to a `Vec` does not fail.
        let _ = match self.form {
            Form::Text { .. } => write!(self.out, "STAT {name} {value}\r\n"),
            Form::Binary(tag) => {
                binary::write::stat(self.out, tag, name, |out| _ = write!(out, "{value}"));
                Ok(())
            }
        };
    }

    /// What follows the last.
    fn end(&mut self, line: &str) {
        match self.form {
            Form::Text { .. } => self.out.extend_from_slice(line.as_bytes()),
            Form::Binary(tag) => binary::write::stat(self.out, tag, "", |_| ()),
        }
    }

    /// Instead of any: the line, or that there is no such thing.
    fn refuse(&mut self, line: &str) {
        match self.form {
            Form::Text { .. } => self.out.extend_from_slice(line.as_bytes()),
            form @ Form::Binary(_) => form.say(Refusal::NotFound, self.out),
        }
    }
}

/// Appends a whole reply.
type Answer = fn(&Shared, &mut Rows<'_>);

/// The subcommands there are, in the order memcached tries them.
const SUBCOMMANDS: &[(&[u8], Answer)] = &[
    (b"reset", |shared, rows| {
        shared.reset();
        rows.end("RESET\r\n");
    }),
    (b"detail", |shared, rows| dump(shared, "CLIENT_ERROR stats detail not allowed\r\n", rows)),
    (b"settings", |shared, rows| {
        settings::write(shared, rows);
        rows.end(END);
    }),
    (b"cachedump", |shared, rows| {
        dump(shared, "CLIENT_ERROR stats cachedump not allowed\r\n", rows);
    }),
];

/// Those that go by their whole name in either protocol, tried after the others.
const WHOLE_NAMES: &[(&[u8], Answer)] = &[
    #[cfg(debug_assertions)]
    (b"audit", |shared, rows| {
        audit::write(shared, rows);
        rows.end(END);
    }),
    (b"items", |shared, rows| {
        items::items(shared, rows);
        rows.end(END);
    }),
    (b"memory", |shared, rows| {
        memory::write(shared, rows);
        rows.end(END);
    }),
    (b"mrc", |shared, rows| {
        mrc::write(shared, rows);
        rows.end(END);
    }),
    (b"slabs", |shared, rows| {
        items::slabs(shared, rows);
        rows.end(END);
    }),
    // memcached's answer without `-o track_sizes`.
    (b"sizes", |_, rows| {
        stat!(rows, "sizes_status", "disabled");
        rows.end(END);
    }),
];

const END: &str = "END\r\n";
/// memcached's answer to a subcommand it does not have, and ours.
const UNKNOWN: &str = "ERROR\r\n";

/// Appends the reply to `stats ARGUMENTS` (without the word `stats`; empty for the general ones).
/// `now` is the store's clock, in seconds.
pub fn write(shared: &Shared, now: u32, arguments: &[u8], form: Form, out: &mut Vec<u8>) {
    let rows = &mut Rows { form, out };
    let mut words = arguments.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let Some(subcommand) = words.next() else {
        general::write(shared, now, rows);
        rows.end(END);
        return;
    };
    // As in memcached, in text the beginning of a name is enough, and in binary a name may go on.
    let found = SUBCOMMANDS.iter().find(|(name, _)| match form {
        Form::Text { .. } => name.starts_with(subcommand),
        Form::Binary(_) => arguments.starts_with(name),
    });
    let found = found.or_else(|| WHOLE_NAMES.iter().find(|(name, _)| *name == subcommand));
    match found {
        Some((_, answer)) => answer(shared, rows),
        None => rows.refuse(UNKNOWN),
    }
}

/// A listing of items: forbidden with `-X`, and otherwise not there yet.
fn dump(shared: &Shared, forbidden: &str, rows: &mut Rows<'_>) {
    rows.refuse(if shared.settings.dump_enabled { UNKNOWN } else { forbidden });
}
