//! Writes a server's answers in the text protocol, except the codes and flags of meta commands.
//!
//! Where: `Form` calls these functions; lookups use `Value` through the trait `Show`.
//! Invariant: every line is, byte for byte, the line that memcached 1.6.45 sends.
//! Source: memcached 1.6.45 `proto_text.c`, `proto_parser.c`, `make_ascii_get_suffix`.

use std::fmt::Arguments;
use std::io::Write;

use crate::digits::number as digits;
use crate::outcome::{Outcome, Refusal};
use crate::show::{FoundItem, Show};
use memory::short::{ShortText, Surround};

/// Appends a request's outcome. Appends nothing if `noreply` is true.
#[inline(always)]
pub(crate) fn say(out: &mut Vec<u8>, outcome: Outcome, noreply: bool) {
    let line = match outcome {
        Outcome::Refused(refusal) => return refuse(out, refusal, noreply),
        _ if noreply => return,
        Outcome::Stored(_) => "STORED\r\n",
        Outcome::Deleted => "DELETED\r\n",
        Outcome::Touched => "TOUCHED\r\n",
        Outcome::Done => "OK\r\n",
        Outcome::Noop => "MN\r\n",
        Outcome::Quit => "",
        Outcome::KeysEnd | Outcome::StatsEnd => "END\r\n",
        Outcome::StatsReset => "RESET\r\n",
    };
    out.extend_from_slice(line.as_bytes());
}

#[cold]
fn refuse(out: &mut Vec<u8>, refusal: Refusal, noreply: bool) {
    if !noreply {
        out.extend_from_slice(line(refusal).as_bytes());
    }
    if refusal == Refusal::KeyTooLong {
        // After the refusal of a long key, memcached sends a second line end, even with `noreply`.
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns the line that gives the reason for a refusal.
#[must_use]
pub fn line(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotStored => "NOT_STORED\r\n",
        Refusal::Exists => "EXISTS\r\n",
        Refusal::NotFound => "NOT_FOUND\r\n",
        Refusal::NonNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        Refusal::TooLarge => "SERVER_ERROR object too large for cache\r\n",
        Refusal::NoMemory => "SERVER_ERROR out of memory storing object\r\n",
        Refusal::NoMemoryDelta => "SERVER_ERROR out of memory\r\n",
        Refusal::NoMemoryVivify => "SERVER_ERROR Out of memory allocating new item\r\n",
        Refusal::NoMemoryRequest => "SERVER_ERROR out of memory reading request\r\n",
        Refusal::BadChunk => "CLIENT_ERROR bad data chunk\r\n",
        Refusal::BadExptime => "CLIENT_ERROR invalid exptime argument\r\n",
        Refusal::BadDelta => "CLIENT_ERROR invalid numeric delta argument\r\n",
        Refusal::BadFormat | Refusal::KeyTooLong => "CLIENT_ERROR bad command line format\r\n",
        Refusal::UnknownCommand | Refusal::StatsUnknown => "ERROR\r\n",
        Refusal::Resp => "-ERR no RESP here: this server speaks memcached's protocols\r\n",
        Refusal::TooManyConnections => "ERROR Too many open connections\r\n",
        Refusal::ReplyTooLong => "SERVER_ERROR reply is longer than udp_reply_max\r\n",
        Refusal::MessageTooLong => {
            "SERVER_ERROR request is longer than 65536 bytes or 128 datagrams\r\n"
        }
        Refusal::MessageSpent => {
            "SERVER_ERROR message asks for more than 1024 requests or 2048 keys\r\n"
        }
        Refusal::ConnectionOnly => "SERVER_ERROR answered over connections only\r\n",
        Refusal::OperatorOnly => "SERVER_ERROR obeyed over UDP only with -o udp_admin\r\n",
        Refusal::StatsDetailTooLong => "SERVER_ERROR prefixes take more than 1048576 bytes\r\n",
        Refusal::FlushOff => "CLIENT_ERROR flush_all not allowed\r\n",
        Refusal::StatsDetailOff => "CLIENT_ERROR stats detail not allowed\r\n",
        Refusal::StatsCachedumpOff => "CLIENT_ERROR stats cachedump not allowed\r\n",
        Refusal::FlagInvalid => "CLIENT_ERROR invalid flag\r\n",
        Refusal::FlagDuplicate => "CLIENT_ERROR duplicate flag\r\n",
        Refusal::FlagArithmetic => "CLIENT_ERROR invalid or duplicate flag\r\n",
        Refusal::FlagsTooLong => "CLIENT_ERROR options flags are too long\r\n",
        Refusal::FlagToken => "CLIENT_ERROR bad token in command line format\r\n",
        Refusal::KeyEncoding => "CLIENT_ERROR error decoding key\r\n",
        Refusal::OpaqueTooLong => "CLIENT_ERROR opaque token too long\r\n",
        Refusal::ModeSet => "CLIENT_ERROR invalid mode for ms M token\r\n",
        Refusal::ModeArithmetic => "CLIENT_ERROR invalid mode for ma M token\r\n",
        Refusal::BadInitial => "CLIENT_ERROR invalid numeric initial value\r\n",
        Refusal::BadMetaDelta => "CLIENT_ERROR invalid numeric delta value\r\n",
        Refusal::ShutdownOff => "SERVER_ERROR: shutdown not enabled\r\n",
        Refusal::WatchOff => "CLIENT_ERROR watch commands not allowed\r\n",
        Refusal::ShutdownMode => "CLIENT_ERROR invalid shutdown mode\r\n",
        Refusal::WatchTooMany => "WATCHER_TOO_MANY log watcher limit reached\r\n",
        Refusal::SlabsClass => "BADCLASS invalid src or dst class id\r\n",
        Refusal::SlabsNoSpare => "NOSPARE source class has no spare pages\r\n",
        Refusal::SlabsSame => "SAME src and dst class are identical\r\n",
        Refusal::AutomoveWindow => "CLIENT_ERROR automove window too low or too high\r\n",
        Refusal::LruPercent => "ERROR hot and warm pcts must not exceed 80\r\n",
        Refusal::LruFactor => "ERROR hot/warm age factors must be greater than 0\r\n",
        Refusal::CrawlerBusy => "BUSY currently processing crawler request\r\n",
        Refusal::CrawlerClass => "BADCLASS invalid class id\r\n",
        Refusal::CrawlerUnable => "ERROR an unknown error happened\r\n",
        Refusal::MetadumpOff => "ERROR metadump not allowed\r\n",
        Refusal::MgdumpOff => "ERROR key dump not allowed\r\n",
        Refusal::StatsDetailUsage => "CLIENT_ERROR usage: stats detail on|off|dump\r\n",
        Refusal::StatsCachedumpWords => "CLIENT_ERROR bad command line\r\n",
        Refusal::StatsCachedumpClass => "CLIENT_ERROR Illegal slab id\r\n",
        Refusal::SlabsOff => "CLIENT_ERROR slab reassignment disabled\r\n",
        Refusal::CrawlerOff => "CLIENT_ERROR lru crawler disabled\r\n",
        Refusal::CrawlerStart => "ERROR failed to start lru crawler thread\r\n",
        Refusal::CrawlerSleep => "CLIENT_ERROR sleep must be one second or less\r\n",
        Refusal::LimitTooSmall => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        Refusal::LimitInBytes => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
        Refusal::LimitOutOfBounds => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
    }
}

/// Writes a key's answer: with the CAS unique if `CAS` is true, with `END` if `LAST` is true.
#[derive(Clone, Copy, Debug)]
pub struct Value<'k, const CAS: bool, const LAST: bool> {
    /// The key, 1 to 250 bytes.
    pub key: &'k [u8],
}

