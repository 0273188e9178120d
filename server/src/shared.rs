//! The state that all columns of one server share beside the store: counters, the number of
//! connections, the start time.
//!
//! Where: `run` makes it before any column; every column holds an `Arc` of it.
//! Invariant: only a column's own thread writes the column's counters, so that an addition is a
//! plain load and store; shared counters, to which any thread adds, are the exception. Any thread
//! may read all of them. `stats reset` remembers the sums at that moment and writes no counter.
//! Source: memcached 1.6.45 `struct thread_stats`, `struct stats`, `struct stats_state`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::bypass::Bypass;
use crate::errand::conns::Asks;
use crate::errand::place::Places;
use crate::prefixes::Prefixes;
use crate::sampled::{Samples, SharedSamples};
use crate::settings::Settings;
use crate::stats::Statm;
use crate::watch::Watch;
use memory::plant::{Fault, is};
use memory::sync::Counter;
use store::Store;

/// A counter to which any thread may add, for rare events.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds one.
    pub fn add_one(&self) {
        // Relaxed, paired with the load in `get`: the number orders nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads the number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed) // as in `add_one`
    }
}

/// From one list of names, makes a column's counters, their sums over all columns, and the
/// difference of two sums. `stats reset` sets counts to 0; a shared count is added to by other
/// columns; a gauge tells how things are now.
macro_rules! counters {
    (
        counts: $($(#[$doc:meta])* $count:ident),+;
        shared: $($(#[$shared_doc:meta])* $shared:ident),+;
        gauges: $($(#[$gauge_doc:meta])* $gauge:ident),+;
    ) => {
        /// One column's counters, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $count: Counter,)+
            $($(#[$gauge_doc])* pub $gauge: Counter,)+
            $($(#[$shared_doc])* pub $shared: SharedCounter,)+
        }

        /// Sums of `Counters`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Sums {
            $($(#[$doc])* pub $count: u64,)+
            $($(#[$shared_doc])* pub $shared: u64,)+
            $($(#[$gauge_doc])* pub $gauge: u64,)+
        }

        impl Sums {
            /// One column's counters.
            #[must_use]
            pub fn of(column: &Counters) -> Sums {
                Sums {
                    $($count: column.$count.get(),)+
                    $($shared: column.$shared.get(),)+
                    $($gauge: column.$gauge.get(),)+
                }
            }

            /// Adds another's.
            pub fn add(&mut self, more: &Sums) {
                $(self.$count = self.$count.wrapping_add(more.$count);)+
                $(self.$shared = self.$shared.wrapping_add(more.$shared);)+
                $(self.$gauge = self.$gauge.wrapping_add(more.$gauge);)+
            }

            /// The increase of each count since `earlier`, and each gauge as it is.
            #[must_use]
            pub fn since(&self, earlier: &Sums) -> Sums {
                Sums {
                    $($count: self.$count.wrapping_sub(earlier.$count),)+
                    $($shared: self.$shared.wrapping_sub(earlier.$shared),)+
                    ..*self
                }
            }
        }
    };
}

counters! {
    counts:
    /// Keys that were looked up to be read, and found: by `get`, `gets`, their binary forms, and
    /// `mg`. What counts as a touch does not count here.
    get_hits,
    /// The same, not found.
    get_misses,
    /// Values that came with storage commands, stored or not. A value that the store has no room
    /// for is not counted.
    set_cmds,
    /// `flush_all`, carried out or refused.
    flush_cmds,
    /// Keys that were looked up to get another exptime, and found: by `touch`, `gat`, `gats`, their
    /// binary forms, and `mg` with flag `T`.
    touch_hits,
    /// The same, not found; but what `mg` does not find is a miss of `get`.
    touch_misses,
    /// `me`. As in memcached, no other meta command is counted here.
    meta_cmds,
    /// Deletes of a key that was there: `delete`, and `md` that marks nothing stale.
    delete_hits,
    /// Deletes of a key that was not there, and each `md` whose CAS unique was another.
    delete_misses,
    /// Additions to a number that was there: `incr`, and `ma` that adds.
    incr_hits,
    /// Additions to a number that was not there, and none was made.
    incr_misses,
    /// Subtractions from a number that was there: `decr`, and `ma` that subtracts.
    decr_hits,
    /// Subtractions from a number that was not there, and none was made.
    decr_misses,
    /// Values that were refused because the item would be larger than `-I` allows.
    store_too_large,
    /// Values that were refused because the store had no room.
    store_no_memory,
    /// Bytes received from clients.
    bytes_read,
    /// Bytes sent to clients.
    bytes_written,
    /// Turns that ended because `-R` requests were executed, with requests left.
    conn_yields,
    /// Connections accepted.
    total_connections,
    /// Connections refused by `-c`.
    rejected_connections,
    /// Connections closed by `-o idle_timeout`.
    idle_kicks,
    /// Datagrams received.
    udp_received,
    /// Datagrams sent.
    udp_sent,
    /// Datagrams made and not sent, for the system did not take them.
    udp_unsent,
    /// Past the kernel: bytes copied into the packets of answers, headers included.
    copied_bytes,
    /// Past the kernel: bytes of values sent from where they lay.
    zero_copy_bytes,
    /// Datagrams dropped: without a whole frame, or parts that contradict each other.
    udp_dropped_frame,
    /// Datagrams dropped: from whom an answer would loop, or sent to many.
    udp_dropped_sender,
    /// Messages dropped: what a server answers, as it comes where servers are set on each other.
    udp_dropped_answer,
    /// Datagrams dropped: from a network that `-o udp_allow` leaves out.
    udp_dropped_network,
    /// Datagrams dropped: longer than one may be, or parts of a request longer than one may be.
    udp_dropped_length,
    /// Packets that `--xdp` has taken, and dropped: a checksum or a length is wrong, or the sender
    /// is nobody.
    udp_dropped_damaged,
    /// Messages dropped: without all of a request.
    udp_dropped_incomplete,
    /// Replies over `-o udp_reply_max`, refused.
    udp_replies_too_long,
    /// Messages that asked for more than one may: what was beyond it was dropped.
    udp_dropped_work,
    /// Answers dropped: where anybody may ask, the sender's network had its share of the second.
    udp_dropped_amplified,
    /// Requests that came in datagrams and only connections, or operators, may make; refused.
    udp_refused,
    /// Loops: in each, whatever came since the last one is executed as one batch.
    loops,
    /// Times that listeners began to rest, at `-c` (`-o no_maxconns_fast`) or without descriptors.
    listen_disabled,
    /// Microseconds that they rested.
    listen_disabled_us,
    /// Dumps of items begun.
    dumps,
    /// Dumps that lost their place to others, for their clients took nothing.
    dumps_stalled,
    /// Lines for those who watch, noted.
    log_worker_written,
    /// Lines for those who watch, dropped: the column's loop had more than `-o worker_logbuf_size`.
    log_worker_dropped,
    /// Lines handed to somebody who watches, once for each.
    log_watcher_sent,
    /// Lines not handed: more than `-o watcher_logbuf_size` waits already.
    log_watcher_skipped,
    /// Times that the column took datagrams from one that was behind, of the same node.
    steals_taken_near,
    /// The same, from columns of other nodes.
    steals_taken_far,
    /// Datagrams that it took.
    datagrams_stolen,
    /// Connections that moved from this column to others.
    migrations_given,
    /// Connections that moved to this column from others.
    migrations_taken;

    shared:
    /// Times that a column of the same node took datagrams from this one.
    steals_given_near,
    /// The same, by columns of other nodes.
    steals_given_far;

    gauges:
    /// Entries for connections that were ever used.
    connection_structures,
    /// Bytes of these entries, and of what is kept beside arriving values.
    connection_bytes,
    /// Receive buffers, in use and spare, and buffers of input that connections keep.
    read_buf_count,
    /// Bytes of receive buffers, in use and spare, and of input that connections keep.
    read_buf_bytes,
    /// Bytes of the spare ones among them.
    read_buf_bytes_free,
    /// Buffers of replies: the column's own, and one for each connection that waits to send.
    response_obj_count,
    /// Bytes of replies: the column's own buffer, and what connections wait to send.
    response_obj_bytes,
    /// Connections that wait for room in the store.
    awaiting_room,
    /// Connections that are open.
    connections,
    /// Connections that have work left over for the next loop.
    queued,
    /// System calls that the column has made for what peers send.
    system_calls,
    /// The number by which the system knows the column's thread.
    thread_id;
}

impl Sums {
    /// Keys that were looked up to be read.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.get_hits.wrapping_add(self.get_misses)
    }

    /// Keys that were looked up to get another exptime.
    #[must_use]
    pub fn touches(&self) -> u64 {
        self.touch_hits.wrapping_add(self.touch_misses)
    }
}

/// The state that all columns share.
#[derive(Debug)]
pub struct Shared {
    /// The settings the server was started with.
    pub settings: Arc<Settings>,
    /// The store.
    pub store: Arc<Store>,
    /// The interface and ports of AF_XDP; empty without `--xdp`. Set before the columns start.
    pub bypass: OnceLock<Bypass>,
    /// True if the system gave a huge page at the start; empty if none is asked for.
    pub huge_pages: OnceLock<bool>,
    /// The counters of each column, in order.
    pub columns: Vec<Arc<Counters>>,
    /// Client connections open now in all columns together, compared with `-c`.
    pub connections: AtomicU32,
    /// False while listeners rest.
    pub accepting: AtomicBool,
    /// The connections that watch.
    pub(crate) watch: Watch,
    /// The process's memory, as the system reports it.
    pub(crate) statm: Statm,
    /// The places of dumps under way.
    pub(crate) places: Arc<Places>,
    /// The connections that ask for columns' sockets.
    pub(crate) asks: Asks,
    pub(crate) samples: Vec<SharedSamples>,
    /// Requests by the prefixes of their keys.
    pub(crate) prefixes: Prefixes,
    /// The verbosity of `-v`, or of the last `verbosity` command.
    pub verbosity: AtomicU32,
    /// Unix time at which the store's clock stood at 0 (memcached's `process_started`).
    pub process_started: i64,
    /// When this was made, just before the columns.
    pub started: Instant,
    /// Sums at the last `stats reset`.
    reset: Mutex<Reset>,
    /// Most steps of one loop since the last `take_steps`.
    #[cfg(debug_assertions)]
    steps_max: std::sync::atomic::AtomicU64,
    /// The time that a test has columns use instead of the clock's; 0: none.
    #[cfg(debug_assertions)]
    planted_ms: std::sync::atomic::AtomicU64,
}

#[derive(Debug, Default)]
struct Reset {
    columns: Vec<Sums>,
    store: store::Stats,
}

impl Shared {
    /// Makes the shared state of `settings.columns` columns, with all counters at 0.
    #[must_use]
    pub fn new(settings: Arc<Settings>, store: Arc<Store>, process_started: i64) -> Arc<Shared> {
        store.set_expires_unasked(settings.crawler);
        Arc::new(Shared {
            bypass: OnceLock::new(),
            huge_pages: OnceLock::new(),
            columns: (0..settings.columns).map(|_| Arc::default()).collect(),
            connections: AtomicU32::new(0),
            accepting: AtomicBool::new(true),
            watch: Watch::new(settings.detail),
            statm: Statm::open(),
            places: Arc::default(),
            asks: Asks::default(),
            samples: (0..settings.columns).map(|_| SharedSamples::default()).collect(),
            prefixes: Prefixes::new(settings.prefix_end),
            verbosity: AtomicU32::new(settings.verbosity),
            process_started,
            started: Instant::now(),
            reset: Mutex::new(Reset {
                columns: vec![Sums::default(); settings.columns],
                store: store::Stats::default(),
            }),
            #[cfg(debug_assertions)]
            steps_max: std::sync::atomic::AtomicU64::new(0),
            #[cfg(debug_assertions)]
            planted_ms: std::sync::atomic::AtomicU64::new(0),
            settings,
            store,
        })
    }

    #[cfg(debug_assertions)]
    pub(crate) fn note_steps(&self, steps: u64) {
        // Relaxed, paired with the swap below: the number orders nothing.
        self.steps_max.fetch_max(steps, Ordering::Relaxed);
    }

    /// Most steps of one loop since the last call.
    #[cfg(debug_assertions)]
    pub(crate) fn take_steps(&self) -> u64 {
        self.steps_max.swap(0, Ordering::Relaxed)
    }

    /// Makes columns use this time, in milliseconds since the start. It must never decrease.
    #[cfg(debug_assertions)]
    pub fn plant_clock(&self, now_ms: u64) {
        // Relaxed, paired with the load in `planted_ms`: the number orders nothing.
        self.planted_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The time planted by `plant_clock`; 0: none.
    #[cfg(debug_assertions)]
    pub(crate) fn planted_ms(&self) -> u64 {
        self.planted_ms.load(Ordering::Relaxed) // as in `plant_clock`
    }

    /// Bytes of `-m` that packets of AF_XDP take, and the store does not have.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        self.bypass.get().map_or(0, Bypass::ring_bytes)
    }

    /// Bytes of `-m` that no limit changes: packets, and chunks that hold values beside them.
    #[must_use]
    pub fn fixed_bytes(&self) -> usize {
        self.ring_bytes() + self.store.arena_bytes()
    }

    /// `-m`, or the last `cache_memlimit`, in bytes.
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
        self.columns.iter().for_each(|column| sums.add(&Sums::of(column)));
        sums
    }

    /// The increase of all counters since the last `stats reset`. Numbers that are not counters
    /// (items, bytes, the index) are those of now.
    #[must_use]
    pub fn since_reset(&self) -> (Sums, store::Stats) {
        let mut sums = Sums::default();
        self.columns_since_reset().iter().for_each(|column| sums.add(column));
        let reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        (sums, self.store.stats().since(&reset.store))
    }

    /// Like `since_reset`, but for each column's counters.
    #[must_use]
    pub fn columns_since_reset(&self) -> Vec<Sums> {
        let reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        let columns = self.columns.iter().zip(&reset.columns);
        columns.map(|(column, earlier)| Sums::of(column).since(earlier)).collect()
    }

    /// Obeys `stats reset`: `since_reset` counts from this moment on.
    pub fn reset(&self) {
        let mut columns: Vec<Sums> = self.columns.iter().map(|column| Sums::of(column)).collect();
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

    /// Obeys the `verbosity` command: changes what is logged from now on.
    pub fn set_verbosity(&self, verbosity: u32) {
        // Relaxed, paired with the loads of `stats`: the number orders nothing.
        self.verbosity.store(verbosity, Ordering::Relaxed);
        log::set_max_level(log_level(verbosity));
    }
}

/// The log level for `-v` given `verbosity` times.
#[must_use]
pub fn log_level(verbosity: u32) -> log::LevelFilter {
    match verbosity {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        2 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    }
}
