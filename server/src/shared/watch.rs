//! `watch`: the connections that watch events, and the event lines that these connections get.
//!
//! Where: a column writes a line for each event that a connection watches. Once per loop, the
//! column gives the lines to the watching connections, whose columns send the lines.
//! Invariant: no column waits for a watcher. The lines that a column writes in a loop, and the
//! lines that wait for a watcher, are bounded; further lines are dropped and counted, and the
//! watcher is told how many were dropped. Without watchers, a request only reads one number of its
//! own column, which the column refreshes once per loop.
//! Source: memcached 1.6.45 `logger.c`.

use std::fmt::Display;
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use memory::plant::{Fault, is};
use memory::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use protocol::text::event::{self, Item, LINE_BYTES_MAX, Stamp};
use protocol::text::operator::Streams;

use crate::limits::WATCHERS_MAX;
use crate::shared::requests::Counters;
use crate::start::settings::Settings;

/// The bit that is set while requests are counted for each prefix of keys.
pub(crate) const DETAIL: Streams = Streams(1 << 8);

#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The bits of the watched streams, and `DETAIL`. A thread changes the bits
    /// only while it holds the lock of `watchers`.
    watched: AtomicU32,
    events: AtomicU64,
    watchers: Mutex<Vec<Arc<Watcher>>>,
    /// Maximum bytes of the lines that a column notes in one loop.
    noted_bytes_max: usize,
    /// Maximum bytes of the lines that wait for one watcher.
    waiting_bytes_max: usize,
}

#[derive(Debug)]
struct Watcher {
    streams: Streams,
    /// The number of the first event that happened after the watch began.
    from: u64,
    waiting: Mutex<WaitingLines>,
}

#[derive(Debug, Default)]
struct WaitingLines {
    lines: Vec<u8>,
    /// Number of lines that were dropped because `lines` was full, since `lines` was last emptied.
    skipped: u64,
}

/// Keeps a watcher registered. Dropping the guard ends the watch.
#[derive(Debug)]
pub(crate) struct WatchGuard {
    watcher: Arc<Watcher>,
    watch: Arc<Watch>,
}

impl Watch {
    /// Makes a `Watch` without watchers. With `settings.detail`, requests are counted per prefix.
    pub(crate) fn new(settings: &Settings) -> Watch {
        let watch = Watch {
            noted_bytes_max: settings.worker_log_bytes,
            waiting_bytes_max: settings.watcher_log_bytes,
            ..Watch::default()
        };
        watch.set(DETAIL, settings.detail);
        watch
    }

    /// Sets or clears `DETAIL`. A thread that holds the lock of `watchers`
    /// takes no other lock than a watcher's `waiting`.
    pub(crate) fn set(&self, bit: Streams, on: bool) {
        let _watchers = self.lock();
        let watched = self.watched();
        let watched = if on { watched.with(bit) } else { watched.without(bit) };
        self.watched.store(watched.0, Ordering::Relaxed); // no other data depend on the bits
    }

    pub(crate) fn watched(&self) -> Streams {
        // Relaxed: no other data depend on the bits. A column may see a new bit one loop later.
        Streams(self.watched.load(Ordering::Relaxed))
    }

    pub(crate) fn watchers(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Watcher>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the union of the streams that the `watchers` watch.
    fn publish(&self, watchers: &[Arc<Watcher>]) {
        let rest = Streams(self.watched().0 & DETAIL.0);
        let all = watchers.iter().fold(rest, |all, one| all.with(one.streams));
        self.watched.store(all.0, Ordering::Relaxed); // no other data depend on the bits
    }
}

impl WatchGuard {
    /// Begins a watch. Returns `None` if there are `WATCHERS_MAX` watchers already.
    pub(crate) fn take(watch: &Arc<Watch>, streams: Streams) -> Option<WatchGuard> {
        let mut watchers = watch.lock();
        if watchers.len() >= WATCHERS_MAX {
            return None;
        }
        // Relaxed: no other data depend on the number.
        let from = watch.events.load(Ordering::Relaxed);
        let watcher = Arc::new(Watcher { streams, from, waiting: Mutex::default() });
        watchers.push(Arc::clone(&watcher));
        watch.publish(&watchers);
        drop(watchers);
        Some(WatchGuard { watcher, watch: Arc::clone(watch) })
    }

