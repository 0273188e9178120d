//! Executes the datagrams of one receive call as one batch.
//!
//! Where: takes datagrams from the inbox of a datapath, and adds the replies to `Answers`.
//! Invariant: datagrams are executed in order, each once. A datagram whose first request must wait
//! ends the round, and the next round begins with that datagram. Bytes that are not a whole request
//! are dropped and counted.

use std::iter::{Enumerate, Skip};
use std::sync::Arc;

use net::{Datagram, Pieces};
use protocol::udp::{self, Header};
use protocol::{ProtocolMode, Refusal, Session};

use super::Backlog;
use super::answers::{Answers, SendPath, take_back};
use super::assembly::{AddResult, RequestId};
use super::gather::Gatherer;
use super::guard::{Guard, RefusalReason};
use super::whole::{Value, WholeRequest};
use crate::batch::{self, End, Input, Inputs};
use crate::budget::{Budget, StopReason};
use crate::counters::Counters;
use crate::datapath::{Datapath, Sender};
use crate::executor::{Executor, NextStep, Origin};
use crate::input;
use crate::limits::{MESSAGE_BYTES_MAX, MESSAGE_COST_BYTES, MESSAGES_TURN_BYTES, REQUESTS_AHEAD};
use crate::out::Mark;
use crate::turn::TurnState;

/// Number of slots for open messages. A message's slot is its number modulo `OPEN_MAX`. A batch
/// reads at most `REQUESTS_AHEAD` messages ahead, so two open messages never share a slot.
const OPEN_MAX: usize = 2 * REQUESTS_AHEAD;

/// The state of a column that a round uses.
pub(super) struct Round<'r, D: Datapath + 'r> {
    pub(super) speak: ProtocolMode,
    pub(super) guard: &'r Guard,
    /// The gatherer of the column to which the datagrams were sent.
    pub(super) gather: &'r Gatherer,
    /// The last request that was completed from several parts or pieces.
    pub(super) whole: &'r mut WholeRequest,
    pub(super) answers: &'r mut Answers<D::Peer>,
    pub(super) outgoing: SendPath<D::Outgoing<'r>>,
}

/// A message whose requests are to be executed, or the last part of such a message.
#[derive(Clone, Copy, Debug)]
struct Message<'i, P> {
    /// The position of the message's last datagram among the received datagrams.
    datagram: usize,
    peer: &'i P,
    id: u16,
    bytes: &'i [u8],
}

#[derive(Clone, Copy, Debug)]
struct ExecutionResult {
    /// Bytes of the answer.
    bytes: usize,
    /// The cost of the message in addition to its own bytes, in the unit of `MESSAGES_TURN_BYTES`.
    cost_bytes: usize,
}

