//! Searches for an order of a key's events that explains all their answers.
//!
//! Where: after each schedule, for each key.
//! Invariant: an event comes after every event that ended before it began, and the events of a lane
//! keep their order. An item that the latest clock hides may disappear at any time. If a flush for
//! a later second is requested during a call, the call may see the request or not: a column whose
//! clock has reached that second checks for a flush first, and makes its write visible later.
//! Source: "Testing and Verifying Concurrent Objects" (Wing and Gong, 1993), with a set of visited
//! states (Lowe, 2017).

use crate::register::{Event, Register, State, is_hidden};
use std::collections::HashSet;

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) now: u32,
    pub(crate) event: Event,
}

/// Maximum number of visited states; a history that needs more is left undecided.
const STATES_MAX: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Explained,
    /// No order explains the answers. Holds each lane's number of calls in the longest attempt.
    Wrong(Vec<usize>),
    Undecided,
}

/// Each setting of a column's clock: the moment of the setting, and the second that was set.
pub(crate) type Clocks = [(u64, u32)];

fn latest(clocks: &Clocks, moment: u64) -> u32 {
    clocks.iter().take_while(|(from, _)| *from <= moment).map(|(_, now)| *now).max().unwrap_or(0)
}

/// True if a flush for a later second was requested during `call`, and `call` is no flush or tick.
fn is_put_off_during(lanes: &[Vec<&Call>], call: &Call) -> bool {
    let is_flush = |event: &Event| matches!(event, Event::Flush(_) | Event::Tick);
    let is_it = |other: &Call| {
        let during = other.began > call.began && other.began < call.ended;
        during && matches!(other.event, Event::Flush(Some(at)) if at > 0)
    };
    !is_flush(&call.event) && lanes.iter().flatten().copied().any(is_it)
}

pub(crate) fn explain(lanes: &[Vec<&Call>], clocks: &Clocks, register: Register) -> Verdict {
    let mut met = HashSet::new();
    let mut open = vec![(vec![0; lanes.len()], State::default())];
    let mut furthest = vec![0; lanes.len()];
    while let Some((at, state)) = open.pop() {
        if at.iter().sum::<usize>() > furthest.iter().sum() {
            furthest.clone_from(&at);
        }
        let next = |lane: usize| lanes[lane].get(at[lane]);
        let Some(first_end) = (0..lanes.len()).filter_map(next).map(|call| call.ended).min() else {
            return Verdict::Explained;
        };
        for lane in 0..lanes.len() {
            let Some(call) = next(lane).filter(|call| call.began <= first_end) else { continue };
            let mut before = vec![state.clone()];
            if is_hidden(&state, latest(clocks, call.ended)) {
                before.push(State { item: None, ..state.clone() });
            }
            let mut next: Vec<_> = before
                .iter()
                .flat_map(|state| register.after(state, call.now, &call.event))
                .collect();
            if state.pending != 0 && is_put_off_during(lanes, call) {
                let unseen = State { pending: 0, ..state.clone() };
                let after = register.after(&unseen, call.now, &call.event).into_iter();
                next.extend(after.map(|after| State { pending: state.pending, ..after }));
            }
            for state in next {
                let mut at = at.clone();
                at[lane] += 1;
                if met.insert((at.clone(), state.clone())) {
                    open.push((at, state));
                }
            }
        }
        if met.len() > STATES_MAX {
            return Verdict::Undecided;
        }
    }
    Verdict::Wrong(furthest)
}
