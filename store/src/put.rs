//! Storage: set, add, replace, cas, append, prepend.
//!
//! Where: the executor's storage arm, with the value in the receive buffer or in frames.
//! Invariant: the verb's condition is decided under the lock that publishes; what is refused leaves
//! nothing behind, and a refused set leaves no stale value either.
//! Source: memcached's `process_update_cmd_start` and `do_store_item` (1.6.45).

use crate::column::Local;
use crate::draft::Whole;
use crate::index::slot::{STALE, Slot, WON};
use crate::item::{CasWidth, EXP, FLAGS, Fields, Item, KEY_BINARY, Shape};
use crate::publish::{ATTEMPTS_MAX, Fate, Modified, New, NewCas, NewValue, Old, Plan, Seen};
use crate::rewrite::Taken;
use crate::verbs::{Body, Put, Refused, Stored, Value, Verb};
use crate::{Draft, Store};
use memory::plant::{self, Fault};

/// memcached's item header, the key's NUL and the value's CRLF: what `-I` counts beside key and
/// value.
const COUNTED_BYTES: u64 = 48 + 1 + 2;
/// What it counts for client flags, and for CAS uniques.
const COUNTED_FLAGS_BYTES: u64 = 4;
const COUNTED_CAS_BYTES: u64 = 8;

/// About what an item takes beside key and value, in log and index.
const OVERHEAD_BYTES: u32 = 20;

/// A value on its way into the log: what lies there, and what in frames.
struct Parts<'b> {
    first_frame: Option<u32>,
    log: &'b [u8],
    value_bytes: u32,
}

/// What a verb's condition says.
enum Decision {
    Store { exptime: u32, bits: u64 },
    Answer(Stored),
}

impl Body<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::Draft(draft) => u64::from(draft.value_bytes()),
        }
    }

    /// The same for another attempt.
    fn again(&mut self) -> Body<'_> {
        match self {
            Body::Bytes(bytes) => Body::Bytes(bytes),
            Body::Draft(draft) => match draft.is_copied() {
                true => Body::Bytes(draft.copied()),
                false => Body::Draft(draft),
            },
        }
    }
}

impl Local {
    pub(crate) fn admit(
        &mut self,
        store: &Store,
        put: &Put<'_>,
        value_bytes: u64,
    ) -> Result<(), Refused> {
        let counted = counted_bytes(store, put.key, put.client_flags, value_bytes);
        if counted <= store.config.item_bytes_max as u64 && u32::try_from(value_bytes).is_ok() {
            return Ok(());
        }
        self.drop_refused(store, put, Refused::TooLarge);
        Err(Refused::TooLarge)
    }

    /// A refused set must not leave an older value to be read. One that is to come later is not
    /// refused yet.
    fn drop_refused(&mut self, store: &Store, put: &Put<'_>, refused: Refused) {
        if put.verb == Verb::Set && refused != Refused::Later {
            self.delete(store, put.key);
        }
    }

    /// Stores bytes, as nearly all requests do; with verbs that give the whole value by the
    /// shortest way.
    pub(crate) fn put_bytes(
        &mut self,
        store: &Store,
        hash: u64,
        put: &Put<'_>,
        log: &[u8],
    ) -> Result<Stored, Refused> {
        let is_whole = matches!(put.verb, Verb::Set | Verb::Add | Verb::Replace | Verb::Cas);
        if !is_whole || log.len() > store.frame_bytes() as usize {
            return self.put(store, hash, put, Body::Bytes(log));
        }
        self.admit(store, put, log.len() as u64)?;
        if put.verb != Verb::Set
            && let Some(answer) = self.refuse_early(store, hash, put)
        {
            return Ok(answer);
        }
        let value_bytes = u32::try_from(log.len()).unwrap_or(u32::MAX);
        let done = self.publish(store, hash, put, &Parts { first_frame: None, log, value_bytes });
        match done {
            Ok(stored) => self.sample_stored(store, hash, put, stored),
            Err(refused) => self.drop_refused(store, put, refused),
        }
        done
    }

    pub(crate) fn put(
        &mut self,
        store: &Store,
        hash: u64,
        put: &Put<'_>,
        mut body: Body<'_>,
    ) -> Result<Stored, Refused> {
        self.admit(store, put, body.bytes())?;
        let body = body.again();
        let done = match put.verb {
            Verb::Append | Verb::Prepend | Verb::AppendVivify | Verb::PrependVivify => {
                self.extend(store, put, body)
            }
            _ => self.put_body(store, hash, put, body),
        };
        if let Err(refused) = done {
            self.drop_refused(store, put, refused);
        }
        done
    }

