//! The requests of one connection that wait for their answers, oldest first.
//!
//! ```text
//! slots   | 8 | 5 | 6 | 7 |      number & mask; numbers 5..9 here
//!             ^ oldest that waits
//! ```
//!
//! Where: the receiving half enters sent requests here, and finds a request when its answer
//! arrives.
//! Invariant: numbers are consecutive, so a request's slot is found without hashing. If any request
//! waits, the request with number `oldest` waits. At most `WAITING_MAX` numbers lie between the
//! oldest and the newest request, so that 16-bit numbers identify requests.

use crate::workload::Verb;

/// The most requests from the oldest waiting request to the newest request, both included.
pub(super) const WAITING_MAX: usize = 1 << 15;
const SLOTS_MIN: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) number: u16,
    pub(super) verb: Verb,
    /// 1 for a whole request. If a multiget is split, its first part has the number of parts here,
    /// and the other parts have 0.
    pub(super) parts: u16,
    pub(super) keys: u16,
    pub(super) key: u64,
    /// The time at which the request was due.
    pub(super) intended_ns: u64,
    pub(super) sent_ns: u64,
    pub(super) cause: Cause,
}

/// One request of a burst. The request has one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    pub(super) verb: Verb,
    pub(super) key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The schedule made the request due (open loop).
    Due,
    /// The end of an earlier request freed a token (closed loop).
    Token,
    /// A get missed a key, and this request stores the key.
    Fill {
        /// True if this set takes over the get's token, which only the last fill of a get does.
        token: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Waiting,
    Answered,
    /// The request was given up; no answer has arrived.
    TimedOut,
    /// The request was given up; its answer arrived later.
    Late,
}

/// One request, and the part of its answer that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) sent: Sent,
    pub(super) state: State,
    /// Number of keys for which an answer has arrived.
    pub(super) keys_answered: u16,
    pub(super) hits: u16,
    /// Number of values that differ from the values that were stored.
    pub(super) corrupt: u16,
    pub(super) refused: bool,
    /// Index in `Inward::splits` of the split multiget of which this request is a part.
    pub(super) split: Option<u32>,
    /// UDP: true if the answer has several datagrams, of which at least one has arrived.
    pub(super) has_parts: bool,
    /// True if the request is unanswered, has one key, and is neither a fill nor a multiget's part.
    pub(super) is_plain: bool,
}

#[derive(Debug)]
pub(super) struct Ring {
    slots: Vec<Entry>,
    /// For each slot, the keys of its multiget. `STRUCK` marks keys that are known to be hits.
    several: Vec<Vec<u64>>,
    oldest: u32,
    next: u32,
    waiting: u32,
}

/// Marks a key as a hit; no key of a workload has this bit.
pub(super) const STRUCK: u64 = 1 << 63;

pub(super) const NOTHING: Entry = Entry {
    sent: Sent {
        number: 0,
        verb: Verb::Get,
        parts: 0,
        keys: 0,
        key: 0,
        intended_ns: 0,
        sent_ns: 0,
        cause: Cause::Due,
    },
    state: State::Free,
    keys_answered: 0,
    hits: 0,
    corrupt: 0,
    refused: false,
    split: None,
    has_parts: false,
    is_plain: false,
};

impl Ring {
    pub(super) fn new() -> Ring {
        Ring { slots: Vec::new(), several: Vec::new(), oldest: 0, next: 0, waiting: 0 }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting as usize
    }

    /// True if no further request fits until the oldest request has ended.
    pub(super) fn is_full(&self) -> bool {
        self.span() >= WAITING_MAX
    }

    fn span(&self) -> usize {
        self.next.wrapping_sub(self.oldest) as usize
    }

    fn index(&self, number: u32) -> usize {
        number as usize & (self.slots.len().wrapping_sub(1))
    }

