//! Writes a server's answers to meta commands. The answers to errors are in `text::write`.
//!
//! Where: the executor answers here, during a lookup without a lock or after a lookup with a lock.
//! Invariant: an answer has its flags in the order of the request's flags; `W`, `X`, `Z` come last.
//! Source: memcached 1.6.45 `process_mget_cmd`, `process_mset_cmd`, `process_mdelete_cmd`,
//! `process_marithmetic_cmd`, `process_meta_command`.

use super::Flags;
use crate::base64;
use crate::digits::{number, number_after};
use crate::form::Form;
use crate::outcome::{Outcome, Refusal};
use crate::request::{LineTokens, Meta};
use crate::show::{FoundItem, Show};
use memory::short::{ShortText, Surround};

/// The slab class in answers to `me`: always the first, because this server has no classes.
const SLAB_CLASS: &[u8; 12] = b" cls=1 size=";

/// The result of `ma`.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// The number after the addition or subtraction.
    pub value: u64,
    /// The item's CAS unique.
    pub cas: u64,
    /// The item's exptime before the request changed it; 0 for never.
    pub exptime: u32,
    /// The exptime that flag `T` sets.
    pub touched: Option<u32>,
    /// The exptime that flag `N` sets, if the request created the item.
    pub vivified: Option<u32>,
}

/// The fields of a meta command that the answer needs.
#[derive(Clone, Copy, Debug)]
pub struct RequestFields<'a> {
    /// The flags, as sent.
    pub flags: LineTokens<'a>,
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// True if the client sent the key in base64 (`b`); the answer then shows the key in base64.
    pub key_binary: bool,
    /// True if a miss of `mg`, or a success of another command, gets no answer (`q`).
    pub quiet: bool,
}

impl<'a> RequestFields<'a> {
    /// Collects the fields from a request, its flags, and its key.
    #[must_use]
    pub fn new(request: &Meta<'a>, flags: &Flags, key: &'a [u8]) -> RequestFields<'a> {
        RequestFields { flags: request.flags, key, key_binary: flags.binary, quiet: flags.quiet }
    }

    /// Appends the outcome of `ms` or `md`; for `ms`, `value_bytes` is the value's new length.
    #[inline(always)]
    pub fn say(&self, outcome: Outcome, value_bytes: Option<u32>, out: &mut Vec<u8>) {
        let (code, cas) = match outcome {
            Outcome::Refused(Refusal::NotStored) => (b"NS", 0),
            Outcome::Refused(Refusal::NotFound) => (b"NF", 0),
            Outcome::Refused(Refusal::Exists) => (b"EX", 0),
            Outcome::Refused(refusal) => return Form::LINE.refuse(refusal, out),
            _ if self.quiet => return,
            Outcome::Stored(cas) => (b"HD", cas),
            _ => (b"HD", 0),
        };
        out.extend_from_slice(code);
        self.each_flag(out, |letter, out| match (letter, value_bytes) {
            (b'c', Some(_)) => number_after(out, b" c", cas),
            (b's', Some(value_bytes)) => number_after(out, b" s", value_bytes),
            _ => {}
        });
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the answer to `ma`. If `with_value` is true, the answer has the number as its value.
    pub fn number(&self, number: &Number, with_value: bool, now: u32, out: &mut Vec<u8>) {
        if self.quiet {
            return;
        }
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number.value).as_bytes();
        if with_value {
            number_after(out, b"VA ", digits.len());
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut exptime = number.exptime;
        self.each_flag(out, |letter, out| match letter {
            b'T' => exptime = number.touched.unwrap_or(exptime),
            b'N' => exptime = number.vivified.unwrap_or(exptime),
            b'c' => number_after(out, b" c", number.cas),
            b't' => seconds_left(out, exptime, now),
            _ => {}
        });
        out.extend_from_slice(b"\r\n");
        if with_value {
            out.extend_from_slice(digits);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn miss(&self, out: &mut Vec<u8>) {
        if !self.quiet {
            out.extend_from_slice(b"EN");
            self.each_flag(out, |_, _| ());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the opaque token for `O` and the key for `k`; calls `other` for every other flag.
    #[inline(always)]
    fn each_flag(&self, out: &mut Vec<u8>, mut other: impl FnMut(u8, &mut Vec<u8>)) {
        for token in self.flags.tokens() {
            match token[0] {
                b'O' => opaque(out, token),
                b'k' => key(out, self.key, self.key_binary),
                letter => other(letter, out),
            }
        }
    }
}

/// The answer to `mg`.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// The fields of the request.
    pub request: RequestFields<'a>,
    /// True if the value is shown (`v`).
    pub value: bool,
    /// The server's clock, in seconds.
    pub now: u32,
}

impl Show for Get<'_> {
    const COUNTS_FOR_PREFIX: bool = false;

    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.request.key
    }

    #[inline(always)]
    fn surround(&self, _found: &impl FoundItem) -> Option<Surround> {
        None
    }

    #[inline(always)]
    fn head(&self, found: &impl FoundItem, out: &mut Vec<u8>) -> Option<bool> {
        let won = found.won()?;
        if self.value {
            number_after(out, b"VA ", found.value_bytes());
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut exptime = None;
        for token in self.request.flags.tokens() {
            match token[0] {
                b'T' => exptime = found.touched().or(exptime),
                b'N' => exptime = found.vivified().or(exptime),
                b's' => number_after(out, b" s", found.value_bytes()),
                b't' => seconds_left(out, exptime.or_else(|| found.exptime())?, self.now),
                b'c' => number_after(out, b" c", found.cas()),
                b'f' => number_after(out, b" f", found.client_flags()),
                b'l' => number_after(out, b" l", found.idle_seconds()?),
                b'h' => out.extend_from_slice(if found.fetched()? { b" h1" } else { b" h0" }),
                b'O' => opaque(out, token),
                b'k' => key(out, self.request.key, found.key_binary()),
                _ => {}
            }
        }
        let marks = [(found.token_sent(), b" Z"), (found.stale(), b" X"), (won, b" W")];
        for (_, mark) in marks.iter().filter(|(set, _)| *set) {
            out.extend_from_slice(*mark);
        }
        out.extend_from_slice(b"\r\n");
        Some(self.value)
    }

    fn end(&self, out: &mut Vec<u8>) {
        if self.value {
            out.extend_from_slice(b"\r\n");
        }
    }

    fn miss(&self, out: &mut Vec<u8>) {
        self.request.miss(out);
    }
}

/// Writes the answer to an `mg` whose only flag is `v`, with less work than `Get` for most items.
#[derive(Clone, Copy, Debug)]
pub struct GetValue<'k> {
    /// The key, 1 to 250 bytes.
    pub key: &'k [u8],
    /// The server's clock, in seconds.
    pub now: u32,
}

impl<'k> GetValue<'k> {
    /// Returns the same answer as a `Get`, which can answer any `mg`.
    #[must_use]
    pub fn in_full(self) -> Get<'k> {
        let Meta { flags, key, .. } = Meta::value_of(self.key);
        let request = RequestFields { flags, key, key_binary: false, quiet: false };
        Get { request, value: true, now: self.now }
    }
}