impl<'r, D: Datapath> Round<'r, D> {
    /// Executes the datagrams of `arrived` from `rest.first` on. Returns the remaining datagrams.
    pub(super) fn run<E: Executor>(
        &mut self,
        arrived: D::Arrived<'r>,
        mut rest: Backlog,
        turn: &mut TurnState<E>,
    ) -> Option<Backlog> {
        let (waited_for, since_ms) = (rest.first, rest.waits_since_ms);
        let mut executed_bytes = 0;
        let mut datagrams = arrived.enumerate().skip(rest.first);
        loop {
            // Only the first datagram of the round can have waited too long.
            let cannot_wait = (!rest.may_wait(turn)).then_some(rest.first);
            let mut messages = Messages::<D> {
                datagrams,
                speak: self.speak,
                guard: self.guard,
                gather: self.gather,
                whole: self.whole,
                answers: self.answers,
                outgoing: &mut self.outgoing,
                counters: Arc::clone(&turn.counters),
                counted: rest.counted,
                put_off: rest.put_off,
                open: [None; OPEN_MAX],
                opened: 0,
                admitted: None,
                from: Mark::default(),
                special: None,
                left: None,
                cannot_wait,
                executed_bytes,
                now_ms: turn.now_ms,
            };
            batch::run(turn, &mut messages);
            let (special, left) = (messages.special, messages.left);
            (rest.counted, executed_bytes) = (messages.counted, messages.executed_bytes);
            datagrams = messages.datagrams;
            rest.put_off = special.map(|special| special.put_off()).or(rest.put_off);
            let left = match (left, special) {
                (Some(left), _) => left,
                (None, None) => return None,
                (None, Some(special)) if executed_bytes >= MESSAGES_TURN_BYTES => {
                    RoundEnd { first: special.datagram(), waits: false }
                }
                (None, Some(special)) => match self.execute(special, cannot_wait, turn) {
                    Some(cost_bytes) => {
                        executed_bytes += MESSAGE_BYTES_MAX + cost_bytes;
                        rest =
                            Backlog { first: special.datagram() + 1, waits_since_ms: None, ..rest };
                        continue;
                    }
                    None => RoundEnd { first: special.datagram(), waits: true },
                },
            };
            let since_ms = since_ms.filter(|_| left.first == waited_for).unwrap_or(turn.served_ms);
            let waits_since_ms = left.waits.then_some(since_ms);
            return Some(Backlog { first: left.first, waits_since_ms, ..rest });
        }
    }

    /// Executes or refuses a message that the batch cannot execute. Returns the message's cost;
    /// `None` if the message waits for room in the store.
    fn execute<E: Executor>(
        &mut self,
        special: Special<'_, D::Peer>,
        cannot_wait: Option<usize>,
        turn: &mut TurnState<E>,
    ) -> Option<usize> {
        let from = self.answers.begin(&mut turn.out);
        let message = match special {
            Special::TooLong(message) => {
                let refusal = Refusal::MessageTooLong;
                protocol::refusal_of(message.bytes, refusal).write(&mut turn.out.buf);
                let bytes = turn.out.bytes_between(from, turn.out.mark());
                message.answer((from, bytes), (self.guard, self.answers), &self.outgoing, turn);
                return Some(0);
            }
            Special::Whole(message) => message,
        };
        let (bytes, value) = self.whole.settle(self.speak, turn.executor.store());
        let message = Message { bytes, ..message };
        if udp::is_answer(message.bytes) {
            turn.counters.udp_dropped_answer.add(1);
            take_back(from, &mut turn.out);
            *value = None;
            return Some(0);
        }
        turn.executor.begin_input(Origin::Datagram, cannot_wait != Some(message.datagram));
        let ExecutionResult { bytes, cost_bytes } = match value {
            Some(value) => message.store(value, turn, from),
            None => message.run(self.speak, turn, from, self.answers),
        }?;
        *value = None;
        message.answer((from, bytes), (self.guard, self.answers), &self.outgoing, turn);
        Some(cost_bytes)
    }
}

/// A message that ends the batch, because the batch cannot execute it.
#[derive(Clone, Copy, Debug)]
enum Special<'i, P> {
    /// The request that this datagram made whole; its bytes are in `Round::whole`.
    Whole(Message<'i, P>),
    /// A request that exceeds `MESSAGE_BYTES_MAX` or `PARTS_MAX`.
    TooLong(Message<'i, P>),
}

impl<P> Special<'_, P> {
    fn datagram(&self) -> usize {
        match self {
            Special::Whole(message) | Special::TooLong(message) => message.datagram,
        }
    }

    fn put_off(&self) -> (usize, AddResult) {
        match self {
            Special::Whole(message) => (message.datagram, AddResult::Whole),
            Special::TooLong(message) => (message.datagram, AddResult::TooLong),
        }
    }
}

/// The end of a round, which leaves the datagrams from position `first` on in the inbox. `waits` is
/// true if the datagram at `first` waits for room in the store.
#[derive(Clone, Copy, Debug)]
struct RoundEnd {
    first: usize,
    waits: bool,
}

