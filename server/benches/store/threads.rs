//! Runs columns, each on a pinned thread.
//!
//! Where: between a measurement and its columns.
//! Invariant: columns begin once all threads have started, and are online only while they work.

use std::sync::Barrier;
use std::thread;

use store::Column;

use crate::measure::Outcome;

pub(crate) fn on_each<T: Send>(
    columns: &mut [Column],
    work: impl Fn(usize, &mut Column) -> Outcome<T> + Sync,
) -> Outcome<Vec<T>> {
    let cores = net::thread_cpus()?;
    let barrier = Barrier::new(columns.len());
    let (work, barrier) = (&work, &barrier);
    let results: Vec<Result<T, String>> = thread::scope(|scope| {
        let threads: Vec<_> = columns
            .iter_mut()
            .enumerate()
            .map(|(number, column)| {
                let core = cores[number % cores.len()];
                scope.spawn(move || {
                    // An error is returned only after the barrier, because the other threads would
                    // wait there forever.
                    let pinned = net::pin_thread(core);
                    barrier.wait();
                    column.online();
                    let result = pinned.map_err(Into::into).and_then(|()| work(number, column));
                    column.offline();
                    result.map_err(|error| error.to_string())
                })
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<T, String>>| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        };
        threads.into_iter().map(join).collect()
    });
    Ok(results.into_iter().collect::<Result<Vec<T>, String>>()?)
}
