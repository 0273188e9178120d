//! Is each frame in one chain, or free?
//!
//! Where: the store's audit, in tests and debug builds, while nothing is done.
//! Invariant: it changes nothing, and ends whatever it finds.
//! Source: none.

use super::{Memory, ONE_REF, low};
use crate::segments::{NONE, State};
use crate::sync::Ordering;
use std::collections::{BTreeMap, BTreeSet};

impl Memory {
    /// Faults of the frames, of which `chains` are in use: by each chain's head, how many. Frames
    /// that readers hold, or values on their way in, are faults too.
    pub fn audit_frames(&self, chains: &BTreeMap<u32, u32>, faults: &mut Vec<String>) {
        let mut used = BTreeSet::new();
        for (head, length) in chains {
            let (mut frame, mut refs, mut seen) = (*head, 0, 0);
            while frame != NONE && seen <= *length {
                if frame as usize >= self.frames.words.len() {
                    faults.push(format!("frame {frame} of none is chained to {head}"));
                    break;
                }
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

    /// Faults of the frames of one segment.
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
