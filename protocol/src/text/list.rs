//! Writes the lines that show items in dumps.
//!
//! Where: a dump appends a line for each item that the store lists, or for each prefix of keys.
//! Invariant: every line is as in memcached 1.6.45; no byte of a key ends a line or a word early.
//! Source: memcached 1.6.45 `crawler_metadump_eval`, `crawler_mgdump_eval`, `item_cachedump`,
//! `uriencode_init`, `stats_prefix_dump`.

use crate::base64;
use crate::digits::number as digits;

/// The fields of an item that a line may show.
#[derive(Clone, Copy, Debug)]
pub struct Line<'k> {
    /// The key, 1 to 250 bytes.
    pub key: &'k [u8],
    /// True if the key was given in base64.
    pub key_binary: bool,
    /// The client flags.
    pub client_flags: u32,
    /// The CAS unique.
    pub cas: u64,
    /// The Unix time at which the item expires; `None` for never.
    pub exptime: Option<i64>,
    /// The Unix time of the item's last access.
    pub accessed: i64,
    /// True if the item was fetched since it was stored.
    pub fetched: bool,
    /// Length of the value.
    pub value_bytes: u32,
    /// Number of bytes of memory that the item takes.
    pub item_bytes: u64,
}

/// Longest line: a key with three characters for each byte, and 256 bytes for all other fields.
pub const LINE_BYTES_MAX: usize = 3 * crate::KEY_BYTES_MAX + 256;

/// Appends a line of `metadump`.
pub fn metadata(line: &Line<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"key=");
    escape(line.key, out);
    match line.exptime {
        None => out.extend_from_slice(b" exp=-1"),
        Some(exptime) => named(b" exp=", unsigned(exptime), out),
    }
    named(b" la=", unsigned(line.accessed), out);
    named(b" cas=", line.cas, out);
    out.extend_from_slice(if line.fetched { b" fetch=yes cls=1" } else { b" fetch=no cls=1" });
    named(b" size=", line.item_bytes, out);
    named(b" flags=", line.client_flags.into(), out);
    out.extend_from_slice(b" \n");
}

/// Appends a line of `mgdump`.
pub fn request(line: &Line<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    if line.key_binary {
        base64::encode(line.key, out);
        out.extend_from_slice(b" b\r\n");
    } else {
        out.extend_from_slice(line.key);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends a line of `stats cachedump`, or returns false for a binary key, which memcached hides.
pub fn item(line: &Line<'_>, out: &mut Vec<u8>) -> bool {
    if line.key_binary {
        return false;
    }
    out.extend_from_slice(b"ITEM ");
    out.extend_from_slice(line.key);
    named(b" [", line.value_bytes.into(), out);
    named(b" b; ", line.exptime.map_or(0, unsigned), out);
    out.extend_from_slice(b" s]\r\n");
    true
}

/// Appends the end of a list; `of_requests` is true for `mgdump`.
pub fn end(of_requests: bool, out: &mut Vec<u8>) {
    let end: &[u8] = if of_requests { b"EN\r\n" } else { b"END\r\n" };
    out.extend_from_slice(end);
}

/// Counts of the requests for keys with one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCounts {
    /// Number of lookups.
    pub gets: u64,
    /// Number of lookups that found an item.
    pub hits: u64,
    /// Number of values that clients sent.
    pub sets: u64,
    /// Number of deletes, successful or not.
    pub deletes: u64,
}

/// Appends a line of `stats detail dump`.
pub fn prefix(prefix: &[u8], counts: &PrefixCounts, out: &mut Vec<u8>) {
    out.extend_from_slice(b"PREFIX ");
    // Keys of the binary protocol may contain bytes that would end the word or the line.
    if prefix.iter().all(|byte| !byte.is_ascii_whitespace() && !byte.is_ascii_control()) {
        out.extend_from_slice(prefix);
    } else {
        escape(prefix, out);
    }
    named(b" get ", counts.gets, out);
    named(b" hit ", counts.hits, out);
    named(b" set ", counts.sets, out);
    named(b" del ", counts.deletes, out);
    out.extend_from_slice(b"\r\n");
}

fn named(name: &[u8], number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    digits(out, number);
}

/// Returns a Unix time. A time before 1970, which a wrong clock may give, becomes 0.
fn unsigned(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0)
}

/// Returns a key, escaped as in a URI.
#[must_use]
pub fn escaped(key: &[u8]) -> String {
    let mut escaped = Vec::new();
    escape(key, &mut escaped);
    String::from_utf8_lossy(&escaped).into_owned()
}

pub(super) fn escape(key: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            let digits = [byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]);
            out.extend_from_slice(&[b'%', digits[0], digits[1]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line<'_> = Line {
        key: b"a b%\xff~",
        key_binary: false,
        client_flags: 7,
        cas: 3,
        exptime: None,
        accessed: 1_700_000_000,
        fetched: true,
        value_bytes: 5,
        item_bytes: 63,
    };

    fn shown(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn lines_are_memcacheds() {
        let metadata_of = |line| shown(|out| metadata(line, out));
        assert_eq!(
            metadata_of(&LINE),
            "key=a%20b%25%FF~ exp=-1 la=1700000000 cas=3 fetch=yes cls=1 size=63 flags=7 \n"
        );
        let timed = Line { exptime: Some(1_700_000_100), fetched: false, key: b"k", ..LINE };
        assert_eq!(
            metadata_of(&timed),
            "key=k exp=1700000100 la=1700000000 cas=3 fetch=no cls=1 size=63 flags=7 \n"
        );
        assert_eq!(shown(|out| request(&timed, out)), "mg k\r\n");
        let binary = Line { key_binary: true, ..timed };
        assert_eq!(shown(|out| request(&binary, out)), "mg aw== b\r\n");
        let text = shown(|out| assert!(item(&timed, out)));
        assert_eq!(text, "ITEM k [5 b; 1700000100 s]\r\n");
        assert_eq!(shown(|out| assert!(!item(&binary, out))), "");
    }

    #[test]
    fn prefixes_are_shown_as_memcached_shows_them_and_end_no_line() {
        let counts = PrefixCounts { gets: 3, hits: 2, sets: 1, deletes: 4 };
        assert_eq!(
            shown(|out| prefix(b"us%", &counts, out)),
            "PREFIX us% get 3 hit 2 set 1 del 4\r\n"
        );
        let text = shown(|out| prefix(b"a\r\nb c", &counts, out));
        assert_eq!(text, "PREFIX a%0D%0Ab%20c get 3 hit 2 set 1 del 4\r\n");
    }

    #[test]
    fn no_line_is_longer_than_the_longest() {
        let longest = Line {
            key: &[0xff; crate::KEY_BYTES_MAX],
            client_flags: u32::MAX,
            cas: u64::MAX,
            exptime: Some(i64::MAX),
            accessed: i64::MAX,
            fetched: true,
            value_bytes: u32::MAX,
            item_bytes: u64::MAX,
            key_binary: true,
        };
        for write in [metadata, request] {
            let mut out = Vec::new();
            write(&longest, &mut out);
            assert!(out.len() <= LINE_BYTES_MAX, "{}", out.len());
        }
    }
}
