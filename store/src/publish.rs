//! Publishing an item: from a place in the log to a slot of the index, and the old item's end.
//!
//! Where: every verb that changes anything ends here.
//! Invariant: the item is whole before its slot is set; the verb's condition is checked under the
//! lock that sets it; the place is committed afterwards, published or void.

#![allow(unsafe_code, reason = "items in the mapping")]

use crate::Store;
use crate::column::Local;
use crate::index::slot::{FETCHED, Slot};
use crate::index::{At, Locked};
use crate::item::{CasWidth, EXP, FLAGS, Fields, Item, KEY_BINARY, Shape};
use crate::log::{Place, Written};
use crate::policy::Queue;
use crate::verbs::Refused;
use memory::plant::{self, Fault};

/// CAS uniques taken at a time.
const CAS_BLOCK: u64 = if cfg!(shuttle) { 4 } else { 64 };
/// A CAS unique this far behind the counter is kept in full when its item moves.
const CAS_NEAR: u64 = 1 << 30;
/// Attempts of an operation whose item others keep changing between its looks; each needed
/// another's success. Then it is to come later.
pub(crate) const ATTEMPTS_MAX: usize = 1 << 10;
/// What padding is cut from: as long as a value in the log may be.
static SPACES: [u8; 1 << 15] = [b' '; 1 << 15];

/// Is an item to be seen?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Live,
    Expired,
    Flushed,
}

/// An item found.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'r> {
    pub(crate) slot: Slot,
    pub(crate) item: Item<'r>,
    pub(crate) cas: u64,
}

/// An item found under the lock, live or not.
pub(crate) struct Old<'i, 'r> {
    pub(crate) at: At<'i>,
    pub(crate) seen: Seen<'r>,
    pub(crate) fate: Fate,
}

/// Which CAS unique an item gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewCas {
    /// The next of the store's own.
    Next,
    /// This one (meta `E`), or the one it had.
    Given(u64),
}

/// The value of an item to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewValue<'a> {
    /// What it is.
    Keep,
    /// These bytes, then spaces up to a length.
    Padded(&'a [u8], usize),
    /// Behind what it is, which must be in the log.
    Append(&'a [u8]),
    /// Before what it is.
    Prepend(&'a [u8]),
    /// Frames from this one on, and the rest; so many bytes in all.
    Frames(u32, &'a [u8], u32),
}

/// An item to be written in the place of another, or of none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New<'a> {
    pub(crate) value: NewValue<'a>,
    pub(crate) exptime: u32,
    pub(crate) client_flags: u32,
    pub(crate) key_binary: bool,
    pub(crate) cas: NewCas,
    /// The slot's bits to keep from the old one (0: none).
    pub(crate) keep_bits: u64,
    /// The slot's bits to set.
    pub(crate) set_bits: u64,
}

/// What a plan wants done with what it was shown.
pub(crate) enum Plan<'a, R> {
    /// Nothing; this is the answer.
    Answer(R),
    /// Write this; the answer is made from the CAS unique it gets.
    Write(New<'a>),
}

/// How `modify` ended.
pub(crate) enum Modified<R> {
    Answered(R),
    Written { cas: u64 },
}

/// How an attempt to modify without a place ended.
enum Attempt<R> {
    Modified(Modified<R>),
    /// An item of this shape and exptime is to be appended.
    Append(Shape, u32),
}

impl Store {
    #[inline]
    pub(crate) fn item(&self, loc: u64) -> Item<'_> {
        // SAFETY: callers have `loc` from a slot, or from a walk, since their column's last
        // quiescent point.
        unsafe { Item::at(&self.memory().region, loc, self.layout) }
    }

    #[inline]
    pub(crate) fn has_key(&self, slot: Slot, key: &[u8]) -> bool {
        self.with_key(slot, key).is_some()
    }

    /// The item of a slot if it has this key.
    #[inline(always)]
    pub(crate) fn with_key(&self, slot: Slot, key: &[u8]) -> Option<Item<'_>> {
        // SAFETY: the slot was read since this column's last quiescent point.
        unsafe { Item::with_key(&self.memory().region, slot.loc(), self.layout, key) }
    }

    /// As `with_key`, if it is of one of the shorter forms.
    #[inline(always)]
    pub(crate) fn shorter_with_key(&self, slot: Slot, key: &[u8]) -> Option<Item<'_>> {
        // SAFETY: as in `with_key`.
        unsafe { Item::shorter_with_key(&self.memory().region, slot.loc(), self.layout, key) }
    }

    #[inline]
    pub(crate) fn seen(&self, slot: Slot) -> Seen<'_> {
        self.seen_of(slot, self.item(slot.loc()))
    }

    #[inline]
    fn seen_of<'r>(&self, slot: Slot, item: Item<'r>) -> Seen<'r> {
        Seen { slot, item, cas: item.cas(|| self.log.segment_of(slot.loc()).cas_base()) }
    }

    /// How a CAS unique is to be kept.
    pub(crate) fn cas_width(&self, cas: u64) -> CasWidth {
        let counter = self.log.cas_now();
        match self.config.cas {
            false => CasWidth::None,
            true if cas < counter && cas + CAS_NEAR >= counter => CasWidth::Short,
            true => CasWidth::Long,
        }
    }

    /// Was everything flushed since the place was taken? What is linked there would go with it, and
    /// with what it replaces, though that may be of after the flush. To be asked under the lock
    /// that links, after what is there was looked at.
    pub(crate) fn is_outdated(&self, place: &Place) -> bool {
        self.log.segment(place.segment()).epoch() != self.log.epoch()
    }
}