    /// Enters the next request; the ring must not be full. Returns the slot's old state.
    #[inline]
    pub(super) fn push(&mut self, sent: &Sent, split: Option<u32>, keys: &[u64]) -> State {
        if self.span() >= self.slots.len() {
            self.grow();
        }
        let index = self.index(self.next);
        self.next = self.next.wrapping_add(1);
        self.waiting += 1;
        let is_fill = matches!(sent.cause, Cause::Fill { .. });
        let is_plain = sent.keys == 1 && split.is_none() && !is_fill;
        let entry = Entry { sent: *sent, state: State::Waiting, split, is_plain, ..NOTHING };
        if sent.keys > 1 {
            self.several[index].clear();
            self.several[index].extend_from_slice(keys);
        }
        std::mem::replace(&mut self.slots[index], entry).state
    }

    /// Enters a copy of `first` for each pick, with the pick's verb and key and the next number.
    /// There must be enough slots. Returns the number of overwritten requests that had timed out.
    #[inline]
    pub(super) fn push_all(&mut self, first: &Sent, picks: &[Pick]) -> u64 {
        let mask = self.slots.len().wrapping_sub(1);
        let (mut number, mut lost) = (first.number, 0);
        for pick in picks {
            let Some(slot) = self.slots.get_mut(self.next as usize & mask) else { break };
            lost += u64::from(slot.state == State::TimedOut);
            let sent = Sent { verb: pick.verb, key: pick.key, number, ..*first };
            *slot = Entry { sent, state: State::Waiting, is_plain: true, ..NOTHING };
            number = number.wrapping_add(1);
            self.next = self.next.wrapping_add(1);
            self.waiting += 1;
        }
        lost
    }

    /// Makes room for `more` requests if possible. Returns true if there is room.
    #[inline]
    pub(super) fn has_room(&mut self, more: usize) -> bool {
        let wanted = self.span() + more;
        while wanted > self.slots.len() && self.slots.len() < WAITING_MAX {
            self.grow();
        }
        wanted <= self.slots.len()
    }

