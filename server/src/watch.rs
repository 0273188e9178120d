//! Who watches, and what there is to tell them.
//!
//! Where: a column notes events beside its work, where somebody watches them; once a loop it hands
//! the lines to those who do, whose own columns send them.
//! Invariant: nobody who works waits for anybody who watches. What a column notes in a loop, and
//! what waits to be sent to a watcher, is bounded; lines beyond that are dropped, counted, and
//! their number is told. While nobody watches, a request looks at a number of its own column, which
//! the column reads anew once a loop.
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
use crate::shared::{Counters, Shared};

/// Requests are counted by the prefixes of their keys.
pub(crate) const DETAIL: Streams = Streams(1 << 8);

/// Somebody asks columns of their sockets.
pub(crate) const ASKED: Streams = Streams(1 << 9);

/// All who watch, and what else columns look for once a loop.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The streams that anybody watches, `DETAIL`, `ASKED`. Changed under the lock of `watchers`.
    watched: AtomicU32,
    /// Events so far.
    events: AtomicU64,
    watchers: Mutex<Vec<Arc<Watcher>>>,
}

/// One who watches.
#[derive(Debug)]
struct Watcher {
    streams: Streams,
    /// Events before this one are not told.
    from: u64,
    waiting: Mutex<Waiting>,
}

/// Lines that wait to be sent.
#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines left out behind these, which stay as many until they are taken.
    skipped: u64,
}

/// A watcher's place among all, which it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    watcher: Arc<Watcher>,
    shared: Arc<Shared>,
}

impl Watch {
    /// Nobody watches. Are requests counted by prefixes?
    pub(crate) fn new(detail: bool) -> Watch {
        let watch = Watch::default();
        watch.set(DETAIL, detail);
        watch
    }

    /// Switches `DETAIL` or `ASKED`. Its lock is the last to be taken.
    pub(crate) fn set(&self, bit: Streams, on: bool) {
        let _watchers = self.lock();
        let watched = self.watched();
        let watched = if on { watched.with(bit) } else { watched.without(bit) };
        self.watched.store(watched.0, Ordering::Relaxed); // as in `watched`
    }

    /// What anybody watches now.
    pub(crate) fn watched(&self) -> Streams {
        // Relaxed: a hint. Who begins to watch is told of what happens a loop later.
        Streams(self.watched.load(Ordering::Relaxed))
    }

    /// Those who watch.
    pub(crate) fn watchers(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Watcher>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the `watchers` watch together.
    fn publish(&self, watchers: &[Arc<Watcher>]) {
        let kept = if is(Fault::AskedUnsetByWatcher) { DETAIL } else { DETAIL.with(ASKED) };
        let rest = Streams(self.watched().0 & kept.0);
        let all = watchers.iter().fold(rest, |all, one| all.with(one.streams));
        self.watched.store(all.0, Ordering::Relaxed); // as in `watched`
    }
}

impl Seat {
    /// Begins to watch; `None`: as many watch as may.
    pub(crate) fn take(shared: &Arc<Shared>, streams: Streams) -> Option<Seat> {
        let mut watchers = shared.watch.lock();
        if watchers.len() >= WATCHERS_MAX {
            return None;
        }
        // Relaxed: a number by itself.
        let from = shared.watch.events.load(Ordering::Relaxed);
        let watcher = Arc::new(Watcher { streams, from, waiting: Mutex::default() });
        watchers.push(Arc::clone(&watcher));
        shared.watch.publish(&watchers);
        drop(watchers);
        Some(Seat { watcher, shared: Arc::clone(shared) })
    }

    /// Takes the lines that wait, and behind them the number of those left out since.
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

impl Drop for Seat {
    fn drop(&mut self) {
        let mut watchers = self.shared.watch.lock();
        watchers.retain(|other| !Arc::ptr_eq(other, &self.watcher));
        if is(Fault::SeatStaysWatched) {
            return;
        }
        self.shared.watch.publish(&watchers);
    }
}

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one column has noted in its loop.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// What anybody watches, as it was when the loop began.
    pub(crate) watched: Streams,
    /// The descriptor of the connection whose turn it is.
    pub(crate) descriptor: i32,
    lines: Vec<u8>,
    /// Of each line: its stream, its number, and where it ends.
    ends: Vec<(Streams, u64, usize)>,
}

/// How much a column had noted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    events: usize,
}

impl Noted {
    /// How much is noted so far in this loop.
    pub(crate) fn mark(&self) -> Mark {
        Mark { events: self.ends.len() }
    }

    /// Takes back what was noted since: it is yet to happen.
    pub(crate) fn take_back(&mut self, mark: Mark) {
        self.ends.truncate(mark.events);
        self.lines.truncate(self.ends.last().map_or(0, |&(_, _, end)| end));
    }

    /// Is there anything to tell?
    #[inline]
    pub(crate) fn has_lines(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Notes what happened to an item, for those who watch `stream`.
    #[cold]
    pub(crate) fn item(
        &mut self,
        (shared, counters): (&Shared, &Counters),
        stream: Streams,
        (key, value_bytes): (&[u8], u32),
        what: Item<'_>,
    ) {
        self.note((shared, counters), stream, |out, stamp| {
            event::item(out, stamp, key, value_bytes, what);
        });
    }

    /// Notes that a connection came, or with a `reason` that it went.
    #[cold]
    pub(crate) fn connection(
        &mut self,
        (shared, counters): (&Shared, &Counters),
        (peer, descriptor): (Option<SocketAddr>, i32),
        reason: Option<&str>,
    ) {
        self.note((shared, counters), Streams::CONNEVENTS, |out, stamp| {
            let ip = peer.map(|peer| peer.ip());
            let port = peer.map_or(0, |peer| peer.port());
            let peer = ip.as_ref().map(|ip| (ip as &dyn Display, port));
            event::connection(out, stamp, peer, descriptor, reason);
        });
    }

    fn note(
        &mut self,
        (shared, counters): (&Shared, &Counters),
        stream: Streams,
        write: impl FnOnce(&mut Vec<u8>, Stamp),
    ) {
        // Relaxed: each event has a number of its own; that is all.
        let number = shared.watch.events.fetch_add(1, Ordering::Relaxed);
        if self.lines.len() + LINE_BYTES_MAX > shared.settings.worker_log_bytes {
            counters.log_worker_dropped.add(1);
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = Stamp { seconds: now.as_secs(), us: now.subsec_micros(), number };
        write(&mut self.lines, stamp);
        self.ends.push((stream, number, self.lines.len()));
        counters.log_worker_written.add(1);
    }

    /// Hands the lines to those who watch.
    #[cold]
    pub(crate) fn tell(&mut self, shared: &Shared, counters: &Counters) {
        let most_bytes = shared.settings.watcher_log_bytes;
        for watcher in shared.watch.lock().iter() {
            let mut waiting = watcher.lock();
            let mut at = 0;
            for &(stream, number, end) in &self.ends {
                let line = self.lines.get(at..end).unwrap_or_default();
                at = end;
                if number < watcher.from || !stream.meet(watcher.streams) {
                    continue;
                }
                if waiting.lines.len() + LINE_BYTES_MAX > most_bytes {
                    waiting.skipped += 1;
                    counters.log_watcher_skipped.add(1);
                    continue;
                }
                waiting.lines.extend_from_slice(line);
                counters.log_watcher_sent.add(1);
            }
        }
        if is(Fault::ToldTwice) {
            return;
        }
        self.lines.clear();
        self.ends.clear();
    }
}
