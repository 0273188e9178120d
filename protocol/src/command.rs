//! The table of all commands.
//!
//! Where: the session finds a line's command in the table; the fuzzer's dictionary is made from it.
//! Invariant: a command exists if and only if it has a row. To add a command, write a row here, an
//! arm in the server's executor, and a transcript. The most frequent commands come first.
//! Source: memcached 1.6.45 `process_request`, `text_cmd_entries`.

use memory::verb::Verb;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command's name on the wire.
    pub name: &'static str,
    /// The parts of the command's line.
    pub shape: Shape,
    /// A description of the arguments, for people and for the fuzzer.
    pub usage: &'static str,
    /// The command's most expensive lines, without line ends. `{text*N}` repeats the text N times;
    /// each `#` in the text becomes the number of the repetition. A test checks these lines against
    /// the server's limits, over every transport.
    pub worst: &'static [&'static str],
}

/// The parts of a command's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One or more keys, up to the end of the line.
    Get {
        /// True if the answer shows the CAS unique.
        cas: bool,
    },
    /// An exptime, then keys.
    GetAndTouch {
        /// True if the answer shows the CAS unique.
        cas: bool,
    },
    /// A key, numbers and a value.
    Store(Verb),
    /// A key.
    Delete,
    /// A key and a number.
    Delta {
        /// True for `incr`, false for `decr`.
        incr: bool,
    },
    /// A key and an exptime.
    Touch,
    /// A key and flags; `ms` has a length and a value as well.
    Meta(MetaVerb),
    /// No arguments; words after the name are ignored.
    MetaNoop,
    /// No arguments; words after the name are ignored.
    Quit,
    /// No arguments; words after the name are ignored.
    Version,
    /// Any number of words.
    Stats,
    /// Any number of words. No spaces may precede `watch` or a command above.
    Watch,
    /// Optionally an exptime. Spaces may precede `flush_all` and all commands below.
    FlushAll,
    /// A number.
    Verbosity,
    /// Any number of words.
    Operator(Operator),
}

/// A meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`.
    Get,
    /// `ms`.
    Set,
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic,
    /// `me`.
    Debug,
}

/// A command for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `shutdown`.
    Shutdown,
    /// `slabs`.
    Slabs,
    /// `cache_memlimit`.
    CacheMemlimit,
    /// `lru_crawler`.
    LruCrawler,
    /// `lru`.
    Lru,
    /// `extstore`.
    Extstore,
    /// `watch`.
    Watch,
}

impl Shape {
    /// True if spaces may precede the command: memcached finds such a command by the line's first
    /// token, and any other command by the line's first bytes.
    #[must_use]
    pub fn after_spaces(self) -> bool {
        matches!(self, Shape::FlushAll | Shape::Verbosity | Shape::Operator(_))
    }
}

const fn row(
    name: &'static str,
    shape: Shape,
    usage: &'static str,
    worst: &'static [&'static str],
) -> Command {
    Command { name, shape, usage, worst }
}

const WORST_STATS: &[&str] = &[
    "stats",
    "stats settings",
    "stats items",
    "stats slabs",
    "stats columns",
    "stats latency",
    "stats memory",
    "stats mrc",
    "stats store",
    "stats udp",
    "stats hot",
    "stats extstore",
    "stats detail on",
    "stats detail dump",
    "stats sizes",
    "stats prefixes",
    "stats cachedump 1 0",
    "stats conns",
    "stats reset",
];

const WORST_WATCH: &[&str] = &["watch fetchers mutations evictions connevents deletions"];

