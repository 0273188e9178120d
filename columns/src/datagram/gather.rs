//! Collects the parts of requests to one column, even if other columns receive some of the parts.
//!
//! ```text
//! column 0    part 0, part 2 --.
//!                               > column 0's gatherer: parts 0, 1, 2 -> the whole request goes to
//! column 1    part 1, stolen --'                         column 1, which received the last part
//! ```
//!
//! Where: takes the parts of requests from all columns, and puts each part into the `assembly` of
//! the column to which the part was sent.
//! Invariant: only one column gets a whole request, and executes it. The lock that protects the
//! assembly is held while at most one request is copied; its holder takes no other lock. Times are
//! values of `TurnState::now_ms`, which all columns read from one clock.

use std::sync::Arc;

use arrayvec::ArrayVec;
use memory::arena::{Arena, KeptBytes};
use memory::plant::{Fault, is};
use memory::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock_soon};
use net::Pieces;
use protocol::udp::Header;

use super::assembly::{AddResult, Assembly, Piece, RequestId};
use super::whole::WholeRequest;
use crate::limits::{KEPT_OF_ONE_MIN, KEPT_OF_ONE_PART, KEPT_PART_BYTES_MIN};

/// Collects the parts of the requests that were sent to one column.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Gatherer {
    assembly: Mutex<Assembly>,
    /// True if requests wait for parts.
    waits: AtomicBool,
    held_bytes: AtomicUsize,
    arena: Option<Arc<Arena>>,
    /// Maximum number of pieces that the arena keeps for one address; further pieces are copied.
    kept_of_one_max: usize,
}

impl Gatherer {
    /// Makes a gatherer for each column. Received bytes stay in `arena` if the arena keeps values.
    #[must_use]
    pub fn for_columns(columns: usize, arena: Option<&Arc<Arena>>) -> Arc<[Gatherer]> {
        let arena = arena.filter(|arena| arena.keeps());
        let chunks = arena.map_or(0, |arena| arena.chunks() - arena.ring_chunks()) as usize;
        let kept_of_one_max = (chunks / columns.max(1) / KEPT_OF_ONE_PART).max(KEPT_OF_ONE_MIN);
        let gather = || Gatherer { arena: arena.cloned(), kept_of_one_max, ..Gatherer::default() };
        (0..columns).map(|_| gather()).collect()
    }

    /// Adds a part, whose first piece is `bytes` and whose other pieces are `more`. Moves a request
    /// that becomes whole into `whole`. Also returns how many requests were dropped to make room.
    pub(super) fn add(
        &self,
        whose: RequestId,
        header: Header,
        (bytes, more): (&[u8], Option<&Pieces>),
        now_ms: u64,
        whole: &mut WholeRequest,
    ) -> (AddResult, u64) {
        // A short part is copied, because it would waste a chunk. But the last part is kept even if
        // it is short, because a request stays in chunks only if all its parts stay in chunks.
        let is_last = header.number + 1 == header.total;
        let is_long = more.is_some() || bytes.len() >= KEPT_PART_BYTES_MIN;
        let arena = self.arena.as_ref().filter(|_| is_long || is_last);
        let (added, gone) = self.with(|assembly| {
            let arena = arena
                .filter(|_| assembly.kept_of(whose.from.ip()) + Pieces::MAX < self.kept_of_one_max);
            let pieces = all(bytes, more).map(|piece| {
                let kept = arena.and_then(|arena| arena.keep(piece));
                kept.map_or(Piece::Here(piece), Piece::Kept)
            });
            let added = assembly.add(whose, header, pieces, now_ms);
            if added.0 == AddResult::Whole && !is(Fault::WholeTakenLater) {
                assembly.take_whole(whose, whole);
            }
            added
        });
        if added == AddResult::Whole && is(Fault::WholeTakenLater) {
            self.with(|assembly| assembly.take_whole(whose, whole));
        }
        (added, gone)
    }

    /// Moves a request that arrived as one datagram, but in several pieces, into `whole`.
    pub(super) fn join(&self, bytes: &[u8], more: &Pieces, whole: &mut WholeRequest) {
        let arena = self.arena.as_ref();
        let kept = all(bytes, Some(more)).map(|piece| arena?.keep(piece));
        match kept.collect::<Option<ArrayVec<KeptBytes, { Pieces::MAX }>>>() {
            Some(kept) => whole.keep(kept),
            None => {
                let room = whole.begin();
                all(bytes, Some(more)).for_each(|piece| room.extend_from_slice(piece));
            }
        }
    }

