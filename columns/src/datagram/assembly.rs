//! Collects the parts of requests that arrive in several datagrams.
//!
//! ```text
//! parts as received    | number 2 | number 0 | number 1 |
//! whole                | number 0 | number 1 | number 2 |
//! ```
//!
//! Where: after a part of a request has arrived, and before the request is executed.
//! Invariant: a column keeps at most `ASSEMBLIES_MAX` requests of at most `MESSAGE_BYTES_MAX` bytes
//! each, at most `ASSEMBLIES_OF_ONE_MAX` requests from one address, and no request for longer than
//! `PARTS_WAIT_MS_MAX`. A request becomes whole only once, even if parts arrive twice or in another
//! order. Buffers of ended requests are reused.

use std::net::{IpAddr, SocketAddr};

use memory::arena::KeptBytes;
use protocol::udp::Header;

use super::whole::WholeRequest;
use crate::limits::{
    ASSEMBLIES_MAX, ASSEMBLIES_OF_ONE_MAX, MESSAGE_BYTES_MAX, PARTS_MAX, PARTS_WAIT_MS_MAX,
};

/// The result of adding a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddResult {
    /// Other parts are missing.
    Waits,
    /// The request is whole, and stays in the assembly until `Assembly::take_whole` is called.
    Whole,
    /// The part contradicts earlier parts of its request, or has already arrived.
    Ignored,
    /// The request exceeds `MESSAGE_BYTES_MAX` or `PARTS_MAX`. Returned once per request.
    TooLong,
}

/// A request's identity: its sender, and the id that the sender chose for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The sender.
    pub from: SocketAddr,
    /// The id.
    pub id: u16,
}

/// A piece of a part. Most parts are one piece.
#[derive(Debug)]
pub enum Piece<'d> {
    /// Bytes that `Assembly::add` copies.
    Here(&'d [u8]),
    /// Bytes that stay in the chunk in which they were received.
    Kept(KeptBytes),
}

#[derive(Debug)]
struct Parts {
    whose: RequestId,
    total: u16,
    came: u16,
    since_ms: u64,
    /// Bytes of all parts that have arrived.
    all_bytes: usize,
    /// The bytes of copied parts, in the order of arrival.
    bytes: Vec<u8>,
    /// For each piece: the number of its part, its position in arrival order, and its bytes.
    pieces: Vec<(u16, usize, Place)>,
    /// Number of pieces that are kept in chunks.
    kept: usize,
    /// True if the request was too long and its sender got a refusal.
    is_refused: bool,
}

#[derive(Debug)]
enum Place {
    Copied { start: usize, end: usize },
    Kept(KeptBytes),
}

impl Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Piece::Here(bytes) => bytes.len(),
            Piece::Kept(kept) => kept.len(),
        }
    }
}

impl Parts {
    fn is_whole(&self) -> bool {
        self.came == self.total
    }

    fn push(&mut self, number: u16, piece: Piece<'_>) {
        let place = match piece {
            Piece::Here(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                Place::Copied { start, end: self.bytes.len() }
            }
            Piece::Kept(kept) => {
                self.kept += 1;
                Place::Kept(kept)
            }
        };
        self.pieces.push((number, self.pieces.len(), place));
    }

    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|(_, _, place)| match place {
            Place::Copied { start, end } => &self.bytes[*start..*end],
            Place::Kept(kept) => kept,
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        self.kept = 0;
    }
}

/// A column's incomplete requests.
#[derive(Debug, Default)]
pub struct Assembly {
    /// The requests, the oldest first.
    parts: Vec<Parts>,
    /// Buffers of requests that have ended.
    spare: Vec<Parts>,
}

