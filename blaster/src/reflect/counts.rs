//! The counts of a null server.
//!
//! Where: all threads add to the counts; tests and the command `reflect` read them.
//! Invariant: the counts are statistics and order no other memory.

use crate::target::Place;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start of a null server.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests answered. A multiget counts once for each of its keys.
    pub answers: AtomicU64,
    /// Sends by reference that the kernel has finished.
    pub referred: AtomicU64,
    /// Sends by reference whose bytes the kernel has copied nevertheless.
    pub copied: AtomicU64,
    /// UDP: messages dropped.
    pub dropped: AtomicU64,
    /// UDP: messages sent twice.
    pub duplicated: AtomicU64,
    /// UDP: messages that were sent only after the next message.
    pub reordered: AtomicU64,
    /// Stalls that have ended.
    pub stalls: AtomicU64,
    /// UDP: datagrams received, for each place and thread.
    pub received: Vec<Vec<AtomicU64>>,
    /// UDP: datagrams whose flow names a thread other than the receiver.
    pub misrouted: AtomicU64,
}

impl Counts {
    pub(super) fn new(places: &[Place], threads: usize) -> Counts {
        let is_udp = |place: &&Place| matches!(place, Place::Udp(_));
        let by_thread = |_| (0..threads).map(|_| AtomicU64::new(0)).collect();
        let received = places.iter().filter(is_udp).map(by_thread).collect();
        Counts { received, ..Counts::default() }
    }

    /// Datagrams received, for each UDP place and thread.
    pub fn received(&self) -> Vec<Vec<u64>> {
        // Relaxed: these counts are statistics and order nothing.
        let counts = |place: &Vec<AtomicU64>| {
            place.iter().map(|count| count.load(Ordering::Relaxed)).collect()
        };
        self.received.iter().map(counts).collect()
    }

    /// Relaxed: the count is a statistic and orders nothing.
    pub(super) fn add(count: &AtomicU64, n: u64) {
        count.fetch_add(n, Ordering::Relaxed);
    }
}
