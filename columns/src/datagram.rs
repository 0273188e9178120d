//! Requests and answers in datagrams. Each datagram begins with memcached's UDP frame header.
//!
//! ```text
//! request   | frame 0 of 1 | requests |
//! or        | frame 0 of 2 | requ |   | frame 1 of 2 | ests |
//! answer    | frame 0 of n | replies |   | frame 1 of n | replies |   ...
//! ```
//!
//! Where: a column calls `turns`, which executes the datagrams of one receive as one batch.
//! Invariant: a datagram is answered, or dropped and counted. An answer is sent or dropped at the
//! end of its turn. While the first request of a datagram waits for room in the store, the column
//! keeps this datagram and the datagrams after it, and receives no more datagrams.
//! Source: memcached's `protocol.txt`, "UDP protocol"; memcached 1.6.45 `try_read_udp`,
//! `build_udp_headers`. memcached answers each value of a multiget in a separate message.

pub mod assembly;

mod answers;
mod charges;
mod gather;
mod guard;
#[cfg(test)]
mod refusing;
mod round;
#[cfg(test)]
mod tests;
pub mod whole;

use std::sync::Arc;

use crate::datapath::Datapath;
use crate::executor::Executor;
use crate::limits::{DATAGRAM_TURNS_MAX, DATAGRAM_WAIT_MS_MAX};
use crate::turn::TurnState;
use answers::{Answers, SendPath};
use assembly::AddResult;
pub use gather::Gatherer;
pub use guard::Guard;
use memory::plant::{self, Fault};
use net::Received;
use round::Round;
use whole::WholeRequest;

/// The datagrams that a column received over one datapath, and the answers to these datagrams.
#[derive(Debug)]
pub struct Datagrams<D: Datapath> {
    path: D,
    rest: Option<Backlog>,
    gathers: Arc<[Gatherer]>,
    whole: WholeRequest,
    guard: Guard,
    answers: Answers<D::Peer>,
    /// The largest number of datagrams of one receive during the last call of `turns`.
    most: usize,
}

/// Datagrams that were received but not executed yet.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    /// The position, among the received datagrams, of the first datagram that is not executed yet.
    first: usize,
    /// The position of the first datagram that is neither counted nor added to its request yet.
    counted: usize,
    /// A datagram that completed a request, or made a request too long, and is not answered yet:
    /// the datagram's position, and the result of adding the datagram to the request.
    put_off: Option<(usize, AddResult)>,
    /// The time, by `TurnState::served_ms`, at which the first datagram began to wait for room.
    waits_since_ms: Option<u64>,
}

/// The column's next step for its datagrams after their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Next {
    /// The datagrams get no turn until a socket is ready.
    Sleep,
    /// The datagrams get another turn a little later, because a request or an answer must wait.
    AwaitRoom,
    /// The datagrams get another turn in the next loop.
    Again,
}

impl<D: Datapath> Datagrams<D> {
    /// Makes the state for a column's datagrams. `reply_bytes_max` is the maximum length of one
    /// answer. `gathers` collects, for each column, the requests that arrive in several datagrams.
    pub fn new(
        path: D,
        guard: Guard,
        reply_bytes_max: usize,
        gathers: Arc<[Gatherer]>,
    ) -> Datagrams<D> {
        Datagrams {
            path,
            rest: None,
            gathers,
            whole: WholeRequest::default(),
            guard,
            answers: Answers::new(reply_bytes_max),
            most: 0,
        }
    }

    /// The datapath.
    pub fn path(&self) -> &D {
        &self.path
    }

    pub(crate) fn path_mut(&mut self) -> &mut D {
        &mut self.path
    }

    /// Notes that the kernel reported input for descriptor `number` of the datapath.
    pub fn note_input(&mut self, number: u64) {
        self.path.note_input(number);
    }

    pub(crate) fn limit(&mut self, at_once: usize) {
        self.path.limit(at_once);
    }

    pub(crate) fn next(&mut self) -> Next {
        match &self.rest {
            Some(rest) if rest.waits_since_ms.is_some() => Next::AwaitRoom,
            None if !self.path.has_input() && self.path.has_unsent() => Next::AwaitRoom,
            None if !self.path.has_input() => Next::Sleep,
            _ => Next::Again,
        }
    }

