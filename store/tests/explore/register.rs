//! One key in a history: a register with an item, whose CAS unique may not be known.
//!
//! Where: `linear` compares each key's history with this register.
//! Invariant: the clock of the column that makes a request decides if an item has expired; an item
//! that is dead by any column's clock may be gone for all columns.

use crate::verbs::model::Rules;
use crate::verbs::outcome::{Item, Outcome};
use crate::verbs::request::{Reply, Request};
use store::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    pub(crate) item: Option<Item>,
    /// The second of a flush to come; 0 if there is none.
    pub(crate) pending: u32,
}

#[derive(Debug)]
pub(crate) enum Event {
    Asked(Request, Reply),
    Evicted,
    /// A flush of all keys at this second; `None` flushes now, 0 calls the pending flush off.
    Flush(Option<u32>),
    /// The column's clock was set to the `now` of the call.
    Tick,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Register {
    /// The rules, except for `now`, which each call sets.
    pub(crate) rules: Rules,
    /// True if no client chooses CAS uniques, so that the uniques of a key rise.
    pub(crate) rising_cas: bool,
    /// True if room may be short, so that requests may be refused.
    pub(crate) may_refuse: bool,
}

/// True if the item is expired or flushed for a column whose clock is at `now`.
pub(crate) fn is_hidden(state: &State, now: u32) -> bool {
    let Some(item) = &state.item else { return false };
    (item.exptime != 0 && item.exptime <= now) || (state.pending != 0 && now >= state.pending)
}

impl Register {
    /// The states to which the event may lead from `state`. Empty if the event is impossible there.
    pub(crate) fn after(&self, state: &State, now: u32, event: &Event) -> Vec<State> {
        let with = |pending| vec![State { pending, ..state.clone() }];
        match event {
            Event::Asked(request, reply) => {
                let items = self.asked(state, now, request, reply).into_iter();
                items.map(|item| State { item, ..state.clone() }).collect()
            }
            Event::Evicted => vec![State { item: None, ..state.clone() }],
            Event::Flush(Some(0)) => with(0),
            Event::Flush(Some(at)) if *at >= now => with(*at),
            Event::Flush(_) => vec![State::default()],
            Event::Tick if state.pending != 0 && now > state.pending => vec![State::default()],
            Event::Tick => vec![state.clone()],
        }
    }

    /// The items that a request may leave if its answer is `reply`.
    fn asked(
        &self,
        state: &State,
        now: u32,
        request: &Request,
        reply: &Reply,
    ) -> Vec<Option<Item>> {
        let there = state.item.as_ref().filter(|_| !is_hidden(state, now));
        // A request that leaves no item leaves an item that is hidden from this column, except a
        // delete.
        let hidden = state.item.as_ref().filter(|_| there.is_none() && !request.deletes());
        let rules = Rules { now, ..self.rules };
        let agreed = rules.outcomes(there, request).into_iter().filter_map(|mut outcome| {
            let is_it = outcome.agrees(reply) && self.may_choose(there, &outcome);
            is_it.then(|| outcome.item.or_else(|| hidden.cloned()))
        });
        let mut items: Vec<_> = agreed.collect();
        if self.may_refuse && request.may_lack_room(reply, there.is_some()) {
            let is_dropped = request.sets() && *reply == Err(StoreError::NoMemory);
            items.push(state.item.clone().filter(|_| !is_dropped));
        }
        items
    }

    /// True if the outcome has no CAS unique of the store, or one that the store may choose.
    fn may_choose(&self, there: Option<&Item>, outcome: &Outcome) -> bool {
        let before = there.and_then(|item| item.cas).unwrap_or(0);
        let chosen = outcome.item.as_ref().filter(|_| outcome.fresh).and_then(|item| item.cas);
        chosen.is_none_or(|cas| cas != 0 && (!self.rising_cas || cas > before))
    }
}
