//! Checks that each segment is in the list that belongs to the segment's state.
//!
//! Where: called by the store's audit, in tests and debug builds, while no column runs.
//! Invariant: the check changes nothing, and terminates even if a list is cyclic.

use super::{NONE, Segment, Segments, State};
use crate::sync::{AtomicU64, Ordering};
use crate::words::low;

impl Segment {
    /// The segment's state; `None` if the state's number is invalid.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        use State::{Draining, Frames, Free, Index, Limbo, Open, Sealed, Withheld};
        let all = [Free, Open, Sealed, Draining, Limbo, Frames, Index, Withheld];
        all.into_iter().find(|state| self.is(*state))
    }
}

impl Segments {
    /// Appends a message for each fault to `faults`. A free, retired or withheld segment must be
    /// once in the list of its state, and in no other list. A list's length must equal its counter.
    pub fn audit(&self, faults: &mut Vec<String>) {
        let warm: Vec<&AtomicU64> = self.heads.iter().map(|heads| &*heads.warm).collect();
        let fresh: Vec<&AtomicU64> = self.heads.iter().map(|heads| &*heads.fresh).collect();
        let lists = [
            (State::Free, warm, self.warm()),
            (State::Free, fresh, self.fresh()),
            (State::Limbo, vec![&*self.limbo], self.limbo()),
            (State::Withheld, vec![&*self.withheld], self.withheld()),
        ];
        let mut listed = vec![None; self.count() as usize];
        for (state, lists, counted) in lists {
            let mut length = 0;
            let of_node = |(node, list)| self.list(list).map(move |segment| (node, segment));
            for (node, segment) in lists.into_iter().enumerate().flat_map(of_node) {
                length += 1;
                if state == State::Free && node != self.node_of(segment) {
                    faults
                        .push(format!("segment {segment} is in the list of the wrong node {node}"));
                }
                match listed.get_mut(segment as usize) {
                    None => faults
                        .push(format!("segment {segment} in the list of {state:?} does not exist")),
                    Some(Some(other)) => faults.push(format!(
                        "segment {segment} is in the lists of {other:?} and {state:?}"
                    )),
                    Some(none) => *none = Some(state),
                }
            }
            if length != counted {
                faults.push(format!(
                    "the list of {state:?} has {length} segments, but its counter is {counted}"
                ));
            }
        }
        for (segment, listed) in (0..).zip(listed) {
            let state = self.get(segment).state();
            let is_listed =
                |state: &State| matches!(state, State::Free | State::Limbo | State::Withheld);
            if state.is_none() || state.filter(is_listed) != listed {
                faults.push(format!(
                    "segment {segment} has the state {state:?}, but is in the list of {listed:?}"
                ));
            }
        }
    }

    /// Iterates over a list's segments. Ends after `count() + 1`, because the list may be cyclic.
    fn list<'s>(&'s self, list: &AtomicU64) -> impl Iterator<Item = u32> + use<'s> {
        // Acquire, here and below, pairs with the Release in `push`.
        let mut next = low(list.load(Ordering::Acquire));
        let step = move || {
            let segment = (next < self.count()).then_some(next)?;
            next = self.get(segment).appended.next.load(Ordering::Acquire);
            debug_assert!(next == NONE || next < self.count(), "a link to no segment");
            Some(segment)
        };
        std::iter::from_fn(step).take(self.count() as usize + 1)
    }
}
