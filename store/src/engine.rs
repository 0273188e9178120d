//! The engine of all verbs that change a key's item: take a place in the log, lock the key's group,
//! let the verb decide, write the item and set its slot, commit the place.
//!
//! Where: all storage commands, incr, decr, the deletes, and the meta commands that write. A verb
//! is a closure that gets the key's item and returns a `Decision`.
//! Invariant: a decision is made and carried out under one lock, on the same item. Taking a place
//! is a quiescent point, so a verb that needs a place decides again once it has the place. Every
//! place is then committed, with the item or as a void.
//! Source: memcached's `do_store_item` and `do_add_delta` (1.6.45), which run under one lock too.

#![allow(unsafe_code, reason = "items in the mapping")]

use crate::cas::{NewCas, Uniques};
use crate::column::Column;
use crate::digits::Digits;
use crate::handle::View;
use crate::hash::Key;
use crate::index::slot::{FETCHED, STALE, Slot, WON};
use crate::index::{Full, LockedGroup, SlotRef};
use crate::item::{EXP, FLAGS, Fields, Item, KEY_BINARY, Shape};
use crate::log::Place;
use crate::policy::Queue;
use crate::read::{Fate, LinkedItem, LockedItem};
use crate::rewrite::looks_rewritable;
use crate::stamp::Stamp;
use crate::verbs::StoreError;

/// The maximum number of attempts of an operation. An attempt fails only if another column changes
/// the key's item meanwhile. After the last attempt the operation returns `StoreError::Later`.
pub(crate) const ATTEMPTS_MAX: usize = 1 << 10;
/// Spaces that pad a number; as long as the longest value in the log.
static SPACES: [u8; 1 << 15] = [b' '; 1 << 15];
/// The slot bits that an update in place may keep, besides the counter, which counts the key's
/// uses.
pub(crate) const KEEP_ALL: u64 = FETCHED | STALE | WON;

/// A verb's decision about the key's item.
pub(crate) enum Decision<'a, R> {
    /// Change nothing and return this answer.
    Answer(R),
    /// Remove the item and return this answer.
    Delete(R),
    /// Replace the item by this new one. The answer is made from the new item's CAS unique.
    Write(NewItem<'a>),
}

pub(crate) enum ChangeResult<R> {
    Answered(R),
    Written { cas: u64 },
}

#[derive(Clone, Copy, Default)]
pub(crate) struct NewItem<'a> {
    pub(crate) value: NewValue<'a>,
    pub(crate) exptime: u32,
    /// True if the item has room for an exptime even if `exptime` is 0.
    pub(crate) has_exptime: bool,
    pub(crate) client_flags: u32,
    pub(crate) key_binary: bool,
    pub(crate) cas: NewCas,
    /// Bits to keep from the old slot.
    pub(crate) keep_bits: u64,
    /// Bits to set in the new slot.
    pub(crate) set_bits: u64,
    /// True if rewriting the old item in place counts as a use of it.
    pub(crate) is_use: bool,
}

