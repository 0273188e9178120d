//! The region: all memory of `-m`, cut into equal segments, addressed by offset. There is address
//! space for more of them, as many times as `GROWTH_MAX` says.
//!
//! Where: the log's items, and frames of large values, lie in it; the index names items by offset
//! (`loc`), not by pointer.
//! Invariant: offset 0 is never an item's (an empty slot is 0 too, but slots carry a non-zero tag),
//! and `segment = loc / segment_bytes`.

#![allow(unsafe_code, reason = "hands out raw addresses in the mapping")]

use crate::map::Map;
use std::io;

/// About as many segments as a region is cut into.
const SEGMENTS: usize = 256;
/// The smallest segment.
const SEGMENT_BYTES_MIN: usize = 16 << 10;
/// The largest segment: what a huge page holds.
const SEGMENT_BYTES_MAX: usize = 2 << 20;
/// What is read by whole words may reach so far beyond the last segment.
const READ_PAST_BYTES: usize = 4 << 10;
/// The address space is for so many times the memory that a region begins with, where the system
/// gives as much.
pub const GROWTH_MAX: usize = 16;
/// Locations have 40 bits.
pub const REGION_BYTES_MAX: usize = 1 << 40;
/// The smallest region: 64 of the smallest segments.
pub const REGION_BYTES_MIN: usize = 64 * SEGMENT_BYTES_MIN;

/// A region of `segments()` segments.
#[derive(Debug)]
pub struct Region {
    map: Map,
    shift: u32,
    segments: u32,
    segments_max: u32,
}

impl Region {
    /// Reserves `bytes`, rounded down to whole segments, with address space for more.
    ///
    /// # Errors
    /// `bytes` outside `REGION_BYTES_MIN..=REGION_BYTES_MAX`, or the system refuses.
    pub fn new(bytes: usize) -> io::Result<Self> {
        if !(REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a store has 1 MiB to 1 TiB"));
        }
        // The power of two nearest to a 256th.
        let about = bytes / SEGMENTS * 3 / 2;
        let segment_bytes = (1_usize << about.ilog2()).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let shift = segment_bytes.ilog2();
        let reserved = |bytes_max: usize| -> io::Result<Self> {
            let too_many = |_| io::Error::from(io::ErrorKind::InvalidInput);
            let count = |bytes: usize| u32::try_from(bytes >> shift).map_err(too_many);
            let (segments, segments_max) = (count(bytes)?, count(bytes_max)?);
            let mapped = |segments: u32| ((segments as usize) << shift) + READ_PAST_BYTES;
            let map = Map::reserve(mapped(segments_max), mapped(segments))?;
            Ok(Self { map, shift, segments, segments_max })
        };
        // Less address space where there is a limit on it.
        let mut bytes_max = bytes.saturating_mul(GROWTH_MAX).min(REGION_BYTES_MAX);
        let region = loop {
            match reserved(bytes_max) {
                Err(_) if bytes_max > bytes => bytes_max = (bytes_max / 2).max(bytes),
                done => break done?,
            }
        };
        // Where a huge page holds several segments, the kernel would fill those given back again.
        if segment_bytes == SEGMENT_BYTES_MAX {
            region.map.want_huge();
        }
        Ok(region)
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

    /// Opens the first `segments` for use, if fewer are open.
    ///
    /// # Errors
    /// More than there is address space for, or the system refuses.
    pub fn open(&self, segments: u32) -> io::Result<()> {
        self.map.open(((segments as usize) << self.shift) + READ_PAST_BYTES)
    }

    /// Bytes of a segment, a power of two from 16 KiB to 2 MiB.
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
    /// Behind the last byte of a segment there are more that may be read, of no meaning.
    ///
    /// # Panics
    /// Outside what is open of the region.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits here; checked below")]
    pub fn at(&self, loc: u64) -> *mut u8 {
        assert!(loc < self.map.opened() as u64, "loc outside the region");
        // SAFETY: in bounds of what is open of the mapping, checked just above.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn segments_are_about_256_and_within_bounds() {
        for (megabytes, segment_bytes, segments) in
            [(1, 16 << 10, 64), (2, 16 << 10, 128), (8, 32 << 10, 256), (64, 256 << 10, 256)]
        {
            let region = Region::new(megabytes << 20).expect("address space");
            assert_eq!(region.segment_bytes(), segment_bytes);
            assert_eq!(region.segments(), segments);
        }
        let large = Region::new(10 << 30).expect("address space");
        assert_eq!((large.segment_bytes(), large.segments()), (2 << 20, 5120));
        assert!(Region::new(1000).is_err());
        assert!(Region::new(usize::MAX).is_err());
    }

    #[test]
    fn a_region_opens_up_to_its_address_space_and_no_further() {
        let region = Region::new(1 << 20).expect("address space");
        assert_eq!((region.segments(), region.segments_max()), (64, 1024));
        region.open(1024).expect("address space");
        assert!(region.open(1025).is_err());
        // SAFETY: the segment is this test's alone.
        unsafe { region.at(region.start(1023)).write(7) };
    }

    #[test]
    #[should_panic(expected = "outside the region")]
    fn a_segment_that_is_not_open_is_not_touched() {
        let region = Region::new(1 << 20).expect("address space");
        let _ = region.at(region.start(65));
    }

    #[test]
    fn what_is_given_back_reads_as_zero() {
        let region = Region::new(1 << 20).expect("address space");
        let at = region.at(region.start(3));
        // SAFETY: the segment is this test's alone.
        unsafe {
            at.write(7);
            region.give_back(3);
            assert_eq!(at.read(), 0);
        }
    }
}
