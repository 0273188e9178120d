//! Append and prepend: a value gets longer, in the log, in frames or in chunks of the arena.
//!
//! Where: `Column::put` calls `extend` for append and prepend.
//! Invariant: the extended value replaces only the value from which it was made. A value in the log
//! is read and replaced under one lock. A value in frames is copied first, and is replaced only if,
//! under the lock, the key still has the copied value. Client flags and exptime stay the same.
//! Source: memcached's `do_store_item` (1.6.45).

use crate::column::Column;
use crate::column::handle::View;
use crate::engine::cas::NewCas;
use crate::engine::draft::Draft;
use crate::engine::find::LockedItem;
use crate::engine::{ATTEMPTS_MAX, ChangeResult, Decision, NewItem, NewValue};
use crate::error::StoreError;
use crate::index::hash::{Key, PrefetchedHash};
use crate::verbs::{Body, Put, PutResult, Verb};
use memory::frames::Pinned;
use memory::plant::{self, Fault};

/// A value that was read under the lock, to make a new value from. The value's frames are pinned.
pub(crate) struct OldValue {
    first_frame: Option<u32>,
    pinned: Option<Pinned>,
    log: Vec<u8>,
}

impl OldValue {
    pub(crate) fn of(view: View<'_>, old: &LockedItem<'_, '_>) -> OldValue {
        let item = &old.seen.item;
        let first_frame = item.first_frame();
        let pinned = first_frame.and_then(|first| view.pin(item, first));
        OldValue { first_frame, pinned, log: old.log_value().to_vec() }
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pinned.iter().flat_map(Pinned::pieces).chain([&self.log[..]])
    }

    /// True if `old` still has this value. No other value can use the pinned frames, so if the
    /// first frame and the bytes in the log are the same, the value is the same.
    pub(crate) fn is_of(&self, old: &LockedItem<'_, '_>) -> bool {
        old.seen.item.first_frame() == self.first_frame && old.log_value() == self.log
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExtendFailure {
    Gone,
    Changed,
}

impl Column {
    pub(crate) fn extend(
        &mut self,
        key: Key<'_>,
        put: &Put<'_>,
        mut body: Body<'_>,
    ) -> Result<PutResult, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(shape) = self.handle.view().find_live(key).map(|seen| seen.item.shape())
            else {
                if !put.verb.vivifies() {
                    return Ok(PutResult::NotStored);
                }
                // If another column has added the key, `add` stores nothing: extend the added
                // value.
                let add = Put { verb: Verb::Add, cas: 0, ..*put };
                match self.put_hashed(&add, PrefetchedHash(key.hash), body.again())? {
                    PutResult::NotStored => continue,
                    added => return Ok(added),
                }
            };
            let room = self.log_value_bytes_max().saturating_sub(shape.value_bytes as usize);
            let extended = match body.again() {
                Body::Bytes(more) if !shape.is_chained() && more.len() <= room => {
                    self.extend_in_log(key, put, more)?
                }
                Body::Bytes(more) => self.extend_in_frames(key, put, more)?,
                Body::Draft(draft) => self.extend_in_frames(key, put, draft.copied())?,
            };
            match extended {
                Ok(stored) => return Ok(stored),
                Err(ExtendFailure::Gone) if !put.verb.vivifies() => {
                    return Ok(PutResult::NotStored);
                }
                Err(_) => {}
            }
        }
        Err(StoreError::Later)
    }

    fn extend_in_log(
        &mut self,
        key: Key<'_>,
        put: &Put<'_>,
        more: &[u8],
    ) -> Result<Result<PutResult, ExtendFailure>, StoreError> {
        self.write_longer(key, put, |view, old| {
            let shape = old.seen.item.shape();
            let more_bytes = u32::try_from(more.len()).unwrap_or(u32::MAX);
            let value_bytes = shape.value_bytes.saturating_add(more_bytes);
            let value = match put.verb.is_before() {
                false => NewValue::Append(more),
                true => NewValue::Prepend(more),
            };
            let fits = !shape.is_chained() && value_bytes <= view.frame_bytes();
            fits.then_some((value, value_bytes))
        })
    }

