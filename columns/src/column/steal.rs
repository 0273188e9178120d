//! Stealing: a column without work takes datagrams from a column that cannot keep up ("is behind").
//!
//! ```text
//! status of a column   | word: 0, or loop time, datagrams to take at once, socket | is asleep |
//!
//! a column behind      publishes its word after each loop, and wakes one sleeping column per
//!                      millisecond; while others steal, receives few datagrams at once
//! a column before      reads all words; receives from the socket or AF_XDP queue of the busiest
//! it sleeps            column, or of the nearest if several are equally busy
//! ```
//!
//! Where: the column calls `note_loop` after each loop, and `victim` before it sleeps.
//! Invariant: a column is behind only after two overloaded loops in a row, with no sleep between
//! them. A loop is overloaded if it received `BEHIND_DATAGRAMS`, if it received a quarter of
//! `BEHIND_DATAGRAMS` at once and took `BEHIND_NS`, or if it left datagrams in the socket. So
//! columns do not steal a lone request, or a burst that is answered before the next burst arrives.
//! Statuses may be out of date: a thief that reads an old word finds an empty socket, and a
//! sleeping column that is not woken at once is woken a millisecond later.
//! Source: the KV-Cache paper, section 4.2.1.

use std::sync::Arc;

use memory::plant::{Fault, is};
use memory::sync::{AtomicBool, AtomicU32, Ordering};
use net::Waker;

use crate::datapath::list::{LoopInput, NUMBERS};
use crate::limits::{
    BEHIND_DATAGRAMS, BEHIND_LOOPS, BEHIND_NS, DATAGRAMS_RECEIVED_MAX, HELPED_NS, SHARED_NS,
    STEAL_TRIES_MAX, STEAL_WAKE_NS,
};

/// `Status::word` holds, from the lowest bits up: the descriptor's number, log2 of the number of
/// datagrams to receive at once, and log2 of the microseconds that a loop took.
const SOCKET_BITS: u32 = NUMBERS.ilog2();
const AT_ONCE_BITS: u32 = 8;

const SOCKET_MASK: usize = (1 << SOCKET_BITS) - 1;

/// The state that a column publishes to other columns.
#[derive(Debug)]
#[repr(align(128))]
struct Status {
    word: AtomicU32,
    is_asleep: AtomicBool,
    waker: Arc<Waker>,
}

/// The states that all columns publish.
#[derive(Debug)]
pub struct Statuses(Box<[Status]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) column: usize,
    /// The number of one of the column's descriptors.
    pub(crate) socket: usize,
    pub(crate) at_once: usize,
    pub(crate) is_near: bool,
}

/// Another column, from which a column may steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The number of the other column.
    pub column: usize,
    /// True if the two columns' processors are on the same NUMA node.
    pub is_near: bool,
}

/// A column's part in stealing.
#[derive(Debug)]
pub struct Stealing {
    statuses: Arc<Statuses>,
    own: usize,
    neighbours: Vec<Neighbour>,
    /// When the present loop began, by `monotonic_ns`; `None` if the loop before it was not busy.
    loop_began_ns: Option<u64>,
    loops_behind: u32,
    steals_given: u64,
    /// The time, by `monotonic_ns`, until which thieves are expected to take datagrams.
    helped_until_ns: u64,
    at_once: usize,
    word: u32,
    /// The earliest time at which the next sleeper may be woken, by `monotonic_ns`.
    wake_due_ns: u64,
    /// Number of attempts to steal that may still fail before the column sleeps.
    tries_left: u32,
}

impl Statuses {
    /// Makes the states of all columns, which the wakers wake.
    #[must_use]
    pub fn new(wakers: &[Arc<Waker>]) -> Arc<Statuses> {
        let status = |waker: &Arc<Waker>| Status {
            word: AtomicU32::new(0),
            is_asleep: AtomicBool::new(false),
            waker: Arc::clone(waker),
        };
        Arc::new(Statuses(wakers.iter().map(status).collect()))
    }
}

impl Stealing {
    /// Makes the state of column `own`. `neighbours` are the other columns, the nearest first.
    #[must_use]
    pub fn new(statuses: Arc<Statuses>, own: usize, neighbours: Vec<Neighbour>) -> Stealing {
        Stealing {
            statuses,
            own,
            neighbours,
            loop_began_ns: None,
            loops_behind: 0,
            steals_given: 0,
            helped_until_ns: 0,
            at_once: DATAGRAMS_RECEIVED_MAX,
            word: 0,
            wake_due_ns: 0,
            tries_left: STEAL_TRIES_MAX,
        }
    }

