//! The engine of all verbs that change a key's item. The engine takes a place in the log, locks the
//! key's group, lets the verb decide, writes the item, sets the slot and commits the place.
//!
//! Where: storage commands, incr, decr, deletes, and the meta commands that write all use the
//! engine. A verb is a closure that gets the key's item and returns a `Decision`.
//! Invariant: a decision is made and carried out under one lock, on the same item. Taking a place
//! passes a quiescent point, so a verb that needs a place decides again after the place is taken.
//! Each place is then committed, either with the item or as a void.
//! Source: memcached's `do_store_item` and `do_add_delta` (1.6.45), which run under one lock too.

pub(crate) mod cas;
pub(crate) mod draft;
pub(crate) mod find;
pub(crate) mod link;
pub(crate) mod rewrite;

use crate::column::Column;
use crate::column::handle::View;
use crate::engine::cas::{NewCas, Uniques};
use crate::engine::find::{Fate, LinkedItem, LockedItem};
use crate::engine::rewrite::looks_rewritable;
use crate::error::StoreError;
use crate::index::hash::Key;
use crate::index::slot::{FETCHED, STALE, Slot, WON};
use crate::index::{Full, LockedGroup, SlotRef};
use crate::item::stamp::Stamp;
use crate::item::{EXP, FLAGS, Fields, Item, KEY_BINARY, Shape};
use crate::log::Place;
use crate::policy::Queue;
use crate::verbs::digits::Digits;

/// Maximum number of attempts of an operation. An attempt may fail because another column changes
/// the key's item meanwhile. After the last attempt, the operation returns `StoreError::Later`.
pub(crate) const ATTEMPTS_MAX: usize = 1 << 10;
/// Spaces that pad a number. There are as many spaces as the longest value in the log has bytes.
static SPACES: [u8; 1 << 15] = [b' '; 1 << 15];
/// The slot bits that a new item may keep from the old item. The counter is not among these bits,
/// because a new item always keeps the counter of the key's uses.
pub(crate) const KEEP_ALL: u64 = FETCHED | STALE | WON;

pub(crate) enum Decision<'a, R> {
    Answer(R),
    Delete(R),
    /// Store this new item and, if the key has an item, remove the old item.
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
    /// True if the item gets a field for an exptime even if `exptime` is 0.
    pub(crate) has_exptime: bool,
    pub(crate) client_flags: u32,
    pub(crate) key_binary: bool,
    pub(crate) cas: NewCas,
    pub(crate) keep_bits: u64,
    pub(crate) set_bits: u64,
    /// True if rewriting the old item in place counts as a use of the item.
    pub(crate) is_use: bool,
}

