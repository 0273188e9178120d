//! Frees retired segments as soon as no column can be reading them.
//!
//! Where: a column calls `reclaim` when it looks for room, and while it is idle.
//! Invariant: a retired segment is reused only after all columns have passed a quiescent point.
//! Debug builds overwrite the segment first, so that tests notice a reader that reads too late.
//! Source: quiescent-state-based reclamation, see `memory::quiescence`.

use crate::column::handle::View;

impl View<'_> {
    pub(crate) fn reclaim(self) {
        let memory = self.memory();
        if memory.segments.limbo() == 0 {
            return;
        }
        memory.reclaim(|segment| {
            // Corrects the counters: a pass may unlink items uncounted, or count items twice.
            let (bytes, queue) =
                (self.log.segment(segment).miscounted(), self.log.queue_of(segment));
            let (counters, more) = (self.counters(), bytes.unsigned_abs());
            match bytes >= 0 {
                true => counters.unlink(queue, more.into(), more),
                false => {
                    counters.link(queue, more.into());
                    counters.dead_bytes.sub(more.into());
                }
            }
        });
    }
}
