//! Eviction policies: pure functions that decide which items stay, one small file for each policy.
//!
//! Where: the store calls a policy for the queue of each new item, and once for each live item of a
//! segment being drained. The offline simulator calls the same code, and the code in `room`, so
//! that it simulates what the store does.
//! Invariant: a policy has no state, no memory and no clock, and depends on its arguments only. A
//! policy never raises a counter, and under pressure it eventually evicts some item. To add a
//! policy, add a file here that implements `Policy`, and its row in `policies!`. Command line,
//! help, `stats settings`, ghost, simulator and the tests of each policy follow from the row.
//! Source: the KV-Cache paper, section 4.2.3; each file's own source.

mod clock2q;
mod fifo;
mod nbq_clock;
pub mod room;
mod s3_fifo;

/// The reference counter's highest value.
pub const CNT_MAX: u8 = 3;

/// One of the two queues of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The small queue: new items stay here until they prove useful. Some policies do not use it.
    Probation,
    /// The large queue.
    Main,
}

/// A policy's decision about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The item goes to the young end of the main queue with this counter.
    Spare(u8),
    /// The item is evicted.
    Evict,
}

/// The evicted keys that the ghost remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GhostScope {
    /// No keys.
    None,
    /// Keys that left probation.
    Probation,
    /// All keys, with the queue that they left.
    Both,
}

/// The urgency with which room is needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    /// True if drains spared more bytes than they freed, by over a sixteenth of the memory.
    pub in_debt: bool,
    /// True if a whole drain under debt has freed nothing.
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
    /// The approximate mean of all live items' bytes; 0: unknown.
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
    /// The lowest counter with which an item is spared, not evicted, if there is no pressure.
    fn bar(item: DrainedItem) -> u8;
    /// The counter that a spared item keeps.
    fn spared_cnt(item: DrainedItem) -> u8;

    /// The lowest counter with which an item is spared while drains are in debt (`Pressure`),
    /// unless `bar` is higher.
    fn bar_in_debt(is_stuck: bool) -> u8 {
        if is_stuck { CNT_MAX + 1 } else { CNT_MAX }
    }

    fn rebalance(share: Share, _from: Queue, _item_bytes: u64, _all_bytes: u64) -> Share {
        share
    }

    /// Decides what happens to an item.
    fn judge(item: DrainedItem, pressure: Pressure) -> Verdict {
        let debt = if pressure.in_debt { Self::bar_in_debt(pressure.stuck) } else { 0 };
        if item.cnt >= Self::bar(item).max(debt) {
            Verdict::Spare(Self::spared_cnt(item))
        } else {
            Verdict::Evict
        }
    }
}

/// Probation's target share of all live bytes, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl Share {
    /// Returns probation if it holds more than its share, otherwise the main queue.
    fn victim(self, probation_bytes: u64, main_bytes: u64) -> Queue {
        let all_bytes = probation_bytes as f64 + main_bytes as f64;
        let is_over = probation_bytes as f64 > all_bytes * self.0;
        if is_over || main_bytes == 0 { Queue::Probation } else { Queue::Main }
    }
}

/// Makes `Eviction` from the rows below. Each row has a policy's variant, file, name and help.
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

            /// The evicted keys that the ghost remembers.
            #[must_use]
            pub fn remembered(self) -> GhostScope {
                match self { $(Eviction::$policy => <$file::$policy as Policy>::REMEMBERED),+ }
            }

            /// The youngest part of each queue, in percent, in which hits do not raise the counter.
            #[must_use]
            pub fn window_percent(self) -> u64 {
                match self { $(Eviction::$policy => <$file::$policy as Policy>::WINDOW_PERCENT),+ }
            }

            /// Probation's initial share.
            #[must_use]
            pub fn share(self) -> Share {
                match self { $(Eviction::$policy => <$file::$policy as Policy>::SHARE),+ }
            }

            /// The queue that a new item enters; `remembered` is true if the ghost knows the item's
            /// key.
            #[must_use]
            pub fn admit(self, remembered: bool) -> Queue {
                match self { $(Eviction::$policy => $file::$policy::admit(remembered)),+ }
            }

            /// The queue to make room in, by both queues' live bytes and probation's `share`.
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

            /// Probation's new share after a key that the ghost remembers as evicted from `from` is
            /// stored again. The new item has `item_bytes` of the `all_bytes` that are live.
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
    Fifo in fifo, "fifo", "first in, first out, without regard to use";
    /// The policy of the KV-Cache paper.
    NbqClock in nbq_clock, "nbq-clock", "an item is spared once for each hit, at most 3 times";
    /// A probation queue, a main queue and a ghost.
    S3Fifo in s3_fifo, "s3-fifo", "evicts new items first, unless hit or evicted before";
    /// Like `S3Fifo`, but hits soon after insertion do not count, and size does.
    #[default]
    Clock2Q in clock2q, "clock2q", "like s3-fifo, but hits soon after the set do not count";
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
