//! A thread that populates free segments of the store (gets their memory from the kernel) in
//! advance, so that no request waits while the kernel finds and clears a page.
//!
//! Where: a column wakes this thread when the store wants more populated segments.
//! Invariant: the thread populates segments only while the store wants more of them. No column
//! waits for the thread. Without `-k`, the thread runs only when no other thread wants to use the
//! processor. The thread gives memory that the store has not needed for `IDLE` back to the system.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use store::Store;

/// If the store uses no new segment for this time, populated memory goes back to the system.
const IDLE: Duration = Duration::from_secs(1);

/// Maximum time that a stopping server waits for the end of the thread.
const STOP: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Populator {
    thread: JoinHandle<()>,
    requests: Arc<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    /// Set when a column wakes the thread, and cleared when the thread checks the store.
    asked: AtomicBool,
    stopping: AtomicBool,
}

#[derive(Clone, Debug)]
pub(crate) struct PopulatorHandle {
    thread: Thread,
    requests: Arc<Requests>,
}

impl Populator {
    /// Starts the thread. If `yields` is true, the thread has the lowest priority (`SCHED_IDLE`).
    /// The caller passes false if `-k` has locked the memory.
    pub(crate) fn start(store: &Arc<Store>, yields: bool) -> io::Result<Populator> {
        let (requests, store) = (Arc::<Requests>::default(), Arc::clone(store));
        let shared = Arc::clone(&requests);
        let run = move || {
            if yields {
                // If the system refuses the low priority, the thread takes a little processor time
                // from the columns.
                let _ = crate::start::process::yield_to_others();
            }
            shared.run(&store);
        };
        let thread = thread::Builder::new().name("ahead".to_owned()).spawn(run)?;
        Ok(Populator { thread, requests })
    }

    pub(crate) fn handle(&self) -> PopulatorHandle {
        let (thread, requests) = (self.thread.thread().clone(), Arc::clone(&self.requests));
        PopulatorHandle { thread, requests }
    }

    /// Tells the thread to stop, and waits until the thread ends, but no longer than `STOP`: on a
    /// busy machine the thread may take seconds to end. A thread that ends later does no harm,
    /// because the thread holds only a reference to the store.
    pub(crate) fn stop(self) {
        // Release pairs with the Acquire in `run`.
        self.requests.stopping.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let since = Instant::now();
        while !self.thread.is_finished() {
            if since.elapsed() >= STOP {
                return;
            }
            thread::park_timeout(STOP / 100);
        }
        if self.thread.join().is_err() {
            log::error!("the thread that allocates memory in advance panicked");
        }
    }
}

impl Requests {
    fn run(&self, store: &Store) {
        // Acquire pairs with the Release in `stop`.
        while !self.stopping.load(Ordering::Acquire) {
            // Relaxed, like every access to `asked`: a column that reads an old value reads `asked`
            // again in its next loop, and no other data depend on `asked`.
            self.asked.store(false, Ordering::Relaxed);
            match store.populate_one() {
                Ok(true) => {}
                Ok(false) => self.sleep(store, IDLE),
                Err(error) => {
                    // Columns continue without the thread. `asked` stays true, because the thread
                    // ends here, and columns wake the thread only if `asked` is false.
                    self.asked.store(true, Ordering::Relaxed);
                    return log::warn!(
                        "memory is no longer allocated in advance, so requests may take longer: \
                         {error}"
                    );
                }
            }
        }
    }

    /// Sleeps until a column wakes the thread. If no column wakes the thread within the time
    /// `idle`, gives unused memory back to the system.
    fn sleep(&self, store: &Store, idle: Duration) {
        let (seen, since) = (store.segments_seen(), Instant::now());
        thread::park_timeout(idle);
        // Relaxed: no other data depend on the flags. `run` reads `stopping` and the store again.
        let is_asked = self.asked.load(Ordering::Relaxed) || self.stopping.load(Ordering::Relaxed);
        if !is_asked && since.elapsed() >= idle && store.give_back_unused(seen) {
            thread::park();
        }
    }
}

impl PopulatorHandle {
    /// Wakes the thread if the store wants more populated memory and `asked` is not set yet.
    #[inline]
    pub(crate) fn wake_if_wanted(&self, store: &store::Column) {
        // Relaxed: no other data depend on `asked`.
        if store.wants_to_populate()
            && !self.requests.asked.load(Ordering::Relaxed)
            && !self.requests.asked.swap(true, Ordering::Relaxed)
        {
            self.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start::settings::Settings;

    #[test]
    fn memory_goes_back_only_after_an_idle_time() {
        let store = Store::new(&Settings::default().store_config()).unwrap();
        while store.populate_one().unwrap() {}
        let free_bytes = || store.usage().free_bytes;
        let before = free_bytes();
        assert!(before > 0);
        let requests = Requests::default();
        // A wake-up that came before the sleep ends the sleep at once.
        thread::current().unpark();
        requests.sleep(&store, Duration::MAX);
        assert_eq!(free_bytes(), before);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| requests.sleep(&store, Duration::ZERO));
            while free_bytes() > 0 {
                thread::yield_now();
            }
            sleeper.thread().unpark();
        });
    }
}
