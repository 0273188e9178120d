//! One client's connection: its socket, its parser, and its state between turns.
//!
//! Where: a column gives a connection a turn when the connection's socket is ready or work is left.
//! In a turn, `receive` reads once, and `finish` executes the requests and writes once.
//! Invariant: a connection without a request under way holds no buffer. While replies wait for the
//! peer to read, the connection neither reads nor executes, so that at most one turn's replies
//! wait. Each request is executed once, and requests are executed in the order of their arrival.

mod arrival;
mod arrive;
mod held;
mod input;
mod journey;
mod output;
mod spares;
mod state;
mod unsent;

use std::io::IoSliceMut;
use std::mem;

use arrayvec::ArrayVec;
use net::ReadResult;
use protocol::{ProtocolMode, Refusal, Session, Step};
use store::SPACES_MAX;

pub(crate) use state::StreamState;

use crate::batch::End;
use crate::executor::{Errand, Executor, Progress};
use crate::limits::{BEHIND_VALUE_BYTES, TURN_COST_BYTES, VALUE_READ_BYTES_MAX};
use crate::stream::Stream;
use crate::turn::TurnState;
use held::HeldInput;
use input::Stop;
use unsent::UnsentReplies;

/// The column's next step for a connection after the connection's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The connection gets no turn until its socket is ready.
    Sleep,
    /// The connection gets another turn in the next loop.
    Again,
    /// The connection waits for room in the store, and gets another turn a little later.
    AwaitRoom,
    /// The connection's errand (a command that takes several turns) has nothing to do now. The
    /// connection gets another turn a little later.
    AwaitErrand,
    /// The connection gets no turn until its socket has room to write.
    AwaitWrite,
    Close,
}

/// The result of `receive`, the first part of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveResult {
    /// The connection does not read in this turn, because it has work left from an earlier turn.
    Unasked,
    Input(usize),
    /// The connection has nothing to execute, and its turn is over.
    Nothing(Next),
}

#[derive(Debug)]
pub(crate) enum TurnInput {
    /// Input received in this turn: the first `bytes` bytes of the receive buffer.
    Received { bytes: usize },
    /// Input that the connection kept from an earlier turn.
    Held(HeldInput),
}