#[derive(Clone, Copy, Default)]
pub(crate) enum NewValue<'a> {
    /// The old item's value.
    #[default]
    Keep,
    /// These bytes.
    Bytes(&'a [u8]),
    /// A number's digits, padded with spaces to this length.
    Digits(Digits, usize),
    /// These bytes after the old value, which must be in the log.
    Append(&'a [u8]),
    /// These bytes before the old value.
    Prepend(&'a [u8]),
    /// A chain's first frame, the value's last bytes (which go to the log), and the value's length.
    Frames(u32, &'a [u8], u32),
}

/// The key's live item, if it has one.
type LiveItem<'o> = Option<&'o LockedItem<'o, 'o>>;

/// An item to be written, which needs a place in the log.
#[derive(Clone, Copy)]
struct PlaceRequest {
    shape: Shape,
    exptime: u32,
    there: Option<Slot>,
}

impl Column {
    /// Calls `decide` with the live item of `key`, and carries out the decision. `decide` may be
    /// called several times; the last call counts. The new item is written over the old one if the
    /// old one can be rewritten and has the same shape; otherwise the new item gets a place in the
    /// log. `known` has the new item's shape and exptime, if these do not depend on the old item.
    ///
    /// # Errors
    /// `StoreError::NoMemory` and `StoreError::Later`: nothing was changed.
    #[inline(always)]
    pub(crate) fn change<'a, R>(
        &mut self,
        key: Key<'_>,
        known: Option<(Shape, u32)>,
        mut decide: impl FnMut(View<'_>, LiveItem<'_>) -> Decision<'a, R>,
    ) -> Result<ChangeResult<R>, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let (view, uniques) = (self.handle.view(), &mut self.uniques);
            let changed = match known {
                Some(known) => attempt_over(view, key, known, uniques, &mut decide),
                None => attempt(view, key, uniques, &mut decide),
            };
            let changed = match changed {
                Ok(changed) => Some(changed),
                Err(wanted) => {
                    self.change_with_place(key, (wanted, known.is_some()), &mut decide)?
                }
            };
            if let Some(changed) = changed {
                return Ok(changed);
            }
        }
        Err(StoreError::Later)
    }

    /// Like `change`, but for an item that needs a place. `None`: the caller must try again,
    /// because the place no longer fits, or because the index lacked a line, which it now has.
    #[inline(never)]
    fn change_with_place<'a, R>(
        &mut self,
        key: Key<'_>,
        (PlaceRequest { shape, exptime, there }, is_known): (PlaceRequest, bool),
        decide: &mut impl FnMut(View<'_>, LiveItem<'_>) -> Decision<'a, R>,
    ) -> Result<Option<ChangeResult<R>>, StoreError> {
        let Self { handle, room, uniques, .. } = self;
        room.make_line_first(handle, key.hash)?;
        let queue = handle.view().queue_for(key.hash, there);
        let place = room.place(handle, (queue, exptime), shape.extent())?;
        match write_anew(handle.view(), key, (place, shape, is_known), uniques, decide) {
            Ok(changed) => Ok(changed),
            Err(Full) => room.make_index_room(handle, key.hash).map(|()| None),
        }
    }
}

/// Carries out `decide`'s decision if it needs no place.
///
/// # Errors
/// Returns a request for the place that the decision needs.
#[inline(always)]
fn attempt<'a, R>(
    view: View<'_>,
    key: Key<'_>,
    uniques: &mut Uniques,
    decide: &mut impl FnMut(View<'_>, LiveItem<'_>) -> Decision<'a, R>,
) -> Result<ChangeResult<R>, PlaceRequest> {
    let mut gone = None;
    let (done, locked) = view.look_locked(
        key,
        #[inline(always)]
        |locked, old| match decide(view, old) {
            Decision::Answer(answer) => Ok(ChangeResult::Answered(answer)),
            Decision::Delete(answer) => {
                gone = old.map(|old| (old.at, old.seen));
                Ok(ChangeResult::Answered(answer))
            }
            Decision::Write(new) => {
                let shape = new.shape(view, key.bytes, old);
                let over = old.filter(|old| view.can_rewrite(old, shape));
                let written =
                    over.and_then(|old| write_over(view, uniques, key, locked, old, &new));
                let there = old.map(|old| old.seen.slot);
                written.ok_or(PlaceRequest { shape, exptime: new.exptime, there })
            }
        },
    );
    if let Some(gone) = gone {
        view.delete(locked, gone);
    }
    done
}

/// Like `attempt`, but for a new item of known shape and exptime. Takes the lock and calls `decide`
/// only if the old item, read without the lock, seems to be rewritable.
#[inline(always)]
fn attempt_over<'a, R>(
    view: View<'_>,
    key: Key<'_>,
    (shape, exptime): (Shape, u32),
    uniques: &mut Uniques,
    decide: &mut impl FnMut(View<'_>, LiveItem<'_>) -> Decision<'a, R>,
) -> Result<ChangeResult<R>, PlaceRequest> {
    let mut wanted = PlaceRequest { shape, exptime, there: None };
    let Some(found) = view.index.likely(key.hash) else { return Err(wanted) };
    wanted.there = Some(found.slot);
    // SAFETY: the slot was read just now.
    let item = unsafe { view.with_key(found.slot, key.bytes) };
    let Some(item) = item.filter(|item| looks_rewritable(found.slot, item, shape)) else {
        return Err(wanted);
    };
    let locked = view.index.lock(key.hash);
    // If `revalidate` returns the slot, its item was neither moved nor removed, so `item` is still
    // the key's item; see `rewrite`.
    let Some(at) = locked.revalidate(&found) else { return Err(wanted) };
    let old = view.old(&locked, at, at.slot(), item);
    if !view.can_rewrite(&old, shape) {
        return Err(wanted);
    }
    match decide(view, Some(&old)) {
        Decision::Answer(answer) => Ok(ChangeResult::Answered(answer)),
        Decision::Delete(_) => Err(wanted),
        Decision::Write(new) => write_over(view, uniques, key, &locked, &old, &new).ok_or(wanted),
    }
}

