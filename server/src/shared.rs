//! What all columns of one server share beside the store: counters, limits in use, the start time.
//!
//! Where: made once by `run`, before any column; every column holds an `Arc` of it.
//! Invariant: a `Counter` is written by one thread only (its column) and read by any, so adding is
//! a plain load and store; it only grows. `stats reset` remembers the sums of the moment and writes
//! no counter.
//! Source: memcached 1.6.45 `struct thread_stats`, `struct stats`, `struct stats_state`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::settings::Settings;
use memory::sync::Counter;
use store::Store;

/// Names the per-column counters once; makes the struct, its sum over columns, and the difference
/// to a snapshot.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// One column's counters, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters { $($(#[$doc])* pub $name: Counter),+ }

        /// Sums of `Counters`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Sums { $($(#[$doc])* pub $name: u64),+ }

        impl Sums {
            /// Adds one column's.
            pub fn add(&mut self, column: &Counters) {
                $(self.$name = self.$name.wrapping_add(column.$name.get());)+
            }

            /// What has been counted since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Sums) -> Sums {
                Sums { $($name: self.$name.wrapping_sub(earlier.$name)),+ }
            }
        }
    };
}

counters! {
    /// Keys asked for by get, gets, gat, gats.
    get_cmds,
    /// Of these, found.
    get_hits,
    /// Of these, not found.
    get_misses,
    /// Values given by storage commands, stored or not (memcached's `set_cmds`).
    set_cmds,
    /// `flush_all` obeyed.
    flush_cmds,
    /// Keys asked for by touch, gat, gats.
    touch_cmds,
    /// Of these, found.
    touch_hits,
    /// Of these, not found.
    touch_misses,
    /// Meta commands.
    meta_cmds,
    /// delete that found its key.
    delete_hits,
    /// delete that did not.
    delete_misses,
    /// incr that found its key.
    incr_hits,
    /// incr that did not.
    incr_misses,
    /// decr that found its key.
    decr_hits,
    /// decr that did not.
    decr_misses,
    /// Values refused by size.
    store_too_large,
    /// Values refused for want of room.
    store_no_memory,
    /// Bytes received from clients.
    bytes_read,
    /// Bytes sent to clients.
    bytes_written,
    /// Turns ended by `-R` with requests left.
    conn_yields,
    /// Connections accepted.
    total_connections,
    /// Connections refused by `-c`.
    rejected_connections,
    /// Connections closed by `-o idle_timeout`.
    idle_kicks,
    /// Times a listener was put to rest at `-c` (`-o no_maxconns_fast`).
    listen_disabled,
}

/// What one column holds now, beside the store.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Holding {
    /// Places for connections.
    pub connection_structures: Counter,
    /// Bytes of these, and of what is kept of values on their way in.
    pub connection_bytes: Counter,
    /// Bytes of receive buffers, in use and recycled, and of input that connections keep.
    pub read_buf_bytes: Counter,
    /// Of these, recycled ones.
    pub read_buf_bytes_free: Counter,
    /// Bytes of replies: a column's own buffer, and what connections wait to send.
    pub response_obj_bytes: Counter,
    /// Connections that wait for room in the store.
    pub resting: Counter,
}

/// Sums of `Holding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// As in `Holding`, like all of these.
    pub connection_structures: u64,
    /// Bytes of connections' places, and of what is kept of values on their way in.
    pub connection_bytes: u64,
    /// Bytes of receive buffers and kept input.
    pub read_buf_bytes: u64,
    /// Of these, recycled ones.
    pub read_buf_bytes_free: u64,
    /// Bytes of replies.
    pub response_obj_bytes: u64,
}

