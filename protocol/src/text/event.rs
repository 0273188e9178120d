//! Writes the lines that report events to watchers.
//!
//! Where: a column (a server's thread) appends these lines if a connection watches the events.
//! Invariant: every line is as in memcached 1.6.45, and none is longer than `LINE_BYTES_MAX`.
//! Source: memcached 1.6.45 `default_entries`, `_logger_parse_ige` and similar functions.

use std::fmt::Display;
use std::io::Write;

use super::list::escape;

/// Longest line: a key with three characters for each byte, and 256 bytes for all other fields.
pub const LINE_BYTES_MAX: usize = 3 * crate::KEY_BYTES_MAX + 256;

/// The time of an event, and its number.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The Unix time.
    pub seconds: u64,
    /// The microseconds within the second.
    pub us: u32,
    /// The event's sequence number, which counts the events of all columns.
    pub number: u64,
}

/// An event that concerns an item.
#[derive(Clone, Copy, Debug)]
pub enum Item<'w> {
    /// A lookup.
    Get {
        /// True if the lookup found an item.
        found: bool,
        /// The descriptor of the connection that sent the request.
        descriptor: i32,
    },
    /// An attempt to store.
    Store {
        /// The result, such as `stored`.
        status: &'w str,
        /// The command, such as `set`.
        command: &'w str,
        /// Seconds until the item expires; 0 for never.
        ttl: u32,
        /// The descriptor of the connection that sent the request.
        descriptor: i32,
    },
    /// A deletion.
    Deleted {
        /// The command, `delete` or `md`.
        command: &'w str,
    },
    /// An eviction to make room.
    Eviction {
        /// True if the item had been fetched since it was stored.
        fetched: bool,
        /// Seconds until the item would have expired; -1 for never.
        ttl: i64,
        /// Seconds since the item's last access.
        idle_seconds: u32,
    },
}

/// Appends an event of the item of `key`, whose value has (or had) `value_bytes` bytes.
pub fn item(out: &mut Vec<u8>, stamp: Stamp, key: &[u8], value_bytes: u32, what: Item<'_>) {
    let class = |found: bool| u8::from(found);
    begin(out, stamp);
    // Writing to a `Vec` does not fail, here and below.
    let _ = match what {
        Item::Get { .. } => write!(out, "item_get key="),
        Item::Store { .. } => write!(out, "item_store key="),
        Item::Deleted { .. } => write!(out, "deleted key="),
        Item::Eviction { .. } => write!(out, "eviction key="),
    };
    escape(key, out);
    let _ = match what {
        Item::Get { found, descriptor } => {
            let status = if found { "found" } else { "not_found" };
            write!(out, " status={status} clsid={} cfd={descriptor}", class(found))
        }
        Item::Store { status, command, ttl, descriptor } => {
            write!(out, " status={status} cmd={command} ttl={ttl} clsid=1 cfd={descriptor}")
        }
        Item::Deleted { command } => write!(out, " cmd={command} clsid=1"),
        Item::Eviction { fetched, ttl, idle_seconds } => {
            let fetched = if fetched { "yes" } else { "no" };
            write!(out, " fetch={fetched} ttl={ttl} la={idle_seconds} clsid=1")
        }
    };
    let _ = writeln!(out, " size={value_bytes}");
}

/// Appends the event that a connection was opened; with a `reason`, that it was closed. `peer` is
/// the client's address and port; `None` for a Unix socket.
pub fn connection(
    out: &mut Vec<u8>,
    stamp: Stamp,
    peer: Option<(&dyn Display, u16)>,
    descriptor: i32,
    reason: Option<&str>,
) {
    begin(out, stamp);
    let event = if reason.is_some() { "conn_close" } else { "conn_new" };
    let _ = match peer {
        Some((ip, port)) => write!(out, "{event} rip={ip} rport={port} transport=tcp"),
        None => write!(out, "{event} rip=unix rport=0 transport=local"),
    };
    let _ = reason.map_or(Ok(()), |reason| write!(out, " reason={reason}"));
    let _ = writeln!(out, " cfd={descriptor}");
}

/// Appends the number of lines that were dropped.
pub fn skipped(out: &mut Vec<u8>, lines: u64) {
    let _ = writeln!(out, "skipped={lines}");
}

fn begin(out: &mut Vec<u8>, Stamp { seconds, us, number }: Stamp) {
    let _ = write!(out, "ts={seconds}.{us} gid={number} type=");
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { seconds: 1_700_000_000, us: 42, number: 7 };

    fn shown(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        assert!(out.len() <= LINE_BYTES_MAX);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_memcacheds() {
        let of = |what| shown(|out| item(out, STAMP, b"a b", 5, what));
        let stamp = "ts=1700000000.42 gid=7 type=";
        let get = of(Item::Get { found: true, descriptor: 30 });
        let key = "key=a%20b";
        assert_eq!(get, format!("{stamp}item_get {key} status=found clsid=1 cfd=30 size=5\n"));
        let store = of(Item::Store { status: "stored", command: "set", ttl: 9, descriptor: 3 });
        let due = "status=stored cmd=set ttl=9 clsid=1 cfd=3 size=5\n";
        assert_eq!(store, format!("{stamp}item_store {key} {due}"));
        let deleted = of(Item::Deleted { command: "md" });
        assert_eq!(deleted, format!("{stamp}deleted {key} cmd=md clsid=1 size=5\n"));
        let evicted = of(Item::Eviction { fetched: false, ttl: -1, idle_seconds: 60 });
        let due = "fetch=no ttl=-1 la=60 clsid=1 size=5\n";
        assert_eq!(evicted, format!("{stamp}eviction {key} {due}"));
        let peer: (&dyn Display, u16) = (&"127.0.0.1", 55);
        let new = shown(|out| connection(out, STAMP, Some(peer), 8, None));
        let due = "conn_new rip=127.0.0.1 rport=55 transport=tcp cfd=8\n";
        assert_eq!(new, format!("{stamp}{due}"));
        let gone = shown(|out| connection(out, STAMP, None, 8, Some("normal")));
        let due = "conn_close rip=unix rport=0 transport=local reason=normal cfd=8\n";
        assert_eq!(gone, format!("{stamp}{due}"));
        assert_eq!(shown(|out| skipped(out, 3)), "skipped=3\n");
    }

    #[test]
    fn no_line_is_longer_than_the_longest() {
        let stamp = Stamp { seconds: u64::MAX, us: u32::MAX, number: u64::MAX };
        let key = [b' '; crate::KEY_BYTES_MAX];
        for what in [
            Item::Eviction { fetched: true, ttl: i64::MIN, idle_seconds: u32::MAX },
            Item::Store {
                status: "not_stored",
                command: "prepend",
                ttl: u32::MAX,
                descriptor: i32::MIN,
            },
        ] {
            shown(|out| item(out, stamp, &key, u32::MAX, what));
        }
    }
}