    /// Stores a whole value, as the verb's condition says.
    fn put_body(
        &mut self,
        store: &Store,
        hash: u64,
        put: &Put<'_>,
        body: Body<'_>,
    ) -> Result<Stored, Refused> {
        if put.verb != Verb::Set
            && let Some(answer) = self.refuse_early(store, hash, put)
        {
            return Ok(answer);
        }
        let stored = match body {
            Body::Bytes(log) if log.len() <= store.frame_bytes() as usize => {
                let value_bytes = u32::try_from(log.len()).unwrap_or(u32::MAX);
                let parts = Parts { first_frame: None, log, value_bytes };
                self.publish(store, hash, put, &parts)
            }
            Body::Bytes(bytes) => {
                let mut draft = Draft::of(self, store, &[bytes])?;
                self.put_draft(store, hash, put, &mut draft)
            }
            Body::Draft(draft) => self.put_draft(store, hash, put, draft),
        }?;
        self.sample_stored(store, hash, put, stored);
        Ok(stored)
    }

    /// Tells of what was stored, for the estimate of other sizes.
    #[inline(always)]
    fn sample_stored(&self, store: &Store, hash: u64, put: &Put<'_>, stored: Stored) {
        if store.mrc.samples(hash) {
            self.tell_stored(store, hash, put, stored);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_stored(&self, store: &Store, hash: u64, put: &Put<'_>, stored: Stored) {
        if let Stored::Stored { value_bytes, .. } = stored {
            let bytes = put.key.len() as u64 + u64::from(value_bytes) + u64::from(OVERHEAD_BYTES);
            store.mrc.stored(hash, u32::try_from(bytes).unwrap_or(u32::MAX), put.exptime);
        }
    }

    fn put_draft(
        &mut self,
        store: &Store,
        hash: u64,
        put: &Put<'_>,
        draft: &mut Draft,
    ) -> Result<Stored, Refused> {
        let Whole { first_frame, rest, value_bytes } = draft.whole();
        let parts = Parts { first_frame, log: rest, value_bytes };
        let stored = self.publish(store, hash, put, &parts)?;
        if matches!(stored, Stored::Stored { .. }) {
            draft.published();
        }
        Ok(stored)
    }

    /// An answer that needs no room: what the verb's condition already says without a lock.
    fn refuse_early(&mut self, store: &Store, hash: u64, put: &Put<'_>) -> Option<Stored> {
        let seen = self.find_live(store, hash, put.key);
        match decide(put, seen.as_ref()) {
            Decision::Answer(answer) => {
                self.count_cas(store, put, answer);
                Some(answer)
            }
            Decision::Store { .. } => None,
        }
    }

    fn count_cas(&self, store: &Store, put: &Put<'_>, answer: Stored) {
        if put.verb != Verb::Cas {
            return;
        }
        let counters = self.counters(store);
        match answer {
            Stored::Stored { .. } => counters.cas_hits.add(1),
            Stored::Exists => counters.cas_badval.add(1),
            Stored::NotFound => counters.cas_misses.add(1),
            Stored::NotStored => {}
        }
    }

    /// Writes the item, and links it if the condition still holds under the lock.
    fn publish(
        &mut self,
        store: &Store,
        hash: u64,
        put: &Put<'_>,
        parts: &Parts<'_>,
    ) -> Result<Stored, Refused> {
        let shape = shape_of(store, put, parts);
        let there = store.index.likely(hash).map(|found| found.slot);
        if let Some(slot) = there
            && let Some(item) = store.with_key(slot, put.key)
            && Self::looks_rewritable(slot, &item, shape)
            && let Some(stored) = self.publish_over(store, hash, put, parts, (slot, item))
        {
            return Ok(stored);
        }
        self.publish_anew(store, hash, put, parts, (shape, there))
    }

    /// As `publish`, in a place of its own.
    #[inline(never)]
    fn publish_anew(
        &mut self,
        store: &Store,
        hash: u64,
        put: &Put<'_>,
        parts: &Parts<'_>,
        (shape, there): (Shape, Option<Slot>),
    ) -> Result<Stored, Refused> {
        for _ in 0..ATTEMPTS_MAX {
            self.make_line_first(store, hash)?;
            let queue = self.queue_for(store, hash, there);
            let place = self.place(store, (queue, put.exptime), shape.extent())?;
            let mut locked = store.index.lock(hash);
            let old = self.find_locked(store, &locked, put.key);
            let seen = live(old.as_ref());
            let (exptime, bits) = match decide(put, seen) {
                Decision::Store { exptime, bits } => (exptime, bits),
                _ if plant::is(Fault::ConditionNotAskedAgain) => (put.exptime, 0),
                Decision::Answer(answer) => {
                    drop(locked);
                    store.log.void(place);
                    self.count_cas(store, put, answer);
                    return Ok(answer);
                }
            };
            if store.is_outdated(&place) {
                // There was a flush: its place is to be another.
                drop(locked);
                store.log.void(place);
                continue;
            }
            let fields =
                self.fields_of(store, put, parts, seen.map_or(0, |seen| seen.cas), exptime);
            let cnt = old.as_ref().map_or(0, |old| old.seen.slot.cnt());
            let slot = Slot(Slot::new(hash, place.loc()).0 | bits).with_cnt(cnt);
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
            if let Some(old) = &old {
                self.dispose(store, old.seen.slot.loc(), &old.seen.item);
            }
            store.log.commit(written);
            self.settle_index(store);
            return Ok(self.stored(store, put, parts, fields.cas));
        }
        Err(Refused::Later)
    }

    /// Writes the item over an old one of its key and shape, where it was seen without the lock.
    /// `None`: it is not there any more, or may not be rewritten.
    fn publish_over(
        &mut self,
        store: &Store,
        hash: u64,
        put: &Put<'_>,
        parts: &Parts<'_>,
        (slot, item): (Slot, Item<'_>),
    ) -> Option<Stored> {
        let locked = store.index.lock(hash);
        // What lies there is what it was, see `rewrite`; all else is asked anew.
        let at = locked.find_loc(slot.loc())?;
        let old = self.old(store, at, at.slot(), item);
        if !Self::can_rewrite(store, &old, item.shape()) {
            return None;
        }
        let (exptime, bits) = match decide(put, Some(&old.seen)) {
            Decision::Store { exptime, bits } => (exptime, bits),
            Decision::Answer(answer) => {
                drop(locked);
                self.count_cas(store, put, answer);
                return Some(answer);
            }
        };
        let fields = self.fields_of(store, put, parts, old.seen.cas, exptime);
        let loc = old.seen.slot.loc();
        // It keeps its place in the queue, so that this is a use; but none that tells of more to
        // come in the second in which it was made.
        let used = store.log.segment_of(loc).opened() != self.now && !store.log.is_young(loc);
        let change = |slot: Slot| {
            let slot = slot.rewritten(0, bits);
            if used { slot.with_cnt(slot.cnt() + 1) } else { slot }
        };
        if !Self::rewrite(store, &locked, &old, &fields, change) {
            return None;
        }
        drop(locked);
        self.counters(store).rewritten.add(1);
        Some(self.stored(store, put, parts, fields.cas))
    }

    fn fields_of<'f>(
        &mut self,
        store: &Store,
        put: &Put<'f>,
        parts: &Parts<'f>,
        old_cas: u64,
        exptime: u32,
    ) -> Fields<'f> {
        Fields {
            key: put.key,
            value: [parts.log, &[]],
            cas: match put.cas_in {
                Some(cas) if store.config.cas => cas,
                _ => self.next_cas(store, old_cas),
            },
            exptime,
            client_flags: put.client_flags,
            first_frame: parts.first_frame.unwrap_or(0),
            minute: self.minute,
        }
    }

    fn stored(&self, store: &Store, put: &Put<'_>, parts: &Parts<'_>, cas: u64) -> Stored {
        let stored = Stored::Stored { cas, value_bytes: parts.value_bytes };
        self.counters(store).total_items.add(1);
        self.count_cas(store, put, stored);
        stored
    }

    /// append and prepend.
    fn extend(
        &mut self,
        store: &Store,
        put: &Put<'_>,
        mut body: Body<'_>,
    ) -> Result<Stored, Refused> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(stored) = self.try_to_extend(store, put, body.again())? {
                return Ok(stored);
            }
        }
        Err(Refused::Later)
    }

    /// As `extend`. `None`: between a look at the item and the lock it went away, may be to make
    /// room for its own extension, or came, or others changed it.
    fn try_to_extend(
        &mut self,
        store: &Store,
        put: &Put<'_>,
        mut body: Body<'_>,
    ) -> Result<Option<Stored>, Refused> {
        let hash = store.hash.hash(put.key);
        let Some(seen) = self.find_live(store, hash, put.key) else {
            if !vivifies(put.verb) {
                return Ok(Some(Stored::NotStored));
            }
            // On a miss it is an add; if somebody else adds meanwhile, there is something to
            // extend.
            let add = Put { verb: Verb::Add, cas: 0, ..*put };
            let added = self.put_body(store, hash, &add, body.again())?;
            return Ok(Some(added).filter(|added| *added != Stored::NotStored));
        };
        let shape = seen.item.shape();
        match body {
            Body::Bytes(more)
                if !shape.is_chained()
                    && shape.value_bytes as usize + more.len() <= store.frame_bytes() as usize =>
            {
                self.extend_in_log(store, put, more)
            }
            Body::Bytes(more) => self.extend_in_frames(store, put, more),
            Body::Draft(draft) => self.extend_in_frames(store, put, draft.copied()),
        }
    }

    fn extend_in_log(
        &mut self,
        store: &Store,
        put: &Put<'_>,
        more: &[u8],
    ) -> Result<Option<Stored>, Refused> {
        let (mut value_bytes, mut outgrown, mut gone) = (0, false, false);
        let modified = self.modify(store, put.key, |seen| {
            gone = seen.is_none();
            let Some(seen) = seen else { return Plan::Answer(Stored::NotStored) };
            if put.cas != 0 && put.cas != seen.cas {
                return Plan::Answer(Stored::Exists);
            }
            let shape = seen.item.shape();
            value_bytes = shape.value_bytes.saturating_add(u32::try_from(more.len()).unwrap_or(0));
            outgrown = shape.is_chained() || value_bytes > store.frame_bytes();
            if outgrown || too_large(store, put, seen, value_bytes) {
                return Plan::Answer(Stored::NotStored);
            }
            let value = match before(put.verb) {
                false => NewValue::Append(more),
                true => NewValue::Prepend(more),
            };
            Plan::Write(extended(put, seen, value))
        })?;
        // Others made it larger meanwhile.
        let outgrown = outgrown && matches!(modified, Modified::Answered(Stored::NotStored));
        if outgrown || (gone && vivifies(put.verb)) {
            return Ok(None);
        }
        Ok(Some(self.count_extended(store, modified, value_bytes)))
    }

    /// Builds the sum in frames. What it was made from is compared again under the lock.
    fn extend_in_frames(
        &mut self,
        store: &Store,
        put: &Put<'_>,
        more: &[u8],
    ) -> Result<Option<Stored>, Refused> {
        let hash = store.hash.hash(put.key);
        let (locked, old) = self.lock_live(store, hash, put.key);
        let Some(seen) = old.map(|old| old.seen) else { return Ok(gone_meanwhile(put)) };
        let (first, log) = (seen.item.first_frame(), seen.item.log_value().to_vec());
        let pinned = match self.take(store, &seen.item) {
            Some(Taken::Shown(Value::Frames(pinned, _))) => Some(pinned),
            _ => None,
        };
        drop(locked);
        let held = pinned.iter().flat_map(|pinned| pinned.pieces());
        let mut pieces: Vec<&[u8]> = held.chain([&log[..]]).collect();
        let place = if before(put.verb) { 0 } else { pieces.len() };
        pieces.insert(place, more);
        let sum: usize = pieces.iter().map(|piece| piece.len()).sum();
        let value_bytes = u32::try_from(sum).unwrap_or(u32::MAX);
        if put.cas != 0 && put.cas != seen.cas {
            return Ok(Some(Stored::Exists));
        }
        if too_large(store, put, &seen, value_bytes) {
            return Ok(Some(Stored::NotStored));
        }
        let mut draft = Draft::of(self, store, &pieces)?;
        let Whole { first_frame, rest, .. } = draft.whole();
        let value = match first_frame {
            Some(first) => NewValue::Frames(first, rest, value_bytes),
            None => NewValue::Padded(rest, rest.len()),
        };
        let (mut changed, mut gone) = (false, false);
        let modified = self.modify(store, put.key, |seen| {
            gone = seen.is_none();
            let Some(seen) = seen else { return Plan::Answer(Stored::NotStored) };
            if put.cas != 0 && put.cas != seen.cas {
                return Plan::Answer(Stored::Exists);
            }
            // Held frames are nobody else's: equal frames and rest are an equal value.
            changed = (seen.item.first_frame() != first || seen.item.log_value() != log)
                && !plant::is(Fault::ExtensionNotCompared);
            match changed {
                true => Plan::Answer(Stored::NotStored),
                false => Plan::Write(extended(put, seen, value)),
            }
        })?;
        if gone {
            return Ok(gone_meanwhile(put));
        }
        if changed {
            return Ok(None);
        }
        if matches!(modified, Modified::Written { .. }) {
            draft.published();
        }
        Ok(Some(self.count_extended(store, modified, value_bytes)))
    }

    fn count_extended(
        &self,
        store: &Store,
        modified: Modified<Stored>,
        value_bytes: u32,
    ) -> Stored {
        match modified {
            Modified::Answered(answer) => answer,
            Modified::Written { cas } => {
                self.counters(store).total_items.add(1);
                Stored::Stored { cas, value_bytes }
            }
        }
    }
}

