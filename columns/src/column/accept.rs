//! Accepts new connections.
//!
//! Where: a column calls `accept_ready` once per loop, after the turns of open connections.
//! Invariant: a loop accepts at most `ACCEPTS_MAX` connections per listener; all columns together
//! never have more than `-c` connections. If no descriptor is left for a connection, the column
//! stops accepting for a while instead of trying again at once.
//! Source: memcached 1.6.45 `drive_machine` (`conn_listening`), `do_accept_new_conns`.

use std::sync::atomic::Ordering;

use memory::plant::{Fault, is};
use net::{Accepted, Interest};
use protocol::{ProtocolMode, Refusal, Session};

use super::{Column, TOKEN_WAKER};
use crate::connection::Connection;
use crate::executor::Executor;
use crate::limits::ACCEPTS_MAX;
use crate::stream::{Stream, StreamWay};

impl<E: Executor, W: StreamWay> Column<E, W> {
    /// Adds all listeners to the epoll, in order. If a listener cannot be added, returns an error
    /// and does not add the listeners after it.
    pub(super) fn watch_listeners(&mut self) -> std::io::Result<()> {
        for (at, listener) in self.listeners.iter().enumerate() {
            if self.listeners_watched & 1 << at == 0 {
                let on = if listener.shared { Interest::AcceptShared } else { Interest::Accept };
                let token = TOKEN_WAKER + 1 + at as u64;
                self.epoll.add(&*listener.socket, token, on, &self.turn.calls)?;
                self.listeners_watched |= 1 << at;
            }
        }
        Ok(())
    }

    fn unwatch_listeners(&mut self) {
        for (at, listener) in self.listeners.iter().enumerate() {
            if self.listeners_watched & 1 << at != 0 {
                // `remove` fails only for an unwatched descriptor, and this listener is watched.
                let _unwatched = self.epoll.remove(&*listener.socket, &self.turn.calls);
            }
        }
        self.listeners_watched &= if is(Fault::RestNotNoted) { u64::MAX } else { 0 };
    }

    pub(super) fn close_listeners(&mut self) {
        self.unwatch_listeners();
        self.listeners_ready = 0;
        self.listeners.clear();
    }

    pub(super) fn accept_ready(&mut self) {
        while self.listeners_ready != 0 {
            let index = self.listeners_ready.trailing_zeros() as usize;
            self.listeners_ready &= self.listeners_ready - 1;
            self.accept_from(index);
        }
    }

