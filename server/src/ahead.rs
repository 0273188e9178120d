//! Populates free segments of the store before they are needed, in a thread, so that no request
//! waits while the system finds and clears a page.
//!
//! Where: a thread that a column wakes if the store wants segments populated.
//! Invariant: the thread populates no more than the store wants, which is bounded by `-m` and by
//! the size of the items. No column waits for the thread. Without `-k` the thread runs only when no
//! other thread wants its processor. Memory that is unused for a while goes back to the system.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use store::Store;

/// Populated memory is given back to the system if no new segment is needed for this time.
const IDLE: Duration = Duration::from_secs(1);

/// How long a stopping server waits for the thread to end.
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
    /// Starts the thread. If `yields` is true, the thread runs only when no other thread wants its
    /// processor. If `-k` has locked the memory, the caller passes false.
    pub(crate) fn start(store: &Arc<Store>, yields: bool) -> io::Result<Populator> {
        let (requests, store) = (Arc::<Requests>::default(), Arc::clone(store));
        let shared = Arc::clone(&requests);
        let run = move || {
            if yields {
                // If the system refuses the low priority, the thread takes a little processor time
                // from the columns.
                let _ = crate::process::yield_to_others();
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

    /// Tells the thread to stop, and waits at most `STOP` for its end, because on a busy machine
    /// the thread may take seconds to end. If the thread ends later, this does no harm: the thread
    /// holds only a reference to the store.
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
            log::error!("the thread that populates memory in advance panicked");
        }
    }
}

impl Requests {
    fn run(&self, store: &Store) {
        // Acquire pairs with the Release in `stop`.
        while !self.stopping.load(Ordering::Acquire) {
            // Relaxed, like every access to `asked`: a column that reads an old value reads `asked`
            // again in its next loop. `asked` orders no other data.
            self.asked.store(false, Ordering::Relaxed);
            match store.populate_one() {
                Ok(true) => {}
                Ok(false) => self.sleep(store, IDLE),
                Err(error) => {
                    // Columns continue without the thread. `asked` stays true, so that no column
                    // tries to wake the thread, which has ended.
                    self.asked.store(true, Ordering::Relaxed);
                    return log::warn!("memory is no longer populated in advance: {error}");
                }
            }
        }
    }

    /// Sleeps until a column wakes the thread. If no column does this for the time `idle`, gives
    /// unused memory back to the system.
    fn sleep(&self, store: &Store, idle: Duration) {
        let (seen, since) = (store.segments_seen(), Instant::now());
        thread::park_timeout(idle);
        // Relaxed: `run` checks `stopping` and the store again; the flags order no data here.
        let is_asked = self.asked.load(Ordering::Relaxed) || self.stopping.load(Ordering::Relaxed);
        if !is_asked && since.elapsed() >= idle && store.give_back_unused(seen) {
            thread::park();
        }
    }
}

impl PopulatorHandle {
    /// Wakes the thread if the store wants memory populated and no column has woken the thread yet.
    #[inline]
    pub(crate) fn wake_if_wanted(&self, store: &store::Column) {
        // Relaxed: `asked` orders nothing. `unpark` and `park` order the woken thread's reads.
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
    use crate::settings::Settings;

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
