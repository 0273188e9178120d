//! The requests that the store takes and its answers: plain data, no protocol.
//!
//! Where: the server's executor reduces the commands of all protocols to these few verbs, so that a
//! value set by one protocol can be read by all protocols.
//! Invariant: times are whole seconds of the store's clock; an exptime of 0 means never. A result
//! that borrows from the log does not outlive the `Column` that returned it.
//! Source: memcached's `do_store_item`, `do_add_delta`, `process_mget_cmd` and
//! `process_mdelete_cmd` (1.6.45).

mod delta;
pub(crate) mod digits;
pub(crate) mod dump;
pub(crate) mod extend;
pub(crate) mod get;
mod meta;
mod put;

use crate::column::handle::ValueRef;
use crate::engine::draft::Draft;
use memory::frames::Pinned;
pub use memory::verb::Verb;

/// The bytes to store.
#[derive(Debug)]
pub enum Body<'a> {
    /// The whole value, in the receive buffer.
    Bytes(&'a [u8]),
    /// A complete value that was received straight into the store's frames. A draft can be stored
    /// only once; after a refusal the draft may be passed again.
    Draft(&'a mut Draft),
}

/// One storage request.
#[derive(Debug)]
pub struct Put<'a> {
    /// The condition for storing, and the fate of the old value.
    pub verb: Verb,
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// True if the key was given in base64 (meta `b`), so that replies also show it in base64.
    pub key_binary: bool,
    /// The 32 bits of flags that the client stores with an item.
    pub client_flags: u32,
    /// The exptime, in seconds of the store's clock; 0 = never.
    pub exptime: u32,
    /// The CAS unique that the item must have; 0: the request has none.
    pub cas: u64,
    /// The CAS unique that the new item gets (meta `E`); `None` = the store's next unique.
    pub cas_in: Option<u64>,
    /// If true and the verb is `Cas`, the value also replaces an item with a higher CAS unique than
    /// `cas`, and the new item is marked stale (meta `I`).
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

/// The result of a `Put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutResult {
    /// The value was stored.
    Stored {
        /// The CAS unique of the new item; 0 if the store keeps none.
        cas: u64,
        /// The length of the new value; after append or prepend, the length of the joined value.
        value_bytes: u32,
    },
    /// The verb's condition does not hold (`NOT_STORED`).
    NotStored,
    /// The item's CAS unique is not that of the request (`EXISTS`).
    Exists,
    /// The verb is `Cas`, and the key has no item (`NOT_FOUND`).
    NotFound,
}

/// The value of a hit.
#[derive(Debug)]
pub enum Value<'s> {
    /// A value in the log, to be copied before the column's next call.
    Log(&'s [u8]),
    /// The value's beginning in frames, which stay pinned until dropped, and its end in the log.
    Frames(Pinned, &'s [u8]),
}

/// A found item, borrowed from the log until the column's next call.
#[derive(Debug)]
pub struct Hit<'s> {
    /// The 32 bits of flags that the client stores with an item.
    pub client_flags: u32,
    /// The CAS unique; 0 if the store keeps none.
    pub cas: u64,
    /// The length of the value.
    pub value_bytes: u32,
    /// The value.
    pub value: Value<'s>,
}

/// The part of a reply that follows the text of `head`, a parameter of `Column::get_into`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadResult {
    /// The value.
    Value,
    /// Nothing: the reply is complete.
    NoValue,
    /// Nothing: the lookup is called off, and the text of `head` is removed.
    CallOff,
}

/// The result of `Column::get_into`, whose parameter `head` may call the lookup off.
#[derive(Debug)]
pub enum LookupResult<'s> {
    /// The key has no item.
    Miss,
    /// `head` called the lookup off: nothing is appended, and no use is counted.
    CalledOff,
    /// The key has a live item, and this part of the reply was appended.
    Hit(AppendedPart<'s>),
}

