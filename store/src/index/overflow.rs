//! Overflow lines: they take the slots whose home line and other line are both full.
//!
//! Where: a group's word names the first line of the group's chain.
//! Invariant: a line is in one chain or free. Only the first line of a chain has empty slots.
//!
//! ```text
//!   line, 64 bytes:  slot 8 | ... 7 slots | number of the next line, 0 for none
//! ```

use super::word::{OVERFLOW_AT, index};
use memory::plant::{self, Fault};
use memory::sync::{AtomicU64, AtomicUsize, Ordering};
use memory::words::Words;
use std::io;

pub(super) const SLOTS: usize = 7;
/// Some lines are kept for `take` with `must`: one line in `SPARE_PART`, at most `SPARE_LINES_MAX`.
const SPARE_PART: usize = 16;
const SPARE_LINES_MAX: usize = 64;
/// The bits of a line's number, in a link or a group's word.
const NUMBER: u64 = OVERFLOW_AT;

#[derive(Debug)]
pub(super) struct Overflow {
    lines: Words,
    /// Number of lines cut from `lines`, counting line 0, which is never used.
    cut: AtomicUsize,
    /// The list of free lines: its number of changes (upper 32 bits) and its first line (lower 32).
    free: AtomicU64,
}

impl Overflow {
    pub(super) fn new(lines: usize) -> io::Result<Self> {
        let lines = Words::new(lines.max(2) * 8)?;
        Ok(Self { lines, cut: AtomicUsize::new(1), free: AtomicU64::new(0) })
    }

    #[cfg(all(test, shuttle))]
    pub(super) fn words(&self) -> &Words {
        &self.lines
    }

    pub(super) fn has_free(&self) -> bool {
        self.free.load(Ordering::Relaxed) & NUMBER != 0 // the result is a hint
    }

    /// True if a line is free, or if there is address space for a new line.
    pub(super) fn has_room(&self) -> bool {
        self.has_free() || self.cut.load(Ordering::Relaxed) < self.room(false) // only a hint
    }

    /// Maximum number of lines that `take` cuts. Only callers with `must` get the last few lines.
    /// Such a caller lays out a group again, which may need one overflow line more than before;
    /// without this line a slot would be lost.
    fn room(&self, must: bool) -> usize {
        let room = self.lines.len() / 8;
        if must { room } else { room - (room / SPARE_PART).min(SPARE_LINES_MAX) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.cut.load(Ordering::Relaxed) * 64 // a sum
    }

    pub(super) fn lock(&self) -> io::Result<()> {
        self.lines.lock(self.bytes())
    }

    /// Line `at`, which `probe` can search for a tag, since the link in the last word has no tag.
    pub(super) fn line(&self, at: u64) -> &[AtomicU64; 8] {
        self.lines.line(index(at))
    }

    pub(super) fn prefetch(&self, at: u64) {
        self.lines.prefetch(index(at));
    }

    pub(super) fn slots(&self, at: u64) -> &[AtomicU64] {
        &self.line(at)[..SLOTS]
    }

    /// The line that follows line `at` in its chain; 0 if `at` is the last line.
    pub(super) fn next(&self, at: u64) -> u64 {
        self.link(at).load(Ordering::Acquire) // pairs with the Release in `set_next`
    }

    /// Makes line `next` follow line `at`. The caller holds the group's lock.
    pub(super) fn set_next(&self, at: u64, next: u64) {
        self.link(at).store(next, Ordering::Release); // pairs with the Acquire in `next`
    }

    fn link(&self, at: u64) -> &AtomicU64 {
        &self.line(at)[SLOTS]
    }

    /// Takes a zeroed line: a free line or, if `must` or if `may_cut` returns true, a new line.
    pub(super) fn take(&self, must: bool, may_cut: impl FnOnce() -> bool) -> Option<u64> {
        let pop = |head: u64| {
            let at = head & NUMBER;
            let next = || self.link(at).load(Ordering::Relaxed); // ordered by `fetch_update`
            (at != 0).then(|| changed(head) | next())
        };
        // Acquire pairs with the Release in `give`. The count of changes makes the exchange fail if
        // another column took the first line and gave it back after this column read the head.
        let popped = self.free.fetch_update(Ordering::Acquire, Ordering::Acquire, pop);
        if let Ok(head) = popped {
            let at = head & NUMBER;
            self.link(at).store(0, Ordering::Relaxed); // published when the line is linked
            return Some(at);
        }
        if !must && !may_cut() {
            return None;
        }
        let room = self.room(must);
        let cut = |cut: usize| (cut < room).then(|| cut + 1);
        // Relaxed: no other data depends on the number of lines.
        let at = self.cut.fetch_update(Ordering::Relaxed, Ordering::Relaxed, cut).ok()?;
        u64::try_from(at).ok()
    }

    #[cfg(all(any(debug_assertions, shuttle), not(loom)))]
    pub(super) fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed) // no column works during an audit
    }

    #[cfg(all(any(debug_assertions, shuttle), not(loom)))]
    pub(super) fn free_lines(&self) -> impl Iterator<Item = u64> {
        // Acquire pairs with the Release in `give`.
        let first = self.free.load(Ordering::Acquire) & NUMBER;
        let some = |at: u64| (at != 0).then_some(at);
        let next = move |at: &u64| some(self.link(*at).load(Ordering::Acquire));
        std::iter::successors(some(first), next)
    }

    /// Gives back a line whose slots are all zero.
    pub(super) fn give(&self, at: u64) {
        let link = self.link(at);
        let push = |head: u64| {
            link.store(head & NUMBER, Ordering::Relaxed); // published by `fetch_update`
            Some(changed(head) | at)
        };
        // Release pairs with the Acquire in `take`.
        let pushed = self.free.fetch_update(Ordering::Release, Ordering::Relaxed, push);
        debug_assert!(pushed.is_ok(), "push never refuses");
    }
}

/// The upper half of the list's next head: the number of changes in `head`, plus 1.
fn changed(head: u64) -> u64 {
    (head >> 32).wrapping_add(u64::from(!plant::is(Fault::OverflowTagKept))) << 32
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-store --lib`.
#[cfg(all(test, loom))]
mod under_loom {
    use super::*;
    use loom::{sync::Arc, thread};

    /// Two columns never get the same line, even if a column stalls in `take` while another column
    /// takes the first two free lines and gives the first line back.
    #[test]
    fn a_stalled_take_gives_out_no_line_that_is_taken() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let overflow = Arc::new(Overflow::new(8).expect("small"));
            let take = |overflow: &Overflow| overflow.take(false, || true).expect("room");
            let lines: Vec<_> = (0..3).map(|_| take(&overflow)).collect();
            lines.iter().for_each(|line| overflow.give(*line));
            let other = {
                let overflow = Arc::clone(&overflow);
                thread::spawn(move || {
                    let (first, second) = (take(&overflow), take(&overflow));
                    overflow.give(first);
                    second
                })
            };
            let ours = take(&overflow);
            let theirs = other.join().expect("takes and gives");
            assert!(ours != theirs && ![ours, theirs].contains(&take(&overflow)));
        });
    }
}
