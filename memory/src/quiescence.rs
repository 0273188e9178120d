//! Quiescence: when may memory that a reader might still look at be reused?
//!
//! Where: every column announces a quiescent point once per loop and is offline while it sleeps;
//! the store retires a segment and reuses it once all columns have passed one since.
//! Invariant: memory retired at epoch `e` is reused only after every column that was online has
//! announced an epoch `>= e`, and a column's announcement precedes all its later reads.
//! Source: quiescent-state-based reclamation (Hart et al., 2007); the paper's section 4.2.2 needs
//! the same of its delete markers.

#![allow(unsafe_code, reason = "what callers promise")]

use crate::plant::{self, Fault};
use crate::sync::{AtomicU64, Line, Ordering, fence};

/// What an offline column announces: it reads nothing.
const OFFLINE: u64 = 0;

/// The epochs of a fixed number of columns.
#[derive(Debug)]
pub struct Quiescence {
    epoch: Line<AtomicU64>,
    columns: Box<[Line<AtomicU64>]>,
    #[cfg(debug_assertions)]
    early_reuse: std::sync::atomic::AtomicBool,
    #[cfg(debug_assertions)]
    stalled: std::sync::atomic::AtomicBool,
}

impl Quiescence {
    /// For columns `0..columns`, all of them offline.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        let column = || Line(AtomicU64::new(OFFLINE));
        Self {
            epoch: Line(AtomicU64::new(1)),
            columns: (0..columns).map(|_| column()).collect(),
            #[cfg(debug_assertions)]
            early_reuse: false.into(),
            #[cfg(debug_assertions)]
            stalled: false.into(),
        }
    }

    /// The column holds no reference any more, and is about to read again.
    ///
    /// # Safety
    /// Nothing that the column has read of what may be retired is used after this call, by whatever
    /// thread.
    pub unsafe fn pass(&self, column: usize) {
        // Acquire pairs with the AcqRel of `retire`: having read epoch e, this column sees every
        // unlink that came before e's retirement.
        let now = self.epoch.load(Ordering::Acquire);
        // Release pairs with the Acquire in `passed`: all reads of this column's last round come
        // before it.
        self.columns[column].store(now, Ordering::Release);
        // Pairs with the fence in `passed`: either `passed` sees this announcement, or the reads
        // that follow here see what was unlinked before that fence.
        if !plant::is(Fault::PassUnfenced) {
            fence(Ordering::SeqCst);
        }
    }

    /// The column reads nothing until it calls `pass` again.
    ///
    /// # Safety
    /// As `pass`.
    pub unsafe fn offline(&self, column: usize) {
        // Release pairs with the Acquire in `passed`, as in `pass`.
        self.columns[column].store(OFFLINE, Ordering::Release);
    }

    /// The epoch that all columns must pass before what the caller unlinked may be reused.
    pub fn retire(&self) -> u64 {
        // AcqRel: Release pairs with the Acquire of `pass`.
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// From now on nobody is waited for: what tests of the tests plant, to see it caught.
    #[cfg(debug_assertions)]
    pub fn plant_early_reuse(&self) {
        self.early_reuse.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// While `on`, nothing retired may be reused, as if a column were online and never passed.
    #[cfg(debug_assertions)]
    pub fn plant_stall(&self, on: bool) {
        self.stalled.store(on, std::sync::atomic::Ordering::Relaxed);
    }

    /// How many columns are online.
    #[must_use]
    pub fn online(&self) -> usize {
        // Relaxed: a number to look at.
        let offline = |column: &&Line<AtomicU64>| column.load(Ordering::Relaxed) == OFFLINE;
        self.columns.len() - self.columns.iter().filter(offline).count()
    }

    /// Has every online column announced `epoch` or a later one?
    #[must_use]
    pub fn passed(&self, epoch: u64) -> bool {
        #[cfg(debug_assertions)]
        if self.early_reuse.load(std::sync::atomic::Ordering::Relaxed) {
            return true;
        }
        #[cfg(debug_assertions)]
        if self.stalled.load(std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        // Pairs with the fence in `pass`.
        fence(Ordering::SeqCst);
        self.columns.iter().all(|column| {
            // Acquire pairs with the Release stores of `pass` and `offline`.
            let announced = column.load(Ordering::Acquire);
            announced == OFFLINE || announced >= epoch
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pass(quiescence: &Quiescence, column: usize) {
        // SAFETY: nothing is read.
        unsafe { quiescence.pass(column) };
    }

    #[test]
    fn an_online_column_holds_an_epoch_until_it_passes() {
        let quiescence = Quiescence::new(2);
        pass(&quiescence, 0);
        let epoch = quiescence.retire();
        assert!(!quiescence.passed(epoch));
        pass(&quiescence, 0);
        assert!(quiescence.passed(epoch));
    }

    #[test]
    fn an_offline_column_holds_nothing() {
        let quiescence = Quiescence::new(2);
        pass(&quiescence, 0);
        pass(&quiescence, 1);
        let epoch = quiescence.retire();
        pass(&quiescence, 1);
        assert!(!quiescence.passed(epoch));
        // SAFETY: as in `pass`.
        unsafe { quiescence.offline(0) };
        assert!(quiescence.passed(epoch));
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-memory --lib`.
#[cfg(all(test, loom))]
mod under_loom {
    use super::*;
    use crate::sync::AtomicBool;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    struct Shared {
        quiescence: Quiescence,
        linked: AtomicBool,
        /// What is behind the link: reused while a reader looks at it, loom reports a race.
        memory: UnsafeCell<u32>,
    }

    fn read(shared: &Shared) {
        // Acquire pairs with nothing: what is read was written before the threads began.
        if shared.linked.load(Ordering::Acquire) {
            // SAFETY: for loom to judge.
            shared.memory.with(|at| assert_eq!(unsafe { *at }, 7, "reused under a reader"));
        }
    }

    fn pass(shared: &Shared) {
        // SAFETY: `read` keeps nothing.
        unsafe { shared.quiescence.pass(0) };
    }

    fn shared() -> Arc<Shared> {
        let (linked, memory) = (AtomicBool::new(true), UnsafeCell::new(7));
        Arc::new(Shared { quiescence: Quiescence::new(1), linked, memory })
    }

    fn unlink_and_reuse(shared: &Shared) {
        shared.linked.store(false, Ordering::Release);
        let epoch = shared.quiescence.retire();
        if shared.quiescence.passed(epoch) {
            // SAFETY: for loom to judge.
            shared.memory.with_mut(|at| unsafe { *at = 0xdb });
        }
    }

    #[test]
    fn nothing_is_reused_under_a_column_that_wakes_reads_and_sleeps() {
        loom::model(|| {
            let shared = shared();
            let reader = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    pass(&shared);
                    read(&shared);
                    // SAFETY: as in `pass`.
                    unsafe { shared.quiescence.offline(0) };
                })
            };
            unlink_and_reuse(&shared);
            reader.join().expect("reads");
        });
    }

    #[test]
    fn nothing_is_reused_under_a_column_between_two_passes() {
        loom::model(|| {
            let shared = shared();
            pass(&shared);
            let reader = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    read(&shared);
                    pass(&shared);
                    read(&shared);
                })
            };
            unlink_and_reuse(&shared);
            reader.join().expect("reads");
        });
    }
}
