//! Frees drained segments once no column can be reading them.
//!
//! Where: whenever a column looks for room, and in idle moments.
//! Invariant: a segment is reused only once all columns have passed a quiescent point since it was
//! retired. Debug builds overwrite a segment first, so that tests notice late readers.
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
            // Corrects the counters: a pass may unlink bytes uncounted, or count bytes twice.
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
        // SAFETY: all columns have passed a quiescent point since the segment was retired, and it
        // is not free yet, so only this call uses it. (A planted fault breaks this, and a test must
        // notice that.)
        unsafe {
            let at = region.at(region.start(segment));
            plain_access(at, region.segment_bytes() as usize, true);
            at.write_bytes(0xdb, region.segment_bytes() as usize);
        }
        store.log.segment(segment).touch(region.segment_bytes());
    }
}
