//! Taking new connections in.
//!
//! Where: once per loop, after the turns of the connections that stand.
//! Invariant: at most `ACCEPTS_MAX` per listener and loop; never more connections than `-c` at a
//! time, all columns together. A listener for which there is no descriptor rests instead of asking
//! again at once.
//! Source: memcached 1.6.45 `drive_machine` (`conn_listening`), `do_accept_new_conns`.

use std::sync::atomic::Ordering;

use net::{Accepted, Interest, Stream};
use protocol::Speak;

use super::{Column, TOKEN_WAKER};
use crate::connection::Connection;
use crate::limits::ACCEPTS_MAX;

/// What a connection over `-c` is told.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

impl Column {
    /// Watches the listeners.
    pub(super) fn watch_sources(&self) -> std::io::Result<()> {
        for (token, source) in (TOKEN_WAKER + 1..).zip(&self.sources) {
            let on = if source.shared { Interest::AcceptShared } else { Interest::Accept };
            self.epoll.add(&*source.listener, token, on, &self.kit.calls)?;
        }
        Ok(())
    }

    /// Accepts what waits at the listeners that were reported.
    pub(super) fn accept_ready(&mut self) {
        while self.sources_ready != 0 {
            let index = self.sources_ready.trailing_zeros() as usize;
            self.sources_ready &= self.sources_ready - 1;
            self.accept_from(index);
        }
    }

    fn accept_from(&mut self, index: usize) {
        for _ in 0..ACCEPTS_MAX {
            let Some(source) = self.sources.get(index) else { return };
            if !self.kit.context.shared.settings.connections_max_fast && self.is_at_limit() {
                return self.rest_sources();
            }
            match source.listener.accept(&self.kit.calls) {
                Accepted::Stream(stream) => {
                    let speak = source.speak;
                    self.admit(stream, speak);
                }
                Accepted::Empty => return,
                Accepted::Exhausted => return self.rest_sources(),
                Accepted::Aborted => {}
            }
        }
    }

    fn is_at_limit(&self) -> bool {
        let shared = &self.kit.context.shared;
        // Relaxed: a hint; `admit` decides.
        shared.connections.load(Ordering::Relaxed) >= shared.settings.connections_max
    }

    fn admit(&mut self, stream: Stream, speak: Speak) {
        let shared = &self.kit.context.shared;
        // Relaxed: a count that orders nothing; the addition itself is what keeps two columns from
        // both taking the last place. Pairs with the subtractions here and in `close`.
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= shared.settings.connections_max {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            self.kit.context.counters.rejected_connections.add(1);
            let _gone = stream.write(TOO_MANY, &self.kit.calls);
            return;
        }
        self.kit.context.counters.total_connections.add(1);
        let connection = Connection::new(stream, speak, self.kit.now_ms);
        let token = self.connections.insert(connection);
        let Some(connection) = self.connections.get(token) else { return };
        let watched = self.epoll.add(connection.stream(), token, Interest::Read, &self.kit.calls);
        if watched.is_err() {
            self.close(token);
        }
    }

    /// Accepts nothing for a while: there is no descriptor, or no room under `-c`.
    fn rest_sources(&mut self) {
        if !self.tick.rest(self.kit.now_ms) {
            return;
        }
        for source in &self.sources {
            // Watched until now, so this cannot fail.
            let _watched = self.epoll.remove(&*source.listener, &self.kit.calls);
        }
        self.kit.context.counters.listen_disabled.add(1);
        // Relaxed: for `stats` alone.
        self.kit.context.shared.accepting.store(false, Ordering::Relaxed);
    }

    /// Accepts again, if there is room.
    pub(super) fn resume_sources(&mut self) {
        let waits = !self.kit.context.shared.settings.connections_max_fast && self.is_at_limit();
        if waits || self.watch_sources().is_err() {
            self.tick.rest(self.kit.now_ms);
            return;
        }
        self.tick.rested();
        // Relaxed: as in `rest_sources`.
        self.kit.context.shared.accepting.store(true, Ordering::Relaxed);
    }
}