impl<const CAS: bool, const LAST: bool> Show for Value<'_, CAS, LAST> {
    const COUNTS_FOR_PREFIX: bool = true;

    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline(always)]
    fn surround(&self, found: &impl FoundItem) -> Option<Surround> {
        if CAS {
            return None;
        }
        let flags = match found.client_flags() {
            0 => ShortText::of(b" 0 "),
            flags => ShortText::of(b" ").then(ShortText::digits(flags)?).then(ShortText::of(b" ")),
        };
        let bytes = ShortText::digits(found.value_bytes())?.then(ShortText::of(b"\r\n"));
        Some(Surround {
            before: [ShortText::of(b"VALUE "), ShortText::NONE, ShortText::NONE, ShortText::NONE],
            key: true,
            between: [flags, bytes],
            behind: if LAST { ShortText::of(b"\r\nEND\r\n") } else { ShortText::of(b"\r\n") },
        })
    }

    fn head(&self, found: &impl FoundItem, out: &mut Vec<u8>) -> Option<bool> {
        out.extend_from_slice(b"VALUE ");
        out.extend_from_slice(self.key);
        out.push(b' ');
        digits(out, found.client_flags());
        out.push(b' ');
        digits(out, found.value_bytes());
        if CAS {
            out.push(b' ');
            digits(out, found.cas());
        }
        out.extend_from_slice(b"\r\n");
        Some(true)
    }

    fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if LAST { b"\r\nEND\r\n" } else { b"\r\n" });
    }

    fn miss(&self, out: &mut Vec<u8>) {
        if LAST {
            say(out, Outcome::KeysEnd, false);
        }
    }
}

#[inline]
pub(crate) fn number(out: &mut Vec<u8>, number: i128, noreply: bool) {
    if !noreply {
        // The digits of 64 bits take fewer instructions.
        match u64::try_from(number) {
            Ok(number) => digits(out, number),
            Err(_) => digits(out, number),
        }
        out.extend_from_slice(b"\r\n");
    }
}

pub(crate) fn version(out: &mut Vec<u8>, version: &str) {
    for part in ["VERSION ", version, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

pub(crate) fn stat(out: &mut Vec<u8>, name: &str, value: Arguments<'_>) {
    // Writing to a `Vec` does not fail.
    let _ = write!(out, "STAT {name} {value}\r\n");
}