impl Local {
    /// Is the item at `loc` to be seen at this column's time?
    #[inline]
    pub(crate) fn fate(&self, store: &Store, item: &Item<'_>, loc: u64) -> Fate {
        if self.has_expired(item) {
            return Fate::Expired;
        }
        if self.is_flushed(store, loc) { Fate::Flushed } else { Fate::Live }
    }

    /// Has it expired at this column's time?
    #[inline]
    pub(crate) fn has_expired(&self, item: &Item<'_>) -> bool {
        let exptime = item.exptime();
        let now = self.now - u32::from(plant::is(Fault::ExpiryOneLate));
        exptime != 0 && exptime <= now
    }

    /// What has `key`, under its group's lock.
    pub(crate) fn find_locked<'i, 's: 'i>(
        &self,
        store: &'s Store,
        locked: &Locked<'i>,
        key: &[u8],
    ) -> Option<Old<'i, 's>> {
        let mut found = None;
        let at = locked.find(|slot| {
            found = store.with_key(slot, key).map(|item| (slot, item));
            found.is_some()
        })?;
        let (slot, item) = found?;
        Some(self.old(store, at, slot, item))
    }

    /// The item of the slot at `at`, which is locked.
    #[inline]
    pub(crate) fn old<'i, 'r>(
        &self,
        store: &Store,
        at: At<'i>,
        slot: Slot,
        item: Item<'r>,
    ) -> Old<'i, 'r> {
        let fate = self.fate(store, &item, slot.loc());
        Old { at, fate, seen: store.seen_of(slot, item) }
    }

    /// The next CAS unique for a key that had `old`: unique, and above it unless a client chose
    /// that.
    pub(crate) fn next_cas(&mut self, store: &Store, old: u64) -> u64 {
        if !store.config.cas {
            return 0;
        }
        let counter = store.log.cas_now();
        let overtaken = old < counter && old >= self.cas.start && !plant::is(Fault::CasBlockKept);
        if self.cas.is_empty() || overtaken || counter - self.cas.start > CAS_NEAR {
            let first = store.log.take_cas(CAS_BLOCK);
            self.cas = first..first + CAS_BLOCK;
        }
        self.cas.start += 1;
        self.cas.start - 1
    }

    /// Writes an item and sets its slot: in `old`'s place, or a new one.
    ///
    /// # Errors
    /// A new slot needs an overflow line, and there is no memory for one. Nothing was published,
    /// and the place is given back.
    pub(crate) fn link<'i>(
        &mut self,
        store: &'i Store,
        locked: &mut Locked<'i>,
        old: Option<At<'i>>,
        slot: Slot,
        (place, shape, fields): (Place, Shape, &Fields<'_>),
    ) -> Result<Written, Place> {
        let written = store.log.write(place, store.layout, shape, fields);
        let place = written.place();
        let segment = store.log.segment(place.segment());
        let never = fields.exptime == 0;
        let exptime = if never { u32::MAX } else { fields.exptime };
        segment.link(place.bytes(), exptime, shape.is_chained());
        match old {
            Some(at) => locked.set(at, slot),
            None => {
                if locked.insert(slot).is_err() {
                    segment.unlink(place.bytes());
                    return Err(written.take_back());
                }
                self.items += 1;
                if let Some(from) = locked.recall() {
                    self.counters(store).ghost_hits.add(1);
                    store.rebalance(from, item_bytes(shape));
                }
            }
        }
        let counters = self.counters(store);
        counters.curr_items.add(1);
        counters.link(store.log.queue_of(place.segment()), item_bytes(shape));
        Ok(written)
    }

    /// An item is linked no more: its bytes are dead, its frames go. Not under a lock.
    pub(crate) fn dispose(&mut self, store: &Store, loc: u64, item: &Item<'_>) {
        if let Some(frame) = item.first_frame() {
            store.memory().release(frame);
        }
        self.dispose_but_frames(store, loc, item);
    }

    /// As `dispose`, but its frames are another item's already, and with them its reference to
    /// them.
    pub(crate) fn dispose_but_frames(&mut self, store: &Store, loc: u64, item: &Item<'_>) {
        let shape = item.shape();
        let segment = store.memory().region.segment_of(loc);
        self.full.dead_bytes = self.full.dead_bytes.saturating_add(shape.extent());
        let counters = self.counters(store);
        counters.curr_items.sub(1);
        counters.unlink(store.log.queue_of(segment), item_bytes(shape), shape.extent());
        store.log.unlink(loc, shape.extent());
    }

    /// The queue that a new version of the key belongs in: an item stays in its own, and a new one
    /// goes where the policy says. `there` is what the key is likely to have (`Index::likely`): at
    /// worst an item is in the wrong one.
    pub(crate) fn queue_for(&self, store: &Store, hash: u64, there: Option<Slot>) -> Queue {
        let Some(policy) = store.config.eviction.filter(|_| store.has_probation) else {
            return Queue::Main;
        };
        match there {
            Some(slot) => store.log.queue_of(store.memory().region.segment_of(slot.loc())),
            None => policy.admit(store.index.remembers(hash)),
        }
    }

    /// Changes what `key` has as `plan` says. Where that is of the old item's shape, at once;
    /// otherwise it is asked again when there is a place: what it is shown then is what is
    /// replaced.
    ///
    /// # Errors
    /// `Refused::NoMemory` and `Refused::Later`: nothing was changed.
    pub(crate) fn modify<'a, R>(
        &mut self,
        store: &Store,
        key: &[u8],
        mut plan: impl FnMut(Option<&Seen<'_>>) -> Plan<'a, R>,
    ) -> Result<Modified<R>, Refused> {
        let hash = store.hash.hash(key);
        for _ in 0..ATTEMPTS_MAX {
            let (shape, exptime) = match self.modify_over(store, hash, key, &mut plan) {
                Attempt::Modified(modified) => return Ok(modified),
                Attempt::Append(shape, exptime) => (shape, exptime),
            };
            self.make_line_first(store, hash)?;
            let there = store.index.likely(hash).map(|found| found.slot);
            let queue = self.queue_for(store, hash, there);
            let place = self.place(store, (queue, exptime), shape.extent())?;
            let mut locked = store.index.lock(hash);
            let old = self.find_locked(store, &locked, key);
            let seen = old.as_ref().filter(|old| old.fate == Fate::Live).map(|old| old.seen);
            let new = match plan(seen.as_ref()) {
                Plan::Answer(answer) => {
                    drop(locked);
                    store.log.void(place);
                    return Ok(Modified::Answered(answer));
                }
                Plan::Write(new)
                    if shape_of(store, key, seen.as_ref(), &new) == shape
                        && !store.is_outdated(&place) =>
                {
                    new
                }
                Plan::Write(_) => {
                    drop(locked);
                    store.log.void(place);
                    continue;
                }
            };
            let cas = self.cas_of(store, &new, seen.map_or(0, |seen| seen.cas));
            let fields = fields_of(key, seen.as_ref(), &new, cas, self.minute);
            let mut slot = Slot::new(hash, place.loc());
            if let Some(seen) = &seen {
                slot = slot.with_cnt(seen.slot.cnt());
                slot.0 |= seen.slot.0 & new.keep_bits;
            }
            slot.0 |= new.set_bits;
            let at = old.as_ref().map(|old| old.at);
            let linked = self.link(store, &mut locked, at, slot, (place, shape, &fields));
            drop(locked);
            let written = match linked {
                Ok(written) => written,
                Err(place) => {
                    store.log.void(place);
                    self.make_index_room(store, hash)?;
                    continue;
                }
            };
            if let Some(Old { seen, .. }) = &old {
                let (loc, frame) = (seen.slot.loc(), seen.item.first_frame());
                match shape.is_chained() && frame == Some(fields.first_frame) {
                    true => self.dispose_but_frames(store, loc, &seen.item),
                    false => self.dispose(store, loc, &seen.item),
                }
            }
            store.log.commit(written);
            self.settle_index(store);
            return Ok(Modified::Written { cas });
        }
        Err(Refused::Later)
    }

    /// Does what `plan` says if it needs no place.
    fn modify_over<'a, R>(
        &mut self,
        store: &Store,
        hash: u64,
        key: &[u8],
        plan: &mut impl FnMut(Option<&Seen<'_>>) -> Plan<'a, R>,
    ) -> Attempt<R> {
        let (locked, old) = self.lock_live(store, hash, key);
        let seen = old.as_ref().map(|old| old.seen);
        let new = match plan(seen.as_ref()) {
            Plan::Answer(answer) => return Attempt::Modified(Modified::Answered(answer)),
            Plan::Write(new) => new,
        };
        let shape = shape_of(store, key, seen.as_ref(), &new);
        let Some(old) = old.filter(|old| Self::can_rewrite(store, old, shape)) else {
            return Attempt::Append(shape, new.exptime);
        };
        let cas = self.cas_of(store, &new, old.seen.cas);
        let fields = fields_of(key, Some(&old.seen), &new, cas, self.minute);
        let change = |slot: Slot| slot.rewritten(new.keep_bits, new.set_bits);
        if !Self::rewrite(store, &locked, &old, &fields, change) {
            return Attempt::Append(shape, new.exptime);
        }
        drop(locked);
        self.counters(store).rewritten.add(1);
        Attempt::Modified(Modified::Written { cas })
    }

    fn cas_of(&mut self, store: &Store, new: &New<'_>, old_cas: u64) -> u64 {
        match new.cas {
            NewCas::Next => self.next_cas(store, old_cas),
            NewCas::Given(cas) if store.config.cas => cas,
            NewCas::Given(_) => 0,
        }
    }
}

