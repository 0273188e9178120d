//! Taking new connections in.
//!
//! Where: once per loop, after the turns of the connections that stand.
//! Invariant: at most `ACCEPTS_MAX` per listener and loop; never more connections than `-c` at a
//! time, all columns together. A listener for which there is no descriptor rests instead of asking
//! again at once.
//! Source: memcached 1.6.45 `drive_machine` (`conn_listening`), `do_accept_new_conns`.

use std::sync::atomic::Ordering;

use net::{Accepted, Interest, Stream};
use protocol::{Refusal, Speak, text};

use super::{Column, TOKEN_WAKER};
use crate::connection::Connection;
use crate::limits::ACCEPTS_MAX;

impl Column {
    /// Watches the listeners that are not watched.
    ///
    /// # Errors
    /// As `Epoll::add`; those before it are watched now.
    pub(super) fn watch_sources(&mut self) -> std::io::Result<()> {
        for (at, source) in self.sources.iter().enumerate() {
            if self.sources_watched & 1 << at == 0 {
                let on = if source.shared { Interest::AcceptShared } else { Interest::Accept };
                let token = TOKEN_WAKER + 1 + at as u64;
                self.epoll.add(&*source.listener, token, on, &self.kit.calls)?;
                self.sources_watched |= 1 << at;
            }
        }
        Ok(())
    }

    /// Watches no listener.
    fn unwatch_sources(&mut self) {
        for (at, source) in self.sources.iter().enumerate() {
            if self.sources_watched & 1 << at != 0 {
                // It fails only for a descriptor that is not watched.
                let _unwatched = self.epoll.remove(&*source.listener, &self.kit.calls);
            }
        }
        self.sources_watched = 0;
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
            let too_many = text::write::line(Refusal::TooManyConnections);
            let _gone = stream.write(too_many.as_bytes(), &self.kit.calls);
            return;
        }
        self.kit.context.counters.total_connections.add(1);
        let connection = Connection::new(stream, speak, (self.kit.served_ms, self.kit.now_ms));
        let token = self.connections.insert(connection);
        let Some(connection) = self.connections.get(token) else { return };
        let watched = self.epoll.add(connection.stream(), token, Interest::Read, &self.kit.calls);
        if watched.is_err() {
            self.close(token);
        }
    }

    /// Accepts nothing for a while: there is no descriptor, or no room under `-c`.
    fn rest_sources(&mut self) {
        // Some may be watched although they rest: where others could not be watched again.
        self.unwatch_sources();
        if !self.tick.rest(self.kit.now_ms) {
            return;
        }
        self.kit.context.counters.listen_disabled.add(1);
        // Relaxed: for `stats` alone.
        self.kit.context.shared.accepting.store(false, Ordering::Relaxed);
    }

    /// Accepts again, if there is room. A listener for whose watch there is no memory is tried
    /// again later; the others accept meanwhile.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use net::{Calls, Waker};
    use store::{Config, Store};

    use crate::clock::{Clock, START};
    use crate::column::{Parts, Tick, moment};
    use crate::execute::Context;
    use crate::limits::LISTENER_REST_MS;
    use crate::listen;
    use crate::settings::{Listen, Port, Protocol, Settings};
    use crate::shared::Shared;

    /// A column with three listeners, on loopback.
    fn column() -> Column {
        let listen = Listen {
            host: Some("127.0.0.1".to_owned()),
            port: Port::Any,
            protocol: Protocol::Auto,
        };
        let settings = Settings { listen: vec![listen; 3], columns: 1, ..Settings::default() };
        let sources = listen::open(&settings).unwrap().columns.remove(0);
        let store = Store::new(&Config {
            memory_bytes: settings.memory_bytes,
            item_bytes_max: settings.item_bytes_max,
            columns: 1,
            eviction: None,
            cas: true,
            now: START,
        })
        .unwrap();
        let clock = Clock::new(0);
        let shared = Shared::new(Arc::new(settings), Arc::clone(&store), clock.process_started);
        let counters = Arc::clone(&shared.columns[0]);
        let ahead = crate::ahead::Ahead::start(&store, true).unwrap().asking();
        let context = Context { store: store.column(), counters, shared, clock, may_wait: true };
        Column::new(Parts {
            number: 0,
            context,
            sources,
            waker: Arc::new(Waker::new().unwrap()),
            stopping: Arc::new(AtomicBool::new(false)),
            calls: Arc::<Calls>::default(),
            ahead,
            tick: Tick::new(moment(), false),
        })
        .unwrap()
    }

    /// Connects to each listener; how many connections the column has taken in since.
    fn accepted(column: &mut Column) -> u64 {
        let taken = |column: &Column| column.kit.context.counters.total_connections.get();
        let before = taken(column);
        let place = |source: &crate::listen::Source| source.listener.place().clone();
        let places: Vec<_> = column.sources.iter().map(place).collect();
        let _clients: Vec<_> = places
            .iter()
            .map(|place| match place {
                net::Place::Tcp(address) => TcpStream::connect(address).unwrap(),
                net::Place::Unix(_) => panic!("no Unix socket was asked for"),
            })
            .collect();
        // Ends the wait where nobody listens.
        column.waker.wake();
        column.wait().unwrap();
        column.accept_ready();
        taken(column) - before
    }

    /// The time for which listeners rest is over.
    fn after_rest(column: &mut Column) {
        column.kit.now_ms += LISTENER_REST_MS;
        assert!(column.tick.rest_is_over(column.kit.now_ms));
        column.resume_sources();
    }

    #[test]
    fn a_listener_that_could_not_be_watched_again_is_when_it_can() {
        let mut column = column();
        assert_eq!(accepted(&mut column), 3);
        column.rest_sources();
        assert_eq!(accepted(&mut column), 0);
        // The third cannot be added: it is there, by a number that is nobody's.
        let (third, calls) = (Arc::clone(&column.sources[2].listener), Arc::<Calls>::default());
        column.epoll.add(&*third, TOKEN_WAKER + 60, Interest::Accept, &calls).unwrap();
        for _ in 0..3 {
            after_rest(&mut column);
            assert!(!column.kit.context.shared.accepting.load(Ordering::Relaxed));
        }
        column.epoll.remove(&*third, &calls).unwrap();
        after_rest(&mut column);
        assert!(column.kit.context.shared.accepting.load(Ordering::Relaxed));
        // With those that waited while all rested.
        assert_eq!(accepted(&mut column), 6);
    }

    #[test]
    fn listeners_rest_again_although_one_could_not_be_watched() {
        let mut column = column();
        column.rest_sources();
        let (third, calls) = (Arc::clone(&column.sources[2].listener), Arc::<Calls>::default());
        column.epoll.add(&*third, TOKEN_WAKER + 60, Interest::Accept, &calls).unwrap();
        after_rest(&mut column);
        assert_eq!(accepted(&mut column), 2, "two are watched");
        column.rest_sources();
        assert_eq!(accepted(&mut column), 0);
    }
}
