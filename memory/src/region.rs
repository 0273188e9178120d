//! The region: all memory of `-m`, cut into equal segments, addressed by offset (`loc`), with
//! address space for more segments, so that `-m` may be raised while the server runs.
//!
//! Where: holds the log's items and the frames of large values. The index names items by `loc`.
//! Invariant: a `loc` lies in the segment `loc / segment_bytes`.

#![allow(unsafe_code, reason = "hands out raw addresses in the mapping")]

use crate::map::{Map, page_bytes};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::ops::Range;

/// Maximum number of segments in a region of medium size. Such a region has more than half of this
/// number, so that the few segments that are open or half empty are a small part of its memory.
const SEGMENTS_MAX: usize = 1024;
/// Size of the largest medium region. Each segment of a larger region fills a huge page.
const MEDIUM_BYTES_MAX: usize = 341 << 20;
/// Size of the smallest medium region. A smaller region has at most half of `SEGMENTS_MAX`
/// segments, so that a column that makes room chooses less often, and among fewer segments.
const MEDIUM_BYTES_MIN: usize = 64 << 20;
/// A region of up to this size has segments of the smallest size.
const SMALL_BYTES_MAX: usize = 2 << 20;
/// Size of the smallest segment, unless a page is larger. (Under shuttle, sizes are smaller here
/// and elsewhere, so that a few operations reach every limit.)
const SEGMENT_BYTES_MIN: usize = if cfg!(shuttle) { 4 << 10 } else { 8 << 10 };
/// Size of the smallest segment of a region larger than `SMALL_BYTES_MAX`.
const SEGMENT_BYTES_USUAL: usize = 16 << 10;
/// Size of the largest segment, a huge page.
const SEGMENT_BYTES_MAX: usize = 2 << 20;
/// Address space that a region reserves, as a multiple of its initial memory.
const GROWTH: usize = 16;
/// Size of the largest region: a `loc` has 40 bits.
pub const REGION_BYTES_MAX: usize = 1 << 40;
/// Size of the smallest region.
pub const REGION_BYTES_MIN: usize = if cfg!(shuttle) { 64 << 10 } else { 1 << 20 };

/// A region of `segments()` segments.
#[derive(Debug)]
pub struct Region {
    map: Map,
    shift: u32,
    segments: u32,
    segments_max: u32,
}

impl Region {
    /// Makes a region of `bytes`, rounded down to segments, with `growth` times the address space.
    ///
    /// # Errors
    /// `bytes` outside `REGION_BYTES_MIN..=REGION_BYTES_MAX`, or the system refuses.
    pub fn new(bytes: usize, growth: usize) -> io::Result<Self> {
        if !(REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a store has 1 MiB to 1 TiB"));
        }
        let cut_into = |segments: usize| bytes.div_ceil(segments).next_power_of_two();
        let segment_bytes = if bytes <= SMALL_BYTES_MAX {
            SEGMENT_BYTES_MIN
        } else if bytes < MEDIUM_BYTES_MIN {
            cut_into(SEGMENTS_MAX / 2).max(SEGMENT_BYTES_USUAL)
        } else if bytes <= MEDIUM_BYTES_MAX {
            cut_into(SEGMENTS_MAX)
        } else {
            SEGMENT_BYTES_MAX
        };
        // At least a page, so that each segment's memory can be given back separately.
        let segment_bytes = segment_bytes.max(page_bytes().next_power_of_two());
        let shift = segment_bytes.ilog2();
        let bytes_max = bytes.saturating_mul(growth.max(1)).min(REGION_BYTES_MAX);
        let too_many = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let count = |bytes: usize| u32::try_from(bytes >> shift).map_err(too_many);
        let (segments, segments_max) = (count(bytes)?, count(bytes_max)?);
        let map = Map::new((segments_max as usize) << shift)?;
        // Smaller segments get no huge pages: if a segment that was given back shared a huge page
        // with other segments, the kernel could allocate memory for the segment again.
        if segment_bytes == SEGMENT_BYTES_MAX {
            map.want_huge(map.bytes());
        }
        Ok(Self { map, shift, segments, segments_max })
    }

