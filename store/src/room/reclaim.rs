//! Frees retired segments as soon as no column can be reading them.
//!
//! Where: a column calls `reclaim` when it looks for room, and while it is idle.
//! Invariant: a retired segment is reused only after all columns have passed a quiescent point.
//! Debug builds overwrite the segment first, so that tests notice a reader that reads too late.
//! Source: quiescent-state-based reclamation, see `memory::quiescence`.

#![allow(unsafe_code, reason = "overwrites segments in the mapping")]

use crate::Store;
use crate::handle::View;
use memory::sync::plain_access;

impl View<'_> {
    pub(crate) fn reclaim(self) {
        let memory = self.memory();
        if memory.segments.limbo() == 0 {
            return;
        }
        memory.segments.reclaim(&memory.quiescence, |segment| {
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
            poison(self.store, segment);
        });
    }
}

fn poison(store: &Store, segment: u32) {
    if cfg!(debug_assertions) {
        let region = &store.memory().region;
        // SAFETY: all columns have passed a quiescent point since the segment was retired, and the
        // segment is not free yet, so only this call uses it. (A planted fault breaks this rule,
        // and a test must notice the fault.)
        unsafe {
            let at = region.at(region.start(segment));
            plain_access(at, region.segment_bytes() as usize, true);
            at.write_bytes(0xdb, region.segment_bytes() as usize);
        }
        store.log.segment(segment).touch(region.segment_bytes());
    }
}
