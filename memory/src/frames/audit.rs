//! Checks that each frame is either in one chain or free.
//!
//! Where: the store's audit, in tests and debug builds, while no column works.
//! Invariant: the check changes nothing, and ends whatever faults it finds.
//! Source: none.

use super::{Memory, ONE_REF, low};
use crate::segments::{NONE, State};
use crate::sync::Ordering;
use std::collections::{BTreeMap, BTreeSet};

impl Memory {
    /// Appends the faults of the frames to `faults`. `chains` has the head and the number of frames
    /// of each chain that an item names. A frame that a reader or an arriving value holds counts as
    /// a fault.
    pub fn audit_frames(&self, chains: &BTreeMap<u32, u32>, faults: &mut Vec<String>) {
        let mut used = BTreeSet::new();
        for (head, length) in chains {
            let (mut frame, mut refs, mut seen) = (*head, 0, 0);
            while frame != NONE && seen <= *length {
                if frame as usize >= self.frames.words.len() {
                    faults.push(format!("frame {frame} of none is chained to {head}"));
                    break;
                }
                // Acquire, here and below: pairs with the Release stores of `frames`.
                let word = self.frames.words.word(frame as usize).load(Ordering::Acquire);
                refs = refs.max(word / ONE_REF);
                if word / ONE_REF != 1 {
                    let refs = word / ONE_REF;
                    faults.push(format!("frame {frame}, chained to {head}, has {refs} references"));
                }
                if !used.insert(frame) {
                    faults.push(format!("frame {frame}, chained to {head}, is in two chains"));
                    break;
                }
                (frame, seen) = (low(word), seen + 1);
            }
            if seen != *length {
                faults.push(format!("chain {head} has {seen} frames in place of {length}"));
            }
        }
        (0..self.segments.count()).for_each(|segment| self.audit_cut(segment, &used, faults));
        if self.frames.in_flight_bytes() != 0 {
            faults.push(format!("{} bytes are on their way in", self.frames.in_flight_bytes()));
        }
    }

    /// Appends the faults of one segment's frames; `used` has all frames in chains.
    fn audit_cut(&self, segment: u32, used: &BTreeSet<u32>, faults: &mut Vec<String>) {
        let frames = &self.frames;
        let free = frames.free.word(segment as usize).load(Ordering::Acquire);
        let first = segment * frames.per_segment;
        let in_use = (0..frames.per_segment)
            .filter(|at| used.contains(&(first + at)))
            .fold(0_u64, |bits, at| bits | (1 << at));
        if !self.segments.get(segment).is(State::Frames) {
            if free != 0 || in_use != 0 {
                let state = self.segments.get(segment).state();
                faults.push(format!("{state:?} segment {segment} has frames {free:x}, {in_use:x}"));
            }
            return;
        }
        if free == frames.all() {
            faults.push(format!("segment {segment} is kept for no frame"));
        }
        if free ^ frames.all() != in_use {
            let taken = free ^ frames.all();
            faults.push(format!("segment {segment} has frames {taken:x}, in use are {in_use:x}"));
        }
        let some = frames.some.word(segment as usize / 64).load(Ordering::Acquire);
        if free != 0 && some & (1 << (segment % 64)) == 0 {
            faults.push(format!("segment {segment} has free frames that nobody looks for"));
        }
    }
}
