//! Lists a column's sockets for `stats conns`.
//!
//! Where: a column calls `answer_page_requests` once per loop, if any column has such a request.
//! Invariant: a loop lists at most `CONNECTIONS_TOLD_MAX` sockets for each requested page.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use net::{Endpoint, own_endpoint};

use super::Column;
use crate::connection::Connection;
use crate::executor::Executor;
use crate::limits::CONNECTIONS_TOLD_MAX;
use crate::pages::{Page, Row, address};
use crate::stream::{Stream, StreamWay};

impl<E: Executor, W: StreamWay> Column<E, W> {
    #[cold]
    pub(super) fn answer_page_requests(&mut self) {
        let pages = &self.turn.shared.pages;
        for request in pages.take(self.turn.column) {
            pages.answer(&request, self.page(request.from()));
        }
    }

    /// Lists listeners and UDP sockets if `from` is 0, and then connections from entry `from` on.
    fn page(&self, from: usize) -> Page {
        let mut page = Page::default();
        if from == 0 {
            let is_told = |shared: bool| !shared || self.turn.column == 0;
            let listeners = self.listeners.iter().filter(|it| is_told(it.shared));
            let bound = listeners.map(|it| it.socket.as_fd());
            page.rows.extend(bound.map(|it| self.bound(it, own_endpoint(it).as_ref(), false)));
            // A queue of an interface has no address.
            let sockets = self.datapaths.descriptors().into_iter();
            page.rows.extend(sockets.filter_map(|(_, socket)| {
                Some(self.bound(socket, Some(&own_endpoint(socket)?), true))
            }));
        }
        for (entry, connection) in self.connections.from(from) {
            if page.rows.len() >= CONNECTIONS_TOLD_MAX {
                page.next = Some(entry);
                break;
            }
            page.rows.push(self.connected(connection));
        }
        page
    }

    fn bound(&self, socket: BorrowedFd<'_>, own: Option<&Endpoint>, is_udp: bool) -> Row {
        let (transport, state) =
            if is_udp { ("udp", "conn_read") } else { ("tcp", "conn_listening") };
        Row {
            descriptor: socket.as_raw_fd(),
            is_udp,
            address: address(transport, own),
            listens_at: None,
            state,
            idle_seconds: self.turn.now_ms / 1000,
        }
    }

    fn connected(&self, connection: &Connection<E, W::Stream>) -> Row {
        let stream = connection.stream();
        let peer = stream.peer().map(Endpoint::Tcp);
        Row {
            descriptor: connection.number(),
            is_udp: false,
            address: address("tcp", peer.as_ref()),
            listens_at: Some(address("tcp", stream.own().as_ref())),
            state: connection.state(),
            idle_seconds: self.turn.now_ms.saturating_sub(connection.active_ms) / 1000,
        }
    }
}
