//! The region: the memory that `-m` grants, cut into segments of equal size, in which items are
//! addressed by offset (`loc`). The region also has address space for more segments, so that the
//! limit may be raised while the server runs.
//!
//! Where: holds the log's items and the frames of large values. The index stores each item's `loc`.
//! Invariant: the byte at offset `loc` lies in segment `loc / segment_bytes`.

#![allow(unsafe_code, reason = "hands out raw addresses in the mapping")]

use crate::map::{Map, page_bytes};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::ops::Range;

/// Maximum number of segments in a region of medium size. A medium region has more than half of
/// this number, so that open and half-empty segments waste only a small share of the memory.
const SEGMENTS_MAX: usize = 1024;
/// Maximum size of a medium region. Each segment of a larger region fills a huge page.
const MEDIUM_BYTES_MAX: usize = 341 << 20;
/// Minimum size of a medium region. A smaller region has at most half of `SEGMENTS_MAX` segments,
/// so that columns choose a segment to drain less often and among fewer segments.
const MEDIUM_BYTES_MIN: usize = 64 << 20;
/// Maximum size of a region that has segments of the minimum size.
const SMALL_BYTES_MAX: usize = 2 << 20;
/// Minimum size of a segment, unless a page is larger. (In tests with shuttle, sizes are smaller,
/// so that a few operations reach every limit.)
const SEGMENT_BYTES_MIN: usize = if cfg!(shuttle) { 4 << 10 } else { 8 << 10 };
/// Minimum size of a segment in a region larger than `SMALL_BYTES_MAX`.
const SEGMENT_BYTES_USUAL: usize = 16 << 10;
/// Maximum size of a segment: the size of a huge page.
const SEGMENT_BYTES_MAX: usize = 2 << 20;
/// Ratio of the address space that a region reserves to the region's initial memory.
const GROWTH: usize = 16;
/// Maximum size of a region, because a `loc` has 40 bits.
pub const REGION_BYTES_MAX: usize = 1 << 40;
/// Minimum size of a region.
pub const REGION_BYTES_MIN: usize = if cfg!(shuttle) { 64 << 10 } else { 1 << 20 };

/// A mapping that is divided into segments of equal size.
#[derive(Debug)]
pub struct Region {
    map: Map,
    shift: u32,
    segments: u32,
    segments_max: u32,
}