/// All commands.
pub const COMMANDS: [Command; 32] = [
    row("get", Shape::Get { cas: false }, "key*", &["get{ k#*8000}", "get{ b*3000}"]),
    row(
        "set",
        Shape::Store(Verb::Set),
        "key flags exptime bytes [noreply]",
        &["set {k*250} 4294967295 1 60000\r\n{v*60000}"],
    ),
    row("gets", Shape::Get { cas: true }, "key*", &["gets{ k#*8000}"]),
    row("delete", Shape::Delete, "key [noreply]", &["delete {k*250}"]),
    row(
        "incr",
        Shape::Delta { incr: true },
        "key delta [noreply]",
        &["incr n 18446744073709551615"],
    ),
    row("decr", Shape::Delta { incr: false }, "key delta [noreply]", &["decr n 1"]),
    row(
        "mg",
        Shape::Meta(MetaVerb::Get),
        "key flags*",
        &["mg b c f h k l s t v O{o*32} q", "mg k1 c f h k l s t v O{o*32} N30 R30 T0 E1"],
    ),
    row(
        "ms",
        Shape::Meta(MetaVerb::Set),
        "key bytes flags*",
        &["ms {k*250} 60000 c k O{o*32} F1 T1 MA\r\n{v*60000}"],
    ),
    row("md", Shape::Meta(MetaVerb::Delete), "key flags*", &["md {k*250} q O{o*32} I T30 x"]),
    row("ma", Shape::Meta(MetaVerb::Arithmetic), "key flags*", &["ma n N0 J1 D1 MI t c v O{o*32}"]),
    row("mn", Shape::MetaNoop, "", &["mn"]),
    row("me", Shape::Meta(MetaVerb::Debug), "key flags*", &["me b"]),
    row(
        "add",
        Shape::Store(Verb::Add),
        "key flags exptime bytes [noreply]",
        &["add {k*250} 4294967295 1 60000\r\n{v*60000}"],
    ),
    row(
        "cas",
        Shape::Store(Verb::Cas),
        "key flags exptime bytes cas [noreply]",
        &["cas {k*250} 4294967295 1 60000 18446744073709551615\r\n{v*60000}"],
    ),
    row(
        "replace",
        Shape::Store(Verb::Replace),
        "key flags exptime bytes [noreply]",
        &["replace b 4294967295 0 60000\r\n{v*60000}"],
    ),
    row(
        "append",
        Shape::Store(Verb::Append),
        "key flags exptime bytes [noreply]",
        &["append v 0 0 1\r\nx"],
    ),
    row(
        "prepend",
        Shape::Store(Verb::Prepend),
        "key flags exptime bytes [noreply]",
        &["prepend v 0 0 1\r\nx"],
    ),
    row("touch", Shape::Touch, "key exptime [noreply]", &["touch b 0"]),
    row("gat", Shape::GetAndTouch { cas: false }, "exptime key*", &["gat 0{ k#*8000}"]),
    row("gats", Shape::GetAndTouch { cas: true }, "exptime key*", &["gats 0{ k#*8000}"]),
    row("version", Shape::Version, "", &["version"]),
    row("quit", Shape::Quit, "", &["quit"]),
    row("stats", Shape::Stats, "[words]", WORST_STATS),
    row("watch", Shape::Watch, "[words]", WORST_WATCH),
    row("flush_all", Shape::FlushAll, "[exptime] [noreply]", &["flush_all 100000"]),
    row("verbosity", Shape::Verbosity, "level [noreply]", &["verbosity 1"]),
    row("shutdown", Shape::Operator(Operator::Shutdown), "[graceful]", &["shutdown graceful"]),
    row(
        "slabs",
        Shape::Operator(Operator::Slabs),
        "reassign source target | automove level",
        &["slabs reassign 1 2", "slabs automove 1"],
    ),
    row(
        "cache_memlimit",
        Shape::Operator(Operator::CacheMemlimit),
        "megabytes",
        &["cache_memlimit 64"],
    ),
    row(
        "lru_crawler",
        Shape::Operator(Operator::LruCrawler),
        "words",
        &["lru_crawler metadump all", "lru_crawler mgdump all", "lru_crawler crawl all"],
    ),
    row("lru", Shape::Operator(Operator::Lru), "words", &["lru tune 10 25 0.1 2.0"]),
    row("extstore", Shape::Operator(Operator::Extstore), "words", &["extstore max_sleep 1"]),
];

/// The commands' names, each packed into a word; 0 for a name of over eight bytes.
const PACKED: [u64; COMMANDS.len()] = {
    let mut packed = [0; COMMANDS.len()];
    let mut index = 0;
    while index < COMMANDS.len() {
        packed[index] = pack(COMMANDS[index].name.as_bytes());
        index += 1;
    }
    packed
};

const fn pack(name: &[u8]) -> u64 {
    let mut packed = 0;
    if name.len() <= 8 {
        let mut index = 0;
        while index < name.len() {
            packed |= (name[index] as u64) << (8 * index);
            index += 1;
        }
    }
    packed
}

/// Returns the shape of the command called `name`.
#[must_use]
pub fn find(name: &[u8]) -> Option<Shape> {
    if name.len() <= 8 {
        let wanted = pack(name);
        let index = PACKED.iter().position(|&packed| packed == wanted)?;
        let command = &COMMANDS[index];
        // A name that is followed by NUL bytes packs into the same word as the name alone.
        return (command.name.len() == name.len()).then_some(command.shape);
    }
    COMMANDS.iter().find(|command| command.name.as_bytes() == name).map(|command| command.shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_and_nothing_else_is() {
        for command in COMMANDS {
            assert_eq!(find(command.name.as_bytes()), Some(command.shape), "{}", command.name);
            let longer = format!("{}x", command.name);
            assert_ne!(find(longer.as_bytes()), Some(command.shape));
        }
        for name in [&b""[..], b"ge", b"GET", b"set\0", b"\0", b"flush_al", b"cache_memlimits"] {
            assert_eq!(find(name), None);
        }
    }
}
