//! Frames: pieces of segments, all of the same size. A chain of frames holds a large value.
//!
//! Where: large values are received into frames and sent from frames. The item of a large value
//! contains the number of the first frame.
//! Invariant: the frames of a chain do not change after the chain is published; see `chains`.
//! Source: the KV-Cache paper, section 4.1.3 (linked packet buffers).
//!
//! If the top bit of a frame's number is set, the frame is a chunk of the arena. Otherwise the
//! frame lies in a segment of the region. No chain has frames of both kinds.

#![allow(unsafe_code, reason = "reads and writes frames in the mapping")]

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
mod pinned;

pub use pinned::{Pieces as PinnedPieces, Pinned};

use crate::arena::{Arena, KeptBytes, VALUE_AT};
use crate::chains::Chains;
use crate::nodes::Nodes;
use crate::quiescence::Quiescence;
use crate::region::Region;
use crate::segments::{NONE, Segments, State};
use crate::sync::{AtomicU32, AtomicUsize, CachePadded, Ordering, plain_access};
use crate::vacant::Vacant;
use std::io;
use std::sync::Arc;

/// Maximum size of a frame in a segment of at most 1 MiB. A larger segment has 64 frames.
const FRAME_BYTES_MAX: u32 = 16 << 10;
/// Maximum number of frames in a segment. The segment's word has a bit for each frame.
const FRAMES_PER_SEGMENT_MAX: u32 = 64;
/// Maximum number of segments that `scattered` examines: 128 GiB, if a segment has 2 MiB.
const SCATTERED_SEGMENTS_MAX: u32 = 1 << 16;
/// The bit that is set in a frame's number if the frame is a chunk of the arena.
const ARENA: u32 = 1 << 31;

/// True if `frame` is a chunk of the arena.
#[inline]
#[must_use]
pub const fn is_chunk(frame: u32) -> bool {
    frame & ARENA != 0
}

/// All memory of one store.
#[derive(Debug)]
pub struct Memory {
    /// The mapping of all segments.
    pub region: Region,
    /// The entry of each segment, and the lists of segments.
    pub segments: Segments,
    /// The frames into which segments are cut.
    pub frames: Frames,
    arena: Option<Arc<Arena>>,
    /// Tells when retired segments may be reused.
    pub quiescence: Quiescence,
    /// Maximum number of segments in use.
    pub(crate) allowed: CachePadded<AtomicU32>,
}

impl Memory {
    /// Makes a memory of `bytes` bytes for `columns` columns. See `Region::new` for `growth`.
    ///
    /// # Errors
    /// `bytes` is out of range, or the system refuses the address space.
    pub fn new(bytes: usize, growth: usize, columns: usize) -> io::Result<Self> {
        Memory::with_nodes(Nodes::default(), bytes, growth, columns)
    }

    /// Like `new`, but divides the memory between nodes; see `prefer_nodes`.
    ///
    /// # Errors
    /// Like `new`.
    pub fn with_nodes(
        nodes: Nodes,
        bytes: usize,
        growth: usize,
        columns: usize,
    ) -> io::Result<Self> {
        let region = Region::new(bytes, growth)?;
        let segments = Segments::with_nodes(nodes, region.segments(), region.segments_max())?;
        let frames = Frames::new(&region)?;
        let allowed = CachePadded(AtomicU32::new(region.segments()));
        Ok(Self {
            region,
            segments,
            frames,
            arena: None,
            quiescence: Quiescence::new(columns),
            allowed,
        })
    }

    /// Asks the system to allocate each segment's memory on the segment's node, if the node has
    /// free memory. Must be called before the segments are used.
    ///
    /// # Errors
    /// The system does not have these nodes, or forbids the system call.
    pub fn prefer_nodes(&self) -> io::Result<()> {
        if self.segments.nodes().count() == 1 {
            return Ok(());
        }
        self.segments.blocks().try_for_each(|(block, node)| self.region.prefer(block, node))
    }

    /// Allows values to lie in the chunks of `arena` too.
    #[must_use]
    pub fn with_arena(self, arena: Option<Arc<Arena>>) -> Self {
        Self { arena, ..self }
    }

