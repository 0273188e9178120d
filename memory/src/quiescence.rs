//! Quiescence: tells when no column can be reading retired memory any more.
//!
//! Where: every column announces a quiescent point in each round of its loop, and is offline while
//! it sleeps. The store reuses a retired segment after every online column has announced a point.
//! Invariant: memory that was retired in epoch `e` is reused only after every online column has
//! announced an epoch of at least `e`. A column's announcement precedes the column's later reads.
//! Source: quiescent-state-based reclamation (Hart et al., 2007); KV-Cache paper, section 4.2.2.

#![allow(unsafe_code, reason = "callers promise to use no reference any more")]

use crate::plant::{self, Fault};
use crate::sync::{AtomicU64, CachePadded, Ordering, fence};

/// Announced in place of an epoch by an offline column, which reads nothing.
const OFFLINE: u64 = 0;

/// The current epoch, and the epoch that each column has announced.
#[derive(Debug)]
pub struct Quiescence {
    epoch: CachePadded<AtomicU64>,
    columns: Box<[CachePadded<AtomicU64>]>,
    #[cfg(debug_assertions)]
    early_reuse: std::sync::atomic::AtomicBool,
    #[cfg(debug_assertions)]
    stalled: std::sync::atomic::AtomicBool,
}

impl Quiescence {
    /// Makes the epochs for `columns` columns, which are all offline at first.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        let column = || CachePadded(AtomicU64::new(OFFLINE));
        Self {
            epoch: CachePadded(AtomicU64::new(1)),
            columns: (0..columns).map(|_| column()).collect(),
            #[cfg(debug_assertions)]
            early_reuse: false.into(),
            #[cfg(debug_assertions)]
            stalled: false.into(),
        }
    }

    /// Announces a quiescent point: the column has no reference into the store any more.
    ///
    /// # Safety
    /// After this call, no thread uses a reference that the column got before the call and that
    /// points into memory that may be retired.
    pub unsafe fn pass(&self, column: usize) {
        // Acquire pairs with the Release in `retire`: a column that reads epoch `e` sees all
        // changes before the call of `retire` that returned `e`.
        let now = self.epoch.load(Ordering::Acquire);
        // Release pairs with the Acquire in `passed`: the column's earlier reads precede the reuse
        // of memory.
        self.columns[column].store(now, Ordering::Release);
        // The fence pairs with the fence in `passed`: either `passed` sees this announcement, or
        // this column's later reads see all changes that precede the fence in `passed`.
        if !plant::is(Fault::PassUnfenced) {
            fence(Ordering::SeqCst);
        }
    }

    /// Announces that the column reads nothing until the column calls `pass` again.
    ///
    /// # Safety
    /// Like `pass`.
    pub unsafe fn offline(&self, column: usize) {
        // Release pairs with the Acquire in `passed`, as in `pass`.
        self.columns[column].store(OFFLINE, Ordering::Release);
    }

    /// Begins a new epoch and returns it. Once `passed` returns true for the new epoch, memory that
    /// was unlinked before this call may be reused.
    pub fn retire(&self) -> u64 {
        // AcqRel: Release pairs with the Acquire in `pass`; Acquire orders calls of `retire`.
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Plants a fault, which a test must catch: from now on `passed` always returns true.
    #[cfg(debug_assertions)]
    pub fn plant_early_reuse(&self) {
        self.early_reuse.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// While `on` is true, `passed` returns false, as if an online column never called `pass`.
    #[cfg(debug_assertions)]
    pub fn plant_stall(&self, on: bool) {
        self.stalled.store(on, std::sync::atomic::Ordering::Relaxed);
    }

    /// Number of columns that are online.
    #[must_use]
    pub fn online(&self) -> usize {
        let offline = |column: &&CachePadded<AtomicU64>| column.load(Ordering::Relaxed) == OFFLINE;
        self.columns.len() - self.columns.iter().filter(offline).count()
    }

    /// True if every column is offline or has announced `epoch` or a later epoch.
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
        // This fence pairs with the fence in `pass`.
        fence(Ordering::SeqCst);
        self.columns.iter().all(|column| {
            // Acquire pairs with the Release in `pass` and in `offline`.
            let announced = column.load(Ordering::Acquire);
            announced == OFFLINE || announced >= epoch
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pass(quiescence: &Quiescence, column: usize) {
        // SAFETY: the test has no reference into retired memory.
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
    #[cfg(debug_assertions)]
    fn a_planted_stall_holds_what_nobody_does_and_planted_early_reuse_holds_nothing() {
        let quiescence = Quiescence::new(1);
        let epoch = quiescence.retire();
        assert_eq!((quiescence.passed(epoch), quiescence.online()), (true, 0));
        quiescence.plant_stall(true);
        assert!(!quiescence.passed(epoch));
        quiescence.plant_stall(false);
        assert!(quiescence.passed(epoch));
        pass(&quiescence, 0);
        let epoch = quiescence.retire();
        assert_eq!((quiescence.passed(epoch), quiescence.online()), (false, 1));
        quiescence.plant_early_reuse();
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
        // SAFETY: the test has no reference into retired memory.
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
        /// The cell is read while `linked` is true. Loom reports a write during a read as a race.
        memory: UnsafeCell<u32>,
    }

    fn read(shared: &Shared) {
        // Acquire needs no Release, because the memory was written before the threads began.
        if shared.linked.load(Ordering::Acquire) {
            // SAFETY: `at` points into the cell, which `shared` owns. If another thread may be
            // writing to the cell, loom fails the test before it calls this closure.
            shared.memory.with(|at| assert_eq!(unsafe { *at }, 7, "reused under a reader"));
        }
    }

    fn pass(shared: &Shared) {
        // SAFETY: `read` has returned and has kept no reference.
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
            // SAFETY: if another thread may use the cell, loom fails the test before this write.
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
                    // SAFETY: `read` has returned and has kept no reference.
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
