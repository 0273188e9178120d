//! The state that the columns of one server share in addition to the store.
//!
//! Where: `run` makes this state before it starts columns; every column holds an `Arc<Shared>`.
//! Invariant: only a column's own thread writes the column's counters, so that an addition is a
//! plain load and store. Exceptions are the shared counters, to which any thread adds. Any thread
//! may read all counters. `stats reset` records the sums at that moment and changes no counter.
//! Source: memcached 1.6.45 `struct thread_stats`, `struct stats`, `struct stats_state`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::bypass::Bypass;
use crate::errand::conns::PageRequests;
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
        // Relaxed, like the load in `get`: no other data depend on the number.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads the number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed) // no other data depend on the number
    }
}

/// Defines, from one list of names, `Counters` (the counters of a column), `Sums` (sums of
/// counters), and functions that add and subtract sums. After `stats reset`, counts are reported
/// from 0 on. Other columns may add to a shared count. A gauge is the current value of a quantity.
macro_rules! counters {
    (
        counts: $($(#[$doc:meta])* $count:ident),+;
        shared: $($(#[$shared_doc:meta])* $shared:ident),+;
        gauges: $($(#[$gauge_doc:meta])* $gauge:ident),+;
    ) => {
        /// One column's counters, on separate cache lines.
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
            /// Reads one column's counters.
            #[must_use]
            pub fn of(column: &Counters) -> Sums {
                Sums {
                    $($count: column.$count.get(),)+
                    $($shared: column.$shared.get(),)+
                    $($gauge: column.$gauge.get(),)+
                }
            }

            /// Adds other sums, or another column's counters.
            pub fn add(&mut self, more: &Sums) {
                $(self.$count = self.$count.wrapping_add(more.$count);)+
                $(self.$shared = self.$shared.wrapping_add(more.$shared);)+
                $(self.$gauge = self.$gauge.wrapping_add(more.$gauge);)+
            }

            /// The increase of each count since `earlier`, and the current value of each gauge.
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
    /// Keys found by `get`, `gets`, their binary forms, and `mg` (if the `mg` is not a touch).
    get_hits,
    /// Keys not found by `get`, `gets`, their binary forms, and `mg`.
    get_misses,
    /// Values received with storage commands, stored or not, unless refused for lack of room.
    set_cmds,
    /// `flush_all` commands, executed or refused.
    flush_cmds,
    /// Keys found by `touch`, `gat`, `gats`, their binary forms, and `mg` with flag `T`.
    touch_hits,
    /// Keys not found by `touch`, `gat`, `gats` and their binary forms. A miss of `mg` with flag
    /// `T` counts as a miss of `get`.
    touch_misses,
    /// `me` commands. As in memcached, no other meta command is counted here.
    meta_cmds,
    /// Deletions of an existing key: `delete`, and `md` that does not mark the item stale.
    delete_hits,
    /// Deletions of a missing key, and `md` commands whose CAS unique did not match.
    delete_misses,
    /// Additions to an existing number by `incr`, or by `ma` in a mode that increments.
    incr_hits,
    /// Additions that failed, because the key has no item.
    incr_misses,
    /// Subtractions from an existing number by `decr`, or by `ma` in a mode that decrements.
    decr_hits,
    /// Subtractions that failed, because the key has no item.
    decr_misses,
    /// Values refused because the item would be larger than `-I` allows.
    store_too_large,
    /// Values refused because the store had no room.
    store_no_memory,
    /// Bytes received from clients.
    bytes_read,
    /// Bytes sent to clients.
    bytes_written,
    /// Turns that ended after `-R` requests although more requests were left.
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
    /// Datagrams of answers that could not be sent.
    udp_unsent,
    /// AF_XDP: bytes copied into the packets of answers, headers included.
    copied_bytes,
    /// AF_XDP: bytes of values sent in place, without a copy.
    zero_copy_bytes,
    /// Datagrams dropped because their UDP frame header is missing, wrong or repeated.
    udp_dropped_frame,
    /// Datagrams dropped because an answer to their sender could start a loop of answers, or
    /// because they were sent to a multicast or broadcast address.
    udp_dropped_sender,
    /// Messages dropped because they look like a server's answer: with forged packets, two servers
    /// can be made to answer each other.
    udp_dropped_answer,
    /// Datagrams dropped because their sender is in no network of `-o udp_allow`.
    udp_dropped_network,
    /// Datagrams dropped because they, or the requests to which they belong, are too long.
    udp_dropped_length,
    /// Packets received by `--xdp` and dropped for a wrong checksum, length or sender address.
    udp_dropped_damaged,
    /// Requests dropped because they are incomplete: bytes or datagrams are missing.
    udp_dropped_incomplete,
    /// Replies refused because they are longer than `-o udp_reply_max`.
    udp_replies_too_long,
    /// Messages with more requests or keys than allowed; the excess requests were dropped.
    udp_dropped_work,
    /// Long answers dropped because the client's network reached `AMPLIFIED_BYTES_SECOND_MAX`.
    udp_dropped_amplified,
    /// Requests in datagrams, refused because only connections, or only operators, may send them.
    udp_refused,
    /// Loops. A loop executes the input that arrived since the previous loop.
    loops,
    /// Times that the listeners paused, because no descriptor was left or, with
    /// `-o no_maxconns_fast`, because `-c` was reached.
    listen_disabled,
    /// Microseconds for which listeners paused.
    listen_disabled_us,
    /// Dumps of items that were begun.
    dumps,
    /// Dumps that ended early to make room for a new dump, because their clients read too slowly.
    dumps_stalled,
    /// Lines of events written for clients that use `watch`.
    log_worker_written,
    /// Lines of events dropped because a loop wrote more than `-o worker_logbuf_size` allows.
    log_worker_dropped,
    /// Lines of events passed to watching clients, counted once for each client.
    log_watcher_sent,
    /// Lines of events dropped because `-o watcher_logbuf_size` bytes of lines wait for the client.
    log_watcher_skipped,
    /// Times that the column took datagrams from another column of its NUMA node.
    steals_taken_near,
    /// Times that the column took datagrams from a column of another node.
    steals_taken_far,
    /// Datagrams that the column took from other columns.
    datagrams_stolen,
    /// Connections that moved from this column to other columns.
    migrations_given,
    /// Connections that moved to this column from other columns.
    migrations_taken;

    shared:
    /// Times that a column of the same node took datagrams from this column.
    steals_given_near,
    /// Times that a column of another node took datagrams from this column.
    steals_given_far;

    gauges:
    /// The largest number of connections that have ever been open at the same time.
    connection_structures,
    /// Bytes allocated for the state of connections, and for arriving values outside the store.
    connection_bytes,
    /// Number of receive buffers, used and spare, and of buffers with input that connections keep.
    read_buf_count,
    /// Bytes of receive buffers, in use and spare, and of input that connections keep.
    read_buf_bytes,
    /// Bytes of spare receive buffers.
    read_buf_bytes_free,
    /// Number of reply buffers: the column's own, and one for each connection that waits to send.
    response_obj_count,
    /// Bytes of replies: the column's own buffer, and replies that connections wait to send.
    response_obj_bytes,
    /// Connections that wait for room in the store.
    awaiting_room,
    /// Connections that are open.
    connections,
    /// Connections with work left for the next loop.
    queued,
    /// System calls that the column has made for its clients.
    system_calls,
    /// The id that the system gave to the column's thread.
    thread_id;
}

impl Sums {
    /// Number of keys looked up by retrievals, found or not.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.get_hits.wrapping_add(self.get_misses)
    }

    /// Number of keys looked up by touches, found or not.
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
    /// The interface and ports of AF_XDP, set before the columns start; empty without `--xdp`.
    pub bypass: OnceLock<Bypass>,
    /// True if the system gave a huge page at the start. Empty if the store requested no huge page.
    pub huge_pages: OnceLock<bool>,
    /// The counters of each column, in the order of the columns' numbers.
    pub columns: Vec<Arc<Counters>>,
    /// Number of open client connections of all columns together. `-c` limits this number.
    pub connections: AtomicU32,
    /// False while listeners pause.
    pub accepting: AtomicBool,
    pub(crate) watch: Watch,
    pub(crate) statm: Statm,
    /// The places of the dumps that run now.
    pub(crate) places: Arc<Places>,
    /// The requests of `stats conns` for columns' lists of sockets.
    pub(crate) page_requests: PageRequests,
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
    /// The time that a test has set for the columns. 0 means that columns use the system's clock.
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
            page_requests: PageRequests::default(),
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
        // Relaxed, like the swap in `take_steps`: no other data depend on the number.
        self.steps_max.fetch_max(steps, Ordering::Relaxed);
    }

    /// Returns the most steps that one loop took since the last call.
    #[cfg(debug_assertions)]
    pub(crate) fn take_steps(&self) -> u64 {
        self.steps_max.swap(0, Ordering::Relaxed)
    }

    /// Makes columns use the time `now_ms` (milliseconds since the start). It must never decrease.
    #[cfg(debug_assertions)]
    pub fn plant_clock(&self, now_ms: u64) {
        // Relaxed, like the load in `planted_ms`: no other data depend on the number.
        self.planted_ms.store(now_ms, Ordering::Relaxed);
    }

    #[cfg(debug_assertions)]
    pub(crate) fn planted_ms(&self) -> u64 {
        self.planted_ms.load(Ordering::Relaxed) // no other data depend on the number
    }

    /// Bytes of `-m` that packets of AF_XDP take from the store.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        self.bypass.get().map_or(0, Bypass::ring_bytes)
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
        self.columns.iter().for_each(|column| sums.add(&Sums::of(column)));
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
        let columns = self.columns.iter().zip(&reset.columns);
        columns.map(|(column, earlier)| Sums::of(column).since(earlier)).collect()
    }

    /// Carries out `stats reset`: from now on, `since_reset` counts from this moment.
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