/// Writes a new item over an old one that can be rewritten. `None`: the new CAS unique is too wide.
#[inline(always)]
fn write_over<R>(
    view: View<'_>,
    uniques: &mut Uniques,
    key: Key<'_>,
    locked: &LockedGroup<'_>,
    old: &LockedItem<'_, '_>,
    new: &NewItem<'_>,
) -> Option<ChangeResult<R>> {
    let cas = uniques.unique(view, new.cas, old.seen.cas);
    let fields = new.fields(key.bytes, Some(old), cas, view.handle.stamp);
    let used = new.is_use && view.is_use(old.seen.slot.loc());
    let change = |slot: Slot| {
        let slot = slot.rewritten(new.keep_bits, new.set_bits);
        if used { slot.with_cnt(slot.cnt() + 1) } else { slot }
    };
    let is_written = view.rewrite(locked, old, &fields, change);
    view.counters().rewritten.add(is_written.into());
    is_written.then_some(ChangeResult::Written { cas })
}

/// Like `attempt`, with a place for an item of `shape`. `None`: the item does not fit the place,
/// the place was taken before a flush, or the decision is to delete, which needs no place.
///
/// # Errors
/// The index has no line for another slot. On this error and with `None`, no item was changed, and
/// the place was committed as a void.
#[inline(always)]
fn write_anew<'a, R>(
    view: View<'_>,
    key: Key<'_>,
    (place, shape, is_known): (Place, Shape, bool),
    uniques: &mut Uniques,
    decide: &mut impl FnMut(View<'_>, LiveItem<'_>) -> Decision<'a, R>,
) -> Result<Option<ChangeResult<R>>, Full> {
    let mut locked = view.index.lock(key.hash);
    let old = view.find_locked(&locked, key.bytes);
    let live = old.as_ref().filter(|old| old.fate == Fate::Live);
    // A place taken before a flush belongs to the earlier epoch. An item linked there would be gone
    // at once, even if it replaces an item stored after the flush.
    let is_current = view.log.segment(place.segment()).epoch() == view.log.epoch();
    let fits = |new: &NewItem<'_>| is_known || new.shape(view, key.bytes, live) == shape;
    let new = match decide(view, live) {
        Decision::Write(new) if is_current && fits(&new) => new,
        decision => {
            drop(locked);
            view.log.void(place);
            return Ok(match decision {
                Decision::Answer(answer) => Some(ChangeResult::Answered(answer)),
                Decision::Delete(_) | Decision::Write(_) => None,
            });
        }
    };
    let cas = uniques.unique(view, new.cas, live.map_or(0, |live| live.seen.cas));
    let fields = new.fields(key.bytes, live, cas, view.handle.stamp);
    let kept = live.map_or(0, |live| live.seen.slot.0 & new.keep_bits);
    let cnt = old.as_ref().map_or(0, |old| old.seen.slot.cnt());
    let slot = Slot(Slot::new(key.hash, place.loc()).0 | kept | new.set_bits).with_cnt(cnt);
    let (first_frame, was_live) = (fields.first_frame, live.is_some());
    let written = view.log.write(place, view.layout, shape, &fields);
    let old = old.map(|LockedItem { at, seen, .. }| (at, seen));
    let at = old.map(|(at, _)| at);
    let linked = view.link(&mut locked, at, slot, (&written, shape, new.exptime));
    drop(locked);
    if let Err(full) = linked {
        view.log.void(written.take_back());
        return Err(full);
    }
    if let Some((_, LinkedItem { slot, item, .. })) = old {
        view.counters().reclaimed.add((!was_live).into());
        match shape.is_chained() && item.first_frame() == Some(first_frame) {
            true => view.dispose_but_frames(slot.loc(), &item),
            false => view.dispose(slot.loc(), &item),
        }
    }
    view.log.commit(written);
    view.settle_index();
    Ok(Some(ChangeResult::Written { cas }))
}

