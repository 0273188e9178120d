//! Shows a lookup's result in the form that its request asks for.
//!
//! Where: between the executor, which looks a key up, and the `write` files, which answer.
//! Invariant: the executor's code for a lookup is compiled once for each form (`shown_by!` in
//! `form`), so that an answer never branches on its form again.
//! Source: none; an answer must cost no more instructions than in a server of one protocol.

use crate::short::Short;

/// Number of short texts before a key, and between a key and its value.
const BEFORE: usize = 4;
const BETWEEN: usize = 2;

/// The texts around a value that is short enough to be appended together with them.
///
/// `store::Around` is the same type, made of `store::Word`s. Neither crate knows the other, so the
/// executor copies one into the other; the copy compiles to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surround {
    /// The first texts of the answer.
    pub before: [Short; BEFORE],
    /// True if the key follows `before`.
    pub key: bool,
    /// The texts right before the value.
    pub between: [Short; BETWEEN],
    /// The text right behind the value.
    pub behind: Short,
}

/// An item that was found, as far as an answer may show it. Only meta commands show more than the
/// first three. `None` means that the field is not known without the item's lock.
pub trait Found {
    /// The client flags.
    fn client_flags(&self) -> u32;
    /// The length of the value.
    fn value_bytes(&self) -> u32;
    /// The CAS unique; 0 if the server keeps none.
    fn cas(&self) -> u64;
    /// True if the key was given in base64.
    fn key_binary(&self) -> bool {
        false
    }
    /// When the item expires, in seconds of the server's clock; 0 for never.
    fn exptime(&self) -> Option<u32> {
        None
    }
    /// The exptime that the request gives any item that it finds.
    fn touched(&self) -> Option<u32> {
        None
    }
    /// The exptime of an item that the request itself has created.
    fn vivified(&self) -> Option<u32> {
        None
    }
    /// Seconds since the item was last used.
    fn idle_seconds(&self) -> Option<u32> {
        None
    }
    /// True if the item has been fetched before.
    fn fetched(&self) -> Option<bool> {
        None
    }
    /// True if the item is marked as stale.
    fn stale(&self) -> bool {
        false
    }
    /// True if an earlier client has been told to renew the item.
    fn token_sent(&self) -> bool {
        false
    }
    /// True if this client is the one to renew the item.
    fn won(&self) -> Option<bool> {
        Some(false)
    }
}

/// How one form of a retrieval answers for one key.
pub trait Show: Copy {
    /// True if a lookup counts for its key's prefix. In memcached a meta command's does not.
    const COUNTS_FOR_PREFIX: bool;

    /// The key of the request.
    fn key(&self) -> &[u8];
    /// Returns all that stands around the value. `None` if its numbers have too many digits, or if
    /// the request asks for more than a `Surround` can hold; the caller then uses `head` and `end`.
    fn around(&self, found: &impl Found) -> Option<Surround>;
    /// Appends the part before the value; true if the value follows. `None` if a field is not known
    /// without the item's lock; the caller then removes what was appended.
    fn head(&self, found: &impl Found, out: &mut Vec<u8>) -> Option<bool>;
    /// Appends the answer's part behind the value, or behind `head` if no value follows.
    fn end(&self, out: &mut Vec<u8>);
    /// Appends the answer to a miss.
    fn miss(&self, out: &mut Vec<u8>);
}
