//! Passes a request of the model to a column, and returns the answer in the form of the model.
//!
//! Invariant: all bytes of a value are read, as the server reads them before its next request.

use super::request::{Answer, Meta, Reply, Request, Seen};
use memory::frames::Pinned;
use memory::sync::plain_access;
use store::{
    Body, Column, DeleteResult, Delta, Hit, MetaDelete, MetaGet, MetaHit, MetaStep, Put, Value,
};

/// The functions of `Column` that a request is passed to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// `put`, `meta_get`, `delta` and `meta_delete`, which together do all requests.
    Meta,
    /// `get`, `get_and_touch` and `delete`.
    Classic,
    Touch,
}

/// Passes `request` to `column`. `bytes` is the value to store, where it was received.
pub(crate) fn ask(
    column: &mut Column,
    key: &[u8],
    (request, form): (&Request, Form),
    bytes: &[u8],
) -> Reply {
    let hit = |seen: Option<Seen>| seen.map_or(Answer::Miss, Answer::Hit);
    Ok(match (request, form) {
        (Request::Put(put, _), _) => {
            Answer::Put(column.put(&Put { key, ..*put }, Body::Bytes(bytes))?)
        }
        (Request::Delta(delta), _) => Answer::Delta(column.delta(&Delta { key, ..*delta })?),
        (Request::Delete(delete), Form::Meta) => {
            Answer::Delete(column.meta_delete(&MetaDelete { key, ..*delete })?)
        }
        (Request::Delete(_), _) => Answer::Delete(match column.delete(key) {
            true => DeleteResult::Deleted,
            false => DeleteResult::NotFound,
        }),
        (Request::Get(get, steps), Form::Meta) => {
            hit(column.meta_get(&MetaGet { key, steps, ..*get })?.map(|hit| meta_seen(key, &hit)))
        }
        (Request::Get(_, steps), form) => match (&steps[..], form) {
            ([MetaStep::Touch(exptime)], Form::Touch) => match column.touch(key, *exptime)? {
                true => Answer::Touched,
                false => Answer::Miss,
            },
            ([MetaStep::Touch(exptime)], _) => {
                hit(column.get_and_touch(key, *exptime)?.as_ref().map(seen))
            }
            _ => hit(column.get(key).as_ref().map(seen)),
        },
    })
}

pub(crate) fn seen(hit: &Hit<'_>) -> Seen {
    let Hit { client_flags: flags, cas, value_bytes, value } = hit;
    let value = whole(value);
    assert_eq!(*value_bytes as usize, value.len());
    Seen { value: value.into(), flags: *flags, cas: *cas, meta: None }
}

fn meta_seen(key: &[u8], found: &MetaHit<'_>) -> Seen {
    assert!(found.item_bytes > u32::try_from(key.len()).unwrap() + found.hit.value_bytes);
    let meta = Meta {
        binary: found.key_binary,
        exptime: found.exptime,
        vivified: found.vivified,
        stale: found.stale,
        token_sent: found.token_sent,
        won: found.won,
        uses: Some((found.fetched, found.idle_seconds)),
    };
    Seen { meta: Some(meta), ..seen(&found.hit) }
}

/// The bytes of a value.
pub(crate) fn whole(value: &Value<'_>) -> Vec<u8> {
    let (mut all, log) = match value {
        Value::Log(log) => (Vec::new(), log),
        Value::Frames(pinned, log) => (framed(pinned), log),
    };
    plain_access(log.as_ptr(), log.len(), false);
    all.extend_from_slice(log);
    all
}

/// The bytes of the frames that `pinned` holds.
pub(crate) fn framed(pinned: &Pinned) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in pinned.pieces() {
        plain_access(piece.as_ptr(), piece.len(), false);
        all.extend_from_slice(piece);
    }
    all
}