/// Bytes an item takes, frames included.
pub(crate) fn item_bytes(shape: Shape) -> u64 {
    u64::from(shape.extent()) + u64::from(shape.value_bytes - shape.log_bytes)
}

/// The layout `new` takes. The width of a CAS unique yet to be given is known.
pub(crate) fn shape_of(store: &Store, key: &[u8], seen: Option<&Seen<'_>>, new: &New<'_>) -> Shape {
    let bytes = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let old = seen.map(|seen| seen.item.shape());
    let old_bytes = old.map_or(0, |old| old.value_bytes);
    let (value_bytes, framed) = match new.value {
        NewValue::Keep => (old_bytes, old.filter(Shape::is_chained).map(|old| old.log_bytes)),
        NewValue::Padded(_, len) => (bytes(len), None),
        NewValue::Append(more) | NewValue::Prepend(more) => (old_bytes + bytes(more.len()), None),
        NewValue::Frames(_, rest, all) => (all, Some(bytes(rest.len()))),
    };
    let cas = match new.cas {
        _ if !store.config.cas => CasWidth::None,
        NewCas::Next => CasWidth::Short,
        NewCas::Given(cas) => store.cas_width(cas),
    };
    let shape = Shape::new(bytes(key.len()), value_bytes, cas)
        .with(EXP, new.exptime != 0)
        .with(FLAGS, new.client_flags != 0)
        .with(KEY_BINARY, new.key_binary);
    framed.map_or(shape, |log_bytes| shape.in_frames(log_bytes))
}

