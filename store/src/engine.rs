//! The one engine of every verb that changes what a key has: take a place, lock the key's group,
//! let the verb decide, write the item and set its slot, commit the place.
//!
//! Where: set, add, replace, cas, append, prepend, incr, decr, the two deletes, and what the meta
//! commands write. A verb is a closure that is shown what the key has and returns a `Decision`.
//! Invariant: what a decision is carried out on is what it was made from: both happen under one
//! lock. A verb that needs a place is asked again once it has one, for to take one is a quiescent
//! point; and every place is committed afterwards, with the item or void.
//! Source: memcached's `do_store_item` and `do_add_delta` (1.6.45), which run under one lock too.

#![allow(unsafe_code, reason = "items in the mapping")]

use crate::cas::{NewCas, Uniques};
use crate::column::Column;
use crate::digits::Digits;
use crate::handle::View;
use crate::index::slot::{FETCHED, STALE, Slot, WON};
use crate::index::{At, Found, Locked};
use crate::item::{EXP, FLAGS, Fields, Item, KEY_BINARY, Shape};
use crate::log::Place;
use crate::policy::Queue;
use crate::read::{Fate, Key, Old, Seen};
use crate::rewrite::looks_rewritable;
use crate::verbs::Refused;

/// Attempts of an operation whose item others keep changing between its looks; each needed
/// another's success. Then it is to come later.
pub(crate) const ATTEMPTS_MAX: usize = 1 << 10;
/// What padding is cut from: as long as a value in the log may be.
static SPACES: [u8; 1 << 15] = [b' '; 1 << 15];
/// All bits of a slot that an update in place keeps. (The counter stays whatever is stored: it
/// tells how the key is used, not the value.)
pub(crate) const KEEP_ALL: u64 = FETCHED | STALE | WON;

/// What a verb decides about the item that it is shown.
pub(crate) enum Decision<R> {
    /// Nothing changes; this is the answer.
    Answer(R),
    /// The item goes; this is the answer.
    Delete(R),
    /// The new item takes its place; the answer is made from the CAS unique it gets.
    Write,
}

/// How a change ended.
pub(crate) enum Changed<R> {
    Answered(R),
    Written { cas: u64 },
}

/// An item to be written in the place of another, or of none.
#[derive(Clone, Copy, Default)]
pub(crate) struct New<'a> {
    pub(crate) value: NewValue<'a>,
    pub(crate) exptime: u32,
    /// It has room for an exptime even where that is 0.
    pub(crate) has_exptime: bool,
    pub(crate) client_flags: u32,
    pub(crate) key_binary: bool,
    pub(crate) cas: NewCas,
    /// The slot's bits to keep from the old one (0: none).
    pub(crate) keep_bits: u64,
    /// The slot's bits to set.
    pub(crate) set_bits: u64,
    /// Where it is written in place, that is a use of the item.
    pub(crate) is_use: bool,
}

