//! What a lookup found, shown in a request's own form.
//!
//! Where: between the executor, which looks a key up, and the protocols' `write` files, which say
//! what it found.
//! Invariant: the executor's code for a lookup is compiled once for each form (`shown_by!` in
//! `form`), so that an answer never asks for its form again.
//! Source: none; one answer must cost no more instructions than if it were the only protocol's.

use crate::short::Short;

/// Short texts before a key, and between a key and its value.
const BEFORE: usize = 4;
const BETWEEN: usize = 2;

/// What stands around a value that is short enough to be appended together with it.
///
/// `store::Around` is the same, of `store::Word`s: neither crate knows the other, so the executor
/// copies the one into the other, which compiles into nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surround {
    /// First of all.
    pub before: [Short; BEFORE],
    /// Is the key shown next?
    pub key: bool,
    /// Right before the value.
    pub between: [Short; BETWEEN],
    /// Right behind the value.
    pub behind: Short,
}

/// What an answer may show of an item that was found. Only meta commands show more than the first
/// three; `None` there means that it is not sure unless the item's lock is held.
pub trait Found {
    /// The client's own 32 bits.
    fn client_flags(&self) -> u32;
    /// Length of the value.
    fn value_bytes(&self) -> u32;
    /// The CAS unique; 0 when none are kept.
    fn cas(&self) -> u64;
    /// Its key was given in base64.
    fn key_binary(&self) -> bool {
        false
    }
    /// When it expires, in seconds of the server's clock; 0 for never.
    fn exptime(&self) -> Option<u32> {
        None
    }
    /// The exptime that the request has given it, as it gives any item that is there.
    fn touched(&self) -> Option<u32> {
        None
    }
    /// The exptime that the request has made it with.
    fn vivified(&self) -> Option<u32> {
        None
    }
    /// Seconds since it was last used.
    fn idle_seconds(&self) -> Option<u32> {
        None
    }
    /// It has been fetched before.
    fn fetched(&self) -> Option<bool> {
        None
    }
    /// It is marked as stale.
    fn stale(&self) -> bool {
        false
    }
    /// Some client has been told before that it is the one to renew the item.
    fn token_sent(&self) -> bool {
        false
    }
    /// This client is the one to renew the item.
    fn won(&self) -> Option<bool> {
        Some(false)
    }
}

/// How one form of a retrieval answers for one key.
pub trait Show: Copy {
    /// A lookup counts for its key's prefix. As in memcached, that of a meta command does not.
    const COUNTS_FOR_PREFIX: bool;

    /// The key.
    fn key(&self) -> &[u8];
    /// All that stands around the value. `None`: its numbers have too many digits, or more is asked
    /// for than this can hold; then `head` and `end` say it.
    fn around(&self, found: &impl Found) -> Option<Surround>;
    /// Appends what stands before the value, and says whether the value itself follows. `None`:
    /// something is asked for that is not sure without the item's lock; what was appended must go.
    fn head(&self, found: &impl Found, out: &mut Vec<u8>) -> Option<bool>;
    /// Appends what stands behind the value, or behind `head` where no value follows.
    fn end(&self, out: &mut Vec<u8>);
    /// Appends the answer where there is no such key.
    fn miss(&self, out: &mut Vec<u8>);
}
