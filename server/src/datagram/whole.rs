//! A request that has come in several pieces: of one datagram, or of several.
//!
//! ```text
//! kept     | set k 0 0 3000\r\n value ... |  | ... of it ... |  | ... of it\r\n |
//! becomes  | set k 0 0 3000\r\n |, a draft of three chunks
//! ```
//!
//! Where: between the parts of requests, and their execution.
//! Invariant: a request that stores one long value, and all of whose pieces are kept, is executed
//! without a copy of the value; what else has come in pieces is put together first.
//! Source: the KV-Cache paper, section 4.1.3 (linked packet buffers).

use arrayvec::ArrayVec;
use memory::arena::Kept;
use protocol::step::is_value_end;
use protocol::{Request, Session, Speak, Step};
use store::{Column, Draft};

/// A request.
#[derive(Debug, Default)]
pub struct Whole {
    /// All of it, or what stands before the value where that is a draft.
    bytes: Vec<u8>,
    /// All of it, while it is yet to be put together.
    kept: Vec<Kept>,
    value: Option<Value>,
}

/// A value that lies where it came.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) draft: Draft,
    /// `\r\n` followed it.
    pub(super) terminated: bool,
}

/// What a first piece says of a request that stores a value, to the request's last byte.
#[derive(Clone, Copy)]
struct Said {
    header_bytes: usize,
    value_bytes: u32,
}

impl Whole {
    /// Forgets what there was, for a request of pieces that are copied.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        self.kept.clear();
        self.bytes.clear();
        self.value = None;
        &mut self.bytes
    }

    /// Forgets what there was, for a request of these pieces.
    pub fn keep(&mut self, pieces: impl IntoIterator<Item = Kept>) {
        self.begin();
        self.kept.extend(pieces);
    }

    /// All that is not kept.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory that it takes beside the arena.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.kept.capacity() * size_of::<Kept>()
    }

    /// Puts it together, if that is yet to be done. What is to be executed, and the value if that
    /// lies elsewhere.
    pub(super) fn settle(&mut self, speak: Speak, store: &Column) -> (&[u8], &mut Option<Value>) {
        if let Some(first) = self.kept.first() {
            let all_bytes = self.kept.iter().map(|piece| piece.len()).sum();
            let said =
                said(speak, first, all_bytes).filter(|it| store.keeps(it.value_bytes as usize));
            match said {
                Some(said) => self.part(said, store),
                None => self.kept.drain(..).for_each(|it| self.bytes.extend_from_slice(&it)),
            }
        }
        (&self.bytes, &mut self.value)
    }

    /// Parts the value from what stands before and behind it.
    fn part(&mut self, Said { header_bytes, value_bytes }: Said, store: &Column) {
        let value_end = header_bytes + value_bytes as usize;
        self.bytes.extend_from_slice(&self.kept[0][..header_bytes]);
        let (mut end, mut at) = (ArrayVec::<u8, 2>::new(), 0);
        let pieces = self.kept.drain(..).filter_map(|mut piece| {
            let within = |place: usize| place.saturating_sub(at).min(piece.len());
            let its = within(header_bytes)..within(value_end);
            end.extend(piece[its.end..].iter().copied());
            at += piece.len();
            piece.cut(its.clone());
            (!its.is_empty()).then_some(piece)
        });
        let draft = store.draft_of(value_bytes, pieces);
        self.value = Some(Value { draft, terminated: is_value_end(&end) });
    }
}

/// What the first piece of a request of so many bytes says, if all of it is a value that is stored.
fn said(speak: Speak, first: &[u8], all_bytes: usize) -> Option<Said> {
    let step = Session::of_message(speak, first).next(first);
    let Step::Body { request, header_bytes, value_bytes, end_bytes } = step else { return None };
    let is_all = header_bytes + value_bytes as usize + end_bytes as usize == all_bytes;
    let stores = match request {
        Request::Store(store) => !store.verb.is_extension(),
        Request::Meta(_) => true,
        _ => false,
    };
    (is_all && stores).then_some(Said { header_bytes, value_bytes })
}