impl Show for GetValue<'_> {
    const COUNTS_FOR_PREFIX: bool = false;

    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline(always)]
    fn surround(&self, found: &impl FoundItem) -> Option<Surround> {
        if found.stale() || found.token_sent() {
            return None;
        }
        let line_end = ShortText::of(b"\r\n");
        Some(Surround {
            before: [
                ShortText::of(b"VA ").then(ShortText::digits(found.value_bytes())?),
                line_end,
                ShortText::NONE,
                ShortText::NONE,
            ],
            behind: line_end,
            ..Surround::default()
        })
    }

    fn head(&self, found: &impl FoundItem, out: &mut Vec<u8>) -> Option<bool> {
        self.in_full().head(found, out)
    }

    fn end(&self, out: &mut Vec<u8>) {
        self.in_full().end(out);
    }

    fn miss(&self, out: &mut Vec<u8>) {
        self.in_full().miss(out);
    }
}

/// Appends the answer to `me`. `found` is `None` on a miss; the item takes `item_bytes` of memory.
pub fn debug(
    key: &[u8],
    found: Option<&impl FoundItem>,
    item_bytes: u32,
    now: u32,
    out: &mut Vec<u8>,
) {
    let Some(found) = found else { return out.extend_from_slice(b"EN\r\n") };
    out.extend_from_slice(b"ME ");
    if found.key_binary() {
        base64::encode(key, out);
    } else {
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b" exp=");
    // The time left is a signed 32-bit number, as in memcached, so over 68 years become negative.
    let exptime = found.exptime().unwrap_or(0);
    number(out, if exptime == 0 { -1 } else { exptime.wrapping_sub(now).cast_signed() });
    number_after(out, b" la=", found.idle_seconds().unwrap_or(0));
    out.extend_from_slice(b" cas=");
    number(out, found.cas());
    let fetched = found.fetched() == Some(true);
    out.extend_from_slice(if fetched { b" fetch=yes" } else { b" fetch=no" });
    out.extend_from_slice(SLAB_CLASS);
    number(out, item_bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends flag `t`: the seconds until the item expires. An expired item's number wraps around.
fn seconds_left(out: &mut Vec<u8>, exptime: u32, now: u32) {
    if exptime == 0 {
        out.extend_from_slice(b" t-1");
    } else {
        number_after(out, b" t", exptime.wrapping_sub(now));
    }
}

/// Appends the token of flag `O` as sent, its letter included.
fn opaque(out: &mut Vec<u8>, token: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(token);
}

fn key(out: &mut Vec<u8>, key: &[u8], binary: bool) {
    out.extend_from_slice(b" k");
    if binary {
        base64::encode(key, out);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}
