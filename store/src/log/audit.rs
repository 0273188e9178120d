//! Checks that each segment of the log can be found where its state requires.
//!
//! Where: the store's audit, in tests and debug builds, while no column works.
//! Invariant: the check changes nothing, and terminates whatever faults it finds.
//! Source: none.

use super::{Log, NONE};
use memory::segments::State;
use memory::sync::Ordering;
use std::collections::BTreeSet;

impl Log {
    /// Appends the faults of the log's segments to `faults`. Each open segment must be in use by a
    /// column. Each sealed segment must be committed as a whole and be in its queue. Each queue's
    /// number of segments must be right.
    pub(crate) fn audit(&self, faults: &mut Vec<String>) {
        let named = self.named();
        let mut counts = [0_u32; 2];
        for segment in 0..self.memory.segments.count() {
            let there = self.segment(segment);
            let Some(state) = there.state() else { continue };
            if !matches!(state, State::Open | State::Sealed | State::Draining) {
                continue;
            }
            let lane = self.lane_of(segment);
            counts[usize::from(std::ptr::eq(lane, &self.lanes[1]))] += 1;
            let (committed, reserved) = (there.committed(), there.reserved());
            if state == State::Open && u64::from(committed) != reserved {
                faults.push(format!(
                    "open segment {segment}: {committed} of {reserved} reserved bytes are committed"
                ));
            }
            if state == State::Open && !named.contains(&segment) {
                faults.push(format!("segment {segment} is open, but no column uses it"));
            }
            if state != State::Open && !there.drainable() {
                let end = there.end();
                faults.push(format!(
                    "{state:?} segment {segment}: {committed} of {end} bytes are committed"
                ));
            }
            if state == State::Sealed {
                self.calendar.audit(&self.memory.segments, segment, faults);
            }
            if state == State::Sealed && !lane.queue.has(there.ticket(), segment) {
                faults.push(format!("sealed segment {segment} is not in its queue"));
            }
        }
        for (lane, count) in self.lanes.iter().zip(counts) {
            let counted = lane.count.segments.load(Ordering::Relaxed); // no column works now
            if counted != count {
                faults.push(format!("a queue has {count} segments, but its counter is {counted}"));
            }
        }
    }

    fn named(&self) -> BTreeSet<u32> {
        let mut named = BTreeSet::new();
        for lane in &self.lanes {
            // Acquire, here and below, pairs with the Release that published the segment.
            named.extend(lane.appenders.iter().map(|open| open.load(Ordering::Acquire)));
            named.extend(lane.timed.all());
            let outs = lane.outs.iter().flatten();
            named.extend(outs.map(|out| out.segment.load(Ordering::Acquire)));
        }
        named.remove(&NONE);
        named
    }
}