/// What all columns share.
#[derive(Debug)]
pub struct Shared {
    /// The settings the server was started with.
    pub settings: Arc<Settings>,
    /// The store.
    pub store: Arc<Store>,
    /// One per column, in order.
    pub columns: Vec<Arc<Counters>>,
    /// What each column holds, in order.
    pub holding: Vec<Holding>,
    /// Client connections open now, all columns together; `-c` is tested against it.
    pub connections: AtomicU32,
    /// False while listeners rest at `-c`.
    pub accepting: AtomicBool,
    /// `-v`, changed by the `verbosity` command.
    pub verbosity: AtomicU32,
    /// Unix time at which the store's clock stood at 0 (memcached's `process_started`).
    pub process_started: i64,
    /// Sums at the last `stats reset`.
    reset: Mutex<Reset>,
    /// The time that columns go by in place of the clock's, where a test has planted one.
    #[cfg(debug_assertions)]
    planted_ms: std::sync::atomic::AtomicU64,
}

/// Sums at the last `stats reset`.
#[derive(Clone, Copy, Debug, Default)]
struct Reset {
    sums: Sums,
    store: store::Stats,
}

impl Shared {
    /// Shared state for `settings.columns` columns, nothing counted yet.
    #[must_use]
    pub fn new(settings: Arc<Settings>, store: Arc<Store>, process_started: i64) -> Arc<Shared> {
        Arc::new(Shared {
            columns: (0..settings.columns).map(|_| Arc::default()).collect(),
            holding: (0..settings.columns).map(|_| Holding::default()).collect(),
            connections: AtomicU32::new(0),
            accepting: AtomicBool::new(true),
            verbosity: AtomicU32::new(settings.verbosity),
            process_started,
            reset: Mutex::new(Reset::default()),
            #[cfg(debug_assertions)]
            planted_ms: std::sync::atomic::AtomicU64::new(0),
            settings,
            store,
        })
    }

    /// Has columns go by this time from now on, in milliseconds since the start. Never back.
    #[cfg(debug_assertions)]
    pub fn plant_clock(&self, now_ms: u64) {
        self.planted_ms.store(now_ms, Ordering::Relaxed); // a number to look at
    }

    /// The time that is planted; 0: none.
    #[cfg(debug_assertions)]
    pub(crate) fn planted_ms(&self) -> u64 {
        self.planted_ms.load(Ordering::Relaxed)
    }

    /// Sums over all columns since the server started.
    #[must_use]
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for column in &self.columns {
            sums.add(column);
        }
        sums
    }

    /// What all columns hold now.
    #[must_use]
    pub fn held(&self) -> Held {
        let mut held = Held::default();
        for column in &self.holding {
            held.connection_structures += column.connection_structures.get();
            held.connection_bytes += column.connection_bytes.get();
            held.read_buf_bytes += column.read_buf_bytes.get();
            held.read_buf_bytes_free += column.read_buf_bytes_free.get();
            held.response_obj_bytes += column.response_obj_bytes.get();
        }
        held
    }

    /// What has been counted since the last `stats reset`. What is not counted but is so (items,
    /// bytes, the index) is as it is now.
    #[must_use]
    pub fn since_reset(&self) -> (Sums, store::Stats) {
        let reset = *self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        (self.sums().since(&reset.sums), self.store.stats().since(&reset.store))
    }

    /// `stats reset`: from here on, counters seem to start at 0.
    pub fn reset(&self) {
        let reset = Reset { sums: self.sums(), store: self.store.stats() };
        *self.reset.lock().unwrap_or_else(PoisonError::into_inner) = reset;
    }

    /// The `verbosity` command: changes what is logged from now on.
    pub fn set_verbosity(&self, verbosity: u32) {
        // Relaxed: a number to look at, ordered with nothing; the log's own level is atomic too.
        self.verbosity.store(verbosity, Ordering::Relaxed);
        log::set_max_level(log_level(verbosity));
    }
}

/// What `-v` so many times logs: starts, stops and trouble; then more.
#[must_use]
pub fn log_level(verbosity: u32) -> log::LevelFilter {
    match verbosity {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        2 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    }
}