#[derive(Clone, Copy, Default)]
pub(crate) enum NewValue<'a> {
    #[default]
    Keep,
    Bytes(&'a [u8]),
    /// The digits of a number, padded with spaces to this number of bytes.
    Digits(Digits, usize),
    /// The old value, which must be in the log, followed by these bytes.
    Append(&'a [u8]),
    /// These bytes, followed by the old value, which must be in the log.
    Prepend(&'a [u8]),
    /// A chain's first frame, the value's last bytes, which go to the log, and the value's length.
    Frames(u32, &'a [u8], u32),
}

type LiveItem<'o> = Option<&'o LockedItem<'o, 'o>>;

/// The properties of a new item for which a place in the log is needed.
#[derive(Clone, Copy)]
struct PlaceRequest {
    shape: Shape,
    exptime: u32,
    there: Option<Slot>,
}

impl Column {
    /// Calls `decide` with the live item of `key`, and carries out the decision. `decide` may be
    /// called several times; only the last decision is carried out. The new item is written over
    /// the old item if the old item can be rewritten and has the same shape; otherwise the new item
    /// gets a place in the log. `known` has the new item's shape and exptime, unless they depend on
    /// the old item.
    ///
    /// # Errors
    /// After `StoreError::NoMemory` and `StoreError::Later`, no item was changed.
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

    /// Like `change`, but takes a place for the new item first. Returns `None` if the caller must
    /// try again, because the item does not fit the place, or because the index lacked a line.
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

/// Calls `decide`, and carries out the decision if the decision needs no place in the log.
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

/// Like `attempt`, but for a new item whose shape and exptime are known. First reads the old item
/// without the lock. Takes the lock and calls `decide` only if the old item seems to be rewritable.
#[inline(always)]
fn attempt_over<'a, R>(
    view: View<'_>,
    key: Key<'_>,
    (shape, exptime): (Shape, u32),
    uniques: &mut Uniques,
    decide: &mut impl FnMut(View<'_>, LiveItem<'_>) -> Decision<'a, R>,
) -> Result<ChangeResult<R>, PlaceRequest> {
    let mut wanted = PlaceRequest { shape, exptime, there: None };
    let Some(found) = view.index.likely(view.moment(), key.hash) else { return Err(wanted) };
    wanted.there = Some(found.slot());
    let item = view.with_key(found.loc(), key.bytes);
    let Some(item) = item.filter(|item| looks_rewritable(found.slot(), item, shape)) else {
        return Err(wanted);
    };
    let locked = view.index.lock(view.moment(), key.hash);
    // If `revalidate` returns the slot, the slot's item was neither moved nor removed, so `item` is
    // still the key's item.
    let Some(found) = locked.revalidate(&found) else { return Err(wanted) };
    let old = view.old(&locked, found, item);
    if !view.can_rewrite(&old, shape) {
        return Err(wanted);
    }
    match decide(view, Some(&old)) {
        Decision::Answer(answer) => Ok(ChangeResult::Answered(answer)),
        Decision::Delete(_) => Err(wanted),
        Decision::Write(new) => write_over(view, uniques, key, &locked, &old, &new).ok_or(wanted),
    }
}

/// Writes a new item over a rewritable old item. Returns `None`, and writes nothing, if the old
/// item has only four bytes for the CAS unique and the new CAS unique needs more.
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

/// Like `attempt`, but writes the new item to `place`, which fits an item of `shape`. Returns
/// `None` if the new item has another shape, if `place` was taken before a flush, or if the
/// decision is to delete, for which no place is needed.
///
/// # Errors
/// The index has no line for another slot. On this error and with `None`, no item was changed, and
/// `place` was committed as a void.
#[inline(always)]
fn write_anew<'a, R>(
    view: View<'_>,
    key: Key<'_>,
    (place, shape, is_known): (Place, Shape, bool),
    uniques: &mut Uniques,
    decide: &mut impl FnMut(View<'_>, LiveItem<'_>) -> Decision<'a, R>,
) -> Result<Option<ChangeResult<R>>, Full> {
    let mut locked = view.index.lock(view.moment(), key.hash);
    let old = view.find_locked(&locked, key.bytes);
    let live = old.as_ref().filter(|old| old.fate == Fate::Live);
    // A place that was taken before a flush belongs to the epoch before the flush. An item linked
    // in that place would be removed at once, even if it replaces an item stored after the flush.
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

    /// The queue for a new item: the old item's queue or, for a new key, the queue that the policy
    /// chooses. If slot `there` does not name the old item but another, the queue may be wrong.
    fn queue_for(self, hash: u64, there: Option<Slot>) -> Queue {
        let Some(policy) = self.config.eviction.filter(|_| self.has_probation) else {
            return Queue::Main;
        };
        match there {
            Some(slot) => self.log.queue_of(self.memory().region.segment_of(slot.loc())),
            None => policy.admit(self.index.remembers(hash)),
        }
    }

    /// True if writing over the item at `loc` counts as a use. Usually the write counts, because a
    /// rewritten item keeps its position in the queue. If the item is young or its segment was
    /// opened in this second, the write does not count: such a write does not predict later uses.
    #[inline(always)]
    fn is_use(self, loc: u64) -> bool {
        self.log.segment_of(loc).opened() != self.handle.now && !self.log.is_young(loc)
    }
}

impl<'a> NewItem<'a> {
    /// A new item that keeps the old item's value, flags, exptime, CAS unique and slot bits.
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

    /// The shape of this item if the item replaces `old`. The CAS unique may still be unknown,
    /// since the shape depends only on the width of the unique.
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
        // A change that keeps the value, such as a new exptime, is not an access.
        let accessed = match (&self.value, item) {
            (NewValue::Keep, Some(item)) => item.accessed(),
            _ => accessed,
        };
        let Self { exptime, client_flags, .. } = *self;
        Fields { key, value, cas, exptime, client_flags, first_frame, accessed }
    }
}