    /// Notes one loop of this column. Reads the clock only if the column may be behind.
    #[inline]
    pub(super) fn note_loop(&mut self, input: LoopInput, now_ns: impl FnOnce() -> u64) {
        // A column that is behind counts as behind until it receives far fewer datagrams, so that
        // its state does not change back and forth.
        let some = if self.word != 0 { input.datagrams } else { input.most };
        let is_busy = some >= BEHIND_DATAGRAMS / 4 || input.datagrams >= BEHIND_DATAGRAMS;
        if is_busy || input.is_undrained {
            self.note_busy_loop(input, now_ns());
        } else if self.loop_began_ns.take().is_some() {
            self.loops_behind = 0;
            self.at_once = DATAGRAMS_RECEIVED_MAX;
            self.publish(0);
        }
    }

    /// Notes a loop that ended at `now_ns`, after which the column may be behind.
    #[cold]
    fn note_busy_loop(&mut self, input: LoopInput, now_ns: u64) {
        let began_ns = self.loop_began_ns.replace(now_ns);
        let took_ns = began_ns.map_or(0, |it| now_ns.saturating_sub(it));
        let is_behind =
            input.datagrams >= BEHIND_DATAGRAMS || input.is_undrained || took_ns >= BEHIND_NS;
        if is_behind || self.word != 0 {
            self.loops_behind = self.loops_behind.saturating_add(1);
        } else {
            self.loops_behind = 0;
        }
        if self.loops_behind < BEHIND_LOOPS {
            return;
        }
        if input.steals_given != self.steals_given {
            self.steals_given = input.steals_given;
            self.helped_until_ns = now_ns + HELPED_NS;
        }
        let each_ns = took_ns / (input.datagrams as u64).max(1);
        let shared = usize::try_from(SHARED_NS / each_ns.max(1)).unwrap_or(usize::MAX);
        let shared = shared.clamp(1, DATAGRAMS_RECEIVED_MAX).ilog2();
        let is_helped = now_ns < self.helped_until_ns && !is(Fault::HelpNotNoted);
        self.at_once = if is_helped { 1 << shared } else { DATAGRAMS_RECEIVED_MAX };
        let took_us = u32::try_from(took_ns / 1000).unwrap_or(u32::MAX).max(2);
        let socket = u32::try_from(input.socket & SOCKET_MASK).unwrap_or(0);
        self.publish((took_us.ilog2() << AT_ONCE_BITS | shared) << SOCKET_BITS | socket);
        self.wake_one(now_ns);
    }

    fn publish(&mut self, word: u32) {
        if word != self.word {
            self.word = word;
            // Relaxed: the word is a hint that orders nothing. Pairs with the load in `victim`.
            self.statuses.0[self.own].word.store(word, Ordering::Relaxed);
        }
    }

    /// Wakes the nearest column that sleeps, at most once in `STEAL_WAKE_NS`.
    fn wake_one(&mut self, now_ns: u64) {
        if now_ns < self.wake_due_ns && !is(Fault::WokenTooOften) {
            return;
        }
        let statuses = self.neighbours.iter().map(|it| &self.statuses.0[it.column]);
        // Relaxed: the load pairs with the store in `sleeps`. If several columns try to wake the
        // same sleeping column, only the column whose swap returns `true` wakes it.
        let mut asleep = statuses.filter(|status| {
            let is_asleep = status.is_asleep.load(Ordering::Relaxed);
            is_asleep && (status.is_asleep.swap(false, Ordering::Relaxed) || is(Fault::WokenByTwo))
        });
        if let Some(status) = asleep.next() {
            status.waker.wake();
            self.wake_due_ns = now_ns + STEAL_WAKE_NS;
        }
    }

    /// True if the last loop was busy. The column then looks for input again before it sleeps.
    #[inline]
    pub(super) fn looks_again(&self) -> bool {
        self.loop_began_ns.is_some()
    }

    /// The maximum number of datagrams that the column is to receive at once.
    #[inline]
    pub(super) fn at_once(&self) -> usize {
        self.at_once
    }

    #[inline]
    pub(super) fn sleeps(&mut self, is_asleep: bool) {
        self.tries_left = STEAL_TRIES_MAX;
        // Relaxed: the flag is a hint that orders nothing. Pairs with the accesses in `wake_one`.
        self.statuses.0[self.own].is_asleep.store(is_asleep, Ordering::Relaxed);
    }