    #[inline]
    pub(super) fn any(&self) -> bool {
        // Relaxed: pairs with the store in `with`. A thread that reads an old value reads the new
        // value in its next turn.
        self.waits.load(Ordering::Relaxed)
    }

    /// Drops the requests that waited too long for parts, and returns their number.
    pub(super) fn drop_late(&self, now_ms: u64) -> u64 {
        self.with(|assembly| assembly.drop_late(now_ms))
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed) // pairs with the store in `with`; orders nothing
    }

    fn with<T>(&self, act: impl FnOnce(&mut Assembly) -> T) -> T {
        let mut assembly = lock_soon(&self.assembly);
        let result = act(&mut assembly);
        // Relaxed: pairs with the loads in `any` and `held_bytes`. Both stores are made under the
        // lock, so the values stored last belong to the last change.
        self.waits.store(assembly.any(), Ordering::Relaxed);
        self.held_bytes.store(assembly.held_bytes(), Ordering::Relaxed);
        result
    }
}

/// All pieces of a datagram.
fn all<'d>(bytes: &'d [u8], more: Option<&'d Pieces>) -> impl Iterator<Item = &'d [u8]> {
    std::iter::once(bytes).chain(more.into_iter().flat_map(Pieces::iter))
}

#[cfg(all(test, shuttle))]
mod under_shuttle;

#[cfg(test)]
mod tests {
    use super::*;
    use memory::sync::AtomicU64;
    use std::net::SocketAddr;

    const WHOSE: u16 = 9;

    fn whose() -> RequestId {
        RequestId { from: SocketAddr::from(([10, 0, 0, 1], 4000)), id: WHOSE }
    }

    fn part(number: u16, total: u16) -> Header {
        Header { id: WHOSE, number, total, flow: 0 }
    }

    #[test]
    fn a_request_whose_parts_two_columns_receive_is_whole_at_one_of_them() {
        const ROUNDS: u16 = 2000;
        let gather = Gatherer::default();
        let done = [const { AtomicU64::new(0) }; 2];
        let texts: [&[u8]; 4] = [b"a", b"bc", b"", b"def"];
        // Each column receives half of the parts of each request.
        let column = |first: u16| {
            let (mut whole, mut wholes) = (WholeRequest::default(), Vec::new());
            for id in 0..ROUNDS {
                let at = u64::from(id);
                for number in [first, first + 2] {
                    let whose = RequestId { id, ..whose() };
                    let header = Header { id, ..part(number, 4) };
                    let (added, gone) = gather.add(
                        whose,
                        header,
                        (texts[usize::from(number)], None),
                        0,
                        &mut whole,
                    );
                    assert_eq!(gone, 0);
                    match added {
                        AddResult::Waits => {}
                        AddResult::Whole => wholes.push((id, whole.bytes().to_vec())),
                        other => panic!("{other:?}"),
                    }
                }
                // A thread that is ahead waits for the other thread, so that few requests wait for
                // parts and none is dropped to make room.
                done[usize::from(first)].store(at, Ordering::Relaxed);
                while at > done[1 - usize::from(first)].load(Ordering::Relaxed) + 2 {
                    std::thread::yield_now();
                }
            }
            wholes
        };
        let mut wholes = std::thread::scope(|scope| {
            let other = scope.spawn(|| column(1));
            let mut wholes = column(0);
            wholes.extend(other.join().unwrap());
            wholes
        });
        wholes.sort_unstable();
        assert_eq!(wholes.len(), usize::from(ROUNDS));
        for (at, (id, whole)) in (0..).zip(wholes) {
            assert_eq!(id, at);
            assert_eq!(whole, texts.concat());
        }
        assert!(!gather.any());
    }

    #[test]
    fn what_one_column_begins_is_late_by_the_clock_that_all_have() {
        let (gather, mut whole) = (Gatherer::default(), WholeRequest::default());
        let added = gather.add(whose(), part(0, 2), (b"x", None), 5000, &mut whole);
        assert_eq!(added, (AddResult::Waits, 0));
        assert!(gather.any() && gather.held_bytes() > 0);
        assert_eq!(gather.drop_late(5999), 0);
        assert_eq!(gather.drop_late(6000), 1);
        assert!(!gather.any());
    }
}
