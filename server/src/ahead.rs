//! A thread that has free segments of the store become memory before a column needs them, so that
//! no request waits while the system finds and clears a page.
//!
//! Where: beside the columns; one asks once per loop whether there is anything to do, and wakes it.
//! Invariant: it takes no more than the store wants, which is bounded by `-m` and by what the items
//! take; it holds nothing that a column waits for. It stands back where processors are short. What
//! has not been needed for a while goes back to the system.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use store::Store;

/// What is ahead of need goes back when no segment was opened for so long.
const REST: Duration = Duration::from_secs(1);

/// How long a server that ends waits for the thread.
const STOP: Duration = Duration::from_millis(100);

/// The thread.
#[derive(Debug)]
pub(crate) struct Ahead {
    thread: JoinHandle<()>,
    told: Arc<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Woken, and not at it yet.
    asked: AtomicBool,
    stopping: AtomicBool,
}

/// A column's way to wake it.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    thread: Thread,
    told: Arc<Told>,
}

impl Ahead {
    /// Starts it; it sleeps until asked. It stands back where what it does is no promise (`-k`).
    ///
    /// # Errors
    /// No thread is to be had.
    pub(crate) fn start(store: &Arc<Store>, stands_back: bool) -> io::Result<Ahead> {
        let (told, store) = (Arc::<Told>::default(), Arc::clone(store));
        let its = Arc::clone(&told);
        let run = move || {
            if stands_back {
                // Not granted, it is as busy as a column for a moment.
                let _ = crate::process::stand_back();
            }
            its.run(&store);
        };
        let thread = thread::Builder::new().name("ahead".to_owned()).spawn(run)?;
        Ok(Ahead { thread, told })
    }

    /// For a column.
    pub(crate) fn asking(&self) -> Asking {
        Asking { thread: self.thread.thread().clone(), told: Arc::clone(&self.told) }
    }

    /// Ends it, and waits until it has; but not for long, for where processors are short it may not
    /// be run for seconds. It holds nothing but the store.
    pub(crate) fn stop(self) {
        // Release pairs with the Acquire in `run`.
        self.told.stopping.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let since = Instant::now();
        while !self.thread.is_finished() {
            if since.elapsed() >= STOP {
                return;
            }
            thread::park_timeout(STOP / 100);
        }
        if self.thread.join().is_err() {
            log::error!("the thread that takes memory ahead of need panicked");
        }
    }
}

impl Told {
    fn run(&self, store: &Store) {
        // Acquire pairs with the Release in `stop`.
        while !self.stopping.load(Ordering::Acquire) {
            // Relaxed: who sees it late asks in the next loop; the store's numbers are its own.
            self.asked.store(false, Ordering::Relaxed);
            match store.populate_ahead() {
                Ok(true) => {}
                Ok(false) => self.sleep(store),
                Err(error) => {
                    // Columns do without, and do not ask again.
                    self.asked.store(true, Ordering::Relaxed);
                    return log::warn!("no memory is taken ahead of need any more: {error}");
                }
            }
        }
    }

    /// Until somebody asks; what was taken ahead is given back on the way.
    fn sleep(&self, store: &Store) {
        let (seen, since) = (store.segments_seen(), Instant::now());
        thread::park_timeout(REST);
        // Relaxed: as in `run`.
        let is_asked = self.asked.load(Ordering::Relaxed) || self.stopping.load(Ordering::Relaxed);
        if !is_asked && since.elapsed() >= REST && store.rest_ahead(seen) {
            thread::park();
        }
    }
}

impl Asking {
    /// Wakes the thread if the store wants memory ahead of need; once for all columns.
    #[inline]
    pub(crate) fn ask(&self, store: &store::Column) {
        // Relaxed: as in `run`; `unpark` itself is seen by `park`.
        if store.wants_ahead()
            && !self.told.asked.load(Ordering::Relaxed)
            && !self.told.asked.swap(true, Ordering::Relaxed)
        {
            self.thread.unpark();
        }
    }
}
