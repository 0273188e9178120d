//! Checks that each frame is either free or in exactly one chain.
//!
//! Where: called by the store's audit, in tests and debug builds, while no column runs.
//! Invariant: the check changes nothing, and terminates even if a chain is cyclic.

use super::{ARENA, Memory};
use crate::segments::{NONE, State};
use std::collections::{BTreeMap, BTreeSet};

impl Memory {
    /// Appends a message for each fault to `faults`. `chains` maps the head of each item's chain to
    /// the chain's length in bytes. References by readers and by arriving values count as faults.
    pub fn audit_frames(&self, chains: &BTreeMap<u32, u32>, faults: &mut Vec<String>) {
        let mut used = BTreeSet::new();
        for (head, bytes) in chains {
            let (mut frame, mut there) = (*head, 0);
            while frame != NONE {
                let (chains, at) = self.chains(frame);
                if at as usize >= chains.len() {
                    faults.push(format!("frame {frame} of the chain of {head} does not exist"));
                    break;
                }
                let (refs, _) = chains.snapshot(at);
                if refs != 1 {
                    faults.push(format!(
                        "frame {frame} of the chain of {head} has {refs} references instead of 1"
                    ));
                }
                if !used.insert(frame) {
                    faults.push(format!("frame {frame} of the chain of {head} is in two chains"));
                    break;
                }
                there += self.piece(frame).1;
                frame = self.next(frame);
            }
            if there != *bytes as usize {
                faults.push(format!("the chain of {head} has {there} bytes instead of {bytes}"));
            }
        }
        if let Some(arena) = self.arena() {
            let chunks = used.split_off(&ARENA).into_iter().map(|frame| frame & !ARENA);
            arena.audit(&chunks.collect(), faults);
        }
        (0..self.segments.count()).for_each(|segment| self.audit_cut(segment, &used, faults));
        if self.frames.in_flight_bytes() != 0 {
            let bytes = self.frames.in_flight_bytes();
            faults.push(format!("{bytes} bytes count as bytes of values that are being received"));
        }
    }

    /// Checks the frames of `segment`. `used` contains the frames that chains are made of.
    fn audit_cut(&self, segment: u32, used: &BTreeSet<u32>, faults: &mut Vec<String>) {
        let frames = &self.frames;
        let free = frames.vacant.free(segment);
        let first = segment * frames.per_segment;
        let in_use = (0..frames.per_segment)
            .filter(|at| used.contains(&(first + at)))
            .fold(0_u64, |bits, at| bits | (1 << at));
        if !self.segments.get(segment).is(State::Frames) {
            if free != 0 || in_use != 0 {
                let state = self.segments.get(segment).state();
                faults.push(format!(
                    "{state:?} segment {segment} has free frames {free:x}, used frames {in_use:x}"
                ));
            }
            return;
        }
        if free == frames.all() {
            faults.push(format!("segment {segment} is cut into frames, but all of them are free"));
        }
        if free ^ frames.all() != in_use {
            let taken = free ^ frames.all();
            faults.push(format!(
                "frames {taken:x} of segment {segment} are taken, but frames {in_use:x} are in use"
            ));
        }
        if free != 0 && !frames.vacant.is_hinted(segment) {
            faults.push(format!("segment {segment} has free frames, but its hint is not set"));
        }
    }
}
