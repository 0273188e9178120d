//! The limit: how much of a store's memory may be in use, changed while it serves.
//!
//! Where: `cache_memlimit` sets it; whoever makes room, and background work, bring the segments in
//! use towards it.
//! Invariant: what is withheld has given its memory back to the system. A segment keeps its size
//! and its place in the address space; only how many there are changes.

#![allow(unsafe_code, reason = "gives memory back")]

use crate::frames::Memory;
use crate::region::REGION_BYTES_MAX;
use crate::sync::Ordering;
use std::io;

/// Segments taken out of use, or taken back, in one go: each is a call to the system or little.
const CHANGED_MAX: u32 = 16;

impl Memory {
    /// Lets `segments` be in use from now on. More are there at once; fewer are when they have been
    /// emptied.
    ///
    /// # Errors
    /// More than there is address space for.
    pub fn allow(&self, segments: u32) -> io::Result<()> {
        if segments > self.segments.count_max() {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        self.allowed.store(segments, Ordering::Relaxed); // a number by itself
        Ok(())
    }

    /// How many segments may be in use.
    #[inline]
    #[must_use]
    pub fn allowed(&self) -> u32 {
        self.allowed.load(Ordering::Relaxed) // a number by itself
    }

    /// How many may be in use when there is room for `bytes`, at most.
    #[must_use]
    pub fn segments_of(&self, bytes: usize) -> u32 {
        let segments = bytes.min(REGION_BYTES_MAX) / self.region.segment_bytes() as usize;
        u32::try_from(segments).unwrap_or(u32::MAX)
    }

    /// How many are in use or free to be used.
    #[inline]
    #[must_use]
    pub fn present(&self) -> u32 {
        self.segments.count().saturating_sub(self.segments.withheld())
    }

    /// How many more there are than may be.
    #[inline]
    #[must_use]
    pub fn excess(&self) -> u32 {
        self.present().saturating_sub(self.allowed())
    }

    /// Brings those that are present towards those allowed, by a few: from the free ones beyond
    /// `keep`, and to them. True: they are as many, or nothing can be done now.
    pub fn adjust(&self, keep: u32) -> bool {
        for _ in 0..CHANGED_MAX {
            let (present, allowed) = (self.present(), self.allowed());
            let changed = match present.cmp(&allowed) {
                std::cmp::Ordering::Less => {
                    let admit = |segment| self.region.admit(segment);
                    self.segments.restore(allowed, admit) || self.segments.add(allowed, admit)
                }
                std::cmp::Ordering::Equal => false,
                std::cmp::Ordering::Greater => self.withhold(keep),
            };
            if !changed {
                return true;
            }
        }
        self.present() == self.allowed()
    }

    fn withhold(&self, keep: u32) -> bool {
        let Some(segment) = self.take_without_memory(keep) else { return false };
        self.segments.withhold(segment);
        true
    }

    /// Takes a free segment, if more than `keep` of them are free, and gives its memory back.
    pub fn take_without_memory(&self, keep: u32) -> Option<u32> {
        let segment = self.segments.take_cold(keep)?;
        self.give_memory_back(segment);
        Some(segment)
    }

    /// Of a segment that the caller has taken off the free ones.
    fn give_memory_back(&self, segment: u32) {
        // SAFETY: a segment off the free list is nobody's but the caller's, and who opens it later,
        // or cuts it into frames, relies on none of its bytes.
        unsafe { self.region.give_back(segment) };
        self.segments.get(segment).set_untouched();
    }

    /// Gives back the memory of a free segment that has some, if more than `keep` are free. False:
    /// as few are.
    pub fn cool_one(&self, keep: u32) -> bool {
        let Some(segment) = self.segments.take(keep) else { return false };
        self.give_memory_back(segment);
        self.segments.give(segment);
        true
    }

    /// Has all free segments become memory, and keeps what segments are in use from being swapped
    /// out from now on.
    ///
    /// # Errors
    /// The system refuses (RLIMIT_MEMLOCK), or has no memory for it.
    pub fn lock(&self) -> io::Result<()> {
        self.region.lock()?;
        while self.populate_one(0)? {}
        Ok(())
    }

    /// Has a free segment that is no memory yet become such, if more than `keep` are free. False:
    /// there is none.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn populate_one(&self, keep: u32) -> io::Result<bool> {
        let Some(segment) = self.segments.take_fresh(keep) else { return Ok(false) };
        // SAFETY: a segment off the free list is nobody's but ours.
        let populated = unsafe { self.region.populate(segment) };
        if populated.is_ok() {
            self.segments.get(segment).touch(self.region.segment_bytes());
        }
        self.segments.give(segment);
        populated.map(|()| true)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_memory_already_is_taken_first_and_the_last_given_before_others() {
        let memory = Memory::new(1 << 20, 1, 1).expect("address space");
        let segments = &memory.segments;
        assert_eq!((segments.free(), segments.fresh(), segments.warm()), (128, 128, 0));
        let taken: Vec<u32> = (0..4).filter_map(|_| segments.take(0)).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
        [3, 1].iter().for_each(|segment| segments.get(*segment).touch(1));
        taken.iter().for_each(|segment| segments.give(*segment));
        assert_eq!((segments.free(), segments.fresh(), segments.warm()), (128, 126, 2));
        assert!(memory.populate_one(0).unwrap() && segments.warm() == 3, "{segments:?}");
        let there = [segments.take(0), segments.take(0), segments.take(0), segments.take(0)];
        assert_eq!(there, [Some(2), Some(3), Some(1), Some(0)]);
        assert_eq!((segments.fresh(), segments.warm()), (124, 0));
        // One whose memory is to go is rather one that has none.
        segments.give(1);
        assert_eq!((memory.take_without_memory(0), segments.warm()), (Some(4), 1));
        assert!(!memory.populate_one(124).unwrap(), "as few are free as are to be kept");
    }

    #[test]
    fn what_is_populated_is_resident_and_keeps_its_contents() {
        let memory = Memory::new(1 << 20, 1, 1).expect("address space");
        // SAFETY: the segment is this test's alone.
        unsafe { memory.region.at(memory.region.start(0)).write(7) };
        let faults = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit(')').next().unwrap().split(' ').nth(8).unwrap().parse::<u64>().unwrap()
        };
        assert!(memory.populate_one(0).unwrap());
        // SAFETY: as above.
        assert_eq!(unsafe { memory.region.at(memory.region.start(0)).read() }, 7);
        let before = faults();
        // SAFETY: as above.
        unsafe { memory.region.at(4096).write(1) };
        assert_eq!(faults(), before, "the second page is there");
    }

