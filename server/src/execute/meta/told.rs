//! What `mg` tells of an item it has found.
//!
//! Where: called by `meta::get`, within a lookup that takes no lock and after one under the lock.
//! Invariant: both tell the same in the same words; without the lock only what cannot be changing
//! meanwhile is told, and the rest is left to who takes it.
//! Source: memcached 1.6.45 `process_mget_cmd`.

use protocol::meta::Flags;
use protocol::{Meta, base64, reply};
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
    fn vivified(&self) -> bool;
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
    fn vivified(&self) -> bool {
        false
    }
}

impl Told for MetaHit<'_> {
    fn client_flags(&self) -> u32 {
        self.hit.client_flags
    }
    fn value_bytes(&self) -> u32 {
        self.hit.value_bytes
    }
    fn cas(&self) -> u64 {
        self.hit.cas
    }
    fn key_binary(&self) -> bool {
        self.key_binary
    }
    fn exptime(&self) -> Option<u32> {
        Some(self.exptime)
    }
    fn idle_seconds(&self) -> Option<u32> {
        Some(self.idle_seconds)
    }
    fn fetched(&self) -> Option<bool> {
        Some(self.fetched)
    }
    fn token_sent(&self) -> bool {
        self.token_sent
    }
    fn stale(&self) -> bool {
        self.stale
    }
    fn won(&self) -> Option<bool> {
        Some(self.won)
    }
    fn vivified(&self) -> bool {
        self.vivified
    }
}

/// Appends the line of a hit, before its `value` if that is to follow. `None`: something asked for
/// is not told without the lock.
#[inline(always)]
pub(super) fn append_head(
    clock: &Clock,
    asked: Asked<'_>,
    value: bool,
    told: &impl Told,
    buf: &mut Vec<u8>,
) -> Option<()> {
    let (request, flags, key) = asked;
    let won = told.won()?;
    if value {
        reply::number_after(buf, b"VA ", told.value_bytes());
    } else {
        buf.extend_from_slice(b"HD");
    }
    let mut exptime = None;
    for token in request.flags.tokens() {
        match token[0] {
            b'T' => exptime = Some(clock.realtime(flags.exptime.unwrap_or(0))),
            b'N' if told.vivified() => exptime = Some(clock.realtime(flags.vivify.unwrap_or(0))),
            b's' => reply::number_after(buf, b" s", told.value_bytes()),
            b't' => append_ttl(buf, exptime.or_else(|| told.exptime())?, clock.now),
            b'c' => reply::number_after(buf, b" c", told.cas()),
            b'f' => reply::number_after(buf, b" f", told.client_flags()),
            b'l' => reply::number_after(buf, b" l", told.idle_seconds()?),
            b'h' => buf.extend_from_slice(if told.fetched()? { b" h1" } else { b" h0" }),
            b'O' => append_opaque(buf, token),
            b'k' => append_key(buf, key, told.key_binary()),
            _ => {}
        }
    }
    let marks = [(told.token_sent(), b" Z"), (told.stale(), b" X"), (won, b" W")];
    for (_, mark) in marks.iter().filter(|(set, _)| *set) {
        buf.extend_from_slice(*mark);
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
