//! What may be asked of the store and what it answers: plain data, no protocol.
//!
//! Where: between a codec's `Request` and the index. Every protocol's commands come down to these
//! few verbs, so a value set by one protocol is read by all.
//! Invariant: times are whole seconds of the store's own clock (`u32`, 0 = never expires); nothing
//! here borrows from the log for longer than the `Column` it came from.
//! Source: memcached's `do_store_item`, `do_add_delta`, `process_mget_cmd` and
//! `process_mdelete_cmd` (1.6.45).

use crate::handle::Kept;
use crate::{Draft, Pinned};

/// What a `Put` does with an item that the key has already, or without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Stores in any case (`set`).
    Set,
    /// Stores where there is no such key (`add`); an existing item counts as used.
    Add,
    /// Stores where the key exists (`replace`).
    Replace,
    /// Stores if `Put::cas` equals the item's (`cas`).
    Cas,
    /// Adds the value behind the existing one; flags and exptime stay (`append`).
    Append,
    /// Adds the value before the existing one (`prepend`).
    Prepend,
    /// As `Append`, but stores the value alone on a miss (meta `MA` with `N`).
    AppendVivify,
    /// As `Prepend`, but stores the value alone on a miss.
    PrependVivify,
}

/// The bytes to store.
#[derive(Debug)]
pub enum Body<'a> {
    /// The whole value, in the receive buffer.
    Bytes(&'a [u8]),
    /// A value received straight into the store's frames, which must be complete. Once it is stored
    /// it is spent; until then it may be given again.
    Draft(&'a mut Draft),
}

/// One storage request.
#[derive(Debug)]
pub struct Put<'a> {
    /// How to treat what is there.
    pub verb: Verb,
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The key was given in base64 (meta `b`), and is shown so again.
    pub key_binary: bool,
    /// The client's own 32 bits.
    pub client_flags: u32,
    /// When it expires, in seconds of the store's clock; 0 = never.
    pub exptime: u32,
    /// The CAS unique it must match; 0 = none was given.
    pub cas: u64,
    /// The CAS unique it shall get (meta `E`); `None` = the next of the store's own.
    pub cas_in: Option<u64>,
    /// With `Verb::Cas`: a lower `cas` than the item's stores too, but marks the new item stale
    /// (meta `I`).
    pub stale: bool,
}

impl<'a> Put<'a> {
    /// A request without flags, exptime and CAS unique.
    #[must_use]
    pub fn new(verb: Verb, key: &'a [u8]) -> Put<'a> {
        Put {
            verb,
            key,
            key_binary: false,
            client_flags: 0,
            exptime: 0,
            cas: 0,
            cas_in: None,
            stale: false,
        }
    }
}

/// What a `Put` came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Stored; `value_bytes` is the length of the value as it stands now (after append, the sum).
    Stored {
        /// The CAS unique it got; 0 when the store keeps none.
        cas: u64,
        /// The length of the value as it stands now.
        value_bytes: u32,
    },
    /// The verb's condition does not hold (`NOT_STORED`).
    NotStored,
    /// The CAS unique differs (`EXISTS`).
    Exists,
    /// `Verb::Cas` on a miss (`NOT_FOUND`).
    NotFound,
}

/// Why the store took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Longer than `-I` allows.
    TooLarge,
    /// No room, and none to be made (`-M`, or everything is in use by slow readers).
    NoMemory,
    /// There is no room yet: other columns hold what will be room, or more is to be drained than
    /// one request's share. Nothing was changed, and a draft may be given again. Ask again after a
    /// quiescent point, and after other work if there is any.
    Later,
}

/// The value of a hit.
#[derive(Debug)]
pub enum Value<'s> {
    /// In the log: copy it out before the column goes on.
    Log(&'s [u8]),
    /// The frames with the body, pinned until dropped, and the rest of the value, in the log.
    Frames(Pinned, &'s [u8]),
}

/// A found item, borrowed from the log until the column's next call.
#[derive(Debug)]
pub struct Hit<'s> {
    /// The client's own 32 bits.
    pub client_flags: u32,
    /// The CAS unique; 0 when the store keeps none.
    pub cas: u64,
    /// Length of the value.
    pub value_bytes: u32,
    /// The value.
    pub value: Value<'s>,
}

/// A few bytes of text in a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    pub(crate) text: u64,
    pub(crate) bytes: u32,
}

impl Word {
    /// The first `bytes` bytes of `text`, the lowest first; at most all of them.
    #[inline(always)]
    #[must_use]
    pub const fn new(text: u64, bytes: u32) -> Word {
        Word { text, bytes: if bytes < u64::BITS / 8 { bytes } else { u64::BITS / 8 } }
    }
}

/// What stands around a short value in a reply: words before the key, the key if it is shown, words
/// between key and value, and one behind the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// First of all.
    pub before: [Word; 4],
    /// Is the key shown?
    pub key: bool,
    /// Right before the value.
    pub between: [Word; 2],
    /// Right behind it.
    pub behind: Word,
}