    /// True if datagrams are left in the socket, or were received and need not wait for room.
    pub(crate) fn is_undrained(&self) -> bool {
        match &self.rest {
            Some(rest) => rest.waits_since_ms.is_none(),
            None => self.path.is_undrained(),
        }
    }

    /// Takes up to `DATAGRAM_TURNS_MAX` turns. Returns how many datagrams were received.
    pub fn turns<E: Executor>(&mut self, turn: &mut TurnState<E>) -> usize {
        let mut came = 0;
        self.most = 0;
        for _ in 0..DATAGRAM_TURNS_MAX {
            match self.next() {
                Next::Sleep => break,
                Next::Again => came += self.turn(turn),
                Next::AwaitRoom => return came + self.turn(turn),
            }
        }
        came
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Receives once, unless datagrams are left from an earlier turn. Executes the datagrams.
    /// Returns how many datagrams were received.
    fn turn<E: Executor>(&mut self, turn: &mut TurnState<E>) -> usize {
        let mut came = 0;
        let rest = self.rest.take().unwrap_or_else(|| {
            let received = self.path.receive(&turn.calls);
            came = count(received, turn);
            self.most = self.most.max(came);
            Backlog::default()
        });
        self.execute(rest, turn);
        came
    }

    fn execute<E: Executor>(&mut self, rest: Backlog, turn: &mut TurnState<E>) {
        let (speak, datagram_bytes_max) = (self.path.speak(), self.path.datagram_bytes_max());
        let gather = &self.gathers[self.path.home()];
        let (arrived, outgoing) = self.path.halves();
        let mut round = Round::<D> {
            speak,
            guard: &self.guard,
            gather,
            whole: &mut self.whole,
            answers: &mut self.answers,
            outgoing: SendPath { out: outgoing, datagram_bytes_max },
        };
        // Values are copied into the replies, because many answers wait to be sent together, and a
        // later message may move a value to which an earlier answer would refer.
        turn.out.keeps = false;
        self.rest = round.run(arrived, rest, turn);
        round.answers.send(&mut round.outgoing, turn);
        turn.out.keeps = true;
        drop(round);
        if self.rest.is_none() {
            self.path.release();
        }
    }

    /// Drops requests of which a part did not arrive in time. A column that wakes up once a second
    /// drops such requests of all columns, because the other columns may sleep.
    pub(crate) fn drop_late<E: Executor>(&self, turn: &TurnState<E>) {
        for gather in self.gathers.iter().filter(|gather| gather.any()) {
            let late = gather.drop_late(turn.now_ms);
            turn.counters.udp_dropped_incomplete.add(late);
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let gathered = self.gathers[self.path.column()].held_bytes() + self.whole.held_bytes();
        self.path.held_bytes() + gathered + self.answers.held_bytes()
    }

    /// Receives once from the queue or a socket of another column, executes the datagrams, and
    /// answers through the same queue or socket. Returns how many datagrams were received.
    pub(crate) fn steal<E: Executor>(
        &mut self,
        column: usize,
        socket: usize,
        turn: &mut TurnState<E>,
    ) -> usize {
        if self.rest.is_some() {
            return 0;
        }
        let came = count(self.path.steal(column, socket, &turn.calls), turn);
        if plant::is(Fault::StolenTwice) {
            self.execute(Backlog::default(), turn);
        }
        self.execute(Backlog::default(), turn);
        came
    }
}

fn count<E: Executor>(received: Received, turn: &TurnState<E>) -> usize {
    let counters = &turn.counters;
    counters.udp_received.add((received.datagrams + received.cut) as u64);
    counters.udp_dropped_length.add(received.cut as u64);
    counters.udp_dropped_damaged.add(received.damaged as u64);
    received.datagrams
}

impl Backlog {
    fn may_wait<E>(&self, turn: &TurnState<E>) -> bool {
        let since_ms = self.waits_since_ms.unwrap_or(turn.served_ms);
        turn.served_ms.saturating_sub(since_ms) < DATAGRAM_WAIT_MS_MAX
    }
}