impl Region {
    /// Makes a region of `bytes`, rounded down to segments, and reserves `growth` times this size.
    ///
    /// # Errors
    /// `bytes` is outside of `REGION_BYTES_MIN..=REGION_BYTES_MAX`, or the system refuses.
    pub fn new(bytes: usize, growth: usize) -> io::Result<Self> {
        if !(REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&bytes) {
            let why = "the memory of a store must be 1 MiB to 1 TiB";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
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
        // A segment has at least a page, because memory is given back to the system in whole pages.
        let segment_bytes = segment_bytes.max(page_bytes().next_power_of_two());
        let shift = segment_bytes.ilog2();
        let bytes_max = bytes.saturating_mul(growth.max(1)).min(REGION_BYTES_MAX);
        let too_many = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let count = |bytes: usize| u32::try_from(bytes >> shift).map_err(too_many);
        let (segments, segments_max) = (count(bytes)?, count(bytes_max)?);
        let map = Map::new((segments_max as usize) << shift)?;
        // Smaller segments get no huge pages: a huge page would span several segments, and the
        // kernel could allocate memory again for a segment that was given back.
        if segment_bytes == SEGMENT_BYTES_MAX {
            map.want_huge(map.bytes());
        }
        Ok(Self { map, shift, segments, segments_max })
    }

    /// Asks for huge pages even if segments are smaller than a huge page. Segments that share a
    /// huge page get memory at the same time, and the system may free their memory late.
    pub fn want_huge(&self) {
        self.map.want_huge(self.map.bytes());
    }

    /// True if huge pages were requested.
    #[must_use]
    pub fn wants_huge(&self) -> bool {
        self.map.wants_huge()
    }

    /// Number of segments that the region has at first.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Number of segments for which there is address space.
    #[must_use]
    pub fn segments_max(&self) -> u32 {
        self.segments_max
    }

    /// Size of a segment in bytes: a power of two from 8 KiB to 2 MiB, but at least a page.
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

    /// Returns the segment that contains offset `loc`.
    #[inline]
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a loc is below 2^40, and a segment has at least 2^12 bytes"
    )]
    pub fn segment_of(&self, loc: u64) -> u32 {
        (loc >> self.shift) as u32
    }

    /// The address of the byte at offset `loc`. A caller that reads or writes the byte must prove
    /// that the access is safe.
    ///
    /// # Panics
    /// The offset lies outside the region's address space.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits here; checked below")]
    pub fn at(&self, loc: u64) -> *mut u8 {
        assert!(loc < self.map.bytes() as u64, "loc outside the region");
        // SAFETY: the assertion above keeps the address within the mapping.
        unsafe { self.map.base().as_ptr().add(loc as usize) }
    }

    /// Gives a segment's memory back to the system. Afterwards the bytes of the segment are zero.
    ///
    /// # Safety
    /// No thread reads or writes the segment during this call, and none relies on the old contents.
    pub unsafe fn give_back(&self, segment: u32) {
        assert!(segment < self.segments_max, "segment outside the region");
        // SAFETY: `Map::give_back` requires of its caller only what this function requires.
        unsafe { self.map.give_back((segment as usize) << self.shift, 1 << self.shift) };
    }

    /// Makes the system allocate memory for a whole segment. The contents do not change.
    ///
    /// # Safety
    /// No thread reads or writes the segment during this call.
    ///
    /// # Errors
    /// The region is locked, and the system has no memory for the segment or cannot lock it.
    pub unsafe fn populate(&self, segment: u32) -> io::Result<()> {
        assert!(segment < self.segments_max, "segment outside the region");
        // SAFETY: `Map::populate` requires of its caller only what this function requires.
        unsafe { self.map.populate((segment as usize) << self.shift, 1 << self.shift) }
    }

    /// Asks the system to allocate memory of `node` for `segments`, if the node has free memory.
    pub(crate) fn prefer(&self, segments: Range<u32>, node: usize) -> io::Result<()> {
        assert!(segments.end <= self.segments_max, "segments outside the region");
        let bytes = segments.len() << self.shift;
        self.map.prefer((segments.start as usize) << self.shift, bytes, node)
    }

    /// True if a segment is locked in memory when it is populated.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.map.is_locked()
    }

    /// Locks the first segment in memory. From now on, `populate` also locks segments.
    ///
    /// # Errors
    /// The system refuses to lock the segment (RLIMIT_MEMLOCK), or has no memory for the segment.
    pub fn lock(&self) -> io::Result<()> {
        self.map.lock(0, 1 << self.shift)
    }

    /// From now on, `populate` locks no segments. Locked segments stay locked.
    pub fn stop_locking(&self) {
        self.map.stop_locking();
    }

    /// If `is_locked` is true, asks the system to lock each page of `segment` when the page is
    /// touched. Must be called before a segment that has no memory is used.
    pub fn lock_on_fault(&self, segment: u32) {
        self.map.lock_on_fault((segment as usize) << self.shift, 1 << self.shift);
    }

    /// Prefetches the cache line that contains offset `loc`.
    #[inline]
    pub fn prefetch(&self, loc: u64) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "usize has 64 bits here; never followed"
        )]
        crate::prefetch(self.map.base().as_ptr().wrapping_add(loc as usize).cast_const());
    }
}

/// Returns the `growth` to pass to `Region::new`: 1 if the process has a limit on address space
/// (RLIMIT_AS), or if the system counts reserved address space (`vm.overcommit_memory` is 2).
/// Otherwise returns `GROWTH`.
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
        // SAFETY: only this test uses the segment.
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
                // SAFETY: only this test uses the segments.
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