    /// The arena whose chunks may contain values, if there is one.
    #[must_use]
    pub fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.as_ref()
    }

    /// Frees each retired segment that no column can be reading any more. Calls `each` with the
    /// segment before freeing it. Debug builds then overwrite the segment, so that tests notice a
    /// reader that reads too late.
    pub fn reclaim(&self, mut each: impl FnMut(u32)) {
        self.segments.reclaim(&self.quiescence, |segment| {
            each(segment);
            if cfg!(debug_assertions) {
                self.poison(segment);
            }
        });
    }

    fn poison(&self, segment: u32) {
        let bytes = self.region.segment_bytes();
        // SAFETY: all columns have passed a quiescent point since the segment was retired, and the
        // segment is not free yet, so only this call uses it. (A planted fault breaks this rule,
        // and a test must notice the fault.)
        unsafe {
            let at = self.region.at(self.region.start(segment));
            plain_access(at, bytes as usize, true);
            at.write_bytes(0xdb, bytes as usize);
        }
        self.segments.get(segment).touch(bytes);
    }

    /// Takes a free frame and makes it a chain with one reference. If no frame is free and more
    /// than `keep` segments are free, first cuts a segment into frames: a free segment of `node`,
    /// or else of the nearest node with free segments.
    pub fn take_frame(&self, keep: u32, node: usize) -> Option<u32> {
        self.frames.take(&self.segments, (keep, node)).map(|frame| self.begin_chain(frame))
    }

    /// Like `take_frame`, but uses only segments below `before`, and cuts no segment into frames.
    pub fn take_frame_before(&self, before: u32) -> Option<u32> {
        self.frames.take_cut(&self.segments, before).map(|frame| self.begin_chain(frame))
    }

    /// Takes a free chunk of the arena for `bytes` bytes of a value, and makes it a chain with one
    /// reference. Returns the chunk's frame number, and the address for the bytes.
    pub fn take_chunk(&self, bytes: usize) -> Option<(u32, *mut u8)> {
        let arena = self.arena.as_ref()?;
        let chunk = arena.take()?;
        arena.set_extent(chunk, VALUE_AT, bytes);
        Some((chunk | ARENA, arena.piece(chunk).0))
    }

    /// Turns kept bytes into a chain of one frame. The caller gets a reference to the chain.
    ///
    /// # Panics
    /// The bytes do not lie in this memory's arena.
    pub fn frame_of(&self, kept: KeptBytes) -> u32 {
        let is_ours = self.arena.as_ref().is_some_and(|arena| Arc::ptr_eq(arena, kept.arena()));
        assert!(is_ours, "kept in the memory's own arena");
        kept.into_chunk() | ARENA
    }

    fn begin_chain(&self, frame: u32) -> u32 {
        self.frames.chains.begin(frame);
        frame
    }

    /// If the frame is a chunk, returns the arena and the chunk's number in the arena.
    fn chunk(&self, frame: u32) -> Option<(&Arena, u32)> {
        self.arena.as_deref().filter(|_| is_chunk(frame)).map(|arena| (arena, frame & !ARENA))
    }

    /// Returns the `Chains` that contains the frame's word, and the index of this word.
    fn chains(&self, frame: u32) -> (&Chains, u32) {
        self.chunk(frame)
            .map_or((&self.frames.chains, frame), |(arena, chunk)| (arena.chains(), chunk))
    }

    /// The address of a frame's first byte.
    #[must_use]
    pub fn frame_at(&self, frame: u32) -> *mut u8 {
        match self.chunk(frame) {
            Some((arena, chunk)) => arena.at(chunk),
            None => self.region.at(u64::from(frame) * u64::from(self.frames.frame_bytes)),
        }
    }

    fn piece(&self, frame: u32) -> (*mut u8, usize) {
        match self.chunk(frame) {
            Some((arena, chunk)) => arena.piece(chunk),
            None => (self.frame_at(frame), self.frames.frame_bytes as usize),
        }
    }

    /// Makes `next` the successor of `frame`; see `Chains::chain`.
    pub fn chain(&self, frame: u32, next: u32) {
        let (chains, at) = self.chains(frame);
        let next = if next == NONE { NONE } else { self.chains(next).1 };
        chains.chain(at, next);
    }

    /// Adds a reference to the chain that begins at `head`. Returns false if the frame is free. The
    /// frame may belong to another chain than when the caller read its number.
    #[must_use]
    fn hold(&self, head: u32) -> bool {
        let (chains, at) = self.chains(head);
        chains.hold(at)
    }

    /// Drops a reference to frame `head`. If no reference is left, frees the frame and drops its
    /// reference to the next frame, and so on. Returns the number of freed frames.
    pub fn release(&self, head: u32) -> u32 {
        match self.chunk(head) {
            Some((arena, chunk)) => arena.release(chunk),
            None => {
                self.frames.chains.release(head, |frame| self.frames.give(&self.segments, frame))
            }
        }
    }

    /// Returns the frame after `frame` in a chain to which the caller has a reference.
    fn next(&self, frame: u32) -> u32 {
        #[cfg(all(test, not(loom)))]
        tests::STEPS.with(|steps| steps.set(steps.get() + 1));
        let (chains, at) = self.chains(frame);
        match chains.next(at) {
            NONE => NONE,
            next => next | (frame & ARENA),
        }
    }
}