    #[test]
    fn fewer_segments_go_as_they_come_free_and_more_are_there_at_once() {
        let memory = Memory::new(1 << 20, 16, 1).expect("address space");
        let taken: Vec<u32> = (0..124).filter_map(|_| memory.segments.take(0)).collect();
        memory.allow(16).expect("fewer");
        assert!(memory.adjust(1) && memory.excess() == 109, "three of four free ones");
        assert_eq!((memory.segments.free(), memory.segments.withheld()), (1, 3));
        taken.iter().for_each(|segment| memory.segments.give(*segment));
        while !memory.adjust(1) {}
        assert_eq!((memory.excess(), memory.present(), memory.segments.free()), (0, 16, 16));
        memory.allow(2000).expect("address space");
        while !memory.adjust(1) {}
        assert_eq!((memory.segments.free(), memory.segments.count()), (2000, 2000));
        let all: std::collections::HashSet<u32> =
            (0..2000).filter_map(|_| memory.segments.take(0)).collect();
        assert_eq!(all.len(), 2000, "each once");
        assert!(memory.allow(2049).is_err() && memory.allowed() == 2000);
    }

    #[test]
    fn what_is_withheld_has_given_its_memory_back() {
        let memory = Memory::new(1 << 20, 16, 1).expect("address space");
        for segment in 0..128 {
            // SAFETY: free, and this test's alone.
            unsafe { memory.region.at(memory.region.start(segment)).write(7) };
        }
        memory.allow(32).expect("fewer");
        while !memory.adjust(0) {}
        let resident = (0..128).filter(|segment| {
            // SAFETY: as above.
            unsafe { memory.region.at(memory.region.start(*segment)).read() == 7 }
        });
        assert_eq!(resident.count(), 32);
    }
}
