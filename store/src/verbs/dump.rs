//! A dump: lists all items, one group of the index at a time.
//!
//! Where: lists all keys for an operator. A dump takes many rounds of a column's loop.
//! Invariant: a key that has an item during the whole dump is shown exactly once, even if items are
//! stored, removed or moved meanwhile. The shown fields of an item are all from one version of the
//! item, since the item's group is locked. Between two steps, a dump keeps only a `DumpPlace`.

use crate::column::Column;
use crate::engine::find::Fate;
use crate::index::slot::FETCHED;
use crate::index::visit::Place;

/// The position in the index at which a dump continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpPlace(Place);

/// The fields of an item that a dump shows.
#[derive(Clone, Copy, Debug)]
pub struct DumpEntry<'s> {
    /// The key, 1 to 250 bytes.
    pub key: &'s [u8],
    /// True if the key was given in base64.
    pub key_binary: bool,
    /// The 32 bits of flags that the client stored with the item.
    pub client_flags: u32,
    /// The CAS unique; 0 if the store has no CAS uniques.
    pub cas: u64,
    /// The exptime, in seconds of the store's clock; 0 if the item never expires.
    pub exptime: u32,
    /// Seconds since the item's last access.
    pub idle_seconds: u32,
    /// True if the item was fetched since it was stored.
    pub fetched: bool,
    /// The length of the item's value.
    pub value_bytes: u32,
    /// Number of bytes that the item takes, including key, value and overhead.
    pub item_bytes: u64,
}

impl Column {
    /// Calls `show` with each live item of the next group of the index, under the group's lock, so
    /// `show` must be quick. Returns the place at which the dump continues; `None` at the end.
    pub fn dump(
        &mut self,
        DumpPlace(from): DumpPlace,
        mut show: impl FnMut(&DumpEntry<'_>),
    ) -> Option<DumpPlace> {
        let view = self.handle.view();
        let region = &view.shared.memory().region;
        view.index.prefetch_at(from, |slot| region.prefetch(slot.loc()));
        let locked = view.index.lock_at(view.moment(), from);
        // In a contracted index, a group may have items before `from`, which were shown already.
        let is_whole = locked.first_place() >= from;
        locked.visit(|found| {
            let (slot, item) = (found.slot(), view.item(found.loc()));
            let is_new = || Place::of(view.hash.hash(item.key())) >= from;
            if view.fate(&item, slot.loc()) != Fate::Live || !(is_whole || is_new()) {
                return;
            }
            show(&DumpEntry {
                key: item.key(),
                key_binary: item.shape().key_binary(),
                client_flags: item.client_flags(),
                cas: view.cas_of(slot, &item),
                exptime: item.exptime(),
                idle_seconds: item.accessed().seconds_before(view.handle.now),
                fetched: slot.has(FETCHED),
                value_bytes: item.value_bytes().0,
                item_bytes: item.all_bytes(),
            });
        });
        locked.next_place().map(DumpPlace)
    }
}