/// The frames of a region.
#[derive(Debug)]
pub struct Frames {
    frame_bytes: u32,
    per_segment: u32,
    chains: Chains,
    vacant: Vacant,
    in_flight: AtomicUsize,
}

impl Frames {
    fn new(region: &Region) -> io::Result<Self> {
        let segment_bytes = region.segment_bytes();
        let frame_bytes =
            (segment_bytes / 8).min(FRAME_BYTES_MAX).max(segment_bytes / FRAMES_PER_SEGMENT_MAX);
        let per_segment = segment_bytes / frame_bytes;
        let segments = region.segments_max() as usize;
        Ok(Self {
            frame_bytes,
            per_segment,
            chains: Chains::new(segments * per_segment as usize)?,
            vacant: Vacant::new(segments)?,
            in_flight: AtomicUsize::new(0),
        })
    }

    /// Size of a frame: an eighth of a segment, at most 16 KiB, but at least a 64th of a segment.
    #[must_use]
    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    /// Number of bytes in the used frames of a segment that is cut into frames.
    #[must_use]
    pub fn used_bytes(&self, segment: u32) -> u32 {
        let free = self.vacant.free(segment).count_ones();
        (self.per_segment - free.min(self.per_segment)) * self.frame_bytes
    }

    /// Size in bytes of the tables for `segments` segments: each frame and each segment has a word.
    #[must_use]
    pub fn table_bytes(&self, segments: u32) -> usize {
        segments as usize * (self.per_segment as usize + 1) * 8
    }

