//! Storage: set, add, replace, cas, append, prepend.
//!
//! Where: the server's executor calls `put` to store a value; `extend` does append and prepend.
//! Invariant: a column checks the verb's condition and links the item under the same lock. A
//! refused verb stores nothing; a refused set also deletes the key's old item.
//! Source: memcached's `process_update_cmd_start` and `do_store_item` (1.6.45).

use crate::column::Column;
use crate::column::handle::View;
use crate::engine::cas::NewCas;
use crate::engine::draft::Draft;
use crate::engine::{ChangeResult, Decision, NewItem, NewValue};
use crate::error::StoreError;
use crate::index::hash::{Key, PrefetchedHash};
use crate::index::slot::{STALE, WON};
use crate::shared::Shared;
use crate::verbs::{Body, Put, PutResult, Verb};
use memory::plant::{self, Fault};

/// Bytes that `-I` counts for memcached's item header, the key's NUL and the value's CRLF.
const COUNTED_BYTES: u64 = 48 + 1 + 2;
/// Bytes that `-I` counts for client flags other than 0.
const COUNTED_FLAGS_BYTES: u64 = 4;
const COUNTED_CAS_BYTES: u64 = 8;

/// Approximate bytes that an item takes in log and index besides its key and its value.
const OVERHEAD_BYTES: u32 = 20;

impl Body<'_> {
    /// Length of the value.
    #[inline]
    pub fn value_bytes(&self) -> u64 {
        match self {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::Draft(draft) => u64::from(draft.value_bytes()),
        }
    }

    pub(crate) fn again(&mut self) -> Body<'_> {
        match self {
            Body::Bytes(bytes) => Body::Bytes(bytes),
            Body::Draft(draft) => match draft.is_copied() {
                true => Body::Bytes(draft.copied()),
                false => Body::Draft(draft),
            },
        }
    }
}

impl Column {
    /// Stores `body` as `put` specifies.
    ///
    /// # Errors
    /// `TooLarge` or `NoMemory`: nothing was stored, and after `Set` the key's old item is deleted.
    /// `Later`: nothing was changed.
    #[inline]
    pub fn put(&mut self, put: &Put<'_>, body: Body<'_>) -> Result<PutResult, StoreError> {
        let hash = self.hashed(put.key);
        self.put_hashed(put, hash, body)
    }

    /// Like `put`, but the caller passes the hash of `put.key`.
    #[inline]
    pub fn put_hashed(
        &mut self,
        put: &Put<'_>,
        PrefetchedHash(hash): PrefetchedHash,
        body: Body<'_>,
    ) -> Result<PutResult, StoreError> {
        let log_bytes_max = self.handle.shared.log_bytes_max as usize;
        match body {
            Body::Bytes(log) if !put.verb.extends() && log.len() <= log_bytes_max => {
                self.put_bytes(put, hash, log)
            }
            body => self.put_any(put, hash, body),
        }
    }

    /// Stores a value that lies wholly in the log, as nearly all values do.
    #[inline(never)]
    fn put_bytes(&mut self, put: &Put<'_>, hash: u64, log: &[u8]) -> Result<PutResult, StoreError> {
        let key = Key { bytes: put.key, hash };
        self.admit(put, log.len() as u64)?;
        if put.verb != Verb::Set
            && let Some(answer) = self.refuse_early(key, put)
        {
            return Ok(answer);
        }
        let value_bytes = u32::try_from(log.len()).unwrap_or(u32::MAX);
        let done = self.store(key, put, || NewValue::Bytes(log), value_bytes);
        if let Err(refused) = done {
            self.drop_refused(put, refused);
        }
        done
    }

