//! Taking datagrams from a column that is behind, instead of sleeping.
//!
//! ```text
//! post of a column   | word: 0, or 256 * log2 of what a loop brought + where from | it sleeps |
//!
//! behind             publishes its word after each loop, wakes a sleeper once a millisecond
//! about to sleep     reads all words; receives from the busiest one's socket, or its queue of an
//!                    interface, the nearest first
//! ```
//!
//! Where: told of each loop of the column's datagrams; asked before the column sleeps.
//! Invariant: a column is behind only if each of two loops, with no sleep between them, received
//! `BEHIND_DATAGRAMS` or left something in the socket: a lone request is never stolen, nor a burst
//! that is over before the next comes. What posts say is a hint: a thief that believes an old word
//! finds an empty socket, and whoever is not woken is woken a millisecond later. A column that is
//! never behind writes nothing here but that it sleeps.
//! Source: the KV-Cache paper, section 4.2.1.

use std::sync::Arc;

use memory::sync::{AtomicBool, AtomicU32, Ordering};
use net::{Waker, monotonic_ns};

use crate::limits::{BEHIND_DATAGRAMS, BEHIND_LOOPS, STEAL_TRIES_MAX, STEAL_WAKE_NS};
use crate::numa::Neighbour;

/// The bits of a word that name the socket.
const SOCKET_BITS: u32 = 8;

/// What names a queue of an interface there, instead of a socket.
pub(super) const PACKETS: usize = (1 << SOCKET_BITS) - 1;

/// What a column lets the others know.
#[derive(Debug)]
#[repr(align(128))]
struct Post {
    word: AtomicU32,
    is_asleep: AtomicBool,
    waker: Arc<Waker>,
}

/// The posts of all columns.
#[derive(Debug)]
pub(crate) struct Posts(Box<[Post]>);

/// Where to steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) column: usize,
    /// The number of its socket, or `PACKETS`.
    pub(crate) socket: usize,
    pub(crate) is_near: bool,
}

/// What one loop of a column's datagrams came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Came {
    /// How many were received.
    pub(super) datagrams: usize,
    /// The number of the socket that received last, or `PACKETS`.
    pub(super) socket: usize,
    /// More is there.
    pub(super) is_undrained: bool,
}

/// One column's part in stealing.
#[derive(Debug)]
pub(crate) struct Stealing {
    posts: Arc<Posts>,
    own: usize,
    /// The nearest first.
    neighbours: Vec<Neighbour>,
    /// Loops in a row that were behind.
    loops_behind: u32,
    /// As the column's post has it.
    word: u32,
    /// The next sleeper is woken no earlier, by `monotonic_ns`.
    wake_due_ns: u64,
    /// Attempts that may find nothing before the column sleeps.
    tries_left: u32,
}

impl Posts {
    /// For columns that wake by these.
    pub(crate) fn new(wakers: &[Arc<Waker>]) -> Arc<Posts> {
        let post = |waker: &Arc<Waker>| Post {
            word: AtomicU32::new(0),
            is_asleep: AtomicBool::new(false),
            waker: Arc::clone(waker),
        };
        Arc::new(Posts(wakers.iter().map(post).collect()))
    }
}

impl Stealing {
    /// For column `own`, whose `neighbours` come the nearest first.
    pub(crate) fn new(posts: Arc<Posts>, own: usize, neighbours: Vec<Neighbour>) -> Stealing {
        Stealing {
            posts,
            own,
            neighbours,
            loops_behind: 0,
            word: 0,
            wake_due_ns: 0,
            tries_left: STEAL_TRIES_MAX,
        }
    }

    /// Takes down a loop of the column's datagrams; what was stolen does not count.
    #[inline]
    pub(super) fn note_loop(&mut self, came: Came) {
        // It stays behind until loops are much shorter, so that thieves do not come and go.
        let is_behind = self.word != 0;
        let enough = if is_behind { BEHIND_DATAGRAMS / 4 } else { BEHIND_DATAGRAMS };
        if came.datagrams >= enough || came.is_undrained {
            self.is_behind(came);
        } else if self.loops_behind > 0 {
            self.loops_behind = 0;
            self.publish(0);
        }
    }

    #[cold]
    fn is_behind(&mut self, came: Came) {
        self.loops_behind = self.loops_behind.saturating_add(1);
        if self.loops_behind < BEHIND_LOOPS {
            return;
        }
        // What is left of an earlier receive is work of a loop too.
        let datagrams =
            if came.is_undrained { came.datagrams.max(BEHIND_DATAGRAMS) } else { came.datagrams };
        let socket = u32::try_from(came.socket & PACKETS).unwrap_or(0);
        self.publish(datagrams.ilog2() << SOCKET_BITS | socket);
        self.wake_one();
    }

    fn publish(&mut self, word: u32) {
        if word != self.word {
            self.word = word;
            // Relaxed: pairs with the load of `victim`; a hint that orders nothing.
            self.posts.0[self.own].word.store(word, Ordering::Relaxed);
        }
    }

    /// Wakes the nearest column that sleeps, at most once in `STEAL_WAKE_NS`.
    fn wake_one(&mut self) {
        let now_ns = monotonic_ns();
        if now_ns < self.wake_due_ns {
            return;
        }
        let posts = self.neighbours.iter().map(|it| &self.posts.0[it.column]);
        // Relaxed: the load pairs with the store of `sleeps`. The swap has one of several columns
        // wake a sleeper; whoever swaps `true` away wakes, so that no sleeper is forgotten.
        let mut asleep = posts.filter(|post| {
            post.is_asleep.load(Ordering::Relaxed) && post.is_asleep.swap(false, Ordering::Relaxed)
        });
        if let Some(post) = asleep.next() {
            post.waker.wake();
            self.wake_due_ns = now_ns + STEAL_WAKE_NS;
        }
    }

