//! How a column ends: at once, or gracefully: it accepts nothing more, answers what has arrived,
//! lets requests that have begun come to their end, and closes each connection as it comes to rest.
//!
//! Where: `Column::run` asks before each loop.
//! Invariant: a column that ends gracefully closes no connection whose request or reply is under
//! way; how long that may take is bounded by `Server::stop_gracefully`.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Column;
use crate::bypass::Bypass;
use crate::connection::Connection;
use crate::datagram::Next;
use crate::limits::EVENTS_MAX;

/// What columns are told of the server's end. A column is woken afterwards.
#[derive(Debug, Default)]
pub(crate) struct End {
    at_once: AtomicBool,
    gracefully: AtomicBool,
}

impl End {
    pub(crate) fn tell_at_once(&self) {
        // Release pairs with the Acquire in `is_over`.
        self.at_once.store(true, Ordering::Release);
    }

    pub(crate) fn tell_gracefully(&self) {
        self.gracefully.store(true, Ordering::Release); // as in `tell_at_once`
    }
}

/// How far a graceful end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ending {
    /// There is none.
    #[default]
    Serving,
    /// What has arrived until now is looked for.
    Looking,
    /// All of it has been queued.
    Seen,
}

impl Column {
    /// Is this column to serve no more? While it ends gracefully, closes what is at rest.
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
                self.connections.len() == 0 && self.datagrams_are_over()
            }
        }
    }

    /// Is there nothing that is to be answered or to leave? What waits for an interface that is
    /// down cannot leave while this server lasts, whose end does not wait for it.
    fn datagrams_are_over(&mut self) -> bool {
        let [sockets, packets] = self.datagrams_next();
        let bypass = self.turn.context.shared.bypass.get();
        let can_leave = || bypass.is_none_or(Bypass::is_up);
        sockets == Next::Sleep
            && match packets {
                Next::Sleep => true,
                Next::AwaitRoom => !can_leave(),
                Next::Again => false,
            }
    }

    /// To be called with the number of events that a wait brought.
    #[inline]
    pub(super) fn note_events(&mut self, events: usize) {
        if self.ending == Ending::Looking && events < EVENTS_MAX {
            self.ending = Ending::Seen;
        }
    }
}

impl Connection {
    /// Is nothing of a request or a reply under way? One that watches is at rest.
    fn is_at_rest(&self) -> bool {
        self.watches() || !(self.queued || self.is_under_way())
    }
}
