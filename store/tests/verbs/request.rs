//! A request for one key, and the answer to a request, in the form of the model.
//!
//! Invariant: a request holds the store's own request type. Its key is empty: each test keeps the
//! key elsewhere.

use std::sync::Arc;
use store::{
    DeleteResult, Delta, DeltaResult, MetaDelete, MetaGet, MetaStep, Put, PutResult, StoreError,
    Verb, Vivify,
};

/// A value. Its debug form shows the beginnings of the first 8 runs of equal words, each with the
/// number of words.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bytes(Arc<[u8]>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.0.escape_ascii().to_string();
        let words: Vec<&str> = text.split_inclusive('.').collect();
        let mut words = words.chunk_by(|one, other| one == other);
        let runs = words.by_ref().take(8).map(|same| format!("{:.24}x{}", same[0], same.len()));
        write!(to, "{} bytes: {}", self.0.len(), runs.collect::<Vec<_>>().join(" "))
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

#[derive(Debug)]
pub(crate) enum Request {
    Put(Put<'static>, Bytes),
    /// A get with these steps. A plain get and a touch are gets too: their answers show less.
    Get(MetaGet<'static>, Vec<MetaStep>),
    Delta(Delta<'static>),
    Delete(MetaDelete<'static>),
}

impl Request {
    pub(crate) fn get(steps: &[MetaStep]) -> Self {
        let (key, steps) = (&b""[..], steps.to_vec());
        let get =
            MetaGet { key, key_binary: false, cas_in: None, bump: true, win: false, steps: &[] };
        Self::Get(get, steps)
    }

    pub(crate) fn delete() -> Self {
        Self::Delete(MetaDelete {
            key: b"",
            cas: None,
            cas_in: None,
            stale: false,
            exptime: None,
            remove_value: false,
            client_flags: 0,
        })
    }

    /// The request with this CAS unique (if a delete has none, the delete still has none), with
    /// this value, and with `at` applied to each time.
    pub(crate) fn with(&self, cas: u64, value: Bytes, at: impl Fn(u32) -> u32) -> Self {
        match self {
            Self::Put(put, _) => Self::Put(Put { cas, exptime: at(put.exptime), ..*put }, value),
            Self::Get(get, steps) => {
                let steps = steps.iter().map(|step| match *step {
                    MetaStep::Touch(exptime) => MetaStep::Touch(at(exptime)),
                    MetaStep::Vivify(exptime) => MetaStep::Vivify(at(exptime)),
                    MetaStep::Recache(before) => MetaStep::Recache(at(before)),
                });
                Self::Get(MetaGet { ..*get }, steps.collect())
            }
            Self::Delta(delta) => {
                let vivify = delta
                    .vivify
                    .map(|Vivify { initial, exptime }| Vivify { initial, exptime: at(exptime) });
                Self::Delta(Delta { cas, vivify, exptime: delta.exptime.map(at), ..*delta })
            }
            Self::Delete(delete) => {
                let (cas, exptime) = (delete.cas.map(|_| cas), delete.exptime.map(at));
                Self::Delete(MetaDelete { cas, exptime, ..*delete })
            }
        }
    }

    /// The CAS unique that the item must have, if the request demands one.
    pub(super) fn cas(&self) -> Option<u64> {
        match self {
            Self::Put(Put { verb: Verb::Set | Verb::Add | Verb::Replace, .. }, _)
            | Self::Get(..) => None,
            Self::Put(Put { cas, .. }, _) | Self::Delta(Delta { cas, .. }) => {
                Some(*cas).filter(|cas| *cas != 0)
            }
            Self::Delete(delete) => delete.cas,
        }
    }

    /// True if the request deletes the item wholly.
    pub(crate) fn deletes(&self) -> bool {
        matches!(self, Self::Delete(MetaDelete { stale: false, remove_value: false, .. }))
    }

    pub(crate) fn sets(&self) -> bool {
        matches!(self, Self::Put(Put { verb: Verb::Set, .. }, _))
    }

    /// True if this may be the answer for lack of room. A get that finds no room for an exptime
    /// field or for a new item is answered as a miss. `is_there`: the key has an item.
    pub(crate) fn may_lack_room(&self, reply: &Reply, is_there: bool) -> bool {
        let takes_room = match self {
            Self::Put(..) | Self::Delta(_) => true,
            Self::Get(_, steps) => steps.iter().any(|step| match step {
                MetaStep::Touch(_) => is_there,
                MetaStep::Vivify(_) => !is_there,
                MetaStep::Recache(_) => false,
            }),
            Self::Delete(_) => !self.deletes(),
        };
        let refused = [Err(StoreError::NoMemory), Err(StoreError::Later), Ok(Answer::Miss)];
        takes_room && refused.contains(reply)
    }
}

pub(crate) type Reply = Result<Answer, StoreError>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Put(PutResult),
    Miss,
    Hit(Seen),
    /// A hit that shows nothing.
    Touched,
    Delta(DeltaResult),
    Delete(DeleteResult),
}

/// An item as an answer shows it. A plain get does not show `meta`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) value: Bytes,
    pub(crate) flags: u32,
    pub(crate) cas: u64,
    pub(crate) meta: Option<Meta>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Meta {
    pub(crate) binary: bool,
    pub(crate) exptime: u32,
    pub(crate) vivified: bool,
    pub(crate) stale: bool,
    pub(crate) token_sent: bool,
    pub(crate) won: bool,
    /// True if the item was fetched, and the seconds since its last use. `None`: not known.
    pub(crate) uses: Option<(bool, u32)>,
}

impl Answer {
    pub(crate) fn cas(&self) -> Option<u64> {
        self.clone().cas_mut().copied()
    }

    pub(super) fn cas_mut(&mut self) -> Option<&mut u64> {
        match self {
            Self::Put(PutResult::Stored { cas, .. })
            | Self::Hit(Seen { cas, .. })
            | Self::Delta(DeltaResult::Stored { cas, .. }) => Some(cas),
            _ => None,
        }
    }
}