    /// Returns the busiest column that is behind; of equally busy columns, the nearest. `None` if
    /// no column is behind, or if this column has found nothing `STEAL_TRIES_MAX` times in a row.
    #[inline]
    pub(super) fn victim(&self) -> Option<Victim> {
        let (mut busiest, mut victim) = (0, None);
        for Neighbour { column, is_near } in &self.neighbours {
            // Relaxed: the word is a hint that orders nothing. Pairs with the store in `publish`.
            let word = self.statuses.0[*column].word.load(Ordering::Relaxed);
            let behind = word >> SOCKET_BITS >> AT_ONCE_BITS;
            if behind > busiest || is(Fault::BusiestPassedOver) && behind > 0 {
                busiest = behind;
                let socket = word as usize & SOCKET_MASK;
                let at_once = 1 << (word >> SOCKET_BITS & ((1 << AT_ONCE_BITS) - 1));
                victim = Some(Victim { column: *column, socket, at_once, is_near: *is_near });
            }
        }
        victim.filter(|_| self.tries_left > 0 || is(Fault::ThiefNeverRests))
    }

    pub(super) fn note_try(&mut self, datagrams: usize) {
        self.tries_left = match datagrams {
            0 => self.tries_left.saturating_sub(1),
            _ => STEAL_TRIES_MAX,
        };
    }
}