impl TurnInput {
    #[inline]
    pub(crate) fn bytes<'b>(&'b self, buffer: &'b [u8]) -> &'b [u8] {
        match self {
            TurnInput::Received { bytes } => &buffer[..*bytes],
            TurnInput::Held(held) => held.bytes(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection<E: Executor, S> {
    stream: S,
    session: Session,
    held: HeldInput,
    unsent: Option<Box<UnsentReplies>>,
    /// The large value that is arriving, as its number in the column's `Arrivals`.
    arrival: Option<u32>,
    /// True if the last read received a part of a large value. The next read then puts at most
    /// `BEHIND_VALUE_BYTES` into the receive buffer.
    behind_value: bool,
    /// The command in progress, if it takes several turns. `resumable` is true until the command is
    /// done.
    errand: Option<Box<E::Errand>>,
    /// True if `held` may contain whole requests, which are executed before more input is read.
    resumable: bool,
    /// True if the socket may have more input, because the last read did not empty the socket.
    readable: bool,
    /// True if the kernel reported the end of the peer's input. Input before the end may be unread.
    ended: bool,
    /// True if the connection closes as soon as the replies are sent.
    closing: bool,
    /// True if the connection closes because its client broke the protocol.
    fault: bool,
    /// The time, on the clock `TurnState::served_ms`, at which the next request or arriving value
    /// began to wait for room in the store.
    waits_since_ms: Option<u64>,
    /// Bytes that the stream holds, as `StreamState::waiting` counts them.
    stream_bytes: usize,
    /// True if the connection is in one of the column's queues for a turn.
    pub(crate) queued: bool,
    /// True if the epoll watches the socket for room to write instead of for input.
    pub(crate) awaits_write: bool,
    /// When the connection last received, executed or sent, by the clock `TurnState::served_ms`.
    pub(crate) moved_ms: u64,
    /// When the connection last received, executed or sent, by the clock `TurnState::now_ms`.
    pub(crate) active_ms: u64,
    /// Bytes received and sent since the last `count_anew`, plus `TURN_COST_BYTES` for each read.
    work_bytes: u64,
    /// The time, by `TurnState::now_ms`, until which the connection stays in its column.
    stays_until_ms: u64,
}

impl<E: Executor, S: Stream> Connection<E, S> {
    pub(crate) fn new(
        stream: S,
        speak: ProtocolMode,
        (served_ms, now_ms): (u64, u64),
    ) -> Connection<E, S> {
        Connection {
            stream,
            session: Session::new(speak),
            held: HeldInput::default(),
            unsent: None,
            arrival: None,
            behind_value: false,
            errand: None,
            resumable: false,
            readable: false,
            ended: false,
            closing: false,
            fault: false,
            waits_since_ms: None,
            stream_bytes: 0,
            queued: false,
            awaits_write: false,
            moved_ms: served_ms,
            active_ms: now_ms,
            work_bytes: 0,
            stays_until_ms: 0,
        }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    pub(crate) fn number(&self) -> i32 {
        self.stream.number()
    }

    /// The name of the connection's state in `stats conns`.
    pub(crate) fn state(&self) -> &'static str {
        match &self.errand {
            _ if self.unsent.is_some() => "conn_mwrite",
            Some(errand) => errand.state(),
            None if self.arrival.is_some() || self.lacks_value() => "conn_nread",
            None => "conn_read",
        }
    }

    /// True if `held` is a storage command whose value is incomplete.
    fn lacks_value(&self) -> bool {
        matches!(self.session.clone().next(self.held.bytes()), Step::Body { .. })
    }

    /// The reason that `watch connevents` reports for closing, if the column gives no other reason.
    pub(crate) fn close_reason(&self) -> &'static str {
        if self.fault { "error" } else { "normal" }
    }

    /// Notes that the kernel reported input, and, if `ended` is true, also the end of the input.
    #[inline]
    pub(crate) fn note_input(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// Does the first part of a turn: one read into `buffer`, if the connection may read now.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        buffer: &mut [u8],
    ) -> ReceiveResult {
        if self.unsent.is_some() || self.resumable || self.stream.has_output() {
            return ReceiveResult::Unasked;
        }
        if !self.readable {
            return ReceiveResult::Nothing(Next::Sleep);
        }
        if let Some(arrival) = self.arrival
            && streams.arrivals.must_wait(arrival, turn.executor.store_mut(), turn.served_ms)
        {
            return ReceiveResult::Nothing(Next::AwaitRoom);
        }
        match self.read(turn, streams, buffer) {
            ReadResult::Bytes(bytes) => ReceiveResult::Input(bytes),
            ReadResult::Empty => {
                self.readable = false;
                ReceiveResult::Nothing(Next::Sleep)
            }
            ReadResult::End | ReadResult::Broken => ReceiveResult::Nothing(Next::Close),
        }
    }

    /// True if the turn only executes input: no reply, arriving value or errand is under way.
    pub(crate) fn only_executes(&self, received: ReceiveResult) -> bool {
        let has_input = match received {
            ReceiveResult::Input(_) => true,
            ReceiveResult::Unasked => {
                self.unsent.is_none() && self.errand.is_none() && !self.stream.has_output()
            }
            ReceiveResult::Nothing(_) => false,
        };
        has_input && self.arrival.is_none()
    }

    #[inline]
    pub(crate) fn take_input(&mut self, turn: &TurnState<E>, received: ReceiveResult) -> TurnInput {
        if let ReceiveResult::Input(bytes) = received {
            return TurnInput::Received { bytes };
        }
        self.note_move(turn);
        TurnInput::Held(mem::take(&mut self.held))
    }

    #[inline]
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Sends the replies after a batch has executed the connection's requests up to `end`. Returns
    /// the connection's next step, and how many bytes of the input are used.
    pub(crate) fn end(
        &mut self,
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        (input, fills_buffer): (&[u8], bool),
        end: End<'_>,
    ) -> (Next, usize) {
        self.session.clone_from(end.session);
        let (stop, used) = self.go_on(turn, streams, (input, end.at), end.budget, end.stopped);
        (self.answer(turn, streams, (stop, used), fills_buffer), used)
    }

    /// Sends the replies to the first `used` bytes of the input. Returns the next step.
    #[inline]
    fn answer(
        &mut self,
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        (stop, used): (Stop, usize),
        fills_buffer: bool,
    ) -> Next {
        self.stopped(stop, used, turn.served_ms);
        if stop == Stop::Enough {
            self.errand = turn.executor.take_errand();
        }
        // The parser never needs more bytes than the buffer holds. If it did, the connection would
        // loop forever without reading, so such a connection would be closed.
        self.closing |= used == 0 && fills_buffer && !self.resumable;
        self.send(turn, streams)
    }

    /// Keeps the input after the first `used` bytes. May exchange `buffer` for another buffer.
    #[inline]
    pub(crate) fn keep(
        &mut self,
        streams: &mut StreamState,
        buffer: &mut Vec<u8>,
        input: TurnInput,
        used: usize,
    ) {
        match input {
            TurnInput::Received { bytes } if used < bytes && !self.closing => {
                let waits = !self.resumable || self.waits_since_ms.is_some();
                let exact = waits || streams.pressed;
                self.held = HeldInput::keep(buffer, used..bytes, exact, &mut streams.spares);
            }
            TurnInput::Received { .. } => {}
            TurnInput::Held(held) => {
                let partial = !self.resumable;
                self.held = held.after(used, partial, self.closing, &mut streams.spares);
            }
        }
    }

    /// Does the second part of a turn: executes the input and writes once. May replace `buffer`.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        buffer: &mut Vec<u8>,
        received: ReceiveResult,
    ) -> Next {
        match received {
            ReceiveResult::Nothing(next) => {
                if next == Next::AwaitRoom {
                    self.note_move(turn); // the server causes the wait, not the peer
                }
                return next;
            }
            ReceiveResult::Unasked if self.stream.has_output() => return self.flush(turn),
            ReceiveResult::Unasked if self.unsent.is_some() => {
                return self.send_rest(turn, streams);
            }
            ReceiveResult::Unasked if self.errand.is_some() => {
                return self.go_on_errand(turn, streams);
            }
            ReceiveResult::Unasked | ReceiveResult::Input(_) => {}
        }
        let input = self.take_input(turn, received);
        let bytes = input.bytes(buffer);
        let fills_buffer = bytes.len() == buffer.len();
        let (stop, used) = self.execute(turn, streams, bytes);
        let next = self.answer(turn, streams, (stop, used), fills_buffer);
        self.keep(streams, buffer, input, used);
        next
    }

    #[cold]
    fn go_on_errand(&mut self, turn: &mut TurnState<E>, streams: &mut StreamState) -> Next {
        self.note_move(turn);
        let Some(errand) = &mut self.errand else { return self.send(turn, streams) };
        if self.ended && errand.ends_with_input() {
            return Next::Close;
        }
        let progress = errand.step(&mut turn.executor, &mut turn.out);
        match progress {
            Progress::Done => self.errand = None,
            Progress::Ended => return Next::Close,
            Progress::More | Progress::Idle => {}
        }
        match self.send(turn, streams) {
            Next::Again if progress == Progress::Idle => Next::AwaitErrand,
            next => next,
        }
    }

    /// Copies `held` into `buffer`, then reads once. Returns the number of input bytes in `buffer`.
    #[inline]
    fn read(
        &mut self,
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        buffer: &mut [u8],
    ) -> ReadResult {
        let kept = self.held.bytes().len();
        if kept > 0 {
            buffer[..kept].copy_from_slice(self.held.bytes());
        }
        let of_value = self.arrival.is_some();
        let behind_value = mem::replace(&mut self.behind_value, of_value) || of_value;
        let bytes_max = if behind_value { BEHIND_VALUE_BYTES } else { buffer.len() };
        let room = streams.read_bytes_max(bytes_max.min(buffer.len() - kept));
        let free = &mut buffer[kept..kept + room];
        let got = match self.arrival {
            None => {
                let got = self.stream.read(free, &turn.calls);
                self.note_read(turn, got, free.len());
                got
            }
            Some(arrival) => self.read_value(turn, streams, arrival, free),
        };
        let ReadResult::Bytes(bytes) = got else { return got };
        if kept > 0 {
            mem::take(&mut self.held).release(&mut streams.spares);
        }
        ReadResult::Bytes(kept + bytes)
    }

    /// Reads the missing bytes of a large value straight into its frames, and the bytes after the
    /// value into `free`. Returns how many bytes are in `free`.
    fn read_value(
        &mut self,
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        arrival: u32,
        free: &mut [u8],
    ) -> ReadResult {
        let store = turn.executor.store_mut();
        let (spaces, missing) = streams.arrivals.spaces(arrival, store, VALUE_READ_BYTES_MAX);
        let mut pieces: ArrayVec<IoSliceMut<'_>, { SPACES_MAX + 1 }> =
            spaces.map(IoSliceMut::new).collect();
        let room: usize = pieces.iter().map(|piece| piece.len()).sum();
        let behind = if room == missing { free } else { &mut [] };
        let room_in_all = room + behind.len();
        pieces.push(IoSliceMut::new(behind));
        let got = self.stream.read_vectored(&mut pieces, &turn.calls);
        drop(pieces);
        self.note_read(turn, got, room_in_all);
        let bytes = if let ReadResult::Bytes(bytes) = got { bytes } else { 0 };
        streams.arrivals.filled(arrival, bytes.min(room), turn.served_ms);
        match got {
            ReadResult::Bytes(bytes) => ReadResult::Bytes(bytes.saturating_sub(room)),
            got => got,
        }
    }

    #[inline]
    fn note_read(&mut self, turn: &TurnState<E>, got: ReadResult, room: usize) {
        let ReadResult::Bytes(bytes) = got else { return };
        if bytes < room && !self.ended && !self.stream.has_input() {
            // The read was short, so the socket is empty. The kernel will report further input.
            self.readable = false;
        }
        turn.counters.bytes_read.add(bytes as u64);
        self.work_bytes += bytes as u64 + TURN_COST_BYTES;
        self.note_move(turn);
    }

    #[inline]
    fn note_move(&mut self, turn: &TurnState<E>) {
        (self.moved_ms, self.active_ms) = (turn.served_ms, turn.now_ms);
    }

    #[inline]
    fn stopped(&mut self, stop: Stop, used: usize, served_ms: u64) {
        let waits = stop == Stop::Wait;
        // If `used` is not 0, the earlier wait is over, and another request begins to wait.
        let since_ms = self.waits_since_ms.filter(|_| used == 0).unwrap_or(served_ms);
        self.waits_since_ms = waits.then_some(since_ms);
        self.resumable = stop == Stop::Enough || waits;
        self.closing |= stop == Stop::Close;
    }

    /// True if the connection keeps input, an arriving value or replies.
    pub(crate) fn keeps_memory(&self) -> bool {
        let holds = self.held.capacity() > 0 || self.arrival.is_some() || self.unsent.is_some();
        holds || self.stream.held_bytes() > 0
    }

    /// True if a request, a reply or an errand of this connection is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.keeps_memory() || self.resumable || self.readable || self.errand.is_some()
    }

    /// True if the errand is a `watch`, which lasts until the client closes, and no reply waits.
    pub(crate) fn watches(&self) -> bool {
        self.unsent.is_none() && self.errand.as_ref().is_some_and(|it| it.ends_with_input())
    }

    pub(crate) fn pins_memory(&self) -> bool {
        self.unsent.as_ref().is_some_and(|unsent| unsent.pinned_bytes() > 0)
    }

    /// Counts the bytes that the stream holds now. Called after each turn.
    #[inline]
    pub(crate) fn count_stream_bytes(&mut self, streams: &mut StreamState) {
        let bytes = self.stream.held_bytes();
        if bytes != self.stream_bytes {
            streams.waiting.held_bytes += bytes;
            streams.waiting.held_bytes -= mem::replace(&mut self.stream_bytes, bytes);
        }
    }

    /// Gives back all memory that the connection borrowed from the column.
    pub(crate) fn release(&mut self, streams: &mut StreamState) {
        streams.waiting.held_bytes -= mem::take(&mut self.stream_bytes);
        mem::take(&mut self.held).release(&mut streams.spares);
        if let Some(out) = self.unsent.take() {
            streams.waiting.remove(&out);
        }
        if let Some(arrival) = self.arrival.take() {
            streams.arrivals.remove(arrival);
        }
    }

    /// Sends `refusal`, the reason for closing. Bytes that the socket does not take are lost.
    pub(crate) fn send_refusal(&mut self, refusal: Refusal, turn: &TurnState<E>) {
        if self.unsent.is_none() {
            let mut answer = Vec::new();
            self.session.refused(refusal).write(&mut answer);
            let _gone = self.stream.write(&answer, &turn.calls);
        }
    }
}