/// The received messages, as inputs of a batch.
struct Messages<'m, 'r, D: Datapath + 'r> {
    /// The datagrams that this batch has not read yet, with their positions.
    datagrams: Skip<Enumerate<D::Arrived<'r>>>,
    speak: ProtocolMode,
    guard: &'m Guard,
    gather: &'m Gatherer,
    whole: &'m mut WholeRequest,
    answers: &'m mut Answers<D::Peer>,
    outgoing: &'m mut SendPath<D::Outgoing<'r>>,
    counters: Arc<Counters>,
    /// The position of the first datagram that is neither counted nor in the assembly yet.
    counted: usize,
    /// The position of a part that still needs an answer, and the result of adding this part.
    put_off: Option<(usize, AddResult)>,
    open: [Option<Message<'r, D::Peer>>; OPEN_MAX],
    opened: usize,
    /// The sender that the guard admitted most recently.
    admitted: Option<&'r D::Peer>,
    /// Start of the answer to the message that is being executed.
    from: Mark,
    special: Option<Special<'r, D::Peer>>,
    left: Option<RoundEnd>,
    /// The datagram that has waited too long: its requests are refused if they must wait again.
    cannot_wait: Option<usize>,
    /// The bytes of the executed messages, plus the costs of their requests.
    executed_bytes: usize,
    now_ms: u64,
}

impl<'r, D: Datapath> Messages<'_, 'r, D> {
    /// Returns the message in a datagram. `None` if the datagram is dropped, or parts are missing.
    #[inline]
    fn message(
        &mut self,
        number: usize,
        datagram: Datagram<'r, D::Peer>,
    ) -> Option<Message<'r, D::Peer>> {
        // A datagram is read again if an earlier datagram had to wait, but is counted only once.
        let count = u64::from(number >= self.counted);
        self.counted = self.counted.max(number + 1);
        self.counters.bytes_read.add(count * datagram.len() as u64);
        let (header, bytes) = match Header::read(datagram.bytes) {
            Some((header, bytes)) if header.total > 0 && !bytes.is_empty() => (header, bytes),
            _ => {
                self.counters.udp_dropped_frame.add(count);
                return None;
            }
        };
        let peer = datagram.peer;
        // The datagrams of a burst share one `peer`, which is checked once.
        if !self.admitted.is_some_and(|admitted| std::ptr::eq(admitted, peer)) {
            self.admit(peer, count)?;
        }
        let message = Message { datagram: number, peer, id: header.id, bytes };
        if header.total == 1 && datagram.more.is_none() {
            if udp::is_answer(bytes) {
                self.counters.udp_dropped_answer.add(count);
                return None;
            }
            return Some(message);
        }
        let whose = RequestId { from: peer.address()?, id: header.id };
        // A part that is read again is not added again. If the first result of adding the part
        // still needs an action, `put_off` holds this result.
        let added = match self.put_off {
            _ if count > 0 => self.gather(whose, header, (bytes, datagram.more)),
            Some((at, added)) if at == number => added,
            _ => return None,
        };
        match added {
            AddResult::Waits => {}
            AddResult::Ignored => self.counters.udp_dropped_frame.add(count),
            AddResult::Whole => self.special = Some(Special::Whole(message)),
            AddResult::TooLong => {
                self.counters.udp_dropped_length.add(count);
                self.special = Some(Special::TooLong(message));
            }
        }
        None
    }
}