/// The value of an item to be written.
#[derive(Clone, Copy, Default)]
pub(crate) enum NewValue<'a> {
    /// What it is.
    #[default]
    Keep,
    /// These bytes.
    Bytes(&'a [u8]),
    /// The digits that the decision has written, then spaces up to a length.
    Digits(usize),
    /// Behind what it is, which must be in the log.
    Append(&'a [u8]),
    /// Before what it is.
    Prepend(&'a [u8]),
    /// Frames from this one on, and the rest; so many bytes in all.
    Frames(u32, &'a [u8], u32),
}

/// What a decision is shown: what the key has, if that is live.
type Shown<'o> = Option<&'o Old<'o, 'o>>;

/// The item that a place is wanted for: its shape and exptime.
pub(crate) type Wanted = (Shape, u32);

/// Why an attempt with a place came to nothing.
enum Vain {
    /// The place is not the right one any more.
    OtherPlace,
    /// The index has no line for another slot.
    NoLine,
}

impl Column {
    /// Changes what `key` has as `decide` says. It is shown what the key has, if that is live, and
    /// makes `new` the item to be written, if it wants one. It may be asked several times: what it
    /// is shown last is what it decides about. Where an item of the old one's shape is written, the
    /// old one is rewritten in place; otherwise the item gets a place. A verb that knows the shape
    /// of the item that it will write, whatever there is, says so by `known`.
    ///
    /// # Errors
    /// `Refused::NoMemory` and `Refused::Later`: nothing was changed.
    #[inline(always)]
    pub(crate) fn change<'a, R>(
        &mut self,
        key: Key<'_>,
        known: Option<Wanted>,
        mut decide: impl FnMut(View<'_>, Shown<'_>, &mut New<'a>, &mut Digits) -> Decision<R>,
    ) -> Result<Changed<R>, Refused> {
        let needs = {
            let Self { handle, uniques, .. } = self;
            match attempt(handle.view(), key, known, uniques, &mut decide) {
                Ok(changed) => return Ok(changed),
                Err(needs) => needs,
            }
        };
        self.change_with_place(key, (known, needs), decide)
    }

    /// As `change`, of an item that needs a place.
    #[inline(never)]
    fn change_with_place<'a, R>(
        &mut self,
        key: Key<'_>,
        (known, mut needs): (Option<Wanted>, (Wanted, Option<Slot>)),
        mut decide: impl FnMut(View<'_>, Shown<'_>, &mut New<'a>, &mut Digits) -> Decision<R>,
    ) -> Result<Changed<R>, Refused> {
        let Self { handle, room, uniques, .. } = self;
        for _ in 0..ATTEMPTS_MAX {
            let ((shape, exptime), there) = needs;
            room.make_line_first(handle, key.hash)?;
            let queue = handle.view().queue_for(key.hash, there);
            let place = room.place(handle, (queue, exptime), shape.extent())?;
            let to = (place, shape, known.is_some());
            match write_anew(handle.view(), key, to, uniques, &mut decide) {
                Ok(changed) => return Ok(changed),
                Err(Vain::OtherPlace) => {}
                Err(Vain::NoLine) => room.make_index_room(handle, key.hash)?,
            }
            needs = match attempt_again(handle.view(), key, known, uniques, &mut decide) {
                Ok(changed) => return Ok(changed),
                Err(needs) => needs,
            };
        }
        Err(Refused::Later)
    }
}

/// Does what `decide` says if that needs no place.
///
/// # Errors
/// The item that needs one, and what the key has, or is likely to.
#[inline(always)]
fn attempt<'a, R>(
    view: View<'_>,
    key: Key<'_>,
    known: Option<Wanted>,
    uniques: &mut Uniques,
    decide: &mut impl FnMut(View<'_>, Shown<'_>, &mut New<'a>, &mut Digits) -> Decision<R>,
) -> Result<Changed<R>, (Wanted, Option<Slot>)> {
    if let Some(wanted) = known {
        return attempt_over(view, key, wanted, uniques, decide);
    }
    loop {
        let locked = view.index.lock(key.hash);
        let old = view.find_locked(&locked, key.bytes);
        if let Some(dead) = old.filter(|old| old.fate != Fate::Live) {
            let loc = dead.seen.slot.loc();
            drop(locked);
            view.reap(key.hash, loc);
            continue;
        }
        let (mut new, mut digits) = (New::default(), Digits::BLANK);
        match decide(view, old.as_ref(), &mut new, &mut digits) {
            Decision::Answer(answer) => return Ok(Changed::Answered(answer)),
            Decision::Delete(answer) => {
                let gone = old.map(|old| (old.at, old.seen));
                view.delete(locked, gone);
                return Ok(Changed::Answered(answer));
            }
            Decision::Write => {}
        }
        let shape = new.shape(view, key.bytes, old.as_ref());
        if let Some(old) = old.filter(|old| view.can_rewrite(old, shape))
            && let Some(written) = write_over(view, uniques, key, (&locked, &old), (&new, &digits))
        {
            return Ok(written);
        }
        return Err(((shape, new.exptime), old.map(|old| old.seen.slot)));
    }
}

/// As `attempt`, where the first one and a place came to nothing.
#[cold]
#[inline(never)]
fn attempt_again<'a, R>(
    view: View<'_>,
    key: Key<'_>,
    known: Option<Wanted>,
    uniques: &mut Uniques,
    decide: &mut impl FnMut(View<'_>, Shown<'_>, &mut New<'a>, &mut Digits) -> Decision<R>,
) -> Result<Changed<R>, (Wanted, Option<Slot>)> {
    attempt(view, key, known, uniques, decide)
}

/// As `attempt`, where it is known what will be written: over the old item, if that looks without a
/// lock as if it could be.
#[inline(always)]
fn attempt_over<'a, R>(
    view: View<'_>,
    key: Key<'_>,
    wanted: Wanted,
    uniques: &mut Uniques,
    decide: &mut impl FnMut(View<'_>, Shown<'_>, &mut New<'a>, &mut Digits) -> Decision<R>,
) -> Result<Changed<R>, (Wanted, Option<Slot>)> {
    let Some(Found { slot, .. }) = view.index.likely(key.hash) else { return Err((wanted, None)) };
    // SAFETY: the slot was read just now.
    let item = unsafe { view.with_key(slot, key.bytes) };
    let Some(item) = item.filter(|item| looks_rewritable(slot, item, wanted.0)) else {
        return Err((wanted, Some(slot)));
    };
    let locked = view.index.lock(key.hash);
    // What lies there is what it was, see `rewrite`.
    let Some(at) = locked.find_loc(slot.loc()) else { return Err((wanted, Some(slot))) };
    let old = view.old(&locked, at, at.slot(), item);
    if !view.can_rewrite(&old, wanted.0) {
        return Err((wanted, Some(slot)));
    }
    let (mut new, mut digits) = (New::default(), Digits::BLANK);
    match decide(view, Some(&old), &mut new, &mut digits) {
        Decision::Answer(answer) => return Ok(Changed::Answered(answer)),
        Decision::Delete(_) => return Err((wanted, Some(slot))),
        Decision::Write => {}
    }
    write_over(view, uniques, key, (&locked, &old), (&new, &digits)).ok_or((wanted, Some(slot)))
}

/// Writes a new item over an old one that can be rewritten. `None`: its CAS unique does not fit.
#[inline(always)]
fn write_over<R>(
    view: View<'_>,
    uniques: &mut Uniques,
    key: Key<'_>,
    (locked, old): (&Locked<'_>, &Old<'_, '_>),
    (new, digits): (&New<'_>, &Digits),
) -> Option<Changed<R>> {
    let cas = uniques.unique(view, new.cas, old.seen.cas);
    let fields = new.fields((key.bytes, digits), Some(old), cas, view.handle.minute);
    let used = new.is_use && view.is_use(old.seen.slot.loc());
    let change = |slot: Slot| {
        let slot = slot.rewritten(new.keep_bits, new.set_bits);
        if used { slot.with_cnt(slot.cnt() + 1) } else { slot }
    };
    let is_written = view.rewrite(locked, old, &fields, change);
    view.counters().rewritten.add(is_written.into());
    is_written.then_some(Changed::Written { cas })
}

/// Does what `decide` says with a place of an item of `shape`.
///
/// # Errors
/// Nothing was changed, and the place is void.
#[inline(always)]
fn write_anew<'a, R>(
    view: View<'_>,
    key: Key<'_>,
    (place, shape, is_known): (Place, Shape, bool),
    uniques: &mut Uniques,
    decide: &mut impl FnMut(View<'_>, Shown<'_>, &mut New<'a>, &mut Digits) -> Decision<R>,
) -> Result<Changed<R>, Vain> {
    let mut locked = view.index.lock(key.hash);
    let old = view.find_locked(&locked, key.bytes);
    let live = old.filter(|old| old.fate == Fate::Live);
    let (mut new, mut digits) = (New::default(), Digits::BLANK);
    let decision = decide(view, live.as_ref(), &mut new, &mut digits);
    // Had everything been flushed since the place was taken, what is linked there would go with it,
    // and with what it replaces, though that may be of after the flush.
    let is_current = view.log.segment(place.segment()).epoch() == view.log.epoch();
    let is_it = matches!(decision, Decision::Write)
        && (is_known || new.shape(view, key.bytes, live.as_ref()) == shape)
        && is_current;
    if !is_it {
        drop(locked);
        view.log.void(place);
        return match decision {
            Decision::Answer(answer) => Ok(Changed::Answered(answer)),
            Decision::Delete(_) | Decision::Write => Err(Vain::OtherPlace),
        };
    }
    let cas = uniques.unique(view, new.cas, live.map_or(0, |live| live.seen.cas));
    let fields = new.fields((key.bytes, &digits), live.as_ref(), cas, view.handle.minute);
    let kept = live.map_or(0, |live| live.seen.slot.0 & new.keep_bits);
    let slot = Slot(Slot::new(key.hash, place.loc()).0 | kept | new.set_bits);
    let old = old.map(|Old { at, seen, .. }| (at, seen));
    let slot = slot.with_cnt(old.map_or(0, |(_, seen)| seen.slot.cnt()));
    let written = view.log.write(place, view.layout, shape, &fields);
    let (exptime, first_frame) = (fields.exptime, fields.first_frame);
    let linked = view.link(&mut locked, old.map(|(at, _)| at), slot, (written, shape, exptime));
    drop(locked);
    let written = match linked {
        Ok(written) => written,
        Err(place) => {
            view.log.void(place);
            return Err(Vain::NoLine);
        }
    };
    if let Some((_, Seen { slot, item, .. })) = old {
        match shape.is_chained() && item.first_frame() == Some(first_frame) {
            true => view.dispose_but_frames(slot.loc(), &item),
            false => view.dispose(slot.loc(), &item),
        }
    }
    view.log.commit(written);
    view.settle_index();
    Ok(Changed::Written { cas })
}

impl View<'_> {
    /// Empties the slot of an item, if there is one, and unlocks its group.
    #[inline(always)]
    fn delete(self, mut locked: Locked<'_>, gone: Option<(At<'_>, Seen<'_>)>) {
        let Some((at, Seen { slot, item, .. })) = gone else { return };
        locked.remove(at);
        drop(locked);
        self.unlinked(slot.loc(), &item);
        self.settle_index();
    }

    /// The queue that a new version of the key belongs in: an item stays in its own, and a new one
    /// goes where the policy says. `there` is what the key has, or is likely to: at worst an item
    /// is in the wrong one.
    fn queue_for(self, hash: u64, there: Option<Slot>) -> Queue {
        let Some(policy) = self.config.eviction.filter(|_| self.has_probation) else {
            return Queue::Main;
        };
        match there {
            Some(slot) => self.log.queue_of(self.memory().region.segment_of(slot.loc())),
            None => policy.admit(self.index.remembers(hash)),
        }
    }

    /// Is it a use of the item at `loc` to write over it, so that it keeps its place in the queue?
    /// Not in the second in which it was made: that tells of no more to come.
    #[inline(always)]
    fn is_use(self, loc: u64) -> bool {
        self.log.segment_of(loc).opened() != self.handle.now && !self.log.is_young(loc)
    }
}

impl<'a> New<'a> {
    /// The item as it is.
    pub(crate) fn kept(old: &Old<'_, '_>) -> Self {
        let Seen { item, cas, .. } = old.seen;
        Self {
            client_flags: item.client_flags(),
            key_binary: item.shape().key_binary(),
            keep_bits: KEEP_ALL,
            exptime: item.exptime(),
            cas: NewCas::Given(cas),
            ..Self::default()
        }
    }

    /// The layout it takes in the place of `old`. The width of a CAS unique yet to be
    /// given is known.
    #[inline]
    pub(crate) fn shape(&self, view: View<'_>, key: &[u8], old: Option<&Old<'_, '_>>) -> Shape {
        let bytes = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let old = old.map(|old| old.seen.item.shape());
        let old_bytes = old.map_or(0, |old| old.value_bytes);
        let (value_bytes, framed) = match self.value {
            NewValue::Keep => (old_bytes, old.filter(Shape::is_chained).map(|old| old.log_bytes)),
            NewValue::Bytes(value) => (bytes(value.len()), None),
            NewValue::Digits(len) => (bytes(len), None),
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

    /// Its fields, in the place of `old`.
    #[inline(always)]
    fn fields<'f>(
        &'f self,
        (key, digits): (&'f [u8], &'f Digits),
        old: Option<&Old<'f, '_>>,
        cas: u64,
        minute: u16,
    ) -> Fields<'f> {
        let item = old.map(|old| &old.seen.item);
        let old_value = || old.map_or(&[][..], Old::log_value);
        let (value, first_frame): ([&[u8]; 2], u32) = match self.value {
            NewValue::Keep => ([old_value(), &[]], item.and_then(Item::first_frame).unwrap_or(0)),
            NewValue::Bytes(value) => ([value, &[]], 0),
            NewValue::Digits(len) => ([digits.text(), &SPACES[..len - digits.text().len()]], 0),
            NewValue::Append(more) => ([old_value(), more], 0),
            NewValue::Prepend(more) => ([more, old_value()], 0),
            NewValue::Frames(first, rest, _) => ([rest, &[]], first),
        };
        // Marks and a field to come are no access.
        let minute = match (&self.value, item) {
            (NewValue::Keep, Some(item)) => item.minute(),
            _ => minute,
        };
        let Self { exptime, client_flags, .. } = *self;
        Fields { key, value, cas, exptime, client_flags, first_frame, minute }
    }
}
