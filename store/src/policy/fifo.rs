//! First in, first out: the floor that any other policy has to beat.
//!
//! Where: see `policy`. Invariant: nothing is ever spared.

use super::{Drained, Policy, Pressure, Queue, Share, Verdict};

pub(super) struct Fifo;

impl Policy for Fifo {
    fn admit(&self, _remembered: bool) -> Queue {
        Queue::Main
    }

    fn victim(&self, _share: Share, _probation_bytes: u64, _main_bytes: u64) -> Queue {
        Queue::Main
    }

    fn judge(&self, _item: Drained, _pressure: Pressure) -> Verdict {
        Verdict::Evict { remember: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_goes_too() {
        let item = Drained { queue: Queue::Main, cnt: 3, bytes: 100, mean_bytes: 0 };
        let evict = Verdict::Evict { remember: false };
        assert_eq!(Fifo.judge(item, Pressure::default()), evict);
    }
}