    /// Stores a value that is too long for the log or belongs in the arena, or extends a value.
    #[inline(never)]
    fn put_any(
        &mut self,
        put: &Put<'_>,
        hash: u64,
        mut body: Body<'_>,
    ) -> Result<PutResult, StoreError> {
        let key = Key { bytes: put.key, hash };
        self.admit(put, body.value_bytes())?;
        let done = match body.again() {
            body if put.verb.extends() => self.extend(key, put, body),
            Body::Bytes(bytes) => match self.handle.view().in_arena(bytes) {
                Some(mut draft) => self.put_draft(key, put, &mut draft),
                None if bytes.len() <= self.log_value_bytes_max() => {
                    return self.put_bytes(put, hash, bytes);
                }
                None => Draft::in_frames(&mut self.handle, &mut self.room, &[bytes])
                    .and_then(|mut draft| self.put_draft(key, put, &mut draft)),
            },
            Body::Draft(draft) => self.put_draft(key, put, draft),
        };
        if let Err(refused) = done {
            self.drop_refused(put, refused);
        }
        done
    }

    /// Checks the size of a value that has perhaps not arrived yet. If the value is too large and
    /// the verb is `Set`, the key's old item is deleted.
    ///
    /// # Errors
    /// `StoreError::TooLarge`.
    #[inline]
    pub fn admit(&mut self, put: &Put<'_>, value_bytes: u64) -> Result<(), StoreError> {
        let counted = self.handle.shared.counted_bytes(put.key, put.client_flags, value_bytes);
        let most = self.handle.shared.config.item_bytes_max as u64;
        if counted <= most && u32::try_from(value_bytes).is_ok() {
            return Ok(());
        }
        self.drop_refused(put, StoreError::TooLarge);
        Err(StoreError::TooLarge)
    }

    /// Deletes the key's old item after a refused set, but not after `Later`, which is not final.
    #[cold]
    fn drop_refused(&mut self, put: &Put<'_>, refused: StoreError) {
        if put.verb == Verb::Set && refused != StoreError::Later {
            self.delete(put.key);
        }
    }

    /// Callers pass a value of at most this length to `put` as bytes. They receive a longer value
    /// into frames, as a `Draft`.
    #[must_use]
    pub fn log_value_bytes_max(&self) -> usize {
        self.handle.shared.frame_bytes() as usize
    }

    #[inline(never)]
    fn put_draft(
        &mut self,
        key: Key<'_>,
        put: &Put<'_>,
        draft: &mut Draft,
    ) -> Result<PutResult, StoreError> {
        if put.verb != Verb::Set
            && let Some(answer) = self.refuse_early(key, put)
        {
            return Ok(answer);
        }
        let (value_bytes, value) = (draft.value_bytes(), draft.value());
        let stored = self.store(key, put, || value, value_bytes)?;
        if matches!(stored, PutResult::Stored { .. }) {
            draft.published();
        }
        Ok(stored)
    }

    /// Checks the verb's condition without the lock, before room is made. If the condition does not
    /// hold, returns the answer for the client.
    #[inline(never)]
    fn refuse_early(&mut self, key: Key<'_>, put: &Put<'_>) -> Option<PutResult> {
        let view = self.handle.view();
        let seen = view.find_live(key).map(|seen| (seen.cas, seen.item.exptime()));
        let answer = condition(put, seen).err()?;
        view.count_cas(put, answer);
        Some(answer)
    }

