//! Lists of a column's sockets, page by page.
//!
//! Where: an errand of an executor requests a page from a column, which answers in its own loop.
//! Invariant: a page lists at most `CONNECTIONS_TOLD_MAX` sockets. At most `PAGE_REQUESTS_MAX`
//! requests are open at a time. A column does no work for a request that its requester has dropped.
//! Source: memcached 1.6.45 `process_stats_conns`.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use memory::plant::{Fault, is};
use memory::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use net::{Endpoint, Waker};

use crate::limits::{PAGE_REQUESTS_MAX, PAGES_ANSWERED_MAX};

/// The open requests for pages of all columns.
#[derive(Debug, Default)]
pub struct PageRequests {
    /// True if `waiting` is not empty, so that a loop without requests takes no lock.
    any: AtomicBool,
    waiting: Mutex<Vec<Arc<PageRequest>>>,
    wakers: Mutex<Vec<Arc<Waker>>>,
}

/// A request for a page of one column.
#[derive(Debug)]
pub struct PageRequest {
    /// The column that lists its sockets.
    pub column: usize,
    /// Index of the page's first connection in the column's table of connections.
    from: usize,
    requester: usize,
    answer: Mutex<Option<Page>>,
}

/// Some of a column's sockets.
#[derive(Debug, Default)]
pub struct Page {
    /// A row for each socket.
    pub rows: Vec<Row>,
    /// The entry at which the next page begins, if there are more connections.
    pub next: Option<usize>,
}

/// One socket of a column.
#[derive(Debug)]
pub struct Row {
    /// The socket's descriptor.
    pub descriptor: i32,
    /// True if the socket receives datagrams.
    pub is_udp: bool,
    /// The address of the peer, or of the socket itself if it has no peer.
    pub address: String,
    /// The listening address that accepted the connection.
    pub listens_at: Option<String>,
    /// memcached's name for the state of the connection.
    pub state: &'static str,
    /// Seconds since the connection last received, executed or sent.
    pub idle_seconds: u64,
}

impl PageRequests {
    /// Sets the wakers of all columns, in the order of their numbers.
    pub fn set_wakers(&self, wakers: &[Arc<Waker>]) {
        *self.wakers.lock().unwrap_or_else(PoisonError::into_inner) = wakers.to_vec();
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<PageRequest>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, column: usize) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.get(column).into_iter().for_each(|waker| waker.wake());
    }

    /// Requests a column's page that begins at entry `from`. `None` if too many requests are open.
    pub fn post(
        &self,
        (column, from): (usize, usize),
        requester: usize,
    ) -> Option<Arc<PageRequest>> {
        let request = Arc::new(PageRequest { column, from, requester, answer: Mutex::default() });
        let mut waiting = self.waiting();
        if waiting.len() >= PAGE_REQUESTS_MAX {
            return None;
        }
        waiting.push(Arc::clone(&request));
        self.any.store(true, Ordering::Relaxed); // a hint; the lock orders the list
        drop(waiting);
        self.wake(column);
        Some(request)
    }

    /// True if a column may have requests.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // Relaxed: pairs with the stores under the lock. A column that reads an old `false` is
        // woken after the store, and then reads the new value.
        self.any.load(Ordering::Relaxed)
    }

    /// Takes some of the page requests to `column`. If more are left, wakes the column again.
    pub fn take(&self, column: usize) -> Vec<Arc<PageRequest>> {
        let mut waiting = self.waiting();
        let is_own = |request: &Arc<PageRequest>| request.column == column;
        // If only this list holds a request, the requester has dropped it.
        waiting.retain(|request| Arc::strong_count(request) > 1);
        let own =
            waiting.extract_if(.., |request| is_own(request)).take(PAGES_ANSWERED_MAX).collect();
        if waiting.iter().any(is_own) && !is(Fault::LaterRequestsForgotten) {
            self.wake(column);
        }
        self.any.store(!waiting.is_empty(), Ordering::Relaxed); // a hint; the lock orders the list
        own
    }

    /// Answers a request, and wakes the requester.
    pub fn answer(&self, request: &PageRequest, page: Page) {
        *request.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(page);
        if !is(Fault::RequesterNotWoken) {
            self.wake(request.requester);
        }
    }
}

impl PageRequest {
    /// The entry at which the page begins.
    #[must_use]
    pub fn from(&self) -> usize {
        self.from
    }

    /// Takes the page, if the column has answered.
    #[must_use]
    pub fn take_page(&self) -> Option<Page> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Formats an address as memcached does. A client of a Unix socket has no address.
pub fn address(transport: &str, endpoint: Option<&Endpoint>) -> String {
    match endpoint {
        Some(Endpoint::Tcp(SocketAddr::V4(address))) => format!("{transport}:{address}"),
        Some(Endpoint::Tcp(SocketAddr::V6(address))) => format!("{transport}6:{address}"),
        Some(Endpoint::Unix(path)) => format!("unix:{}", path.display()),
        None => "?:<AF 0>".to_owned(),
    }
}
