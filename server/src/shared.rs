//! The state that the columns of one server share in addition to the store.
//!
//! Where: `run` makes this state before it starts columns; every column holds an `Arc<Shared>`.
//! Invariant: any thread may read all counters. `stats reset` records the sums at that moment and
//! changes no counter.
//! Source: memcached 1.6.45 `struct stats`, `struct stats_state`.

mod health;
pub(crate) mod prefixes;
pub mod requests;
pub(crate) mod sampled;
pub(crate) mod statm;
pub(crate) mod watch;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::errand::place::Places;
use crate::start::settings::Settings;
use columns::datapath::xdp::Interface;
use memory::plant::{Fault, is};
use prefixes::Prefixes;
use requests::Counters;
use sampled::{Samples, SharedSamples};
use statm::Statm;
use store::Store;
use watch::Watch;

/// Sums of all counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Counts of executed requests.
    pub requests: requests::Sums,
    /// Counts of what columns received, sent and moved.
    pub columns: columns::counters::Sums,
}

impl Sums {
    fn add(&mut self, more: &Sums) {
        self.requests.add(&more.requests);
        self.columns.add(&more.columns);
    }

    /// The increase of each count since `earlier`, and the current value of each gauge.
    fn since(&self, earlier: &Sums) -> Sums {
        Sums {
            requests: self.requests.since(&earlier.requests),
            columns: self.columns.since(&earlier.columns),
        }
    }
}

/// The state that all columns share.
#[derive(Debug)]
pub struct Shared {
    /// The settings the server was started with.
    pub settings: Arc<Settings>,
    /// The store.
    pub store: Arc<Store>,
    /// The interface and ports of AF_XDP, set before the columns start; empty without `--xdp`.
    pub bypass: OnceLock<Arc<Interface>>,
    /// True if the system gave a huge page at the start. Empty if the store requested no huge page.
    pub huge_pages: OnceLock<bool>,
    /// The counters of each column's requests, in the order of the columns' numbers.
    pub requests: Vec<Arc<Counters>>,
    /// The part that columns use themselves, with their counters.
    pub columns: Arc<columns::shared::Shared>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) statm: Statm,
    /// The places of the dumps that run now.
    pub(crate) places: Arc<Places>,
    pub(crate) samples: Vec<SharedSamples>,
    pub(crate) prefixes: Prefixes,
    /// The verbosity, as set by `-v` or by the last `verbosity` command.
    pub verbosity: AtomicU32,
    /// The Unix time at which the store's clock would be 0 (memcached's `process_started`).
    pub process_started: i64,
    /// The time at which this state was made, just before the columns started.
    pub started: Instant,
    reset: Mutex<Reset>,
    #[cfg(debug_assertions)]
    steps_max: std::sync::atomic::AtomicU64,
}

#[derive(Debug, Default)]
struct Reset {
    columns: Vec<Sums>,
    store: store::Stats,
}

impl Shared {
    /// Makes the shared state of `settings.columns.count` columns, with all counters at 0.
    #[must_use]
    pub fn new(settings: Arc<Settings>, store: Arc<Store>, process_started: i64) -> Arc<Shared> {
        store.set_expires_unasked(settings.crawler);
        Arc::new(Shared {
            bypass: OnceLock::new(),
            huge_pages: OnceLock::new(),
            requests: (0..settings.columns.count).map(|_| Arc::default()).collect(),
            columns: Arc::new(columns::shared::Shared::new(settings.columns.clone())),
            watch: Arc::new(Watch::new(&settings)),
            statm: Statm::open(),
            places: Arc::default(),
            samples: (0..settings.columns.count).map(|_| SharedSamples::default()).collect(),
            prefixes: Prefixes::new(settings.prefix_end),
            verbosity: AtomicU32::new(settings.verbosity),
            process_started,
            started: Instant::now(),
            reset: Mutex::new(Reset {
                columns: vec![Sums::default(); settings.columns.count],
                store: store::Stats::default(),
            }),
            #[cfg(debug_assertions)]
            steps_max: std::sync::atomic::AtomicU64::new(0),
            settings,
            store,
        })
    }