/// Does the verb make an item where there is none to extend?
fn vivifies(verb: Verb) -> bool {
    matches!(verb, Verb::AppendVivify | Verb::PrependVivify)
}

/// What there was to extend went away: one that makes it starts anew.
fn gone_meanwhile(put: &Put<'_>) -> Option<Stored> {
    (!vivifies(put.verb)).then_some(Stored::NotStored)
}

fn before(verb: Verb) -> bool {
    matches!(verb, Verb::Prepend | Verb::PrependVivify)
}

/// An extended item keeps flags and exptime, and is otherwise new.
fn extended<'a>(put: &Put<'_>, seen: &Seen<'_>, value: NewValue<'a>) -> New<'a> {
    New {
        value,
        exptime: seen.item.exptime(),
        client_flags: seen.item.client_flags(),
        key_binary: false,
        cas: put.cas_in.map_or(NewCas::Next, NewCas::Given),
        keep_bits: 0,
        set_bits: 0,
    }
}

/// Is an extended item, which has the old one's flags, too large?
fn too_large(store: &Store, put: &Put<'_>, old: &Seen<'_>, value_bytes: u32) -> bool {
    counted_bytes(store, put.key, old.item.client_flags(), value_bytes.into())
        > store.config.item_bytes_max as u64
}

/// An item's size as memcached counts it.
fn counted_bytes(store: &Store, key: &[u8], client_flags: u32, value_bytes: u64) -> u64 {
    let flags = if client_flags == 0 { 0 } else { COUNTED_FLAGS_BYTES };
    let cas = if store.config.cas { COUNTED_CAS_BYTES } else { 0 };
    key.len() as u64 + value_bytes + COUNTED_BYTES + flags + cas
}

