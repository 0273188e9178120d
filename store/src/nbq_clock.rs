//! NbQ-CLOCK: which items stay when the oldest segment is drained.
//!
//! Where: asked once per live item of a segment being drained to make room.
//! Invariant: a pure decision; counters only fall here, and pressure always ends by freeing
//! something.
//! Source: the paper's section 4.2.3: an object with a reference counter above zero is spared and
//! its counter decremented, any other is evicted.

/// More bytes spared than freed, in segments, from which on a saturated counter alone still spares.
const DEBT_SEGMENTS: u64 = 4;

/// How hard room is needed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressure {
    /// Bytes spared beyond what was freed.
    pub(crate) debt_bytes: u64,
    /// A whole drain under debt has freed nothing.
    pub(crate) stuck: bool,
}

/// What becomes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Goes to the young end with this counter.
    Spare(u64),
    /// Makes room.
    Evict,
}

/// Decides on an item with reference counter `cnt`.
pub(crate) fn judge(cnt: u64, pressure: Pressure, segment_bytes: u32) -> Verdict {
    let in_debt = pressure.debt_bytes > DEBT_SEGMENTS * u64::from(segment_bytes);
    let bar = match (in_debt, pressure.stuck) {
        (false, _) => 1,
        (true, false) => crate::index::slot::CNT_MAX,
        (true, true) => crate::index::slot::CNT_MAX + 1,
    };
    if cnt >= bar { Verdict::Spare(cnt - 1) } else { Verdict::Evict }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_item_is_spared_as_often_as_it_was_used() {
        let mut cnt = 3;
        for left in [2, 1, 0] {
            assert_eq!(judge(cnt, Pressure::default(), 1 << 14), Verdict::Spare(left));
            cnt = left;
        }
        assert_eq!(judge(cnt, Pressure::default(), 1 << 14), Verdict::Evict);
    }

    #[test]
    fn debt_raises_the_bar_until_something_goes() {
        let debt = Pressure { debt_bytes: (4 << 14) + 1, stuck: false };
        assert_eq!(judge(2, debt, 1 << 14), Verdict::Evict);
        assert_eq!(judge(3, debt, 1 << 14), Verdict::Spare(2));
        assert_eq!(judge(3, Pressure { stuck: true, ..debt }, 1 << 14), Verdict::Evict);
    }
}