impl<'r, D: Datapath> Messages<'_, 'r, D> {
    /// Adds a part of a request. A request in one datagram of several pieces becomes whole at once.
    fn gather(
        &mut self,
        whose: RequestId,
        header: Header,
        (bytes, more): (&[u8], Option<&Pieces>),
    ) -> AddResult {
        if let (1, Some(more)) = (header.total, more) {
            self.gather.join(bytes, more, self.whole);
            return AddResult::Whole;
        }
        let (added, gone) = self.gather.add(whose, header, (bytes, more), self.now_ms, self.whole);
        self.counters.udp_dropped_incomplete.add(gone);
        added
    }

    /// Asks the guard about a sender. If the guard refuses the sender, counts `count` drops and
    /// returns `None`.
    fn admit(&mut self, peer: &'r D::Peer, count: u64) -> Option<()> {
        let Err(refused) = self.guard.check(peer.address()?, peer.is_for_many()) else {
            self.admitted = Some(peer);
            return Some(());
        };
        let dropped = match refused {
            RefusalReason::Sender => &self.counters.udp_dropped_sender,
            RefusalReason::Network => &self.counters.udp_dropped_network,
        };
        dropped.add(count);
        None
    }
}

impl<'r, D: Datapath, E: Executor> Inputs<'r, E> for Messages<'_, 'r, D> {
    fn next(&mut self) -> Option<Input<'r>> {
        while self.special.is_none() && self.left.is_none() {
            let (number, datagram) = self.datagrams.next()?;
            if let Some(message) = self.message(number, datagram) {
                let number = self.opened;
                self.opened += 1;
                self.open[number % OPEN_MAX] = Some(message);
                let session = Session::of_message(self.speak, message.bytes);
                return Some(Input { number, bytes: message.bytes, at: 0, session });
            }
        }
        None
    }

    fn begin(&mut self, number: usize, turn: &mut TurnState<E>) -> Budget {
        let Some(message) = self.open[number % OPEN_MAX] else { return Budget::none() };
        if self.left.is_none() && self.executed_bytes >= MESSAGES_TURN_BYTES {
            self.left = Some(RoundEnd { first: message.datagram, waits: false });
        }
        if self.left.is_some() {
            return Budget::none();
        }
        self.executed_bytes += message.bytes.len() + MESSAGE_COST_BYTES;
        let may_wait = self.cannot_wait != Some(message.datagram);
        turn.executor.begin_input(Origin::Datagram, may_wait);
        self.from = self.answers.begin(&mut turn.out);
        self.answers.budget(self.from, &turn.out)
    }

    fn end(&mut self, number: usize, end: End<'_>, turn: &mut TurnState<E>) {
        let Some(message) = self.open[number % OPEN_MAX].take() else { return };
        if self.left.is_some() {
            return;
        }
        let Some(ExecutionResult { bytes, cost_bytes }) =
            message.end(end, turn, self.from, self.answers.reply_bytes_max())
        else {
            self.left = Some(RoundEnd { first: message.datagram, waits: true });
            return;
        };
        self.executed_bytes += cost_bytes;
        message.answer((self.from, bytes), (self.guard, self.answers), self.outgoing, turn);
        if self.answers.are_enough(&turn.out) {
            self.answers.send(self.outgoing, turn);
        }
    }
}