fn live<'o, 'r>(old: Option<&'o Old<'_, 'r>>) -> Option<&'o Seen<'r>> {
    old.filter(|old| old.fate == Fate::Live).map(|old| &old.seen)
}

/// memcached's `do_store_item`, without append and prepend.
fn decide(put: &Put<'_>, seen: Option<&Seen<'_>>) -> Decision {
    let store = Decision::Store { exptime: put.exptime, bits: 0 };
    match (put.verb, seen) {
        (Verb::Add, Some(_)) | (Verb::Replace, None) => Decision::Answer(Stored::NotStored),
        (Verb::Cas, None) => Decision::Answer(Stored::NotFound),
        // 0 is no unique: not even an item without one (`-C`) has it.
        (Verb::Cas, Some(_)) if put.cas == 0 => Decision::Answer(Stored::Exists),
        (Verb::Cas, Some(seen)) if put.cas == seen.cas => store,
        (Verb::Cas, Some(seen)) if put.stale && put.cas < seen.cas => {
            Decision::Store { exptime: seen.item.exptime(), bits: STALE | (seen.slot.0 & WON) }
        }
        (Verb::Cas, Some(_)) => Decision::Answer(Stored::Exists),
        _ => store,
    }
}

fn shape_of(store: &Store, put: &Put<'_>, parts: &Parts<'_>) -> Shape {
    let bytes = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let cas = match put.cas_in {
        _ if !store.config.cas => CasWidth::None,
        Some(cas) => store.cas_width(cas),
        None => CasWidth::Short,
    };
    let shape = Shape::new(bytes(put.key.len()), parts.value_bytes, cas)
        // A stale store keeps the old exptime, known only under the lock.
        .with(EXP, put.exptime != 0 || put.stale)
        .with(FLAGS, put.client_flags != 0)
        .with(KEY_BINARY, put.key_binary);
    match parts.first_frame {
        Some(_) => shape.in_frames(bytes(parts.log.len())),
        None => shape,
    }
}