    /// Asks for huge pages whatever the size of segments. Neighbouring segments then share huge
    /// pages: they get memory at the same time, and their memory may return to the system later.
    pub fn want_huge(&self) {
        self.map.want_huge(self.map.bytes());
    }

    /// True if huge pages were requested.
    #[must_use]
    pub fn wants_huge(&self) -> bool {
        self.map.wants_huge()
    }

    /// Number of segments that the region begins with.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Number of segments for which there is address space.
    #[must_use]
    pub fn segments_max(&self) -> u32 {
        self.segments_max
    }

    /// Size of a segment: a power of two from 8 KiB to 2 MiB, and at least a page.
    #[inline]
    #[must_use]
    pub fn segment_bytes(&self) -> u32 {
        1 << self.shift
    }

    /// The offset of a segment's first byte.
    #[inline]
    #[must_use]
    pub fn start(&self, segment: u32) -> u64 {
        u64::from(segment) << self.shift
    }

    /// Returns the segment in which an offset lies.
    #[inline]
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a loc is below 2^40, and a segment has at least 2^12 bytes"
    )]
    pub fn segment_of(&self, loc: u64) -> u32 {
        (loc >> self.shift) as u32
    }

    /// The address of an offset. The caller proves that it may read or write there.
    ///
    /// # Panics
    /// The offset lies outside the region's address space.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits here; checked below")]
    pub fn at(&self, loc: u64) -> *mut u8 {
        assert!(loc < self.map.bytes() as u64, "loc outside the region");
        // SAFETY: within the mapping, by the assertion above.
        unsafe { self.map.base().as_ptr().add(loc as usize) }
    }

    /// Gives a segment's memory back to the system; the segment reads as zero afterwards.
    ///
    /// # Safety
    /// Nobody reads or writes the segment meanwhile, and nobody relies on its contents.
    pub unsafe fn give_back(&self, segment: u32) {
        assert!(segment < self.segments_max, "segment outside the region");
        // SAFETY: the caller's contract is that of `Map::give_back`.
        unsafe { self.map.give_back((segment as usize) << self.shift, 1 << self.shift) };
    }

    /// Has the system back a whole segment with memory. The contents do not change.
    ///
    /// # Safety
    /// Nobody reads or writes the segment meanwhile.
    ///
    /// # Errors
    /// The region is locked, and the system has no memory for the segment or refuses to lock it.
    pub unsafe fn populate(&self, segment: u32) -> io::Result<()> {
        assert!(segment < self.segments_max, "segment outside the region");
        // SAFETY: the caller's contract is that of `Map::populate`.
        unsafe { self.map.populate((segment as usize) << self.shift, 1 << self.shift) }
    }

    /// Like `Map::prefer`, for `segments`.
    pub(crate) fn prefer(&self, segments: Range<u32>, node: usize) -> io::Result<()> {
        assert!(segments.end <= self.segments_max, "segments outside the region");
        let bytes = segments.len() << self.shift;
        self.map.prefer((segments.start as usize) << self.shift, bytes, node)
    }

    /// True if segments are locked when they are populated.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.map.is_locked()
    }

    /// Locks the first segment, and from now on every segment when it is populated.
    ///
    /// # Errors
    /// The system refuses.
    pub fn lock(&self) -> io::Result<()> {
        self.map.lock(0, 1 << self.shift)
    }

    /// Like `Map::stop_locking`.
    pub fn stop_locking(&self) {
        self.map.stop_locking();
    }

    /// If the region is locked, asks the system to lock each page of the segment when it is
    /// touched. Must be called before a segment without memory is used.
    pub fn lock_on_fault(&self, segment: u32) {
        self.map.lock_on_fault((segment as usize) << self.shift, 1 << self.shift);
    }

    /// Has the processor fetch the cache line at `loc`.
    #[inline]
    pub fn prefetch(&self, loc: u64) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "usize has 64 bits here; never followed"
        )]
        crate::prefetch(self.map.base().as_ptr().wrapping_add(loc as usize).cast_const());
    }
}

