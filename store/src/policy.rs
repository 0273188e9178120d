//! What stays when room is made: eviction policies as pure decisions, one small file each.
//!
//! Where: asked for the queue of each new item, and once per live item of a segment being drained.
//! The offline simulator asks the same code, so that what is simulated is what runs; so it does for
//! what `room` says of the work.
//! Invariant: no state, no memory, no clock: a policy sees what it is shown. Counters only fall
//! here, and pressure always ends by freeing something. Adding one: a file here, a row in
//! `Eviction`.
//! Source: the paper's section 4.2.3; `store-design` notes of each file.

mod clock2q;
mod fifo;
mod nbq_clock;
pub mod room;
mod s3_fifo;

/// The reference counter's highest value.
pub const CNT_MAX: u8 = 3;

/// Which of the two queues of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The small one, where an item shows what it is worth. A policy may do without.
    Probation,
    /// The large one.
    Main,
}

/// What becomes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Goes to the young end of the main queue with this counter.
    Spare(u8),
    /// Makes room.
    Evict {
        /// The ghost takes note of its key.
        remember: bool,
    },
}

/// How hard room is needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    /// More was spared than freed, by over a sixteenth of the memory.
    pub in_debt: bool,
    /// A whole drain under debt has freed nothing.
    pub stuck: bool,
}

/// An item about to be drained.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// Where it stands.
    pub queue: Queue,
    /// Its reference counter, 0 to `CNT_MAX`.
    pub cnt: u8,
    /// Key, value and overhead.
    pub bytes: u32,
    /// The mean of all live items, roughly; 0: not known.
    pub mean_bytes: u32,
}

/// An eviction policy.
pub trait Policy {
    /// The queue that a new item enters; `remembered`: the ghost knows its key.
    fn admit(&self, remembered: bool) -> Queue;
    /// The queue to make room in, by the live bytes of each; `share`: what probation ought to have.
    fn victim(&self, share: Share, probation_bytes: u64, main_bytes: u64) -> Queue;
    /// What becomes of an item.
    fn judge(&self, item: Drained, pressure: Pressure) -> Verdict;

    /// The youngest part of each queue, in percent, in which hits do not raise the counter.
    fn window_percent(&self) -> u64 {
        0
    }

    /// Probation's share to begin with.
    fn share(&self) -> Share {
        Share(0.0)
    }

    /// Its share from now on: a key that the ghost remembers is stored again, having left the queue
    /// `from`; `item_bytes` of `all_bytes` that are live. Lost updates are harmless.
    fn rebalance(&self, share: Share, _from: Queue, _item_bytes: u64, _all_bytes: u64) -> Share {
        share
    }
}

/// The part of all live bytes that probation ought to have, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl Share {
    /// Probation, while it holds more than its share.
    fn victim(self, probation_bytes: u64, main_bytes: u64) -> Queue {
        let all_bytes = probation_bytes as f64 + main_bytes as f64;
        let is_over = probation_bytes as f64 > all_bytes * self.0;
        if is_over || main_bytes == 0 { Queue::Probation } else { Queue::Main }
    }
}

/// The policies there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// First in, first out: the floor.
    Fifo,
    /// The paper's.
    NbqClock,
    /// A probation queue, a main queue and a ghost.
    S3Fifo,
    /// The same, where hits soon after insertion do not count, and size does.
    #[default]
    Clock2Q,
}

impl Eviction {
    /// All, with the names users know them by.
    pub const ALL: [(&'static str, Eviction); 4] = [
        ("fifo", Eviction::Fifo),
        ("nbq-clock", Eviction::NbqClock),
        ("s3-fifo", Eviction::S3Fifo),
        ("clock2q", Eviction::Clock2Q),
    ];

    /// The policy called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Eviction> {
        Eviction::ALL.iter().find(|(known, _)| *known == name).map(|(_, eviction)| *eviction)
    }
}

impl Policy for Eviction {
    fn admit(&self, remembered: bool) -> Queue {
        match self {
            Eviction::Fifo => fifo::Fifo.admit(remembered),
            Eviction::NbqClock => nbq_clock::NbqClock.admit(remembered),
            Eviction::S3Fifo => s3_fifo::S3Fifo.admit(remembered),
            Eviction::Clock2Q => clock2q::Clock2Q.admit(remembered),
        }
    }

    fn victim(&self, share: Share, probation_bytes: u64, main_bytes: u64) -> Queue {
        match self {
            Eviction::Fifo => fifo::Fifo.victim(share, probation_bytes, main_bytes),
            Eviction::NbqClock => nbq_clock::NbqClock.victim(share, probation_bytes, main_bytes),
            Eviction::S3Fifo => s3_fifo::S3Fifo.victim(share, probation_bytes, main_bytes),
            Eviction::Clock2Q => clock2q::Clock2Q.victim(share, probation_bytes, main_bytes),
        }
    }

    fn judge(&self, item: Drained, pressure: Pressure) -> Verdict {
        match self {
            Eviction::Fifo => fifo::Fifo.judge(item, pressure),
            Eviction::NbqClock => nbq_clock::NbqClock.judge(item, pressure),
            Eviction::S3Fifo => s3_fifo::S3Fifo.judge(item, pressure),
            Eviction::Clock2Q => clock2q::Clock2Q.judge(item, pressure),
        }
    }

    fn window_percent(&self) -> u64 {
        match self {
            Eviction::Fifo => fifo::Fifo.window_percent(),
            Eviction::NbqClock => nbq_clock::NbqClock.window_percent(),
            Eviction::S3Fifo => s3_fifo::S3Fifo.window_percent(),
            Eviction::Clock2Q => clock2q::Clock2Q.window_percent(),
        }
    }

    fn share(&self) -> Share {
        match self {
            Eviction::Fifo => fifo::Fifo.share(),
            Eviction::NbqClock => nbq_clock::NbqClock.share(),
            Eviction::S3Fifo => s3_fifo::S3Fifo.share(),
            Eviction::Clock2Q => clock2q::Clock2Q.share(),
        }
    }

    fn rebalance(&self, share: Share, from: Queue, item_bytes: u64, all_bytes: u64) -> Share {
        match self {
            Eviction::Fifo => fifo::Fifo.rebalance(share, from, item_bytes, all_bytes),
            Eviction::NbqClock => nbq_clock::NbqClock.rebalance(share, from, item_bytes, all_bytes),
            Eviction::S3Fifo => s3_fifo::S3Fifo.rebalance(share, from, item_bytes, all_bytes),
            Eviction::Clock2Q => clock2q::Clock2Q.rebalance(share, from, item_bytes, all_bytes),
        }
    }
}