    /// Takes the waiting lines. If lines were dropped, adds a line that tells how many lines.
    pub(crate) fn take_lines(&self) -> Vec<u8> {
        let mut waiting = self.watcher.lock();
        let (mut lines, skipped) = (mem::take(&mut waiting.lines), mem::take(&mut waiting.skipped));
        drop(waiting);
        if skipped > 0 {
            event::skipped(&mut lines, skipped);
        }
        lines
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut watchers = self.watch.lock();
        watchers.retain(|other| !Arc::ptr_eq(other, &self.watcher));
        if is(Fault::SeatStaysWatched) {
            return;
        }
        self.watch.publish(&watchers);
    }
}

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, WaitingLines> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events that one column has noted in the current loop.
#[derive(Debug, Default)]
pub(crate) struct NotedEvents {
    /// The bits of `Watch::watched` when the loop began.
    pub(crate) watched: Streams,
    /// The descriptor of the connection that has its turn.
    pub(crate) descriptor: i32,
    lines: Vec<u8>,
    /// For each line: the stream and number of the event, and the line's end in `lines`.
    ends: Vec<(Streams, u64, usize)>,
}

/// A position in the events noted in a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    events: usize,
}

impl NotedEvents {
    pub(crate) fn mark(&self) -> Mark {
        Mark { events: self.ends.len() }
    }

    /// Drops the events noted since `mark`, because their request waits and will be executed again.
    pub(crate) fn take_back(&mut self, mark: Mark) {
        self.ends.truncate(mark.events);
        self.lines.truncate(self.ends.last().map_or(0, |&(_, _, end)| end));
    }

    #[inline]
    pub(crate) fn has_lines(&self) -> bool {
        !self.ends.is_empty()
    }

    #[cold]
    pub(crate) fn item(
        &mut self,
        (watch, counters): (&Watch, &Counters),
        stream: Streams,
        (key, value_bytes): (&[u8], u32),
        what: Item<'_>,
    ) {
        self.note((watch, counters), stream, |out, stamp| {
            event::item(out, stamp, key, value_bytes, what);
        });
    }

    /// Notes that a connection was closed for `reason`, or was accepted if `reason` is `None`.
    #[cold]
    pub(crate) fn connection(
        &mut self,
        (watch, counters): (&Watch, &Counters),
        (peer, descriptor): (Option<SocketAddr>, i32),
        reason: Option<&str>,
    ) {
        self.note((watch, counters), Streams::CONNEVENTS, |out, stamp| {
            let ip = peer.map(|peer| peer.ip());
            let port = peer.map_or(0, |peer| peer.port());
            let peer = ip.as_ref().map(|ip| (ip as &dyn Display, port));
            event::connection(out, stamp, peer, descriptor, reason);
        });
    }

    fn note(
        &mut self,
        (watch, counters): (&Watch, &Counters),
        stream: Streams,
        write: impl FnOnce(&mut Vec<u8>, Stamp),
    ) {
        // Relaxed: the addition only gives each event a unique number.
        let number = watch.events.fetch_add(1, Ordering::Relaxed);
        if self.lines.len() + LINE_BYTES_MAX > watch.noted_bytes_max {
            counters.log_worker_dropped.add(1);
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = Stamp { seconds: now.as_secs(), us: now.subsec_micros(), number };
        write(&mut self.lines, stamp);
        self.ends.push((stream, number, self.lines.len()));
        counters.log_worker_written.add(1);
    }

    /// Appends each line to the waiting lines of the watchers that watch the line's stream.
    #[cold]
    pub(crate) fn tell(&mut self, watch: &Watch, counters: &Counters) {
        for watcher in watch.lock().iter() {
            let mut waiting = watcher.lock();
            let mut at = 0;
            for &(stream, number, end) in &self.ends {
                let line = self.lines.get(at..end).unwrap_or_default();
                at = end;
                if number < watcher.from || !stream.intersects(watcher.streams) {
                    continue;
                }
                if waiting.lines.len() + LINE_BYTES_MAX > watch.waiting_bytes_max {
                    waiting.skipped += 1;
                    counters.log_watcher_skipped.add(1);
                    continue;
                }
                waiting.lines.extend_from_slice(line);
                counters.log_watcher_sent.add(1);
            }
        }
        if is(Fault::EventsSentTwice) {
            return;
        }
        self.lines.clear();
        self.ends.clear();
    }
}
