//! A request that arrived in several pieces of one datagram, or in several datagrams.
//!
//! ```text
//! kept     | set k 0 0 3000\r\n value ... |  | ... of it ... |  | ... of it\r\n |
//! becomes  | set k 0 0 3000\r\n |, a draft of three chunks
//! ```
//!
//! Where: between the arrival of a request's pieces and its execution.
//! Invariant: a request that stores one long value, in pieces that are all kept in chunks, is
//! executed without a copy of the value. The pieces of other requests are copied into one buffer.
//! Source: the KV-Cache paper, section 4.1.3 (linked packet buffers).

use arrayvec::ArrayVec;
use memory::arena::KeptBytes;
use protocol::{ProtocolMode, Request, Session, Step, TAIL_BYTES_MAX, TailRead};
use store::{Column, Draft};

/// A whole request.
#[derive(Debug, Default)]
pub struct WholeRequest {
    /// All bytes of the request, or only its header if `value` holds the request's value.
    bytes: Vec<u8>,
    /// The pieces of the request, in chunks, until `settle` takes them.
    kept: Vec<KeptBytes>,
    value: Option<Value>,
}

/// A value that stays in the chunks in which it was received.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) draft: Draft,
    /// The bytes that followed the value.
    pub(super) tail: TailBytes,
}

/// The bytes that follow a value.
type TailBytes = ArrayVec<u8, TAIL_BYTES_MAX>;

/// The parts of a request that stores a value and ends with this value's tail.
struct Parts {
    header_bytes: usize,
    value_bytes: u32,
    tail: TailBytes,
}

impl WholeRequest {
    /// Clears the request and returns its buffer, so that the caller can copy a request into it.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        self.kept.clear();
        self.bytes.clear();
        self.value = None;
        &mut self.bytes
    }

    /// Replaces the request by `pieces`, which stay in their chunks.
    pub fn keep(&mut self, pieces: impl IntoIterator<Item = KeptBytes>) {
        self.begin();
        self.kept.extend(pieces);
    }

    /// The bytes of the request that are not kept in chunks.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.kept.capacity() * size_of::<KeptBytes>()
    }

    /// Joins the pieces. Returns all bytes of the request, or, if the request's value stays in
    /// chunks, the bytes of the header and the value.
    pub(super) fn settle(
        &mut self,
        speak: ProtocolMode,
        store: Option<&Column>,
    ) -> (&[u8], &mut Option<Value>) {
        if let Some(first) = self.kept.first() {
            let parts = store.and_then(|store| {
                let parts = stored_parts(speak, first, self.kept.iter().map(|piece| &**piece))?;
                store.keeps(parts.value_bytes as usize).then_some((parts, store))
            });
            match parts {
                Some((parts, store)) => self.part(parts, store),
                None => self.kept.drain(..).for_each(|it| self.bytes.extend_from_slice(&it)),
            }
        }
        (&self.bytes, &mut self.value)
    }

    /// Copies the request's header to `bytes`. Makes a `Draft`, a value that is not stored yet,
    /// from the value's bytes, which stay in the kept pieces.
    fn part(&mut self, Parts { header_bytes, value_bytes, tail }: Parts, store: &Column) {
        let value_end = header_bytes + value_bytes as usize;
        self.bytes.extend_from_slice(&self.kept[0][..header_bytes]);
        let mut at = 0;
        let pieces = self.kept.drain(..).filter_map(|mut piece| {
            let within = |place: usize| place.saturating_sub(at).min(piece.len());
            let its = within(header_bytes)..within(value_end);
            at += piece.len();
            piece.cut(its.clone());
            (!its.is_empty()).then_some(piece)
        });
        let draft = store.draft_of(value_bytes, pieces);
        self.value = Some(Value { draft, tail });
    }
}

/// Returns the parts of a request that begins with `first`, the first of `pieces`, if the request
/// stores one value.
fn stored_parts<'p>(
    speak: ProtocolMode,
    first: &[u8],
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Option<Parts> {
    let step = Session::of_message(speak, first).next(first);
    let Step::Body { request, header_bytes, value_bytes, tail: kind } = step else { return None };
    let (mut tail, mut skipped) = (TailBytes::new(), header_bytes + value_bytes as usize);
    for piece in pieces {
        let (_, end) = piece.split_at(skipped.min(piece.len()));
        tail.try_extend_from_slice(end).ok()?;
        skipped = skipped.saturating_sub(piece.len());
    }
    let read = kind.read(&tail);
    let is_all = matches!(read, TailRead::Whole(end) | TailRead::Wrong(end) if end == &tail[..]);
    let stores = match request {
        Request::Store(store) => !store.verb.extends(),
        Request::Meta(_) => true,
        _ => false,
    };
    (is_all && skipped == 0 && stores).then_some(Parts { header_bytes, value_bytes, tail })
}

#[cfg(test)]
mod tests;
