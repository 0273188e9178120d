//! Eviction policies: pure functions that decide which items stay, one small file for each policy.
//!
//! Where: the store asks a policy for the queue of each new item, and for a verdict on each live
//! item of a drained segment. The offline simulator calls the same code, and the code in `room`.
//! Invariant: a policy's results depend only on its arguments. A policy never raises a counter, and
//! under pressure it evicts some item in the end. To add a policy, add a file here that implements
//! `Policy`, and a row in `policies!`. Command line, help, `stats settings`, ghost, simulator and
//! the tests of each policy follow from the row.
//! Source: the KV-Cache paper, section 4.2.3; the source that each file names.

mod clock2q;
mod fifo;
mod nbq_clock;
pub mod room;
mod s3_fifo;

/// Maximum of an item's reference counter, which counts the item's hits.
pub const CNT_MAX: u8 = 3;

/// One of the two queues of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The small queue, for new items. Some policies leave this queue empty.
    Probation,
    /// The large queue.
    Main,
}

/// A policy's decision about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The item stays: it moves to the young end of the main queue, with this reference counter.
    Spare(u8),
    /// The item is evicted.
    Evict,
}

/// The evicted keys that the ghost (a record of evictions) remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GhostScope {
    /// No keys.
    None,
    /// Keys evicted from the probation queue.
    Probation,
    /// All evicted keys, and for each key the queue that it was evicted from.
    Both,
}

/// The urgency with which room is needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    /// True if the debt is high: drains have spared far more bytes than they freed (`room::Debt`).
    pub in_debt: bool,
    /// True if a drain of a whole segment has freed nothing, and nothing was freed since.
    pub stuck: bool,
}

/// An item of a segment being drained.
#[derive(Clone, Copy, Debug)]
pub struct DrainedItem {
    /// The queue that the item is in.
    pub queue: Queue,
    /// The item's reference counter, 0 to `CNT_MAX`.
    pub cnt: u8,
    /// Bytes of key, value and overhead.
    pub bytes: u32,
    /// Approximate mean of `bytes` over all live items; 0 if unknown.
    pub mean_bytes: u32,
}

/// An eviction policy: constants, and functions that depend only on their arguments. Functions
/// without a comment here are documented in `Eviction`.
trait Policy {
    const REMEMBERED: GhostScope;
    const WINDOW_PERCENT: u64 = 0;
    const SHARE: Share = Share(0.0);

    fn admit(remembered: bool) -> Queue;
    fn victim(share: Share, probation_bytes: u64, main_bytes: u64) -> Queue;
    /// Without pressure, an item is spared if its counter is at least this number, else evicted.
    fn bar(item: DrainedItem) -> u8;
    /// The reference counter that a spared item has afterwards.
    fn spared_cnt(item: DrainedItem) -> u8;

    /// Returns a second bar, for drains under pressure. Under pressure, an item is spared only if
    /// its counter reaches both this bar and the one that `bar` returns.
    fn bar_in_debt(is_stuck: bool) -> u8 {
        if is_stuck { CNT_MAX + 1 } else { CNT_MAX }
    }

    fn rebalance(share: Share, _from: Queue, _item_bytes: u64, _all_bytes: u64) -> Share {
        share
    }

    fn judge(item: DrainedItem, pressure: Pressure) -> Verdict {
        let debt = if pressure.in_debt { Self::bar_in_debt(pressure.stuck) } else { 0 };
        if item.cnt >= Self::bar(item).max(debt) {
            Verdict::Spare(Self::spared_cnt(item))
        } else {
            Verdict::Evict
        }
    }
}

/// Target share of the probation queue in all live bytes, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl Share {
    /// Returns the probation queue if it holds more than its share, otherwise the main queue.
    fn victim(self, probation_bytes: u64, main_bytes: u64) -> Queue {
        let all_bytes = probation_bytes as f64 + main_bytes as f64;
        let is_over = probation_bytes as f64 > all_bytes * self.0;
        if is_over || main_bytes == 0 { Queue::Probation } else { Queue::Main }
    }
}