/// What is to follow what a lookup's `head` appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// The value.
    Value,
    /// Nothing.
    NoValue,
    /// Nothing: the lookup is called off, and what was appended is removed.
    CallOff,
}

/// What came of a lookup that `head` could call off.
#[derive(Debug)]
pub enum Looked<'s> {
    /// No such key.
    Miss,
    /// `head` called it off: nothing is appended, and it counts as no use.
    Left,
    /// Done.
    Hit(Appended<'s>),
}

/// What a hit has appended to a buffer.
#[derive(Debug)]
pub enum Appended<'s> {
    /// The value, and what stands around it.
    Around,
    /// What `head` appended, and the whole value if `head` asked for it.
    Whole,
    /// What `head` appended. The value is to follow, which is never rewritten: its bytes, and what
    /// to ask `Column::kept` for later.
    Lasting(&'s [u8], Kept),
    /// What `head` appended. The value is to follow: the body in frames, then the rest in the log,
    /// as in `Value`.
    Frames(Pinned, &'s [u8]),
}

/// A part of `MetaGet` that changes the item, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaStep {
    /// `T`: the new exptime.
    Touch(u32),
    /// `N`: on a miss, an empty item with this exptime is made, and the win is ours.
    Vivify(u32),
    /// `R`: if it expires before this time, the first to ask wins.
    Recache(u32),
}

/// Meta get (`mg`).
#[derive(Debug)]
pub struct MetaGet<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The key was given in base64: a vivified item remembers it.
    pub key_binary: bool,
    /// `E`: the CAS unique a vivified item gets.
    pub cas_in: Option<u64>,
    /// False with `u`: counts as no use of the item.
    pub bump: bool,
    /// False with `me`, which only looks, and where `mg` fails while it answers: nobody wins.
    pub win: bool,
    /// Changes to make, at most one of each, in the order given.
    pub steps: &'a [MetaStep],
}

/// What `mg` may return.
#[derive(Debug)]
pub struct MetaHit<'s> {
    /// The item as `get` returns it.
    pub hit: Hit<'s>,
    /// Its key was given in base64.
    pub key_binary: bool,
    /// Exptime before any step; 0 = never.
    pub exptime: u32,
    /// Seconds since its last access before this one, to within 60 s (`l`).
    pub idle_seconds: u32,
    /// It had been fetched before this (`h`).
    pub fetched: bool,
    /// It was made by this request (`N`).
    pub vivified: bool,
    /// Marked stale (`X`).
    pub stale: bool,
    /// Somebody won before (`Z`).
    pub token_sent: bool,
    /// This request won (`W`).
    pub won: bool,
    /// Bytes it takes in the store, key, value and overhead (`me`'s size).
    pub item_bytes: u32,
}

/// Meta delete (`md`).
#[derive(Debug)]
pub struct MetaDelete<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The CAS unique it must match (`C`).
    pub cas: Option<u64>,
    /// `E`: the CAS unique the marked or emptied item gets.
    pub cas_in: Option<u64>,
    /// `I`: mark stale instead of deleting.
    pub stale: bool,
    /// `T`: with `I`, the new exptime; with `x`, the emptied item's.
    pub exptime: Option<u32>,
    /// `x`: drop the value and the client flags, keep the item.
    pub remove_value: bool,
    /// `F` with `x`: the emptied item's client flags.
    pub client_flags: u32,
}

/// What a delete came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Deleted, emptied or marked.
    Deleted,
    /// No such key.
    NotFound,
    /// The CAS unique differs.
    Exists,
}

/// Arithmetic (`incr`, `decr`, `ma`).
#[derive(Debug)]
pub struct Delta<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The key was given in base64: a vivified item does *not* remember it (as memcached).
    pub incr: bool,
    /// By how much; wraps upwards, stops at 0 downwards.
    pub delta: u64,
    /// The CAS unique it must match; 0 = none was given.
    pub cas: u64,
    /// `E`: the CAS unique it gets.
    pub cas_in: Option<u64>,
    /// On a miss, store `initial` with `exptime` (meta `N` and `J`; binary increment).
    pub vivify: Option<Vivify>,
    /// `T`: the new exptime on a hit. What is made on a miss has `Vivify::exptime`.
    pub exptime: Option<u32>,
}

/// What arithmetic stores on a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vivify {
    /// The number stored.
    pub initial: u64,
    /// Its exptime.
    pub exptime: u32,
}

/// What arithmetic came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Done.
    Counted {
        /// The number as it stands now.
        value: u64,
        /// The CAS unique it got.
        cas: u64,
        /// Exptime before `Delta::exptime` was applied; 0 = never.
        exptime: u32,
        /// It was made by this request.
        vivified: bool,
    },
    /// No such key.
    NotFound,
    /// The CAS unique differs.
    Exists,
    /// The value is no decimal number of 64 bits.
    NonNumeric,
}