    /// True if the column is to look for input once more before it sleeps, for whether the next
    /// loop is behind as well.
    #[inline]
    pub(super) fn looks_again(&self) -> bool {
        self.loops_behind > 0
    }

    /// Says whether the column sleeps.
    #[inline]
    pub(super) fn sleeps(&mut self, is_asleep: bool) {
        self.tries_left = STEAL_TRIES_MAX;
        // Relaxed: pairs with the load and the swap of `wake_one`; a hint that orders nothing.
        self.posts.0[self.own].is_asleep.store(is_asleep, Ordering::Relaxed);
    }

    /// The busiest column, of equally busy ones the nearest; none if all keep up, or if this column
    /// has found nothing too often since it slept.
    #[inline]
    pub(super) fn victim(&self) -> Option<Victim> {
        let (mut busiest, mut victim) = (0, None);
        for Neighbour { column, is_near } in &self.neighbours {
            // Relaxed: pairs with the store of `publish`.
            let word = self.posts.0[*column].word.load(Ordering::Relaxed);
            if word >> SOCKET_BITS > busiest {
                busiest = word >> SOCKET_BITS;
                let socket = word as usize & PACKETS;
                victim = Some(Victim { column: *column, socket, is_near: *is_near });
            }
        }
        victim.filter(|_| self.tries_left > 0)
    }

    /// Takes down how many datagrams an attempt has brought.
    pub(super) fn note_try(&mut self, datagrams: usize) {
        self.tries_left = match datagrams {
            0 => self.tries_left.saturating_sub(1),
            _ => STEAL_TRIES_MAX,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(count: usize) -> Vec<Stealing> {
        let wakers: Vec<_> = (0..count).map(|_| Arc::new(Waker::new().unwrap())).collect();
        let posts = Posts::new(&wakers);
        let neighbours = |own| {
            let others = (1..count).map(|step| (own + step) % count);
            others.map(|column| Neighbour { column, is_near: column % 2 == own % 2 }).collect()
        };
        (0..count).map(|own| Stealing::new(Arc::clone(&posts), own, neighbours(own))).collect()
    }

    fn came(datagrams: usize) -> Came {
        Came { datagrams, socket: 1, is_undrained: false }
    }

    fn is_asleep(column: &Stealing) -> bool {
        column.posts.0[column.own].is_asleep.load(Ordering::Relaxed)
    }

    #[test]
    fn a_column_is_behind_after_two_loops_and_until_little_comes() {
        let mut all = columns(2);
        let behind = Some(Victim { column: 0, socket: 1, is_near: false });
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
            all[0].note_loop(came(datagrams));
            assert_eq!(all[1].victim(), victim, "{datagrams}");
            assert_eq!(all[0].looks_again(), victim.is_some() || datagrams >= BEHIND_DATAGRAMS);
        }
        let packets = Came { socket: PACKETS, ..came(1000) };
        (0..2).for_each(|_| all[0].note_loop(packets));
        let of_queue = Some(Victim { column: 0, socket: PACKETS, is_near: false });
        assert_eq!(all[1].victim(), of_queue);
        all[0].note_loop(came(0));
        // Few that take long: they are still there when the next loop begins.
        let undrained = Came { is_undrained: true, ..came(0) };
        all[0].note_loop(undrained);
        assert_eq!(all[1].victim(), None);
        all[0].note_loop(undrained);
        assert_eq!(all[1].victim(), behind);
    }

    #[test]
    fn the_busiest_is_taken_from_and_of_equals_the_nearest() {
        let mut all = columns(5);
        for (column, datagrams) in [(1, 40), (2, 63), (4, 20)] {
            (0..2).for_each(|_| all[column].note_loop(came(datagrams)));
        }
        let victim = |of: &Stealing| of.victim().map(|it| (it.column, it.is_near));
        assert_eq!(victim(&all[0]), Some((1, false)), "as busy as 2, and nearer");
        assert_eq!(victim(&all[1]), Some((2, false)));
        (0..2).for_each(|_| all[4].note_loop(came(128)));
        assert_eq!(victim(&all[0]), Some((4, true)));
        assert_eq!(victim(&all[4]), Some((1, false)), "never itself");
    }

    #[test]
    fn a_sleeper_is_woken_at_most_once_a_millisecond() {
        let mut all = columns(4);
        all[2].sleeps(true);
        all[3].sleeps(true);
        all[0].note_loop(came(100));
        assert!(is_asleep(&all[2]), "not behind yet");
        all[0].note_loop(came(100));
        assert!(!is_asleep(&all[2]) && is_asleep(&all[3]));
        all[0].wake_due_ns = u64::MAX;
        all[0].note_loop(came(100));
        assert!(is_asleep(&all[3]));
        all[0].wake_due_ns = 0;
        all[0].note_loop(came(100));
        assert!(!is_asleep(&all[3]));
        assert_ne!(all[0].wake_due_ns, 0);
        all[0].wake_due_ns = 0;
        all[0].note_loop(came(100));
        assert_eq!(all[0].wake_due_ns, 0, "nobody sleeps");
    }

    #[test]
    fn a_thief_that_finds_nothing_gives_up_until_it_has_slept() {
        let mut all = columns(2);
        (0..2).for_each(|_| all[0].note_loop(came(64)));
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