/// The part of a reply that a hit has appended to a buffer.
#[derive(Debug)]
pub enum AppendedPart<'s> {
    /// The whole reply: the texts of `Surround`, and the value.
    FromTemplate,
    /// The text of `head`, and the whole value if `head` asked for the value.
    Whole,
    /// The text of `head`. The caller must append the value. The fields: the value's bytes, which
    /// are never rewritten, and a handle by which `Column::kept` finds the bytes later.
    Lasting(&'s [u8], ValueRef),
    /// The text of `head`. The caller must append the value; for the fields see `Value::Frames`.
    Frames(Pinned, &'s [u8]),
}

/// A part of `MetaGet` that changes the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaStep {
    /// `T`: sets the item's exptime to this second.
    Touch(u32),
    /// `N`: on a miss, makes an empty item with this exptime; this request may recache the item.
    Vivify(u32),
    /// `R`: if the item expires before this time, the first request wins the right to recache it.
    Recache(u32),
}

/// A meta get request (`mg`).
#[derive(Debug)]
pub struct MetaGet<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// True if the key was given in base64; a vivified item keeps this mark.
    pub key_binary: bool,
    /// `E`: the CAS unique that a vivified item gets.
    pub cas_in: Option<u64>,
    /// True if the request counts as a use of the item; false with `u`.
    pub bump: bool,
    /// True if the request may win the right to recache; false for `me` and for failing requests.
    pub win: bool,
    /// The changes to make, in this order; at most one of each kind.
    pub steps: &'a [MetaStep],
}

/// The result of a meta get: the result of a get, and the data for the meta flags.
#[derive(Debug)]
pub struct MetaHit<'s> {
    /// The item as `get` returns it.
    pub hit: Hit<'s>,
    /// True if the item's key was given in base64.
    pub key_binary: bool,
    /// The exptime before any step; 0 = never.
    pub exptime: u32,
    /// Seconds from the item's last access to this request, exact to 60 s (`l`).
    pub idle_seconds: u32,
    /// True if the item had been fetched before this request (`h`).
    pub fetched: bool,
    /// True if this request made the item (`N`).
    pub vivified: bool,
    /// True if the item is marked stale (`X`).
    pub stale: bool,
    /// True if an earlier request has won the right to recache the item (`Z`).
    pub token_sent: bool,
    /// True if this request won the right to recache the item (`W`).
    pub won: bool,
    /// Bytes that the item takes in the store: key, value and overhead (`me`'s size).
    pub item_bytes: u32,
}

/// A meta delete request (`md`).
#[derive(Debug)]
pub struct MetaDelete<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The CAS unique that the item must have (`C`).
    pub cas: Option<u64>,
    /// `E`: the CAS unique that the marked or emptied item gets.
    pub cas_in: Option<u64>,
    /// `I`: marks the item stale instead of deleting it.
    pub stale: bool,
    /// `T`: the new exptime of an item that is marked stale (`I`) or emptied (`x`).
    pub exptime: Option<u32>,
    /// `x`: drops the value and the client flags, but keeps the item.
    pub remove_value: bool,
    /// `F` with `x`: the emptied item's client flags.
    pub client_flags: u32,
}

/// The result of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteResult {
    /// The item was deleted, emptied or marked stale.
    Deleted,
    /// The key has no item.
    NotFound,
    /// The item's CAS unique is not that of the request.
    Exists,
}

/// An arithmetic request (`incr`, `decr`, `ma`).
#[derive(Debug)]
pub struct Delta<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// True to add, false to subtract.
    pub incr: bool,
    /// The number to add or subtract. A sum wraps around at 2^64; a difference is at least 0.
    pub delta: u64,
    /// The CAS unique that the item must have; 0: the request has none.
    pub cas: u64,
    /// `E`: the CAS unique that the new item gets.
    pub cas_in: Option<u64>,
    /// The item to store on a miss (meta `N` and `J`; binary increment).
    pub vivify: Option<Vivify>,
    /// `T`: the new exptime on a hit. An item made on a miss has `Vivify::exptime`.
    pub exptime: Option<u32>,
}

/// The item that arithmetic stores on a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vivify {
    /// The number to store.
    pub initial: u64,
    /// The new item's exptime.
    pub exptime: u32,
}

/// The result of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaResult {
    /// The number was changed, or an item with a new number was stored.
    Stored {
        /// The new number.
        value: u64,
        /// The CAS unique of the item.
        cas: u64,
        /// The exptime before `Delta::exptime` was applied; 0 = never.
        exptime: u32,
        /// True if this request made the item.
        vivified: bool,
    },
    /// The key has no item.
    NotFound,
    /// The item's CAS unique is not that of the request.
    Exists,
    /// The value is no decimal number of 64 bits.
    NonNumeric,
}