    /// Stores a value if the verb's condition holds. `value` is a function, so that `store` is
    /// compiled separately for each kind of value.
    #[inline(always)]
    fn store<'a>(
        &mut self,
        key: Key<'_>,
        put: &Put<'_>,
        value: impl Fn() -> NewValue<'a> + Copy,
        value_bytes: u32,
    ) -> Result<PutResult, StoreError> {
        let new = move || NewItem {
            // If `put.stale` is true, the old exptime may stay, which is known only under the lock.
            has_exptime: put.stale,
            client_flags: put.client_flags,
            key_binary: put.key_binary,
            is_use: true,
            value: value(),
            exptime: put.exptime,
            cas: NewCas::of(put.cas_in),
            ..NewItem::default()
        };
        let shape = new().shape(self.handle.view(), put.key, None);
        let changed = self.change(
            key,
            Some((shape, put.exptime)),
            #[inline(always)]
            move |_, old| {
                let holds = match put.verb {
                    Verb::Set => Ok(None),
                    _ if plant::is(Fault::ConditionNotRechecked) => Ok(None),
                    _ => condition(put, old.map(|old| (old.seen.cas, old.seen.item.exptime()))),
                };
                match holds {
                    Ok(None) => Decision::Write(new()),
                    Ok(Some(exptime)) => Decision::Write(NewItem {
                        exptime,
                        keep_bits: WON,
                        set_bits: STALE,
                        ..new()
                    }),
                    Err(answer) => Decision::Answer(answer),
                }
            },
        )?;
        let stored = match changed {
            ChangeResult::Answered(answer) => answer,
            ChangeResult::Written { cas } => {
                self.handle.view().counters().total_items.add(1);
                PutResult::Stored { cas, value_bytes }
            }
        };
        let view = self.handle.view();
        view.count_cas(put, stored);
        if view.mrc.samples(key.hash) {
            view.report_stored(key.hash, put, stored);
        }
        Ok(stored)
    }
}

impl View<'_> {
    /// Makes a draft of `value` in the arena: in the chunk that holds `value`, or else by a copy.
    fn in_arena(self, value: &[u8]) -> Option<Draft> {
        Draft::in_place(self, value).or_else(|| Draft::in_chunks(self, &[value]))
    }

    #[inline]
    fn count_cas(self, put: &Put<'_>, answer: PutResult) {
        if put.verb != Verb::Cas {
            return;
        }
        let counters = self.counters();
        match answer {
            PutResult::Stored { .. } => counters.cas_hits.add(1),
            PutResult::Exists => counters.cas_badval.add(1),
            PutResult::NotFound => counters.cas_misses.add(1),
            PutResult::NotStored => {}
        }
    }

    #[cold]
    #[inline(never)]
    fn report_stored(self, hash: u64, put: &Put<'_>, stored: PutResult) {
        if let PutResult::Stored { value_bytes, .. } = stored {
            let bytes = put.key.len() as u64 + u64::from(value_bytes) + u64::from(OVERHEAD_BYTES);
            self.mrc.stored(hash, u32::try_from(bytes).unwrap_or(u32::MAX), put.exptime);
        }
    }
}

impl Shared {
    /// The size that memcached would count for an item (`-I`).
    pub(crate) fn counted_bytes(&self, key: &[u8], client_flags: u32, value_bytes: u64) -> u64 {
        let flags = if client_flags == 0 { 0 } else { COUNTED_FLAGS_BYTES };
        let cas = if self.config.cas { COUNTED_CAS_BYTES } else { 0 };
        key.len() as u64 + value_bytes + COUNTED_BYTES + flags + cas
    }
}

/// Checks if `put` may replace an item with the CAS unique and the exptime in `seen`, like
/// memcached's `do_store_item`. `Some`: the new item is marked stale and gets this exptime.
///
/// # Errors
/// The answer for the client, if `put` may not store its value.
#[inline(never)]
fn condition(put: &Put<'_>, seen: Option<(u64, u32)>) -> Result<Option<u32>, PutResult> {
    match (put.verb, seen) {
        (Verb::Add, Some(_)) | (Verb::Replace, None) => Err(PutResult::NotStored),
        (Verb::Cas, None) => Err(PutResult::NotFound),
        // 0 is no CAS unique, so 0 does not match even an item without a CAS unique (`-C`).
        (Verb::Cas, Some(_)) if put.cas == 0 => Err(PutResult::Exists),
        (Verb::Cas, Some((cas, _))) if put.cas == cas => Ok(None),
        (Verb::Cas, Some((cas, exptime))) if put.stale && put.cas < cas => Ok(Some(exptime)),
        (Verb::Cas, Some(_)) => Err(PutResult::Exists),
        _ => Ok(None),
    }
}
