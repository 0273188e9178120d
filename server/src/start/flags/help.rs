//! The texts that -h, -V and -i print, made from the rows of flags.
//!
//! Where: the rows of -h, -V and -i in `lifecycle` call these functions.
//! Invariant: the first line begins with `memcached 1.6.45 (hypostyle X.Y.Z)`, from which scripts
//! read the version. `-h` lists every row that is not refused, because scripts read from `-h` which
//! features a server has. memcached's `-h` leaves out features that memcached was built without.
//! Source: memcached 1.6.45 `usage`.

use std::fmt::Write;

use super::flag::{Effect, Flag, Handler, ValueKind};
use super::{extended, flags};
use crate::start::settings::{MEMCACHED_VERSION, VERSION};

/// Number of characters before the explanation in a line of `-h`.
const INDENT: usize = 31;

pub(super) fn version() -> String {
    format!("memcached {MEMCACHED_VERSION} (hypostyle {VERSION})\n")
}

pub(super) fn usage() -> String {
    let mut out = version();
    for flag in flags().filter(|flag| flag.effect() == Effect::Works) {
        row(&mut out, &synopsis(flag), flag.help);
    }
    out.push_str("\nOptions of -o:\n");
    for option in extended().iter().filter(|option| option.effect() == Effect::Works) {
        row(&mut out, &format!("   - {}:", option.long), option.help);
    }
    out.push_str("\nThese options of memcached have no effect (values are checked):\n");
    for flag in flags().filter(|flag| matches!(flag.handler, Handler::Nothing { .. })) {
        row(&mut out, &synopsis(flag), flag.help);
    }
    options(&mut out, |handler| matches!(handler, Handler::Nothing { .. }));
    out
}

pub(super) fn license() -> String {
    let mut out = version();
    out.push_str(
        "\nhypostyle is licensed under the Apache License, Version 2.0:\n\
         https://www.apache.org/licenses/LICENSE-2.0\n\n\
         It is distributed on an \"AS IS\" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY\n\
         KIND, either express or implied. It speaks memcached's protocols and accepts\n\
         memcached's command line; it contains none of memcached's code.\n",
    );
    out
}

fn synopsis(flag: &Flag) -> String {
    let mut text = match (flag.short, flag.long) {
        (Some(short), "") => format!("-{short}"),
        (Some(short), long) => format!("-{short}, --{long}"),
        (None, long) => format!("--{long}"),
    };
    if let ValueKind::Value(value) = flag.takes {
        let _ = write!(text, "{}{value}", if flag.long.is_empty() { " " } else { "=" });
    }
    text
}

fn row(out: &mut String, synopsis: &str, help: &[&str]) {
    let mut lines = help.iter();
    let first = lines.next().copied().unwrap_or("");
    let _ = writeln!(out, "{synopsis:<width$} {first}", width = INDENT - 1);
    for line in lines {
        let _ = writeln!(out, "{:INDENT$}{line}", "");
    }
}

/// Writes the names of the `-o` options that `wanted` accepts, wrapped into lines.
fn options(out: &mut String, wanted: fn(&Handler) -> bool) {
    let names: Vec<&str> = extended()
        .iter()
        .filter(|option| wanted(&option.handler))
        .map(|option| option.long)
        .collect();
    let mut line = String::from("-o ");
    for (index, name) in names.iter().enumerate() {
        if line.len() + name.len() > 78 {
            let _ = writeln!(out, "{}", line.trim_end());
            line = String::from("   ");
        }
        line.push_str(name);
        line.push_str(if index + 1 < names.len() { ", " } else { "" });
    }
    let _ = writeln!(out, "{line}");
}
