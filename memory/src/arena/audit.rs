//! Checks that each chunk belongs to a ring, is free, or is in one chain.
//!
//! Where: called by the store's audit, in tests and debug builds, while no column runs.
//! Invariant: the check changes nothing.

use super::{Arena, GROUP};
use std::collections::BTreeSet;

impl Arena {
    /// Appends a message for each faulty chunk to `faults`. `used` contains the chunks of all
    /// items. A chunk that belongs to no item but has references counts as faulty.
    pub(crate) fn audit(&self, used: &BTreeSet<u32>, faults: &mut Vec<String>) {
        let mut ring_chunks = 0;
        for chunk in 0..self.chunks {
            let (refs, _) = self.chains.snapshot(chunk);
            let is_free = self.vacant.free(chunk / GROUP) & (1 << (chunk % GROUP)) != 0;
            match (used.contains(&chunk), is_free, refs) {
                (true, false, _) | (false, true, 0) => {}
                (false, false, 0) => ring_chunks += 1,
                (true, true, _) => {
                    faults.push(format!("chunk {chunk} belongs to an item, but is free"));
                }
                (false, is_free, _) => {
                    let state = if is_free { "free chunk" } else { "chunk" };
                    faults.push(format!("{state} {chunk} has {refs} references, but no item"));
                }
            }
        }
        if ring_chunks != self.ring_chunks {
            let lost = format!("rings have {ring_chunks} chunks instead of {}", self.ring_chunks);
            faults.push(lost);
        }
        for group in 0..self.chunks.div_ceil(GROUP) {
            if self.vacant.free(group) != 0 && !self.vacant.is_hinted(group) {
                let first = group * GROUP;
                faults.push(format!("chunks from {first} on are free, but their hint is not set"));
            }
        }
    }
}