impl Assembly {
    /// Adds a part of a request. Also returns how many other requests were dropped to make room.
    pub fn add<'d>(
        &mut self,
        whose: RequestId,
        header: Header,
        pieces: impl IntoIterator<Item = Piece<'d>>,
        now_ms: u64,
    ) -> (AddResult, u64) {
        if !header.is_part() {
            return (AddResult::Ignored, 0);
        }
        let (at, gone) = match self.parts.iter().position(|parts| parts.whose == whose) {
            Some(at) => (at, 0),
            None => self.begin(whose, header.total, now_ms),
        };
        let parts = &mut self.parts[at];
        let is_there = parts.pieces.iter().any(|(number, ..)| *number == header.number);
        if parts.total != header.total || parts.is_refused {
            return (AddResult::Ignored, gone);
        }
        if !is_there {
            for piece in pieces {
                parts.all_bytes += piece.len();
                if parts.all_bytes <= MESSAGE_BYTES_MAX {
                    parts.push(header.number, piece);
                }
            }
            let is_too_long = parts.all_bytes > MESSAGE_BYTES_MAX;
            if is_too_long || usize::from(header.total) > PARTS_MAX {
                parts.is_refused = true;
                parts.clear();
                return (AddResult::TooLong, gone);
            }
            parts.came += 1;
        }
        if !parts.is_whole() {
            return (if is_there { AddResult::Ignored } else { AddResult::Waits }, gone);
        }
        parts.pieces.sort_unstable_by_key(|(number, nth, _)| (*number, *nth));
        (AddResult::Whole, gone)
    }

    /// Begins a request. If the request's address has `ASSEMBLIES_OF_ONE_MAX` requests, drops its
    /// oldest; otherwise, if there are `ASSEMBLIES_MAX` requests, drops the oldest of all. Returns
    /// the new request's position, and how many requests were dropped.
    fn begin(&mut self, whose: RequestId, total: u16, now_ms: u64) -> (usize, u64) {
        let is_of_one = |parts: &Parts| parts.whose.from.ip() == whose.from.ip();
        let of_one = self.parts.iter().filter(|parts| is_of_one(parts)).count();
        let oldest = if of_one >= ASSEMBLIES_OF_ONE_MAX {
            self.parts.iter().position(is_of_one)
        } else {
            (self.parts.len() >= ASSEMBLIES_MAX).then_some(0)
        };
        let mut gone = 0;
        if let Some(oldest) = oldest {
            gone = u64::from(!self.parts[oldest].is_refused);
            self.end(oldest);
        }
        let mut parts = self.spare.pop().unwrap_or_else(|| Parts {
            whose,
            total,
            came: 0,
            since_ms: now_ms,
            all_bytes: 0,
            bytes: Vec::new(),
            pieces: Vec::new(),
            kept: 0,
            is_refused: false,
        });
        (parts.whose, parts.total, parts.since_ms) = (whose, total, now_ms);
        self.parts.push(parts);
        (self.parts.len() - 1, gone)
    }

    /// Moves the request that the last `add` made whole into `whole`.
    pub fn take_whole(&mut self, whose: RequestId, whole: &mut WholeRequest) {
        let Some(at) = self.parts.iter().position(|parts| parts.whose == whose) else { return };
        let parts = &mut self.parts[at];
        if parts.bytes.is_empty() {
            whole.keep(parts.pieces.drain(..).filter_map(|(_, _, place)| match place {
                Place::Kept(kept) => Some(kept),
                Place::Copied { .. } => None, // an empty piece
            }));
        } else {
            let bytes = whole.begin();
            parts.texts().for_each(|text| bytes.extend_from_slice(text));
        }
        self.end(at);
    }

    /// Returns the arrived pieces of a request, in the right order if the request is whole.
    pub fn texts(&self, whose: RequestId) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().filter(move |parts| parts.whose == whose).flat_map(Parts::texts)
    }

    /// Drops the requests that have waited too long for missing parts. Returns their number.
    pub fn drop_late(&mut self, now_ms: u64) -> u64 {
        let (mut late, mut at) = (0, 0);
        while let Some(parts) = self.parts.get(at) {
            if now_ms.saturating_sub(parts.since_ms) < PARTS_WAIT_MS_MAX {
                at += 1;
                continue;
            }
            late += u64::from(!parts.is_refused);
            self.end(at);
        }
        late
    }

    /// Returns how many pieces of the requests from `address` are kept in chunks.
    pub fn kept_of(&self, address: IpAddr) -> usize {
        let of_it = self.parts.iter().filter(|parts| parts.whose.from.ip() == address);
        of_it.map(|parts| parts.kept).sum()
    }

    /// True if requests wait for parts.
    pub fn any(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Bytes of memory that the assembly takes.
    pub fn held_bytes(&self) -> usize {
        let of = |all: &[Parts]| all.iter().map(|it| it.bytes.capacity()).sum::<usize>();
        of(&self.parts) + of(&self.spare)
    }

    fn end(&mut self, at: usize) {
        let mut parts = self.parts.remove(at);
        parts.clear();
        (parts.came, parts.all_bytes, parts.is_refused) = (0, 0, false);
        self.spare.push(parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose(host: u8, id: u16) -> RequestId {
        RequestId { from: SocketAddr::from(([10, 0, 0, host], 4000)), id }
    }

    fn part(number: u16, total: u16) -> Header {
        Header { id: 0, number, total, flow: 0 }
    }

    fn add(
        assembly: &mut Assembly,
        whose: RequestId,
        header: Header,
        bytes: &[u8],
    ) -> (AddResult, u64) {
        assembly.add(whose, header, [Piece::Here(bytes)], 0)
    }

    fn taken(assembly: &mut Assembly, whose: RequestId) -> Vec<u8> {
        let mut whole = WholeRequest::default();
        assembly.take_whole(whose, &mut whole);
        whole.bytes().to_vec()
    }

    #[test]
    fn parts_in_any_order_and_doubled_make_the_request_once() {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let texts: [&[u8]; 3] = [b"set k 0 0", b"", b" 2 ab"];
        let mut assembly = Assembly::default();
        for order in orders {
            let mut come = |number: u16| {
                add(&mut assembly, whose(1, 9), part(number, 3), texts[usize::from(number)])
            };
            assert_eq!(come(order[0]), (AddResult::Waits, 0));
            assert_eq!(come(order[0]), (AddResult::Ignored, 0));
            assert_eq!(come(order[1]), (AddResult::Waits, 0));
            assert_eq!(come(order[2]), (AddResult::Whole, 0));
            // The same part may arrive again while the whole request waits to be executed.
            assert_eq!(come(order[2]), (AddResult::Whole, 0));
            assert_eq!(taken(&mut assembly, whose(1, 9)), texts.concat());
            assert!(!assembly.any());
        }
    }

    #[test]
    fn parts_that_contradict_each_other_are_ignored() {
        let mut assembly = Assembly::default();
        assert_eq!(add(&mut assembly, whose(1, 1), part(0, 2), b"get ").0, AddResult::Waits);
        assert_eq!(add(&mut assembly, whose(1, 1), part(1, 3), b"k").0, AddResult::Ignored);
        assert_eq!(add(&mut assembly, whose(1, 1), part(2, 2), b"k").0, AddResult::Ignored);
        assert_eq!(add(&mut assembly, whose(1, 2), part(1, 2), b"x").0, AddResult::Waits);
        assert_eq!(add(&mut assembly, whose(2, 1), part(1, 2), b"y").0, AddResult::Waits);
        assert_eq!(add(&mut assembly, whose(1, 1), part(1, 2), b"z").0, AddResult::Whole);
        assert_eq!(taken(&mut assembly, whose(1, 1)), b"get z");
    }

    #[test]
    fn a_request_that_is_too_long_is_refused_once() {
        let mut assembly = Assembly::default();
        let (half, one) = (vec![b'x'; MESSAGE_BYTES_MAX / 2], [b'x']);
        assert_eq!(add(&mut assembly, whose(1, 1), part(0, 4), &half).0, AddResult::Waits);
        assert_eq!(add(&mut assembly, whose(1, 1), part(1, 4), &half).0, AddResult::Waits);
        assert_eq!(add(&mut assembly, whose(1, 1), part(2, 4), &one).0, AddResult::TooLong);
        assert_eq!(add(&mut assembly, whose(1, 1), part(3, 4), &one).0, AddResult::Ignored);
        let parts = u16::try_from(PARTS_MAX).unwrap();
        assert_eq!(add(&mut assembly, whose(1, 2), part(0, parts + 1), &one).0, AddResult::TooLong);
        assert_eq!(add(&mut assembly, whose(1, 2), part(1, parts + 1), &one).0, AddResult::Ignored);
        assert_eq!(assembly.drop_late(PARTS_WAIT_MS_MAX), 0, "their senders know");
    }

    #[test]
    fn a_flood_of_first_parts_takes_bounded_memory_and_spares_others() {
        let mut assembly = Assembly::default();
        let most = vec![b'x'; MESSAGE_BYTES_MAX];
        assert_eq!(add(&mut assembly, whose(2, 1), part(0, 2), b"get ").0, AddResult::Waits);
        let mut gone = 0;
        for id in 0..1000 {
            let (added, went) = add(&mut assembly, whose(1, id), part(0, 2), &most);
            assert_eq!(added, AddResult::Waits);
            gone += went;
        }
        assert_eq!(gone, 1000 - ASSEMBLIES_OF_ONE_MAX as u64);
        assert!(assembly.held_bytes() <= (ASSEMBLIES_MAX + 1) * 2 * MESSAGE_BYTES_MAX);
        assert_eq!(add(&mut assembly, whose(2, 1), part(1, 2), b"k"), (AddResult::Whole, 0));
        assert_eq!(taken(&mut assembly, whose(2, 1)), b"get k");
        for host in 0..100 {
            add(&mut assembly, whose(host, 1), part(0, 2), &most);
        }
        assert_eq!(assembly.parts.len(), ASSEMBLIES_MAX);
        assert!(assembly.held_bytes() <= (ASSEMBLIES_MAX + 1) * 2 * MESSAGE_BYTES_MAX);
        assert_eq!(assembly.drop_late(PARTS_WAIT_MS_MAX), ASSEMBLIES_MAX as u64);
    }
}
