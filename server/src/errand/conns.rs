//! `stats conns`: a list of all columns' sockets.
//!
//! Where: the errand asks one column after the other, and each answers in its own loop.
//! Invariant: a column lists at most `CONNECTIONS_TOLD_MAX` connections at a time, and is asked
//! again once these are sent. A socket that stays open is listed once. At most `ASKS_MAX` errands
//! ask at a time, and one that has ended costs no column anything.
//! Source: memcached 1.6.45 `process_stats_conns`, `conn_to_str`, `get_conn_text`.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use memory::plant::{Fault, is};
use memory::sync::{Mutex, MutexGuard};
use net::{Endpoint, Waker};
use protocol::{Form, Outcome};

use super::Progress;
use crate::execute::Context;
use crate::limits::{ASKS_ANSWERED_MAX, ASKS_MAX};
use crate::shared::Shared;
use crate::watch::ASKED;

/// The open asks of all errands, and the columns' wakers.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    waiting: Mutex<Vec<Arc<Ask>>>,
    wakers: Mutex<Vec<Arc<Waker>>>,
}

/// A question to one column.
#[derive(Debug)]
pub(crate) struct Ask {
    column: usize,
    /// The entry of the column's connections from which on to list them.
    pub(crate) from: usize,
    asker: usize,
    answer: Mutex<Option<Page>>,
}

/// A column's answer.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
    /// The entry to go on from, if there are more.
    pub(crate) next: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) descriptor: i32,
    pub(crate) is_udp: bool,
    pub(crate) address: String,
    /// The address where the connection was accepted.
    pub(crate) listens_at: Option<String>,
    pub(crate) state: &'static str,
    pub(crate) idle_seconds: u64,
}

#[derive(Debug)]
pub(crate) struct Conns {
    form: Form,
    /// The column to ask next, and the entry to begin from.
    next: (usize, usize),
    /// The open ask; `None` if there was no room for it.
    ask: Option<Arc<Ask>>,
}

impl Asks {
    /// Sets the wakers of the columns.
    pub(crate) fn set_wakers(&self, wakers: &[Arc<Waker>]) {
        *self.wakers.lock().unwrap_or_else(PoisonError::into_inner) = wakers.to_vec();
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<Ask>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, column: usize) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.get(column).into_iter().for_each(|waker| waker.wake());
    }

    /// Takes some of the asks to `column`. If there are more, wakes the column for them.
    pub(crate) fn take(shared: &Shared, column: usize) -> Vec<Arc<Ask>> {
        let asks = &shared.asks;
        let mut waiting = asks.waiting();
        let is_own = |ask: &Arc<Ask>| ask.column == column;
        // An ask that only this list holds belongs to an errand that has ended.
        waiting.retain(|ask| Arc::strong_count(ask) > 1);
        let own = waiting.extract_if(.., |ask| is_own(ask)).take(ASKS_ANSWERED_MAX).collect();
        if waiting.iter().any(is_own) && !is(Fault::AsksBehindForgotten) {
            asks.wake(column);
        }
        shared.watch.set(ASKED, !waiting.is_empty());
        own
    }
}

impl Ask {
    /// Asks a column for its connections from an entry on. Returns `None` if too many ask.
    fn post(shared: &Shared, (column, from): (usize, usize), asker: usize) -> Option<Arc<Ask>> {
        let ask = Arc::new(Ask { column, from, asker, answer: Mutex::default() });
        let mut waiting = shared.asks.waiting();
        if waiting.len() >= ASKS_MAX {
            return None;
        }
        waiting.push(Arc::clone(&ask));
        shared.watch.set(ASKED, true);
        drop(waiting);
        shared.asks.wake(column);
        Some(ask)
    }

    /// Answers the ask, and wakes the column that asked.
    pub(crate) fn answer(&self, shared: &Shared, page: Page) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(page);
        if !is(Fault::AskerNotWoken) {
            shared.asks.wake(self.asker);
        }
    }
}

impl Conns {
    pub(crate) fn begin(context: &Context, form: Form) -> Conns {
        let mut conns = Conns { form, next: (0, 0), ask: None };
        conns.post(context);
        conns
    }

    /// Asks the next column; without room for the ask, the next step tries again.
    fn post(&mut self, context: &Context) {
        self.ask = Ask::post(&context.shared, self.next, context.column);
    }

    /// Writes the answer of the column that was asked, and asks on.
    pub(crate) fn step(&mut self, context: &Context, out: &mut Vec<u8>) -> Progress {
        let Some(ask) = &self.ask else {
            self.post(context);
            return Progress::Idle;
        };
        let answer = ask.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Page { rows, next }) = answer else { return Progress::Idle };
        for row in &rows {
            row.write(self.form, out);
        }
        self.next = match next {
            Some(from) => (ask.column, from),
            None => (ask.column + 1, 0),
        };
        if self.next.0 >= context.shared.columns.len() {
            self.form.say(Outcome::StatsEnd, out);
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

/// Formats an address in memcached's words. A client of a Unix socket has none.
pub(crate) fn address(transport: &str, endpoint: Option<&Endpoint>) -> String {
    match endpoint {
        Some(Endpoint::Tcp(SocketAddr::V4(address))) => format!("{transport}:{address}"),
        Some(Endpoint::Tcp(SocketAddr::V6(address))) => format!("{transport}6:{address}"),
        Some(Endpoint::Unix(path)) => format!("unix:{}", path.display()),
        None => "?:<AF 0>".to_owned(),
    }
}
