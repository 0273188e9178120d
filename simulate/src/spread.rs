//! Spreads jobs over threads. A thread that has finished a job takes the next job.
//!
//! Where: `jobs` and `stream` call `spread`. Invariant: results are in the order of the jobs. If a
//! job fails, no new jobs start, and `spread` returns the job's error and no results.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs jobs 0 to `count` - 1 on `threads` threads; `report` gets the number of finished jobs.
pub(crate) fn spread<T: Send, E: Send>(
    count: usize,
    threads: usize,
    job: impl Fn(usize) -> Result<T, E> + Sync,
    report: impl Fn(usize) + Sync,
) -> Result<Vec<T>, E> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new((0..count).map(|_| None).collect::<Vec<Option<T>>>());
    let failed = Mutex::new(None);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed); // the number orders no other memory
            if at >= count {
                return;
            }
            match job(at) {
                Ok(result) => {
                    // If the lock is poisoned, a thread has panicked, so `scope` panics at its end.
                    if let Ok(mut results) = results.lock() {
                        results[at] = Some(result);
                    }
                    report(done.fetch_add(1, Ordering::Relaxed) + 1); // orders no other memory
                }
                Err(error) => {
                    next.store(count, Ordering::Relaxed); // no new jobs start
                    if let Ok(mut failed) = failed.lock() {
                        *failed = Some(error);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (0..threads.clamp(1, count.max(1))).for_each(|_| {
            scope.spawn(work);
        });
    });
    match failed.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(results.into_inner().unwrap_or_default().into_iter().flatten().collect()),
    }
}