/// Makes `Eviction` from the rows below; a row has a policy's variant, file, name and help.
macro_rules! policies {
    ($($(#[$doc:meta])* $policy:ident in $file:ident, $name:literal, $help:literal;)+) => {
        /// The eviction policies.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Eviction { $($(#[$doc])* $policy),+ }

        impl Eviction {
            /// All policies, with their names on the command line.
            pub const ALL: [(&'static str, Eviction); [$($name),+].len()] =
                [$(($name, Eviction::$policy)),+];
            /// A line of help about each policy, in the order of `ALL`.
            pub const HELP: [&'static str; Eviction::ALL.len()] =
                [$(concat!($name, ": ", $help)),+];

            /// The evicted keys that the ghost remembers for this policy.
            #[must_use]
            pub fn remembered(self) -> GhostScope {
                match self { $(Eviction::$policy => <$file::$policy as Policy>::REMEMBERED),+ }
            }

            /// Percentage of a queue's segments, the youngest ones, in which hits raise no counter.
            #[must_use]
            pub fn window_percent(self) -> u64 {
                match self { $(Eviction::$policy => <$file::$policy as Policy>::WINDOW_PERCENT),+ }
            }

            /// Initial target share of the probation queue.
            #[must_use]
            pub fn share(self) -> Share {
                match self { $(Eviction::$policy => <$file::$policy as Policy>::SHARE),+ }
            }

            /// The queue that a new item enters. `remembered`: true if the ghost knows its key.
            #[must_use]
            pub fn admit(self, remembered: bool) -> Queue {
                match self { $(Eviction::$policy => $file::$policy::admit(remembered)),+ }
            }

            /// The queue to evict from, chosen by the queues' live bytes and probation's `share`.
            #[must_use]
            pub fn victim(self, share: Share, probation_bytes: u64, main_bytes: u64) -> Queue {
                match self {
                    $(Eviction::$policy => {
                        $file::$policy::victim(share, probation_bytes, main_bytes)
                    }),+
                }
            }

            /// Decides whether an item is spared or evicted.
            #[must_use]
            pub fn judge(self, item: DrainedItem, pressure: Pressure) -> Verdict {
                match self { $(Eviction::$policy => $file::$policy::judge(item, pressure)),+ }
            }

            /// Probation's new target share after a SET of a key that the ghost remembers as
            /// evicted from `from`. The new item takes `item_bytes` of the `all_bytes` of memory.
            #[must_use]
            pub fn rebalance(
                self,
                share: Share,
                from: Queue,
                item_bytes: u64,
                all_bytes: u64,
            ) -> Share {
                match self {
                    $(Eviction::$policy => {
                        $file::$policy::rebalance(share, from, item_bytes, all_bytes)
                    }),+
                }
            }
        }
    };
}

policies! {
    /// First in, first out.
    Fifo in fifo, "fifo", "evicts the oldest items, whether they are used or not";
    /// The policy of the KV-Cache paper.
    NbqClock in nbq_clock, "nbq-clock", "like fifo, but each hit saves an item once, up to 3 times";
    /// A probation queue, a main queue and a ghost.
    S3Fifo in s3_fifo, "s3-fifo", "evicts new items first, unless they get hits";
    /// Like `S3Fifo`, but hits soon after insertion do not count, and large items need more hits.
    #[default]
    Clock2Q in clock2q, "clock2q", "like s3-fifo, but hits soon after the SET do not count";
}

impl Eviction {
    /// The policy called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Eviction> {
        Eviction::ALL.iter().find(|(known, _)| *known == name).map(|(_, eviction)| *eviction)
    }

    /// The name of the policy on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Eviction::ALL[self as usize].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_policys() {
        for (name, eviction) in Eviction::ALL {
            assert_eq!((eviction.name(), Eviction::named(name)), (name, Some(eviction)));
        }
    }
}