    /// Number of bytes in the frames of values that are still arriving.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed) // as in `count_in_flight`
    }

    /// If `arriving` is true, adds the size of `frames` frames to `in_flight_bytes`. Otherwise
    /// subtracts this size, because the value was published or given up.
    pub fn count_in_flight(&self, arriving: bool, frames: u32) {
        let bytes = self.frame_bytes as usize * frames as usize;
        // Relaxed, paired with the load in `in_flight_bytes`: the sum orders no other data.
        match arriving {
            true => self.in_flight.fetch_add(bytes, Ordering::Relaxed),
            false => self.in_flight.fetch_sub(bytes, Ordering::Relaxed),
        };
    }

    /// The word of a segment whose frames are all free.
    fn all(&self) -> u64 {
        u64::MAX >> (64 - self.per_segment)
    }

    /// Measures how scattered the used frames are. Returns `(n, from)`: if the used frames of
    /// segment `from` and of all higher segments were moved to free frames below `from`, `n`
    /// segments would become free. Full segments do not count. The result is a hint: other threads
    /// may change frames, and at most `SCATTERED_SEGMENTS_MAX` segments are examined.
    pub fn scattered(&self, segments: &Segments) -> Option<(u32, u32)> {
        let examined = segments.count().min(SCATTERED_SEGMENTS_MAX);
        let free = |segment: u32| self.vacant.free(segment).count_ones();
        let mut room: u32 = (0..examined).map(free).sum();
        let (mut spare, mut from, mut used) = (0, NONE, 0);
        for segment in (0..examined).rev() {
            let there = free(segment);
            if there == 0 {
                continue;
            }
            room = room.saturating_sub(there);
            used += self.per_segment.saturating_sub(there);
            if used > room {
                break;
            }
            (spare, from) = (spare + 1, segment);
        }
        (spare > 0).then_some((spare, from))
    }

    /// True if the frame lies in a segment that `scattered` counted when it returned `from`.
    fn is_scattered(&self, frame: u32, from: u32) -> bool {
        let segment = frame / self.per_segment;
        frame & ARENA == 0 && segment >= from && self.vacant.free(segment) != 0
    }

    /// Takes a free frame of the lowest possible segment below `before`, so that higher segments
    /// become free.
    fn take_cut(&self, segments: &Segments, before: u32) -> Option<u32> {
        let (segment, frame) = self.vacant.take_below(before.min(segments.count()))?;
        segments.get(segment).touch((frame + 1) * self.frame_bytes);
        Some(segment * self.per_segment + frame)
    }

    fn take(&self, segments: &Segments, (keep, node): (u32, usize)) -> Option<u32> {
        if let Some(frame) = self.take_cut(segments, segments.count()) {
            return Some(frame);
        }
        let segment = segments.take_near(keep, node)?;
        segments.get(segment).set_state(State::Frames);
        segments.get(segment).touch(self.frame_bytes);
        self.vacant.open(segment, self.all() & !1);
        Some(segment * self.per_segment)
    }

    fn give(&self, segments: &Segments, frame: u32) {
        let (segment, frame) = (frame / self.per_segment, frame % self.per_segment);
        let all_free = self.vacant.give(segment, frame) == self.all();
        if all_free && self.vacant.close(segment, self.all()) {
            segments.give(segment);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{cell::Cell, sync::Arc};

    thread_local! {
        pub(super) static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn frames_fill_segments_from_the_lowest_and_give_them_back() {
        let memory = Memory::new(1 << 20, 1, 1).expect("address space");
        let free = memory.segments.free();
        let per_segment = memory.frames.per_segment;
        let taken: Vec<u32> =
            (0..per_segment * 2).map(|_| memory.take_frame(0, 0).expect("room")).collect();
        assert_eq!(memory.segments.free(), free - 2);
        for frame in &taken[..per_segment as usize] {
            assert_eq!(memory.release(*frame), 1);
        }
        assert_eq!(memory.segments.free(), free - 1);
        assert_eq!(memory.take_frame(0, 0), Some(0), "the segment given back last is cut again");
    }

    #[test]
    fn frames_in_use_are_scattered_if_lower_segments_have_room_for_them() {
        let memory = Memory::new(1 << 20, 1, 1).expect("address space");
        let per_segment = memory.frames.per_segment;
        assert_eq!(memory.frames.table_bytes(10), 10 * (per_segment as usize + 1) * 8);
        let scattered = || memory.frames.scattered(&memory.segments);
        assert_eq!((scattered(), memory.take_frame_before(1)), (None, None), "no segment is cut");
        let taken: Vec<u32> =
            (0..per_segment * 3).map(|_| memory.take_frame(0, 0).expect("room")).collect();
        assert_eq!((scattered(), memory.take_frame_before(3)), (None, None), "all are full");
        taken[2 * per_segment as usize + 1..].iter().for_each(|&frame| {
            memory.release(frame);
        });
        assert_eq!(scattered(), None, "there is room in the highest segment alone");
        memory.release(taken[3]);
        assert_eq!(scattered(), Some((1, 2)), "the highest fits the lowest");
        assert_eq!(memory.take_frame_before(2), Some(taken[3]));
        assert_eq!((scattered(), memory.take_frame_before(2)), (None, None));
        assert_eq!(memory.take_frame_before(3), Some(taken[2 * per_segment as usize + 1]));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn an_audit_finds_chains_that_are_not_as_their_items_say_and_frames_of_nobody() {
        let memory = Memory::new(1 << 20, 1, 1).expect("address space");
        let bytes = memory.frames.frame_bytes;
        let [first, second, third] = [(); 3].map(|()| memory.take_frame(0, 0).expect("room"));
        memory.chain(first, second);
        let faults = |chains: &[(u32, u32)]| {
            let mut faults = Vec::new();
            memory.audit_frames(&chains.iter().copied().collect(), &mut faults);
            faults
        };
        assert_eq!(faults(&[(first, 2 * bytes), (third, bytes)]), [""; 0]);
        for (chains, fault) in [
            (&[(first, bytes), (third, bytes)][..], "bytes instead of"),
            (&[(first, 2 * bytes)], "but frames 3 are in use"),
            (&[(first, 2 * bytes), (second, bytes), (third, bytes)], "is in two chains"),
        ] {
            let found = faults(chains);
            assert!(found.iter().any(|found| found.contains(fault)), "{fault}: {found:?}");
        }
        let uncut = 3 * memory.frames.per_segment;
        let found = faults(&[(first, 2 * bytes), (third, bytes), (uncut, bytes)]);
        assert!(found.iter().any(|it| it.starts_with("Some(Free) segment 3 has")), "{found:?}");
        memory.chain(first, NONE);
        memory.release(second);
        memory.release(third);
        assert_eq!(faults(&[(first, bytes)]), [""; 0]);
        assert!(memory.hold(first), "it is in use");
        let found = faults(&[(first, bytes)]);
        assert!(found.len() == 1 && found[0].contains("has 2 references"), "{found:?}");
    }

    #[test]
    fn a_chain_goes_with_its_last_reference() {
        let memory = Arc::new(Memory::new(1 << 20, 1, 1).expect("address space"));
        let free = memory.segments.free();
        let (head, second) = (memory.take_frame(0, 0).unwrap(), memory.take_frame(0, 0).unwrap());
        memory.chain(head, second);
        let bytes = memory.frames.frame_bytes as usize;
        // SAFETY: only this test uses the chain.
        let pinned = unsafe { Pinned::hold(&memory, head, bytes + 3) }.expect("held");
        assert_eq!(pinned.pieces().map(<[u8]>::len).collect::<Vec<_>>(), [bytes, 3]);
        assert_eq!((pinned.bytes(), pinned.bytes_left()), (bytes + 3, bytes + 3));
        assert_eq!(memory.release(head), 0);
        drop(pinned);
        assert_eq!(memory.segments.free(), free);
        assert!(!memory.hold(head));
    }

    #[test]
    fn a_value_read_piece_by_piece_is_walked_once() {
        let memory = Arc::new(Memory::new(1 << 20, 1, 1).expect("address space"));
        let frame_bytes = memory.frames.frame_bytes as usize;
        let frames: Vec<u32> = (0..40).map(|_| memory.take_frame(0, 0).expect("room")).collect();
        for (number, frame) in (0..).zip(&frames) {
            // SAFETY: this test has taken the frame, which has `frame_bytes` bytes.
            unsafe { memory.frame_at(*frame).write_bytes(number, frame_bytes) };
        }
        frames.windows(2).for_each(|two| memory.chain(two[0], two[1]));
        let expected: Vec<u8> =
            (0..40).flat_map(|number| std::iter::repeat_n(number, frame_bytes)).collect();
        for step in [1, frame_bytes - 1, frame_bytes, frame_bytes + 1, 3 * frame_bytes, usize::MAX]
        {
            // SAFETY: only this test uses the chain.
            let pinned = unsafe { Pinned::hold(&memory, frames[0], expected.len()) };
            let mut pinned = pinned.expect("held");
            let (mut read, mut reads) = (Vec::new(), 0);
            let before = STEPS.get();
            while pinned.bytes_left() > 0 {
                let first = pinned.pieces().next().expect("bytes are left");
                let bytes = first.len().min(step);
                read.extend_from_slice(&first[..bytes]);
                pinned.advance(bytes);
                assert_eq!(pinned.bytes_left(), expected.len() - read.len());
                reads += 1;
            }
            assert!(read == expected, "by {step}");
            // `Memory::next` is called once for each piece that is read, and once for each frame
            // that is passed.
            assert_eq!(STEPS.get() - before, reads + frames.len(), "steps in {reads} reads");
        }
        assert_eq!(memory.release(frames[0]), 40);
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-memory --lib`.
#[cfg(all(test, loom))]
mod under_loom {
    use super::*;
    use crate::region::REGION_BYTES_MIN;
    use loom::thread;

    fn memory(segments: u32) -> Memory {
        let region = Region::new(REGION_BYTES_MIN, 1).expect("address space");
        let frames = Frames {
            frame_bytes: region.segment_bytes() / 2,
            per_segment: 2,
            chains: Chains::new(2 * segments as usize).expect("small"),
            vacant: Vacant::new(segments as usize).expect("small"),
            in_flight: AtomicUsize::new(0),
        };
        let allowed = CachePadded(AtomicU32::new(segments));
        let segments = Segments::new(segments, segments).expect("no address space is needed");
        Memory { region, segments, frames, arena: None, quiescence: Quiescence::new(0), allowed }
    }

    fn model(test: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(test);
    }

    fn draft(memory: &Memory) -> Option<u32> {
        let first = memory.take_frame(0, 0)?;
        let Some(second) = memory.take_frame(0, 0) else {
            memory.release(first);
            return None;
        };
        memory.chain(first, second);
        Some(first)
    }

    #[test]
    fn a_reader_with_a_stale_number_frees_nothing_of_the_frames_next_owner() {
        model(|| {
            let memory = loom::sync::Arc::new(memory(2));
            let head = draft(&memory).expect("room");
            let linked = loom::sync::Arc::new(AtomicU32::new(head));
            let reader = {
                let (memory, linked) = (memory.clone(), linked.clone());
                thread::spawn(move || {
                    // A lookup also takes a reference first, and then checks the item.
                    let head = linked.load(Ordering::Acquire);
                    if head != NONE && memory.hold(head) {
                        if linked.load(Ordering::Acquire) == head {
                            assert_ne!(memory.next(head), NONE, "a value of two frames");
                        }
                        memory.release(head);
                    }
                })
            };
            linked.store(NONE, Ordering::Release);
            memory.release(head);
            let next = draft(&memory).expect("room");
            assert_ne!(memory.next(next), NONE, "the draft is whole");
            reader.join().expect("reads");
            assert_eq!(memory.segments.free(), 1, "nobody gave the draft's frames back");
            memory.release(next);
            assert_eq!(memory.segments.free(), 2, "all frames are back");
        });
    }

    /// One column finds no free frame in a segment and clears the hint. Meanwhile another column
    /// gives back a frame. The next `take_frame` must find that frame.
    #[test]
    fn a_frame_given_back_during_a_look_is_found_by_the_next() {
        model(|| {
            let memory = loom::sync::Arc::new(memory(1));
            let frame = memory.take_frame(0, 0).expect("room");
            assert!(memory.take_frame(0, 0).is_some(), "two in the segment");
            let other = {
                let memory = memory.clone();
                thread::spawn(move || memory.release(frame))
            };
            let found = memory.take_frame(0, 0);
            assert_eq!(other.join().expect("releases"), 1);
            assert_eq!(found.or_else(|| memory.take_frame(0, 0)), Some(frame));
        });
    }

    #[test]
    fn a_frame_is_handed_out_once() {
        model(|| {
            let memory = loom::sync::Arc::new(memory(1));
            let owned = loom::sync::Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let work = |memory: &Memory, owned: &[AtomicU32; 2]| {
                let Some(frame) = memory.take_frame(0, 0) else { return };
                let before = owned[frame as usize].swap(1, Ordering::Relaxed);
                assert_eq!(before, 0, "frame {frame} handed out twice");
                owned[frame as usize].store(0, Ordering::Relaxed);
                memory.release(frame);
            };
            let other = {
                let (memory, owned) = (memory.clone(), owned.clone());
                thread::spawn(move || work(&memory, &owned))
            };
            work(&memory, &owned);
            other.join().expect("works");
            assert_eq!(memory.segments.free(), 1, "all frames are back");
            assert!(memory.take_frame(0, 0).is_some() && memory.take_frame(0, 0).is_some());
        });
    }
}
