//! Ends a column, at once or gracefully. In a graceful end the column accepts no connections,
//! answers the input that has arrived, and closes each connection that has no request under way.
//!
//! Where: `Column::run` calls `is_over` when the waker has woken the column, and before each loop
//! of a graceful end.
//! Invariant: a graceful end closes no connection whose request or reply is under way.
//! `Server::stop_gracefully` bounds how long a graceful end may take.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Column;
use crate::connection::Connection;
use crate::executor::Executor;
use crate::limits::EVENTS_MAX;
use crate::stream::{Stream, StreamWay};

/// The orders to stop, which all columns read. Every column is woken after an order is given.
#[derive(Debug, Default)]
pub struct End {
    at_once: AtomicBool,
    gracefully: AtomicBool,
}

impl End {
    /// Orders the columns to stop at once.
    pub fn tell_at_once(&self) {
        // Release pairs with the Acquire in `is_over`.
        self.at_once.store(true, Ordering::Release);
    }

    /// Orders the columns to stop as soon as the requests that have arrived are answered.
    pub fn tell_gracefully(&self) {
        self.gracefully.store(true, Ordering::Release); // pairs with Acquire in `is_over`
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ending {
    /// No graceful end was ordered.
    #[default]
    Serving,
    /// The column still collects input that arrived before the order.
    Looking,
    /// All input that arrived before the order has been queued.
    Seen,
}

impl<E: Executor, W: StreamWay> Column<E, W> {
    /// Returns true if the column must stop. A graceful end first closes the connections at rest.
    pub(super) fn is_over(&mut self) -> bool {
        if self.end.at_once.load(Ordering::Acquire) {
            return true;
        }
        match self.ending {
            Ending::Serving if self.end.gracefully.load(Ordering::Acquire) => {
                self.ending = Ending::Looking;
                self.close_listeners();
                self.close_mailbox();
                false
            }
            Ending::Serving | Ending::Looking => false,
            Ending::Seen => {
                let at_rest = self.connections.iter().filter(|(_, it)| it.is_at_rest());
                let at_rest: Vec<u64> = at_rest.map(|(token, _)| token).collect();
                at_rest.into_iter().for_each(|token| self.close(token));
                self.connections.len() == 0 && self.datapaths.are_over()
            }
        }
    }

    #[inline]
    pub(super) fn note_events(&mut self, events: usize) {
        if self.ending == Ending::Looking && events < EVENTS_MAX {
            self.ending = Ending::Seen;
        }
    }
}

impl<E: Executor, S: Stream> Connection<E, S> {
    /// Returns true if no request or reply is under way, or if the endless command `watch` runs.
    fn is_at_rest(&self) -> bool {
        self.watches() || !(self.queued || self.is_under_way())
    }
}
