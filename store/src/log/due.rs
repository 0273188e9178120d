//! The seconds in which segments are to be searched for expired items.
//!
//! Where: columns note a second when they seal or walk a segment, or lower an item's exptime; the
//! harvest looks for segments whose second has come.
//! Invariant: a segment with an item that expires is noted in the calendar, unless a column has
//! claimed the segment and will note it.
//! Source: see `calendar`.

use super::Log;
use memory::segments::State;
use memory::sync::Ordering;

/// A segment with a lowered exptime is walked at least this number of seconds after its last walk.
const WALK_SECONDS_MIN: u32 = 60;

impl Log {
    pub(super) fn note_first_due(&self, segment: u32) {
        if let Some(due) = self.first_due(segment) {
            self.note_due(segment, due);
        }
    }

    /// The second in which a sealed segment is to be walked; `None` if no item expires. By then all
    /// items have expired if their exptimes are close together, else about an eighth of the items.
    pub(crate) fn first_due(&self, segment: u32) -> Option<u32> {
        let there = self.segment(segment);
        let (first, last) = (there.min_exp(), there.max_exp());
        let life = first.saturating_sub(there.opened());
        match last {
            _ if first == u32::MAX => None,
            u32::MAX => Some(first.saturating_add(life / 2)),
            _ if last.saturating_sub(first) <= life / 2 + 1 => Some(last),
            _ => Some(first + last.saturating_sub(first) / 8),
        }
    }

    /// Ends the claim on a segment. The segment is to be walked in second `due` at the latest, or
    /// in an earlier second that another column has noted meanwhile.
    pub(crate) fn unclaim(&self, segment: u32, due: Option<u32>) {
        let there = self.segment(segment);
        there.set_state(State::Sealed);
        // If a pass has left the segment uncounted, no unlink notices that the last item is gone.
        // So the harvest walks the segment in the next second, and moves its live items.
        let now = self.now.load(Ordering::Relaxed); // orders no other data
        let soon = there.is_uncounted().then_some(now + 1);
        let due = due.into_iter().chain(soon).min();
        self.calendar.note_unclaimed(&self.memory.segments, segment, due.unwrap_or(u32::MAX));
        self.note_change();
        self.retire_if_dead(segment);
    }

    pub(crate) fn note_due(&self, segment: u32, due: u32) {
        self.calendar.note(&self.memory.segments, segment, due);
        self.note_change();
    }

    /// A segment to be walked in second `now`; it stays due until a column claims or notes it.
    pub(crate) fn due(&self, now: u32) -> Option<u32> {
        loop {
            // Each round returns a segment, or notes a later second for an open segment.
            let segment = self.calendar.due(&self.memory.segments, now)?;
            let there = self.segment(segment);
            if !there.is(State::Open) {
                return Some(segment);
            }
            match there.max_exp() {
                0 => self.note_due(segment, now + 1),
                last if last > now => self.note_due(segment, last),
                _ => {
                    self.seal(segment);
                    if there.is(State::Open) {
                        // Another column is about to seal the segment.
                        self.note_due(segment, now + 1);
                    }
                }
            }
        }
    }

    /// Notes that the exptime of the item at `loc` changed from `before` to `exptime` (0: never).
    /// The caller must hold the lock of the item's index group, and must have called `raise_exp` of
    /// the item's segment before.
    #[inline]
    pub(crate) fn changed_exp(&self, loc: u64, before: u32, exptime: u32) {
        if exptime != 0 && (before == 0 || before > exptime) {
            self.shortened_exp(loc, exptime);
        }
    }

    #[inline(never)]
    fn shortened_exp(&self, loc: u64, exptime: u32) {
        let segment = self.memory.region.segment_of(loc);
        let there = self.segment(segment);
        there.shorten_exp(exptime);
        let rested = there.walked().saturating_add(WALK_SECONDS_MIN);
        let due = exptime.max(rested);
        self.calendar.note_earlier(&self.memory.segments, segment, due);
        self.note_change();
    }
}