fn fields_of<'f>(
    key: &'f [u8],
    seen: Option<&Seen<'f>>,
    new: &New<'f>,
    cas: u64,
    minute: u16,
) -> Fields<'f> {
    let old: &[u8] = seen.map_or(&[], |seen| seen.item.log_value());
    let (value, first_frame): ([&[u8]; 2], u32) = match new.value {
        NewValue::Keep => ([old, &[]], seen.and_then(|seen| seen.item.first_frame()).unwrap_or(0)),
        NewValue::Padded(digits, len) => ([digits, &SPACES[..len - digits.len()]], 0),
        NewValue::Append(more) => ([old, more], 0),
        NewValue::Prepend(more) => ([more, old], 0),
        NewValue::Frames(first, rest, _) => ([rest, &[]], first),
    };
    // Marks and a field to come are no access.
    let minute = match (new.value, seen) {
        (NewValue::Keep, Some(seen)) => seen.item.minute(),
        _ => minute,
    };
    Fields {
        key,
        value,
        cas,
        exptime: new.exptime,
        client_flags: new.client_flags,
        first_frame,
        minute,
    }
}

/// All bits of a slot that an update in place keeps. (The counter stays whatever is stored: it
/// tells how the key is used, not the value.)
pub(crate) const KEEP_ALL: u64 = FETCHED | crate::index::slot::STALE | crate::index::slot::WON;