    fn accept_from(&mut self, index: usize) {
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = self.listeners.get(index) else { return };
            if !self.turn.shared.settings.connections_max_fast && self.is_at_limit() {
                return self.rest_listeners();
            }
            match self.way.accept(&listener.socket, &self.turn.calls) {
                Accepted::Stream(stream) => {
                    let speak = listener.speak;
                    self.admit(stream, speak);
                }
                Accepted::Empty => return,
                Accepted::Exhausted => return self.rest_listeners(),
                Accepted::Aborted => {}
            }
        }
    }

    fn is_at_limit(&self) -> bool {
        let shared = &self.turn.shared;
        // Relaxed: the count is only a hint here; `admit` does the exact check.
        shared.connections.load(Ordering::Relaxed) >= shared.settings.connections_max
    }

    fn admit(&mut self, mut stream: W::Stream, speak: ProtocolMode) {
        let shared = &self.turn.shared;
        // Relaxed: the count orders nothing. Because the addition is atomic, the columns together
        // cannot exceed `-c`. The addition pairs with the subtractions here and in `close_for`.
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= shared.settings.connections_max {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            self.turn.counters.rejected_connections.add(1);
            let mut too_many = Vec::new();
            Session::new(speak).refused(Refusal::TooManyConnections).write(&mut too_many);
            let _gone = stream.write(&too_many, &self.turn.calls);
            return;
        }
        self.turn.counters.total_connections.add(1);
        self.note_connection(&stream, None);
        let connection = Connection::new(stream, speak, (self.turn.served_ms, self.turn.now_ms));
        self.watch(connection);
    }

    /// Stops accepting for a while, because no descriptor is left or `-c` is reached.
    fn rest_listeners(&mut self) {
        // If `resume_listeners` failed at a listener, some listeners are still watched.
        self.unwatch_listeners();
        if !self.timers.rest_listeners(self.turn.now_ms) {
            return;
        }
        self.turn.counters.listen_disabled.add(1);
        // Relaxed: only `stats` reads this flag, and the flag orders nothing.
        self.turn.shared.accepting.store(false, Ordering::Relaxed);
    }

    /// Resumes accepting, unless `-c` is still reached. If the kernel has no memory to watch a
    /// listener, the column tries again later; until then only the listeners before it accept.
    pub(super) fn resume_listeners(&mut self) {
        let waits = !self.turn.shared.settings.connections_max_fast && self.is_at_limit();
        if waits || self.watch_listeners().is_err() {
            self.timers.rest_listeners(self.turn.now_ms);
            return;
        }
        let rested_ms = self.timers.resume_listeners(self.turn.now_ms);
        self.turn.counters.listen_disabled_us.add(rested_ms * 1000);
        // Relaxed: only `stats` reads this flag.
        self.turn.shared.accepting.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpStream};
    use std::sync::Arc;

    use net::{Calls, Waker};

    use crate::column::{ColumnListener, Parts, Timers, coarse_now};
    use crate::datapath::list::Datapaths;
    use crate::limits::LISTENER_REST_MS;
    use crate::settings::Settings;
    use crate::shared::Shared;
    use crate::storeless::Storeless;
    use crate::stream::Kernel;

    fn column() -> Column<Storeless, Kernel> {
        let listener = || {
            let hold = net::ReservedPort::take((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let socket = Arc::new(hold.listen(1024).unwrap());
            ColumnListener { socket, speak: ProtocolMode::Auto, shared: false }
        };
        Column::new(Parts {
            executor: Storeless,
            way: Kernel,
            shared: (Arc::new(Shared::new(Settings::default())), 0),
            listeners: (0..3).map(|_| listener()).collect(),
            waker: Arc::new(Waker::new().unwrap()),
            end: Arc::default(),
            calls: Arc::<Calls>::default(),
            datapaths: Datapaths::default(),
            stealing: None,
            migration: None,
            timers: Timers::new(coarse_now(), false),
        })
        .unwrap()
    }

    fn accepted(column: &mut Column<Storeless, Kernel>) -> u64 {
        let taken =
            |column: &Column<Storeless, Kernel>| column.turn.counters.total_connections.get();
        let before = taken(column);
        let endpoint =
            |listener: &ColumnListener<net::Listener>| listener.socket.endpoint().clone();
        let endpoints: Vec<_> = column.listeners.iter().map(endpoint).collect();
        let _clients: Vec<_> = endpoints
            .iter()
            .map(|endpoint| match endpoint {
                net::Endpoint::Tcp(address) => TcpStream::connect(address).unwrap(),
                net::Endpoint::Unix(_) => panic!("no Unix socket was asked for"),
            })
            .collect();
        // `wake` ends the wait even if no listener is watched.
        column.waker.wake();
        column.wait().unwrap();
        column.accept_ready();
        taken(column) - before
    }

    fn after_rest(column: &mut Column<Storeless, Kernel>) {
        column.turn.now_ms += LISTENER_REST_MS;
        assert!(column.timers.listeners_rest_is_over(column.turn.now_ms));
        column.resume_listeners();
    }

    #[test]
    fn a_listener_that_could_not_be_watched_again_is_when_it_can() {
        let mut column = column();
        assert_eq!(accepted(&mut column), 3);
        column.rest_listeners();
        assert_eq!(accepted(&mut column), 0);
        // The third listener is now watched under another token, so `resume_listeners` fails.
        let (third, calls) = (Arc::clone(&column.listeners[2].socket), Arc::<Calls>::default());
        column.epoll.add(&*third, TOKEN_WAKER + 60, Interest::Accept, &calls).unwrap();
        for _ in 0..3 {
            after_rest(&mut column);
            assert!(!column.turn.shared.accepting.load(Ordering::Relaxed));
        }
        column.epoll.remove(&*third, &calls).unwrap();
        after_rest(&mut column);
        assert!(column.turn.shared.accepting.load(Ordering::Relaxed));
        // Three more connections were made while the listeners rested, and waited in the backlog.
        assert_eq!(accepted(&mut column), 6);
    }

    #[test]
    fn listeners_rest_again_although_one_could_not_be_watched() {
        let mut column = column();
        column.rest_listeners();
        let (third, calls) = (Arc::clone(&column.listeners[2].socket), Arc::<Calls>::default());
        column.epoll.add(&*third, TOKEN_WAKER + 60, Interest::Accept, &calls).unwrap();
        after_rest(&mut column);
        assert_eq!(accepted(&mut column), 2, "two are watched");
        column.rest_listeners();
        assert_eq!(accepted(&mut column), 0);
    }
}