    /// Doubles the number of slots, up to `WAITING_MAX`, and moves all entries to their new slots.
    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).clamp(SLOTS_MIN, WAITING_MAX);
        let mut wider = vec![NOTHING; slots];
        let mut several = Vec::new();
        several.resize_with(slots, Vec::new);
        let first = self.next.wrapping_sub(u32::try_from(self.slots.len()).unwrap_or(0));
        let mut number = first;
        while number != self.next {
            let (from, to) = (self.index(number), number as usize & (slots - 1));
            wider[to] = self.slots[from];
            several[to] = std::mem::take(&mut self.several[from]);
            number = number.wrapping_add(1);
        }
        self.slots = wider;
        self.several = several;
    }

    #[inline(always)]
    pub(super) fn oldest(&self) -> Option<usize> {
        (self.waiting > 0).then(|| self.index(self.oldest))
    }

    /// Returns the slot of the request with this number, or `None` if its entry was overwritten.
    #[inline(always)]
    pub(super) fn find(&self, number: u16) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let index = number as usize & (self.slots.len() - 1);
        let entry = &self.slots[index];
        (entry.state != State::Free && entry.sent.number == number).then_some(index)
    }

    #[inline(always)]
    pub(super) fn entry(&mut self, index: usize) -> &mut Entry {
        &mut self.slots[index]
    }

    pub(super) fn keys(&mut self, index: usize) -> &mut Vec<u64> {
        &mut self.several[index]
    }

    #[inline(always)]
    pub(super) fn settle(&mut self, index: usize, state: State) {
        debug_assert_eq!(self.slots[index].state, State::Waiting);
        self.slots[index].state = state;
        self.waiting -= 1;
        while self.waiting > 0 && self.slots[self.index(self.oldest)].state != State::Waiting {
            self.oldest = self.oldest.wrapping_add(1);
        }
        if self.waiting == 0 {
            self.oldest = self.next;
        }
    }

    /// Marks the request with `number` as answered, or the oldest request if `number` is `None`.
    /// Returns `None` if the request is not plain, or if its verb does not match `is_get`.
    #[inline(always)]
    pub(super) fn answer(&mut self, number: Option<u16>, is_get: bool) -> Option<&Sent> {
        let mask = self.slots.len().wrapping_sub(1);
        let place = number.map_or(self.oldest as usize, usize::from) & mask;
        let entry = self.slots.get_mut(place)?;
        let is_right = entry.state == State::Waiting
            && entry.is_plain
            && (entry.sent.verb == Verb::Get) == is_get
            && number.is_none_or(|number| number == entry.sent.number);
        if !is_right {
            return None;
        }
        entry.state = State::Answered;
        self.waiting -= 1;
        if place == self.oldest as usize & mask {
            self.pass_ended(mask);
        }
        self.slots.get(place).map(|entry| &entry.sent)
    }

    #[inline(always)]
    fn pass_ended(&mut self, mask: usize) {
        if self.waiting == 0 {
            self.oldest = self.next;
            return;
        }
        let is_over = |at: u32| {
            self.slots.get(at as usize & mask).is_some_and(|entry| entry.state != State::Waiting)
        };
        let mut oldest = self.oldest.wrapping_add(1);
        while is_over(oldest) {
            oldest = oldest.wrapping_add(1);
        }
        self.oldest = oldest;
    }

    /// Removes all entries. If `anew` is true, the next number becomes 0.
    pub(super) fn clear(&mut self, anew: bool) {
        for entry in &mut self.slots {
            entry.state = State::Free;
        }
        self.waiting = 0;
        if anew {
            self.next = 0;
        }
        self.oldest = self.next;
    }

    pub(super) fn count(&self, state: State) -> u64 {
        self.slots.iter().filter(|entry| entry.state == state).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(ring: &mut Ring, number: u32) -> State {
        let number = u16::try_from(number & 0xffff).unwrap();
        ring.push(&Sent { number, ..NOTHING.sent }, None, &[])
    }

    #[test]
    fn requests_are_found_by_number_in_any_order_and_the_oldest_that_waits_is_known() {
        let mut ring = Ring::new();
        assert_eq!((ring.oldest(), ring.find(0)), (None, None));
        for number in 0..100 {
            push(&mut ring, number);
        }
        for number in (0..100_u16).rev() {
            let index = ring.find(number).unwrap();
            assert_eq!(ring.entry(index).sent.number, number);
            assert_eq!(ring.waiting(), usize::from(number) + 1);
            ring.settle(index, State::Answered);
            let oldest = ring.oldest().map(|index| ring.entry(index).sent.number);
            assert_eq!(oldest, (number > 0).then_some(0));
        }
        // The entry of an answered request is kept, so a second answer is recognized.
        let index = ring.find(7).unwrap();
        assert_eq!(ring.entry(index).state, State::Answered);
    }

    #[test]
    fn numbers_wrap_and_a_request_that_is_never_answered_makes_the_ring_full() {
        let mut ring = Ring::new();
        let mut number = 0;
        while number < 200_000 {
            push(&mut ring, number);
            let index = ring.find(u16::try_from(number & 0xffff).unwrap()).unwrap();
            ring.settle(index, State::Answered);
            number += 1;
        }
        assert!(ring.slots.len() == SLOTS_MIN && ring.waiting() == 0);
        push(&mut ring, number);
        let stuck = ring.oldest();
        while !ring.is_full() {
            number += 1;
            push(&mut ring, number);
            let index = ring.find(u16::try_from(number & 0xffff).unwrap()).unwrap();
            ring.settle(index, State::Answered);
        }
        assert_eq!((ring.span(), ring.waiting()), (WAITING_MAX, 1));
        let index = ring.oldest().unwrap();
        assert_eq!(ring.entry(index).sent.number, u16::try_from(200_000 & 0xffff).unwrap());
        assert!(stuck.is_some());
        ring.settle(index, State::TimedOut);
        assert_eq!((ring.is_full(), ring.count(State::TimedOut)), (false, 1));
    }
}
