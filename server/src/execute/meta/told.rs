//! What `mg` tells of an item it has found.
//!
//! Where: called by `meta::get`, within a lookup that takes no lock and after one under the lock.
//! Invariant: both tell the same in the same words; without the lock only what cannot be changing
//! meanwhile is told, and the rest is left to who takes it.
//! Source: memcached 1.6.45 `process_mget_cmd`.

use protocol::meta::Flags;
use protocol::{Args, Meta, base64, reply};
use store::{Head, MetaHit};

use crate::clock::Clock;

/// A request, its flags and its key.
pub(in super::super) type Asked<'a> = (&'a Meta<'a>, &'a Flags, &'a [u8]);

/// What a hit is told of its item. `None`: only who holds the lock can tell.
pub(super) trait Told {
    fn client_flags(&self) -> u32;
    fn value_bytes(&self) -> u32;
    fn cas(&self) -> u64;
    fn key_binary(&self) -> bool;
    fn exptime(&self) -> Option<u32>;
    fn idle_seconds(&self) -> Option<u32>;
    fn fetched(&self) -> Option<bool>;
    fn token_sent(&self) -> bool;
    fn stale(&self) -> bool;
    fn won(&self) -> Option<bool>;
    /// The exptime that a flag of this letter has set.
    fn exptime_by(&self, letter: u8) -> Option<u32>;
}

impl Told for Head<'_> {
    #[inline(always)]
    fn client_flags(&self) -> u32 {
        self.client_flags()
    }
    #[inline(always)]
    fn value_bytes(&self) -> u32 {
        self.value_bytes()
    }
    #[inline(always)]
    fn cas(&self) -> u64 {
        self.cas()
    }
    #[inline(always)]
    fn key_binary(&self) -> bool {
        self.key_binary()
    }
    #[inline(always)]
    fn exptime(&self) -> Option<u32> {
        self.exptime()
    }
    #[inline(always)]
    fn idle_seconds(&self) -> Option<u32> {
        self.idle_seconds()
    }
    #[inline(always)]
    fn fetched(&self) -> Option<bool> {
        self.fetched().then_some(true)
    }
    #[inline(always)]
    fn token_sent(&self) -> bool {
        self.token_sent()
    }
    #[inline(always)]
    fn stale(&self) -> bool {
        self.stale()
    }
    #[inline(always)]
    fn won(&self) -> Option<bool> {
        // Of who looks at a stale item the first wins, under the lock.
        (!self.stale() || self.token_sent()).then_some(false)
    }
    #[inline(always)]
    fn exptime_by(&self, _letter: u8) -> Option<u32> {
        None
    }
}

/// A hit under the lock, and what was asked for.
pub(super) struct Locked<'a> {
    pub(super) hit: &'a MetaHit<'a>,
    pub(super) flags: &'a Flags,
    pub(super) clock: &'a Clock,
}

impl Told for Locked<'_> {
    fn client_flags(&self) -> u32 {
        self.hit.hit.client_flags
    }
    fn value_bytes(&self) -> u32 {
        self.hit.hit.value_bytes
    }
    fn cas(&self) -> u64 {
        self.hit.hit.cas
    }
    fn key_binary(&self) -> bool {
        self.hit.key_binary
    }
    fn exptime(&self) -> Option<u32> {
        Some(self.hit.exptime)
    }
    fn idle_seconds(&self) -> Option<u32> {
        Some(self.hit.idle_seconds)
    }
    fn fetched(&self) -> Option<bool> {
        Some(self.hit.fetched)
    }
    fn token_sent(&self) -> bool {
        self.hit.token_sent
    }
    fn stale(&self) -> bool {
        self.hit.stale
    }
    fn won(&self) -> Option<bool> {
        Some(self.hit.won)
    }
    fn exptime_by(&self, letter: u8) -> Option<u32> {
        let exptime = match letter {
            b'N' if self.hit.vivified => self.flags.vivify,
            b'T' => self.flags.exptime,
            _ => None,
        };
        exptime.map(|exptime| self.clock.realtime(exptime))
    }
}

/// Appends the line of a hit, before its `value` if that is to follow. `None`: something asked for
/// is not told without the lock.
#[inline(always)]
pub(super) fn append_head(
    now: u32,
    (tokens, key): (Args<'_>, &[u8]),
    value: bool,
    told: &impl Told,
    buf: &mut Vec<u8>,
) -> Option<()> {
    let won = told.won()?;
    if value {
        reply::number_after(buf, b"VA ", told.value_bytes());
    } else {
        buf.extend_from_slice(b"HD");
    }
    let mut exptime = None;
    for token in tokens.tokens() {
        match token[0] {
            letter @ (b'T' | b'N') => exptime = told.exptime_by(letter).or(exptime),
            b's' => reply::number_after(buf, b" s", told.value_bytes()),
            b't' => append_ttl(buf, exptime.or_else(|| told.exptime())?, now),
            b'c' => reply::number_after(buf, b" c", told.cas()),
            b'f' => reply::number_after(buf, b" f", told.client_flags()),
            b'l' => reply::number_after(buf, b" l", told.idle_seconds()?),
            b'h' => buf.extend_from_slice(if told.fetched()? { b" h1" } else { b" h0" }),
            b'O' => append_opaque(buf, token),
            b'k' => append_key(buf, key, told.key_binary()),
            _ => {}
        }
    }
    if told.token_sent() || told.stale() || won {
        let marks = [(told.token_sent(), b" Z"), (told.stale(), b" X"), (won, b" W")];
        for (_, mark) in marks.iter().filter(|(set, _)| *set) {
            buf.extend_from_slice(*mark);
        }
    }
    buf.extend_from_slice(b"\r\n");
    Some(())
}

/// The time left; an item that is about to go wraps as in memcached.
pub(in super::super) fn append_ttl(buf: &mut Vec<u8>, exptime: u32, now: u32) {
    if exptime == 0 {
        buf.extend_from_slice(b" t-1");
    } else {
        reply::number_after(buf, b" t", exptime.wrapping_sub(now));
    }
}

/// The opaque token, as it came.
pub(in super::super) fn append_opaque(buf: &mut Vec<u8>, token: &[u8]) {
    buf.push(b' ');
    buf.extend_from_slice(token);
}

/// The key, in base64 if it was given so.
pub(in super::super) fn append_key(buf: &mut Vec<u8>, key: &[u8], binary: bool) {
    buf.extend_from_slice(b" k");
    if binary {
        base64::encode(key, buf);
        buf.extend_from_slice(b" b");
    } else {
        buf.extend_from_slice(key);
    }
}
