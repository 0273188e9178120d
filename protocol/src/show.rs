//! Writes a lookup's result in the form that the request determines.
//!
//! Where: between the executor, which looks a key up, and the `write` files, which answer.
//! Invariant: the executor's code for a lookup is compiled once for each form (`shown_by!` in
//! `form`), so that no code that writes an answer branches on the form.
//! Source: none; an answer must cost no more instructions than in a server with one protocol.

use memory::short::Surround;

/// The fields of a found item that an answer may show. Only answers to meta commands show more than
/// the first three fields. `None` means that the field is not known without the item's lock.
pub trait FoundItem {
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
    /// The second of the server's clock in which the item expires; 0 for never.
    fn exptime(&self) -> Option<u32> {
        None
    }
    /// The exptime that the request sets on any item that is found.
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
    /// True if an earlier client has won the right to renew the item.
    fn token_sent(&self) -> bool {
        false
    }
    /// True if this client wins the right to renew the item.
    fn won(&self) -> Option<bool> {
        Some(false)
    }
}

/// Writes the answer for one key, in one form of retrieval.
pub trait Show: Copy {
    /// True if `stats detail` counts lookups in this form. memcached does not count meta commands.
    const COUNTS_FOR_PREFIX: bool;

    /// The key of the request.
    fn key(&self) -> &[u8];
    /// Returns the texts around the value. `None` if a number has too many digits, or if the answer
    /// shows more than a `Surround` can hold; the caller then uses `head` and `end`.
    fn surround(&self, found: &impl FoundItem) -> Option<Surround>;
    /// Appends the bytes before the value; returns true if the value follows. `None` if a field is
    /// not known without the item's lock; the caller then removes the appended bytes.
    fn head(&self, found: &impl FoundItem, out: &mut Vec<u8>) -> Option<bool>;
    /// Appends the bytes after the value, or after `head` if no value follows.
    fn end(&self, out: &mut Vec<u8>);
    /// Appends the answer to a miss.
    fn miss(&self, out: &mut Vec<u8>);
}