/// The `growth` that a region should have: 1 if address space is scarce, because of a limit
/// (RLIMIT_AS) or because the system counts reserved address space (`vm.overcommit_memory` is 2).
#[must_use]
pub fn growth() -> usize {
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    let counted = mode.is_ok_and(|mode| mode.trim() == "2");
    let limited = getrlimit(Resource::As).current.is_some();
    if counted || limited { 1 } else { GROWTH }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::map::is_locked;

    #[test]
    fn segments_are_up_to_1024_and_within_bounds() {
        for (megabytes, segment_bytes, segments) in [
            (1, 8 << 10, 128),
            (2, 8 << 10, 256),
            (3, 16 << 10, 192),
            (8, 16 << 10, 512),
            (32, 64 << 10, 512),
            (63, 128 << 10, 504),
            (64, 64 << 10, 1024),
            (65, 128 << 10, 520),
            (341, 512 << 10, 682),
            (342, 2 << 20, 171),
        ] {
            let region = Region::new(megabytes << 20, 1).expect("address space");
            assert_eq!(region.segment_bytes(), segment_bytes);
            assert_eq!(region.segments(), segments);
        }
        let large = Region::new(10 << 30, 1).expect("address space");
        assert_eq!((large.segment_bytes(), large.segments()), (2 << 20, 5120));
        assert!(Region::new(1000, 1).is_err());
        assert!(Region::new(usize::MAX, 1).is_err());
    }

    #[test]
    fn large_segments_want_huge_pages_and_small_ones_when_asked_to() {
        for (megabytes, wants) in [(341, false), (342, true)] {
            let region = Region::new(megabytes << 20, 1).expect("address space");
            assert_eq!(region.wants_huge(), wants, "{megabytes} MiB");
            region.want_huge();
            assert!(region.wants_huge());
        }
    }

    #[test]
    fn a_segment_of_a_locked_region_is_locked_once_it_is_admitted() {
        let region = Region::new(1 << 20, 1).expect("address space");
        let is_locked = |segment| is_locked(region.at(region.start(segment)).addr());
        region.lock_on_fault(3);
        region.lock().expect("a segment may be locked");
        assert_eq!([0, 1, 3].map(is_locked), [true, false, false]);
        region.lock_on_fault(3);
        assert_eq!([2, 3, 4].map(is_locked), [false, true, false]);
        region.stop_locking();
        region.lock_on_fault(5);
        assert!(!is_locked(5));
    }

    #[test]
    fn there_is_address_space_to_grow_into() {
        let region = Region::new(1 << 20, 16).expect("address space");
        assert_eq!((region.segments(), region.segments_max()), (128, 2048));
        // SAFETY: the segment is this test's alone.
        unsafe { region.at(region.start(2047)).write(7) };
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_segment_is_at_least_a_page_and_its_memory_goes_back_without_its_neighbours() {
        for page in [16_u32 << 10, 64 << 10] {
            crate::map::plant_page_bytes(page as usize);
            for (megabytes, usual) in [(1, 8 << 10), (2, 8 << 10), (8, 16 << 10), (64, 64 << 10)] {
                let region = Region::new(megabytes << 20, 1).expect("address space");
                assert_eq!(region.segment_bytes(), page.max(usual), "{megabytes} MiB");
                let bytes = region.segment_bytes() as usize;
                // SAFETY: the segments are this test's alone.
                unsafe {
                    region.at(region.start(3)).write_bytes(7, 3 * bytes);
                    region.give_back(4);
                    let there = |at: usize| region.at(region.start(3)).add(at).read() == 7;
                    assert!((0..bytes).chain(2 * bytes..3 * bytes).all(there));
                    assert!(!(bytes..2 * bytes).any(there));
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside the region")]
    fn there_is_no_address_outside() {
        let region = Region::new(1 << 20, 1).expect("address space");
        let _ = region.at(region.start(region.segments_max()));
    }

    #[test]
    fn what_is_given_back_reads_as_zero() {
        let region = Region::new(1 << 20, 1).expect("address space");
        let at = region.at(region.start(3));
        // SAFETY: only this test uses the segment.
        unsafe {
            at.write(7);
            region.give_back(3);
            assert_eq!(at.read(), 0);
        }
    }
}
