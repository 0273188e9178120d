//! Datagrams: requests behind memcached's frame, each answered by one message.
//!
//! ```text
//! request   | frame 0 of 1 | requests |
//! or        | frame 0 of 2 | requ |   | frame 1 of 2 | ests |
//! answer    | frame 0 of n | replies |   | frame 1 of n | replies |   ...
//! ```
//!
//! Where: beside `connection`. A column receives datagrams, executes those of one receive as one
//! batch, and sends the answers.
//! Invariant: a datagram is answered, or dropped and counted; an answer is sent or dropped, never
//! kept. While the first request of a datagram waits for room in the store, that datagram and those
//! behind it stay in the inbox, and nothing more is received.
//! Source: memcached's `protocol.txt`, "UDP protocol"; memcached 1.6.45 `try_read_udp`,
//! `build_udp_headers`. It answers each value of a multiget by a message of its own.

mod answers;
mod assembly;
mod guard;
mod round;

use std::sync::Arc;

use net::{Inbox, SLOT_BYTES_MAX};
use protocol::Speak;

use crate::limits::{DATAGRAM_WAIT_MS_MAX, DATAGRAMS_RECEIVED_MAX, PARTS_WAIT_MS_MAX};
use crate::turn::TurnState;
use answers::Answers;
use assembly::Assembly;
pub(crate) use guard::Guard;
use round::Round;

/// A UDP socket as its column sees it.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSocket {
    pub(crate) socket: Arc<net::Datagrams>,
    pub(crate) speak: Speak,
    /// The most bytes that a datagram to its peers carries, the frame included.
    pub(crate) datagram_bytes_max: usize,
}

/// A column's UDP sockets and what they have received.
#[derive(Debug)]
pub(crate) struct Datagrams {
    sockets: Vec<ColumnSocket>,
    /// One bit for each socket: something has arrived there.
    ready: u64,
    /// The first to be asked when the next turn receives.
    next_socket: u32,
    inbox: Inbox,
    /// What is in the inbox and not executed.
    rest: Option<Rest>,
    assembly: Assembly,
    guard: Guard,
    answers: Answers,
    /// When requests that lack parts are to be dropped, by `TurnState::served_ms`.
    late_due_ms: u64,
}

/// Datagrams that were received and are yet to be executed.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// The socket that received them.
    socket: usize,
    /// The number of the first of them in the inbox.
    first: usize,
    /// Those before this one have been looked at and counted.
    counted: usize,
    /// Since when the first waits for room in the store, by `TurnState::served_ms`.
    waits_since_ms: Option<u64>,
}

/// What a column does with its datagrams after their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until a socket is ready.
    Sleep,
    /// Another turn in the next loop.
    Again,
    /// Another turn a little later: a request waits for room in the store.
    AwaitRoom,
}

impl Datagrams {
    /// Of at least one socket; `reply_bytes_max` is the most bytes of one answer.
    pub(crate) fn new(
        sockets: Vec<ColumnSocket>,
        guard: Guard,
        reply_bytes_max: usize,
    ) -> Datagrams {
        Datagrams {
            ready: 0,
            next_socket: 0,
            inbox: Inbox::new(DATAGRAMS_RECEIVED_MAX, SLOT_BYTES_MAX),
            rest: None,
            assembly: Assembly::default(),
            guard,
            answers: Answers::new(reply_bytes_max),
            late_due_ms: 0,
            sockets,
        }
    }

    pub(crate) fn sockets(&self) -> &[ColumnSocket] {
        &self.sockets
    }

    /// The kernel says that a socket has received something.
    pub(crate) fn note_input(&mut self, socket: u64) {
        self.ready |= 1 << socket.min(63);
    }

    /// What the next turn is to wait for.
    pub(crate) fn next(&self) -> Next {
        match &self.rest {
            Some(rest) if rest.waits_since_ms.is_some() => Next::AwaitRoom,
            None if self.ready == 0 => Next::Sleep,
            _ => Next::Again,
        }
    }

    /// Receives once, if all that was received is executed; executes, and answers.
    pub(crate) fn turn(&mut self, turn: &mut TurnState) {
        self.drop_late(turn);
        let Some(rest) = self.rest.take().or_else(|| self.receive(turn)) else { return };
        let Some(socket) = self.sockets.get(rest.socket) else { return };
        let mut round = Round {
            socket,
            inbox: &self.inbox,
            guard: &self.guard,
            assembly: &mut self.assembly,
            answers: &mut self.answers,
        };
        self.rest = round.run(rest, turn);
        self.answers.send(socket, turn);
    }

    /// Receives once from the next socket that is ready.
    fn receive(&mut self, turn: &TurnState) -> Option<Rest> {
        // From the socket behind the last: one that is always ready keeps no other waiting.
        let ahead = self.ready.rotate_right(self.next_socket).trailing_zeros();
        let index = ((self.next_socket + ahead) % u64::BITS) as usize;
        let socket = self.sockets.get(index)?;
        let received = socket.socket.receive(&mut self.inbox, &turn.calls);
        let counters = &turn.context.counters;
        counters.udp_received.add((received.datagrams + received.cut) as u64);
        counters.udp_dropped_length.add(received.cut as u64);
        if received.is_drained {
            self.ready &= !(1 << index);
        }
        self.next_socket = (self.next_socket + ahead + 1) % u64::BITS;
        Some(Rest { socket: index, first: 0, counted: 0, waits_since_ms: None })
    }

    /// Drops requests whose parts have not come.
    fn drop_late(&mut self, turn: &TurnState) {
        if self.assembly.any() && turn.served_ms >= self.late_due_ms {
            self.late_due_ms = turn.served_ms + PARTS_WAIT_MS_MAX / 4;
            let late = self.assembly.drop_late(turn.served_ms);
            turn.context.counters.udp_dropped_incomplete.add(late);
        }
    }

    /// Memory that it takes beside the store.
    pub(crate) fn held_bytes(&self) -> usize {
        let inbox_bytes = DATAGRAMS_RECEIVED_MAX * SLOT_BYTES_MAX;
        inbox_bytes + self.assembly.held_bytes() + self.answers.held_bytes()
    }
}

impl Rest {
    /// The first may wait for room: it has not waited too long.
    fn may_wait(&self, turn: &TurnState) -> bool {
        let since_ms = self.waits_since_ms.unwrap_or(turn.served_ms);
        turn.served_ms.saturating_sub(since_ms) < DATAGRAM_WAIT_MS_MAX
    }
}