impl<P: Sender> Message<'_, P> {
    /// Adds the reply (`bytes` bytes from `from` on) to the answers, unless the guard refuses it.
    #[inline]
    fn answer<E: Executor, O>(
        &self,
        (from, bytes): (Mark, usize),
        (guard, answers): (&Guard, &mut Answers<P>),
        path: &SendPath<O>,
        turn: &mut TurnState<E>,
    ) {
        let to = || self.peer.address();
        if guard.lets_out((bytes, self.bytes.len()), to, turn.now_ms) {
            answers.add((self.peer, self.id), (from, bytes), path.payload_bytes(), &mut turn.out);
        } else {
            turn.counters.udp_dropped_amplified.add(1);
            take_back(from, &mut turn.out);
        }
    }

    /// Executes the message, which is a whole request. Returns the result of `end`.
    fn run<E: Executor>(
        &self,
        speak: ProtocolMode,
        turn: &mut TurnState<E>,
        from: Mark,
        answers: &Answers<P>,
    ) -> Option<ExecutionResult> {
        let mut session = Session::of_message(speak, self.bytes);
        let mut budget = answers.budget(from, &turn.out);
        let (stopped, at) = input::run(turn, &mut session, (self.bytes, 0), &mut budget);
        let end = End { stopped, at, session: &session, budget: &mut budget };
        self.end(end, turn, from, answers.reply_bytes_max())
    }

    /// Stores `value`, whose header is in the message. Returns `None` if the value waits for room.
    fn store<E: Executor>(
        &self,
        value: &mut Value,
        turn: &mut TurnState<E>,
        from: Mark,
    ) -> Option<ExecutionResult> {
        let TurnState { executor, out, .. } = turn;
        let Value { draft, tail } = value;
        match executor.execute_with_draft((self.bytes, tail), draft, out) {
            NextStep::Wait => {
                take_back(from, out);
                None
            }
            _ => {
                Some(ExecutionResult { bytes: out.bytes_between(from, out.mark()), cost_bytes: 0 })
            }
        }
    }

    /// Ends a message whose requests were executed up to `end`; the replies begin at `from`.
    /// Returns `None` if no request was executed, because the first request waits for room.
    #[inline]
    fn end<E: Executor>(
        &self,
        end: End<'_>,
        turn: &mut TurnState<E>,
        from: Mark,
        reply_bytes_max: usize,
    ) -> Option<ExecutionResult> {
        let End { stopped, at, session, budget } = end;
        if stopped != StopReason::Wait {
            return Some(self.finish(
                (stopped, at),
                (session, budget),
                turn,
                from,
                reply_bytes_max,
            ));
        }
        if at == 0 {
            take_back(from, &mut turn.out);
            return None;
        }
        // The requests before `at` must not be executed again, so no later request may wait.
        turn.executor.begin_input(Origin::Datagram, false);
        let mut session = session.clone();
        let rest = input::run(turn, &mut session, (self.bytes, at), budget);
        Some(self.finish(rest, (&session, budget), turn, from, reply_bytes_max))
    }

    /// Ends a message. Refuses the message if its answer is too long or its requests cost too much.
    #[inline]
    fn finish<E: Executor>(
        &self,
        (stopped, at): (StopReason, usize),
        (session, budget): (&Session, &Budget),
        turn: &mut TurnState<E>,
        from: Mark,
        reply_bytes_max: usize,
    ) -> ExecutionResult {
        let is_whole = match stopped {
            StopReason::Hungry => at == self.bytes.len() && session.is_between_requests(),
            StopReason::Body => false,
            StopReason::Enough | StopReason::Close | StopReason::Wait => true,
        };
        if !is_whole {
            turn.counters.udp_dropped_incomplete.add(1);
        }
        let made_bytes = turn.out.bytes_between(from, turn.out.mark());
        let cost_bytes = budget.spent_bytes() + made_bytes;
        if stopped != StopReason::Enough && made_bytes <= reply_bytes_max {
            return ExecutionResult { bytes: made_bytes, cost_bytes };
        }
        let is_spent = made_bytes <= reply_bytes_max && budget.is_worked_off();
        self.refuse(is_spent.then_some(at), turn, from);
        ExecutionResult { bytes: turn.out.bytes_between(from, turn.out.mark()), cost_bytes }
    }

    /// Refuses the requests from byte `spent_at` on. If `spent_at` is `None`, refuses the whole
    /// message, because its answer is too long.
    #[cold]
    fn refuse<E: Executor>(&self, spent_at: Option<usize>, turn: &mut TurnState<E>, from: Mark) {
        let TurnState { counters, out, .. } = turn;
        if let Some(at) = spent_at {
            counters.udp_dropped_work.add(1);
            let rest = self.bytes.get(at..).unwrap_or_default();
            return protocol::refusal_of(rest, Refusal::MessageSpent).write(&mut out.buf);
        }
        counters.udp_replies_too_long.add(1);
        out.truncate(from);
        protocol::refusal_of(self.bytes, Refusal::ReplyTooLong).write(&mut out.buf);
    }
}
