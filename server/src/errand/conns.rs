//! `stats conns`: a list of all columns' sockets.
//!
//! Where: the errand requests a page from one column after another, and each column answers in its
//! own loop.
//! Invariant: a page lists at most `CONNECTIONS_TOLD_MAX` sockets. The next page is requested after
//! this page is written. A socket that stays open is listed once. At most `PAGE_REQUESTS_MAX`
//! requests are open at a time. A column does no work for the request of an ended errand.
//! Source: memcached 1.6.45 `process_stats_conns`, `conn_to_str`, `get_conn_text`.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use memory::plant::{Fault, is};
use memory::sync::{Mutex, MutexGuard};
use net::{Endpoint, Waker};
use protocol::{Form, Outcome};

use super::Progress;
use crate::execute::Context;
use crate::limits::{PAGE_REQUESTS_MAX, PAGES_ANSWERED_MAX};
use crate::shared::Shared;
use crate::watch::PAGES_REQUESTED;

#[derive(Debug, Default)]
pub(crate) struct PageRequests {
    waiting: Mutex<Vec<Arc<PageRequest>>>,
    wakers: Mutex<Vec<Arc<Waker>>>,
}

#[derive(Debug)]
pub(crate) struct PageRequest {
    column: usize,
    /// Index of the page's first connection in the column's table of connections.
    pub(crate) from: usize,
    requester: usize,
    answer: Mutex<Option<Page>>,
}

#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
    /// The entry at which the next page begins, if there are more connections.
    pub(crate) next: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) descriptor: i32,
    pub(crate) is_udp: bool,
    pub(crate) address: String,
    /// The listening address that accepted the connection.
    pub(crate) listens_at: Option<String>,
    pub(crate) state: &'static str,
    pub(crate) idle_seconds: u64,
}

#[derive(Debug)]
pub(crate) struct Conns {
    form: Form,
    /// The column that lists the next page, and the entry at which that page begins.
    next: (usize, usize),
    /// The open request. `None` if too many requests were open, so that none could be made.
    request: Option<Arc<PageRequest>>,
}

impl PageRequests {
    pub(crate) fn set_wakers(&self, wakers: &[Arc<Waker>]) {
        *self.wakers.lock().unwrap_or_else(PoisonError::into_inner) = wakers.to_vec();
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<PageRequest>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, column: usize) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.get(column).into_iter().for_each(|waker| waker.wake());
    }

    /// Takes some of the page requests to `column`. If more are left, wakes the column again.
    pub(crate) fn take(shared: &Shared, column: usize) -> Vec<Arc<PageRequest>> {
        let requests = &shared.page_requests;
        let mut waiting = requests.waiting();
        let is_own = |request: &Arc<PageRequest>| request.column == column;
        // If only this list holds a request, the errand of the request has ended.
        waiting.retain(|request| Arc::strong_count(request) > 1);
        let own =
            waiting.extract_if(.., |request| is_own(request)).take(PAGES_ANSWERED_MAX).collect();
        if waiting.iter().any(is_own) && !is(Fault::LaterRequestsForgotten) {
            requests.wake(column);
        }
        shared.watch.set(PAGES_REQUESTED, !waiting.is_empty());
        own
    }
}

impl PageRequest {
    /// Requests a column's page that begins at entry `from`. `None` if too many requests are open.
    fn post(
        shared: &Shared,
        (column, from): (usize, usize),
        requester: usize,
    ) -> Option<Arc<PageRequest>> {
        let request = Arc::new(PageRequest { column, from, requester, answer: Mutex::default() });
        let mut waiting = shared.page_requests.waiting();
        if waiting.len() >= PAGE_REQUESTS_MAX {
            return None;
        }
        waiting.push(Arc::clone(&request));
        shared.watch.set(PAGES_REQUESTED, true);
        drop(waiting);
        shared.page_requests.wake(column);
        Some(request)
    }

    pub(crate) fn answer(&self, shared: &Shared, page: Page) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(page);
        if !is(Fault::RequesterNotWoken) {
            shared.page_requests.wake(self.requester);
        }
    }
}

impl Conns {
    pub(crate) fn begin(context: &Context, form: Form) -> Conns {
        let mut conns = Conns { form, next: (0, 0), request: None };
        conns.post(context);
        conns
    }

    /// Requests the next page. If too many requests are open, the next step tries again.
    fn post(&mut self, context: &Context) {
        self.request = PageRequest::post(&context.shared, self.next, context.column);
    }

    /// Writes the page if the column has answered, and requests the next page.
    pub(crate) fn step(&mut self, context: &Context, out: &mut Vec<u8>) -> Progress {
        let Some(request) = &self.request else {
            self.post(context);
            return Progress::Idle;
        };
        let answer = request.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Page { rows, next }) = answer else { return Progress::Idle };
        for row in &rows {
            row.write(self.form, out);
        }
        self.next = match next {
            Some(from) => (request.column, from),
            None => (request.column + 1, 0),
        };
        if self.next.0 >= context.shared.columns.len() {
            self.form.write_outcome(Outcome::StatsEnd, out);
            return Progress::Done;
        }
        self.post(context);
        Progress::Idle
    }
}

impl Row {
    fn write(&self, form: Form, out: &mut Vec<u8>) {
        let descriptor = self.descriptor;
        let mut row = |name: &str, value: &str| {
            form.stat(&format!("{descriptor}:{name}"), format_args!("{value}"), out);
        };
        if self.is_udp {
            row("UDP", "UDP");
        }
        row("addr", &self.address);
        if let Some(listens_at) = &self.listens_at {
            row("listen_addr", listens_at);
        }
        row("state", self.state);
        row("secs_since_last_cmd", &self.idle_seconds.to_string());
    }
}

/// Formats an address as memcached does. A client of a Unix socket has no address.
pub(crate) fn address(transport: &str, endpoint: Option<&Endpoint>) -> String {
    match endpoint {
        Some(Endpoint::Tcp(SocketAddr::V4(address))) => format!("{transport}:{address}"),
        Some(Endpoint::Tcp(SocketAddr::V6(address))) => format!("{transport}6:{address}"),
        Some(Endpoint::Unix(path)) => format!("unix:{}", path.display()),
        None => "?:<AF 0>".to_owned(),
    }
}