#[cfg(all(test, shuttle))]
mod under_shuttle;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn columns(count: usize) -> Vec<Stealing> {
        let wakers: Vec<_> = (0..count).map(|_| Arc::new(Waker::new().unwrap())).collect();
        let statuses = Statuses::new(&wakers);
        let neighbours = |own| {
            let others = (1..count).map(|step| (own + step) % count);
            others.map(|column| Neighbour { column, is_near: column % 2 == own % 2 }).collect()
        };
        (0..count).map(|own| Stealing::new(Arc::clone(&statuses), own, neighbours(own))).collect()
    }

    pub(super) fn input(datagrams: usize) -> LoopInput {
        LoopInput { datagrams, most: datagrams, socket: 1, ..LoopInput::default() }
    }

    fn is_asleep(column: &Stealing) -> bool {
        column.statuses.0[column.own].is_asleep.load(Ordering::Relaxed)
    }

    fn note(column: &mut Stealing, input: LoopInput) {
        column.note_loop(input, || 0);
    }

    #[test]
    fn a_column_is_behind_after_two_loops_and_until_little_comes() {
        let mut all = columns(2);
        let behind = Some(Victim { column: 0, socket: 1, at_once: 64, is_near: false });
        for (datagrams, victim) in [
            (1, None),
            (BEHIND_DATAGRAMS - 1, None),
            (BEHIND_DATAGRAMS, None),
            (0, None),
            (1000, None),
            (BEHIND_DATAGRAMS, behind),
            (BEHIND_DATAGRAMS / 4, behind),
            (BEHIND_DATAGRAMS / 4 - 1, None),
            (BEHIND_DATAGRAMS - 1, None),
        ] {
            note(&mut all[0], input(datagrams));
            assert_eq!(all[1].victim(), victim, "{datagrams}");
            assert_eq!(all[0].looks_again(), datagrams >= BEHIND_DATAGRAMS / 4);
        }
        for socket in [2, 63, SOCKET_MASK] {
            (0..2).for_each(|_| note(&mut all[0], LoopInput { socket, ..input(1000) }));
            assert_eq!(all[1].victim().map(|it| (it.socket, it.at_once)), Some((socket, 64)));
        }
        note(&mut all[0], input(0));
        // A column is also behind if some datagrams stay in the socket after each loop.
        let undrained = LoopInput { is_undrained: true, ..input(0) };
        note(&mut all[0], undrained);
        assert_eq!(all[1].victim(), None);
        note(&mut all[0], undrained);
        assert_eq!(all[1].victim(), behind);
    }

    #[test]
    fn loops_of_few_datagrams_are_behind_if_they_take_long() {
        let few = input(BEHIND_DATAGRAMS / 4);
        for (took_ns, is_behind) in [(BEHIND_NS - 1, false), (BEHIND_NS, true)] {
            let mut all = columns(2);
            for at in 1..=3 {
                assert_eq!(all[1].victim(), None, "how long the first took is not known");
                all[0].note_loop(few, || at * took_ns);
            }
            assert_eq!(all[1].victim().is_some(), is_behind);
            // A column that receives one datagram at a time is never behind, however long its loops
            // are. A sleep does not count as a long loop.
            let alone = LoopInput { most: 1, ..few };
            for at in 4..8 {
                all[0].note_loop(input(0), || 0);
                all[0].note_loop(alone, || at * took_ns);
                assert_eq!(all[1].victim(), None);
                assert!(!all[0].looks_again());
            }
            all[0].note_loop(input(1), || 4 * took_ns);
            all[0].note_loop(few, || u64::MAX / 2);
            assert_eq!(all[1].victim(), None);
        }
    }

    #[test]
    fn a_column_receives_few_at_once_while_others_take_from_it() {
        let mut all = columns(2);
        // 16 datagrams in 160 us are 10 in 100 us (`SHARED_NS`); the next lower power of two is 8.
        let helped = |steals_given| LoopInput { steals_given, ..input(16) };
        let mut now_ns = 0;
        let mut step = |column: &mut Stealing, input| {
            now_ns += 160_000;
            column.note_loop(input, || now_ns);
            column.at_once()
        };
        for _ in 0..3 {
            assert_eq!(step(&mut all[0], helped(0)), DATAGRAMS_RECEIVED_MAX);
        }
        assert_eq!(all[1].victim().map(|it| it.at_once), Some(8), "what others are to take");
        assert_eq!(step(&mut all[0], helped(1)), 8);
        let loops = (0..).take_while(|_| step(&mut all[0], helped(1)) == 8).count();
        assert_eq!(loops as u64, (HELPED_NS - 1) / 160_000, "until they have not for long");
        assert_eq!(step(&mut all[0], helped(2)), 8);
        assert_eq!(step(&mut all[0], input(0)), DATAGRAMS_RECEIVED_MAX);
    }

    #[test]
    fn the_busiest_is_taken_from_and_of_equals_the_nearest() {
        let mut all = columns(5);
        let busy = |column: &mut Stealing, took_us| {
            (1..=2_u64).for_each(|at| column.note_loop(input(16), || at * took_us * 1000));
        };
        for (column, took_us) in [(1, 40), (2, 63), (4, 20)] {
            busy(&mut all[column], took_us);
        }
        let victim = |of: &Stealing| of.victim().map(|it| (it.column, it.is_near));
        assert_eq!(victim(&all[0]), Some((1, false)), "as busy as 2, and nearer");
        assert_eq!(victim(&all[1]), Some((2, false)));
        note(&mut all[4], input(0));
        busy(&mut all[4], 128);
        assert_eq!(victim(&all[0]), Some((4, true)));
        assert_eq!(victim(&all[4]), Some((1, false)), "never itself");
    }

    #[test]
    fn a_sleeper_is_woken_at_most_once_a_millisecond() {
        let mut all = columns(4);
        all[2].sleeps(true);
        all[3].sleeps(true);
        note(&mut all[0], input(100));
        assert!(is_asleep(&all[2]), "not behind yet");
        note(&mut all[0], input(100));
        assert!(!is_asleep(&all[2]) && is_asleep(&all[3]));
        all[0].note_loop(input(100), || STEAL_WAKE_NS - 1);
        assert!(is_asleep(&all[3]));
        all[0].note_loop(input(100), || STEAL_WAKE_NS);
        assert!(!is_asleep(&all[3]));
        assert_eq!(all[0].wake_due_ns, 2 * STEAL_WAKE_NS);
        all[0].note_loop(input(100), || 2 * STEAL_WAKE_NS);
        assert_eq!(all[0].wake_due_ns, 2 * STEAL_WAKE_NS, "nobody sleeps");
    }

    #[test]
    fn a_thief_that_finds_nothing_gives_up_until_it_has_slept() {
        let mut all = columns(2);
        (0..2).for_each(|_| note(&mut all[0], input(64)));
        for _ in 0..STEAL_TRIES_MAX - 1 {
            all[1].note_try(0);
        }
        assert!(all[1].victim().is_some());
        all[1].note_try(64);
        for _ in 0..STEAL_TRIES_MAX {
            assert!(all[1].victim().is_some());
            all[1].note_try(0);
        }
        assert_eq!(all[1].victim(), None);
        all[1].sleeps(true);
        all[1].sleeps(false);
        assert!(all[1].victim().is_some());
    }
}
