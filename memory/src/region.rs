//! The region: all memory of `-m`, cut into equal segments, addressed by offset. There is address
//! space for more of them, as many times as `GROWTH_MAX` says.
//!
//! Where: the log's items, and frames of large values, lie in it; the index names items by offset
//! (`loc`), not by pointer.
//! Invariant: offset 0 is never an item's (an empty slot is 0 too, but slots carry a non-zero tag),
//! and `segment = loc / segment_bytes`.

#![allow(unsafe_code, reason = "hands out raw addresses in the mapping")]

use crate::map::{Map, page_bytes};
use rustix::process::{Resource, getrlimit};
use std::io;

/// A region of medium size is cut into this many segments at most, and into more than half as many:
/// so the segments that are open or half empty are a small part of it.
const SEGMENTS: usize = 1024;
/// A region of more than this size has segments of the largest size, so that each fills a huge
/// page, however few segments that makes.
const MEDIUM_BYTES_MAX: usize = 341 << 20;
/// A region of less than this size has half of `SEGMENTS`, each twice as large: a column that makes
/// room then has fewer segments to choose from, and chooses less often.
const MEDIUM_BYTES_MIN: usize = 64 << 20;
/// A region of up to this size has segments of the smallest size.
const SMALL_BYTES_MAX: usize = 2 << 20;
/// The smallest segment, unless a page is larger; and the smallest one of a region of more than
/// `SMALL_BYTES_MAX`. (Under shuttle stores are smaller still, here and elsewhere, so that a few
/// operations reach every limit.)
const SEGMENT_BYTES_MIN: usize = if cfg!(shuttle) { 4 << 10 } else { 8 << 10 };
const SEGMENT_BYTES_USUAL: usize = 16 << 10;
/// The largest segment: what a huge page holds.
const SEGMENT_BYTES_MAX: usize = 2 << 20;
/// Address space is wanted for so many times the memory that a region begins with.
const GROWTH: usize = 16;
/// Locations have 40 bits.
pub const REGION_BYTES_MAX: usize = 1 << 40;
/// The smallest region.
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
    /// Reserves `bytes`, rounded down to whole segments, and address space for `growth` times as
    /// many.
    ///
    /// # Errors
    /// `bytes` outside `REGION_BYTES_MIN..=REGION_BYTES_MAX`, or the system refuses.
    pub fn new(bytes: usize, growth: usize) -> io::Result<Self> {
        if !(REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a store has 1 MiB to 1 TiB"));
        }
        let part = |parts: usize| bytes.div_ceil(parts).next_power_of_two();
        let segment_bytes = if bytes <= SMALL_BYTES_MAX {
            SEGMENT_BYTES_MIN
        } else if bytes < MEDIUM_BYTES_MIN {
            part(SEGMENTS / 2).max(SEGMENT_BYTES_USUAL)
        } else if bytes <= MEDIUM_BYTES_MAX {
            part(SEGMENTS)
        } else {
            SEGMENT_BYTES_MAX
        };
        // Each is given back by itself.
        let segment_bytes = segment_bytes.max(page_bytes().next_power_of_two());
        let shift = segment_bytes.ilog2();
        let bytes_max = bytes.saturating_mul(growth.max(1)).min(REGION_BYTES_MAX);
        let too_many = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let count = |bytes: usize| u32::try_from(bytes >> shift).map_err(too_many);
        let (segments, segments_max) = (count(bytes)?, count(bytes_max)?);
        let map = Map::new((segments_max as usize) << shift)?;
        // Where a huge page holds several segments, the kernel would fill those given back again.
        if segment_bytes == SEGMENT_BYTES_MAX {
            map.want_huge(map.bytes());
        }
        Ok(Self { map, shift, segments, segments_max })
    }

    /// Number of segments it begins with.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Number of segments there is address space for.
    #[must_use]
    pub fn segments_max(&self) -> u32 {
        self.segments_max
    }

    /// Bytes of a segment, a power of two from 8 KiB to 2 MiB, and a page at least.
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

    /// The segment an offset lies in.
    #[inline]
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a loc is below 2^40, a segment 2^14 at least"
    )]
    pub fn segment_of(&self, loc: u64) -> u32 {
        (loc >> self.shift) as u32
    }

    /// The address of an offset. Whoever follows it proves that the bytes are his to read or write.
    ///
    /// # Panics
    /// Outside the region's address space.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits here; checked below")]
    pub fn at(&self, loc: u64) -> *mut u8 {
        assert!(loc < self.map.bytes() as u64, "loc outside the region");
        // SAFETY: in bounds of the mapping, checked just above.
        unsafe { self.map.base().as_ptr().add(loc as usize) }
    }

    /// Gives a segment's memory back to the system: somebody else needs as much.
    ///
    /// # Safety
    /// Nobody reads or writes the segment, and it stays unused until all of it is written anew.
    pub unsafe fn give_back(&self, segment: u32) {
        assert!(segment < self.segments_max, "segment outside the region");
        // SAFETY: in bounds; the caller vouches for the rest.
        unsafe { self.map.give_back((segment as usize) << self.shift, 1 << self.shift) };
    }

    /// Has all of a segment become memory, its contents as they are.
    ///
    /// # Safety
    /// Nobody reads or writes the segment meanwhile.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub unsafe fn populate(&self, segment: u32) -> io::Result<()> {
        assert!(segment < self.segments_max, "segment outside the region");
        // SAFETY: in bounds; the caller vouches for the rest.
        unsafe { self.map.populate((segment as usize) << self.shift, 1 << self.shift) }
    }

    /// Are the segments in use locked?
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.map.is_locked()
    }

    /// From now on segments that become memory are locked, and the first is so at once.
    ///
    /// # Errors
    /// The system refuses.
    pub fn lock(&self) -> io::Result<()> {
        self.map.lock(0, 1 << self.shift)
    }

    /// As `Map::lock_no_more`.
    pub fn lock_no_more(&self) {
        self.map.lock_no_more();
    }

    /// A segment that was given back may be used again.
    pub fn admit(&self, segment: u32) {
        self.map.admit((segment as usize) << self.shift, 1 << self.shift);
    }

    /// Asks the processor to bring the line at `loc` near.
    #[inline]
    pub fn prefetch(&self, loc: u64) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "usize has 64 bits here; never followed"
        )]
        crate::prefetch(self.map.base().as_ptr().wrapping_add(loc as usize).cast_const());
    }
}

/// For how many times its memory a region should have address space: for no more than once where
/// that is scarce, by a limit of the process, or because the system promises no more memory than it
/// has (`vm.overcommit_memory` is 2) and counts what is reserved.
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
    fn there_is_address_space_to_grow_into() {
        let region = Region::new(1 << 20, 16).expect("address space");
        assert_eq!((region.segments(), region.segments_max()), (128, 2048));
        // SAFETY: the segment is this test's alone.
        unsafe { region.at(region.start(2047)).write(7) };
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_segment_is_a_page_at_least_and_goes_without_its_neighbours() {
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
        // SAFETY: the segment is this test's alone.
        unsafe {
            at.write(7);
            region.give_back(3);
            assert_eq!(at.read(), 0);
        }
    }
}