    #[cfg(debug_assertions)]
    pub(crate) fn note_steps(&self, steps: u64) {
        // Relaxed, like the swap in `take_steps`: no other data depend on the number.
        self.steps_max.fetch_max(steps, Ordering::Relaxed);
    }

    /// Returns the most steps that one loop took since the last call.
    #[cfg(debug_assertions)]
    pub(crate) fn take_steps(&self) -> u64 {
        self.steps_max.swap(0, Ordering::Relaxed)
    }

    /// Bytes of `-m` that packets of AF_XDP take from the store.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        self.bypass.get().map_or(0, |it| it.ring_bytes())
    }

    /// Bytes of `-m` that AF_XDP packets and the arena take. `cache_memlimit` cannot change the
    /// number.
    #[must_use]
    pub fn fixed_bytes(&self) -> usize {
        self.ring_bytes() + self.store.arena_bytes()
    }

    /// The bytes that `-m`, or the last `cache_memlimit`, allows.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.store.memory_bytes() + self.fixed_bytes()
    }

    /// The least and the most that `cache_memlimit` may set, in bytes.
    #[must_use]
    pub fn memory_bytes_bounds(&self) -> (usize, usize) {
        let limits = self.store.limits();
        (limits.start() + self.fixed_bytes(), limits.end() + self.fixed_bytes())
    }

    /// The sums of all columns' counters since the server started.
    #[must_use]
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.of_columns().for_each(|column| sums.add(&column));
        sums
    }

    /// The increase of all counters, and of the store's counts, since the last `stats reset`.
    #[must_use]
    pub fn since_reset(&self) -> (Sums, store::Stats) {
        let mut sums = Sums::default();
        self.columns_since_reset().iter().for_each(|column| sums.add(column));
        let reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        (sums, self.store.stats().since(&reset.store))
    }

    /// Like `since_reset`, but with separate counters for each column.
    #[must_use]
    pub fn columns_since_reset(&self) -> Vec<Sums> {
        let reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        let columns = self.of_columns().zip(&reset.columns);
        columns.map(|(column, earlier)| column.since(earlier)).collect()
    }

    /// The counters of each column since the server started.
    pub fn of_columns(&self) -> impl Iterator<Item = Sums> {
        let both = self.requests.iter().zip(&self.columns.counters);
        both.map(|(requests, column)| Sums {
            requests: requests::Sums::of(requests),
            columns: columns::counters::Sums::of(column),
        })
    }

    /// The sampled times of all columns' requests since `stats reset`. Only `times` is filled.
    pub(crate) fn sampled_times(&self) -> Samples {
        let mut all = Samples::default();
        self.samples.iter().for_each(|column| column.with(|samples| all.add_times(samples)));
        all
    }

    /// Carries out `stats reset`: from now on, `since_reset` counts from this moment.
    pub fn reset(&self) {
        let mut columns: Vec<Sums> = self.of_columns().collect();
        if is(Fault::LastColumnNotReset)
            && let Some(last) = columns.last_mut()
        {
            *last = Sums::default();
        }
        let reset = Reset { columns, store: self.store.stats() };
        *self.reset.lock().unwrap_or_else(PoisonError::into_inner) = reset;
        self.prefixes.clear();
        self.samples.iter().for_each(|column| column.with(|it| *it = Samples::default()));
    }

    /// Carries out the `verbosity` command, which sets the level of logging.
    pub fn set_verbosity(&self, verbosity: u32) {
        // Relaxed, like the loads of `stats`: no other data depend on the number.
        self.verbosity.store(verbosity, Ordering::Relaxed);
        log::set_max_level(log_level(verbosity));
    }
}

/// The log level if `-v` is given `verbosity` times.
#[must_use]
pub fn log_level(verbosity: u32) -> log::LevelFilter {
    match verbosity {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        2 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    }
}
