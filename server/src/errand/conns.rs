//! `stats conns`: a list of all columns' sockets.
//!
//! Where: the errand requests a page from one column after another, and each column answers in its
//! own loop.
//! Invariant: a page lists at most `CONNECTIONS_TOLD_MAX` sockets. The next page is requested after
//! this page is written. A socket that stays open is listed once. At most `PAGE_REQUESTS_MAX`
//! requests are open at a time. A column does no work for the request of an ended errand.
//! Source: memcached 1.6.45 `process_stats_conns`, `conn_to_str`, `get_conn_text`.

use std::sync::Arc;

use columns::executor::Progress;
use columns::pages::{Page, PageRequest, Row};
use columns::shared::Shared;
use protocol::{Form, Outcome};

#[derive(Debug)]
pub(crate) struct Conns {
    form: Form,
    /// The column that lists the next page, and the entry at which that page begins.
    next: (usize, usize),
    /// The open request. `None` if too many requests were open, so that none could be made.
    request: Option<Arc<PageRequest>>,
}

impl Conns {
    /// Begins a list for a client of column `own`.
    pub(crate) fn begin(columns: &Shared, own: usize, form: Form) -> Conns {
        let mut conns = Conns { form, next: (0, 0), request: None };
        conns.post(columns, own);
        conns
    }

    /// Requests the next page. If too many requests are open, the next step tries again.
    fn post(&mut self, columns: &Shared, own: usize) {
        self.request = columns.pages.post(self.next, own);
    }

    /// Writes the page if the column has answered, and requests the next page.
    pub(crate) fn step(&mut self, columns: &Shared, own: usize, out: &mut Vec<u8>) -> Progress {
        let Some(request) = &self.request else {
            self.post(columns, own);
            return Progress::Idle;
        };
        let Some(Page { rows, next }) = request.take_page() else { return Progress::Idle };
        for row in &rows {
            write(row, self.form, out);
        }
        self.next = match next {
            Some(from) => (request.column, from),
            None => (request.column + 1, 0),
        };
        if self.next.0 >= columns.counters.len() {
            self.form.write_outcome(Outcome::StatsEnd, out);
            return Progress::Done;
        }
        self.post(columns, own);
        Progress::Idle
    }
}

fn write(socket: &Row, form: Form, out: &mut Vec<u8>) {
    let descriptor = socket.descriptor;
    let mut row = |name: &str, value: &str| {
        form.stat(&format!("{descriptor}:{name}"), format_args!("{value}"), out);
    };
    if socket.is_udp {
        row("UDP", "UDP");
    }
    row("addr", &socket.address);
    if let Some(listens_at) = &socket.listens_at {
        row("listen_addr", listens_at);
    }
    row("state", socket.state);
    row("secs_since_last_cmd", &socket.idle_seconds.to_string());
}