    /// Builds the longer value in chunks or frames, and stores it if the old value is unchanged.
    fn extend_in_frames(
        &mut self,
        key: Key<'_>,
        put: &Put<'_>,
        more: &[u8],
    ) -> Result<Result<PutResult, ExtendFailure>, StoreError> {
        let before = match self.handle.view().before(key, put, more) {
            Ok(before) => before,
            Err(answer) => return Ok(answer),
        };
        let mut pieces: Vec<&[u8]> = before.pieces().collect();
        pieces.insert(if put.verb.is_before() { 0 } else { pieces.len() }, more);
        let mut draft = self.draft_of_pieces(&pieces)?;
        let (value_bytes, value) = (draft.value_bytes(), draft.value());
        let stored = self.write_longer(key, put, |_, old| {
            let is_same = before.is_of(old) || plant::is(Fault::ExtensionNotCompared);
            is_same.then_some((value, value_bytes))
        })?;
        if matches!(stored, Ok(PutResult::Stored { .. })) {
            draft.published();
        }
        Ok(stored)
    }

    /// Makes a complete draft of `pieces`: in chunks of the arena if possible, otherwise in frames.
    ///
    /// # Errors
    /// Like `Draft::in_frames`.
    pub(crate) fn draft_of_pieces(&mut self, pieces: &[&[u8]]) -> Result<Draft, StoreError> {
        match Draft::in_chunks(self.handle.view(), pieces) {
            Some(draft) => Ok(draft),
            None => Draft::in_frames(&mut self.handle, &mut self.room, pieces),
        }
    }

    /// Replaces the old value by the value that `longer` returns. `longer` also returns the length
    /// of that value, or `None` if the old value has changed.
    fn write_longer<'a>(
        &mut self,
        key: Key<'_>,
        put: &Put<'_>,
        longer: impl Fn(View<'_>, &LockedItem<'_, '_>) -> Option<(NewValue<'a>, u32)>,
    ) -> Result<Result<PutResult, ExtendFailure>, StoreError> {
        let mut value_bytes = 0;
        let changed = self.change(key, None, |view, old| {
            let Some(old) = old else { return Decision::Answer(Err(ExtendFailure::Gone)) };
            let Some((value, bytes)) = longer(view, old) else {
                return Decision::Answer(Err(ExtendFailure::Changed));
            };
            value_bytes = bytes;
            match extended(view, put, old, (value, bytes)) {
                Ok(longer) => Decision::Write(longer),
                Err(answer) => Decision::Answer(Ok(answer)),
            }
        })?;
        Ok(match changed {
            ChangeResult::Answered(answer) => answer,
            ChangeResult::Written { cas } => {
                self.handle.view().counters().total_items.add(1);
                Ok(PutResult::Stored { cas, value_bytes })
            }
        })
    }
}

impl View<'_> {
    /// # Errors
    /// The answer to the request, if the value may not be extended.
    fn before(
        self,
        key: Key<'_>,
        put: &Put<'_>,
        more: &[u8],
    ) -> Result<OldValue, Result<PutResult, ExtendFailure>> {
        let (before, _locked) = self.look_locked(key, |_, old| {
            let old = old.ok_or(Err(ExtendFailure::Gone))?;
            let item = &old.seen.item;
            let more_bytes = u32::try_from(more.len()).unwrap_or(u32::MAX);
            let value_bytes = item.value_bytes().0.saturating_add(more_bytes);
            extended(self, put, old, (NewValue::Keep, value_bytes)).map_err(Ok)?;
            Ok(OldValue::of(self, old))
        });
        before
    }
}

/// Returns a new item with the old item's flags and exptime, and with `value`, whose length is
/// `value_bytes`.
///
/// # Errors
/// The answer to the request, if the item may not be stored.
fn extended<'a>(
    view: View<'_>,
    put: &Put<'_>,
    old: &LockedItem<'_, '_>,
    (value, value_bytes): (NewValue<'a>, u32),
) -> Result<NewItem<'a>, PutResult> {
    let item = &old.seen.item;
    if put.cas != 0 && put.cas != old.seen.cas {
        return Err(PutResult::Exists);
    }
    let counted = view.counted_bytes(put.key, item.client_flags(), value_bytes.into());
    if counted > view.config.item_bytes_max as u64 {
        return Err(PutResult::NotStored);
    }
    let (exptime, client_flags) = (item.exptime(), item.client_flags());
    Ok(NewItem { value, exptime, client_flags, cas: NewCas::of(put.cas_in), ..NewItem::default() })
}