impl View<'_> {
    /// Empties the slot of an item, and unlocks its group.
    #[inline(always)]
    fn delete(
        self,
        mut locked: LockedGroup<'_>,
        (at, LinkedItem { slot, item, .. }): (SlotRef<'_>, LinkedItem<'_>),
    ) {
        locked.remove(at);
        drop(locked);
        self.unlinked(slot.loc(), &item);
        self.settle_index();
    }

    /// The queue for the key's next item: the old item's queue or, for a new key, the queue that
    /// the policy chooses. `there` is usually the key's slot; otherwise the queue may be wrong.
    fn queue_for(self, hash: u64, there: Option<Slot>) -> Queue {
        let Some(policy) = self.config.eviction.filter(|_| self.has_probation) else {
            return Queue::Main;
        };
        match there {
            Some(slot) => self.log.queue_of(self.memory().region.segment_of(slot.loc())),
            None => policy.admit(self.index.remembers(hash)),
        }
    }

    /// True if writing over the item at `loc` counts as a use. The write usually counts, since a
    /// rewritten item keeps its position in the queue. It does not count if the item is young or
    /// its segment was opened in this second: such a write does not predict later uses.
    #[inline(always)]
    fn is_use(self, loc: u64) -> bool {
        self.log.segment_of(loc).opened() != self.handle.now && !self.log.is_young(loc)
    }
}

impl<'a> NewItem<'a> {
    /// A new item with the old item's fields and marks.
    pub(crate) fn kept(old: &LockedItem<'_, '_>) -> Self {
        let LinkedItem { item, cas, .. } = old.seen;
        Self {
            client_flags: item.client_flags(),
            key_binary: item.shape().key_binary(),
            keep_bits: KEEP_ALL,
            exptime: item.exptime(),
            cas: NewCas::Given(cas),
            ..Self::default()
        }
    }

    /// The shape of this item when it replaces `old`. The width of the CAS unique is a part of the
    /// shape; the unique itself may still be unknown.
    #[inline]
    pub(crate) fn shape(
        &self,
        view: View<'_>,
        key: &[u8],
        old: Option<&LockedItem<'_, '_>>,
    ) -> Shape {
        let bytes = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let old = old.map(|old| old.seen.item.shape());
        let old_bytes = old.map_or(0, |old| old.value_bytes);
        let (value_bytes, framed) = match self.value {
            NewValue::Keep => (old_bytes, old.filter(Shape::is_chained).map(|old| old.log_bytes)),
            NewValue::Bytes(value) => (bytes(value.len()), None),
            NewValue::Digits(_, len) => (bytes(len), None),
            NewValue::Append(more) | NewValue::Prepend(more) => {
                (old_bytes + bytes(more.len()), None)
            }
            NewValue::Frames(_, rest, all) => (all, Some(bytes(rest.len()))),
        };
        let shape = Shape::new(bytes(key.len()), value_bytes, view.cas_width(self.cas))
            .with(EXP, self.exptime != 0 || self.has_exptime)
            .with(FLAGS, self.client_flags != 0)
            .with(KEY_BINARY, self.key_binary);
        framed.map_or(shape, |log_bytes| shape.in_frames(log_bytes))
    }

    #[inline(always)]
    fn fields<'f>(
        &'f self,
        key: &'f [u8],
        old: Option<&LockedItem<'f, '_>>,
        cas: u64,
        accessed: Stamp,
    ) -> Fields<'f> {
        let item = old.map(|old| &old.seen.item);
        let old_value = || old.map_or(&[][..], LockedItem::log_value);
        let (value, first_frame): ([&[u8]; 2], u32) = match self.value {
            NewValue::Keep => ([old_value(), &[]], item.and_then(Item::first_frame).unwrap_or(0)),
            NewValue::Bytes(value) => ([value, &[]], 0),
            NewValue::Digits(ref digits, len) => {
                ([digits.text(), &SPACES[..len - digits.text().len()]], 0)
            }
            NewValue::Append(more) => ([old_value(), more], 0),
            NewValue::Prepend(more) => ([more, old_value()], 0),
            NewValue::Frames(first, rest, _) => ([rest, &[]], first),
        };
        // Marking an item or adding a field to it is not an access.
        let accessed = match (&self.value, item) {
            (NewValue::Keep, Some(item)) => item.accessed(),
            _ => accessed,
        };
        let Self { exptime, client_flags, .. } = *self;
        Fields { key, value, cas, exptime, client_flags, first_frame, accessed }
    }
}
