//! Limits the number of segments in use. The limit may change while the server runs.
//!
//! Where: the command `cache_memlimit` sets the limit. Then columns add or withhold segments until
//! the number of segments in use equals the limit.
//! Invariant: the memory of a withheld segment was given back to the system. The limit does not
//! change the size and the addresses of segments.

#![allow(unsafe_code, reason = "gives memory back")]

use crate::frames::Memory;
use crate::region::REGION_BYTES_MAX;
use crate::sync::Ordering;
use std::io;

/// Maximum number of segments that one call of `adjust` adds or withholds. For each segment, the
/// call makes at most two system calls.
const CHANGED_MAX: u32 = 16;

impl Memory {
    /// Sets the maximum number of segments in use. Later calls of `adjust` add or withhold
    /// segments. A segment can be withheld only when it is free.
    ///
    /// # Errors
    /// There is no address space for `segments` segments.
    pub fn allow(&self, segments: u32) -> io::Result<()> {
        if segments > self.segments.count_max() {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        // Relaxed, paired with the load in `allowed`: the number orders no other data.
        self.allowed.store(segments, Ordering::Relaxed);
        Ok(())
    }

    /// Maximum number of segments in use.
    #[inline]
    #[must_use]
    pub fn allowed(&self) -> u32 {
        self.allowed.load(Ordering::Relaxed) // as in `allow`
    }

    /// Number of whole segments that fit in `bytes` bytes.
    #[must_use]
    pub fn segments_of(&self, bytes: usize) -> u32 {
        let segments = bytes.min(REGION_BYTES_MAX) / self.region.segment_bytes() as usize;
        u32::try_from(segments).unwrap_or(u32::MAX)
    }

    /// Number of segments that are not withheld.
    #[inline]
    #[must_use]
    pub fn present(&self) -> u32 {
        self.segments.count().saturating_sub(self.segments.withheld())
    }

    /// Number of segments by which `present` exceeds `allowed`.
    #[inline]
    #[must_use]
    pub fn excess(&self) -> u32 {
        self.present().saturating_sub(self.allowed())
    }

    /// Adds or withholds at most `CHANGED_MAX` segments, until `present` equals `allowed`.
    /// Withholds segments only while more than `keep` segments are free. Returns false if another
    /// call may add or withhold more segments.
    pub fn adjust(&self, keep: u32) -> bool {
        for _ in 0..CHANGED_MAX {
            let (present, allowed) = (self.present(), self.allowed());
            let changed = match present.cmp(&allowed) {
                std::cmp::Ordering::Less => {
                    let admit = |segment| self.region.lock_on_fault(segment);
                    self.segments.restore(allowed, admit) || self.segments.add(allowed, admit)
                }
                std::cmp::Ordering::Equal => false,
                std::cmp::Ordering::Greater => {
                    let withheld = self.take_without_memory(keep);
                    withheld.map(|segment| self.segments.withhold(segment)).is_some()
                }
            };
            if !changed {
                return true;
            }
        }
        self.present() == self.allowed()
    }

    /// If more than `keep` segments are free, takes one, and gives its memory back to the system.
    pub fn take_without_memory(&self, keep: u32) -> Option<u32> {
        let segment = self.segments.take_cold(keep)?;
        self.give_memory_back(segment);
        Some(segment)
    }

    fn give_memory_back(&self, segment: u32) {
        // SAFETY: the caller has taken the segment off the free list, so no other thread uses the
        // segment. A thread that takes the segment later does not rely on the segment's bytes.
        unsafe { self.region.give_back(segment) };
        self.segments.get(segment).set_untouched();
    }

    /// If more than `keep` segments are free, gives the memory of a free segment, preferably a
    /// populated one, back to the system. Otherwise returns false.
    pub fn give_back_one(&self, keep: u32) -> bool {
        let Some(segment) = self.segments.take_warm(keep) else { return false };
        self.give_memory_back(segment);
        self.segments.give(segment);
        true
    }

    /// Populates and locks all free segments. From now on, each segment is locked when it is used.
    ///
    /// # Errors
    /// The system refuses to lock a segment (RLIMIT_MEMLOCK), or has no memory for a segment.
    pub fn lock(&self) -> io::Result<()> {
        self.region.lock()?;
        while self.populate_one(0)? {}
        Ok(())
    }

    /// If more than `keep` segments are free and one of these has no memory, populates that
    /// segment. Otherwise returns false.
    ///
    /// # Errors
    /// The region is locked, and the system has no memory for the segment or cannot lock it.
    pub fn populate_one(&self, keep: u32) -> io::Result<bool> {
        let Some(segment) = self.segments.take_fresh(keep) else { return Ok(false) };
        // SAFETY: this call has taken the segment off the free list, so no other thread uses it.
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
    use crate::nodes::Nodes;

    #[test]
    fn populated_segments_are_taken_first_and_the_one_freed_last_before_others() {
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
        // `take_without_memory` prefers a segment that has no memory.
        segments.give(1);
        assert_eq!((memory.take_without_memory(0), segments.warm()), (Some(4), 1));
        assert!(!memory.populate_one(124).unwrap(), "only `keep` segments are free");
    }

    #[test]
    fn each_node_has_its_own_free_segments_and_lends_to_the_nearest() {
        let nodes = Nodes::new(&[0, 1, 2, 0], |from, to| u32::try_from(from.abs_diff(to)).unwrap());
        let memory = Memory::with_nodes(nodes, 1 << 20, 2, 4).expect("address space");
        let segments = &memory.segments;
        assert_eq!((segments.count(), segments.free(), segments.fresh()), (128, 128, 128));
        let nodes_of = |taken: &[u32]| {
            [0, 1, 2].map(|at| taken.iter().filter(|it| segments.node_of(**it) == at).count())
        };
        let node = segments.nodes().of_column(2);
        let taken: Vec<u32> = (0..128).filter_map(|_| segments.take_near(0, node)).collect();
        assert_eq!(nodes_of(&taken), [43, 43, 42]);
        assert_eq!(nodes_of(&taken[..42]), [0, 0, 42]);
        assert_eq!(nodes_of(&taken[..85]), [0, 43, 42]);
        assert_eq!(segments.take_near(0, 0), None);
        let mut faults = Vec::new();
        taken.iter().for_each(|segment| segments.get(*segment).touch(1));
        taken.iter().for_each(|segment| segments.give(*segment));
        segments.audit(&mut faults);
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!((segments.warm(), segments.fresh()), (128, 0));
        for column in 0..4 {
            let node = segments.nodes().of_column(column);
            let segment = segments.take_near(0, node).unwrap();
            assert_eq!(segments.node_of(segment), node);
            segments.give(segment);
        }
        (0..43).for_each(|_| assert!(memory.give_back_one(0)));
        assert_eq!((segments.warm(), segments.fresh()), (85, 43));
        let first_fresh = segments.take_near(0, 0).unwrap();
        assert_eq!(segments.node_of(first_fresh), 0);
        memory.allow(256).expect("address space");
        while !memory.adjust(0) {}
        let added: Vec<u32> = (128..256).collect();
        assert_eq!(nodes_of(&added), [43, 43, 42]);
        let warm_before = segments.warm();
        while memory.populate_one(0).unwrap() {}
        assert!(segments.warm() > warm_before && segments.fresh() == 0);
    }

    #[test]
    fn memory_is_of_the_node_that_is_named() {
        let memory = Memory::with_nodes(Nodes::new(&[0, 0], |_, _| 10), 1 << 20, 1, 1).unwrap();
        memory.prefer_nodes().expect("nothing is to be done");
        let policies = || std::fs::read_to_string("/proc/self/numa_maps");
        if policies().is_err() {
            return; // the system has one node and no `numa_maps`
        }
        match memory.region.prefer(0..128, 0) {
            // Some containers forbid the system call `mbind`.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
            preferred => preferred.expect("node 0 is there"),
        }
        let start = format!("{:x} prefer", memory.region.at(0).addr());
        assert!(policies().unwrap().contains(&start), "{start}: {}", policies().unwrap());
        assert!(memory.region.prefer(0..128, 1000).is_err(), "there is no such node");
    }

    #[test]
    fn a_populated_segment_is_resident_and_keeps_its_contents() {
        let memory = Memory::new(1 << 20, 1, 1).expect("address space");
        // SAFETY: only this test uses the segment.
        unsafe { memory.region.at(memory.region.start(0)).write(7) };
        let faults = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit(')').next().unwrap().split(' ').nth(8).unwrap().parse::<u64>().unwrap()
        };
        assert!(memory.populate_one(0).unwrap());
        // SAFETY: only this test uses the segment.
        assert_eq!(unsafe { memory.region.at(memory.region.start(0)).read() }, 7);
        // A call of `faults` allocates memory. The loop ends when a call causes no page fault.
        let mut before = faults();
        loop {
            let again = faults();
            if again == before {
                break;
            }
            before = again;
        }
        // SAFETY: only this test uses the region.
        unsafe { memory.region.at(4096).write(1) };
        assert_eq!(faults(), before, "the second page is there");
    }

    #[test]
    fn a_lower_limit_withholds_segments_as_they_come_free_and_a_higher_one_adds_at_once() {
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
    fn a_withheld_segment_has_given_its_memory_back() {
        let memory = Memory::new(1 << 20, 16, 1).expect("address space");
        for segment in 0..128 {
            // SAFETY: the segment is free, and only this test uses it.
            unsafe { memory.region.at(memory.region.start(segment)).write(7) };
        }
        memory.allow(32).expect("fewer");
        while !memory.adjust(0) {}
        let resident = (0..128).filter(|segment| {
            // SAFETY: only this test uses the region.
            unsafe { memory.region.at(memory.region.start(*segment)).read() == 7 }
        });
        assert_eq!(resident.count(), 32);
    }
}
