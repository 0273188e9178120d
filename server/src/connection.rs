//! One client's connection: its socket, its parser, and what must wait between turns.
//!
//! Where: a column gives it a turn when its socket is ready or when it has work left over. A turn
//! is: one read (`receive`), the requests in it executed, one write (`finish`). A large value on
//! its way in may take a few reads, straight into its frames.
//! Invariant: at rest a connection holds no buffer. While replies wait for the peer to read, it is
//! not read from and executes nothing, so what waits is at most one turn's replies. Bytes are
//! executed in the order they came, each once.

mod arrival;
mod held;
mod input;
mod output;
mod spares;
mod state;

use std::mem;

use net::{Got, Stream};
use protocol::{Refusal, Session, Speak, Step, text};
use store::Prefetched;

pub(crate) use state::ColumnState;

use crate::execute::turn;
use crate::limits::VALUE_READS_MAX;
use crate::out::Out;
use held::Held;
use input::Stop;

/// What the column does with a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until its socket is ready.
    Sleep,
    /// Another turn in the next loop.
    Again,
    /// Another turn a little later: it waits for room in the store.
    AwaitRoom,
    /// Nothing until its socket takes more.
    AwaitWrite,
    /// Drops it.
    Close,
}

/// What the first part of a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// It does not read in this turn: it has work left over.
    Unasked,
    /// So many bytes of input.
    Input(usize),
    /// Nothing to execute; the turn is over.
    Nothing(Next),
}

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    session: Session,
    /// Input not consumed yet.
    held: Held,
    /// Replies the socket did not take.
    out: Option<Box<Out>>,
    /// The large value on its way in, in the column's `Arrivals`.
    arrival: Option<usize>,
    /// `held` may contain whole requests: execute before reading more.
    resumable: bool,
    /// The last read did not empty the socket.
    readable: bool,
    /// The peer's end was announced: read on until it is reached.
    ended: bool,
    /// Close as soon as the replies are out.
    closing: bool,
    /// The request it is at, or its large value, has waited for room since then, by
    /// `ColumnState::served_ms`.
    waits_since_ms: Option<u64>,
    /// Already in the column's queue for the next turn.
    pub(crate) queued: bool,
    /// Watched for room to write instead of for input.
    pub(crate) awaits_write: bool,
    /// When it last received, executed or sent something: by `ColumnState::served_ms`, and by
    /// `ColumnState::now_ms`.
    pub(crate) moved_ms: u64,
    pub(crate) active_ms: u64,
}

impl Connection {
    pub(crate) fn new(stream: Stream, speak: Speak, (served_ms, now_ms): (u64, u64)) -> Connection {
        Connection {
            stream,
            session: Session::new(speak),
            held: Held::default(),
            out: None,
            arrival: None,
            resumable: false,
            readable: false,
            ended: false,
            closing: false,
            waits_since_ms: None,
            queued: false,
            awaits_write: false,
            moved_ms: served_ms,
            active_ms: now_ms,
        }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The kernel says that there is input, or with `ended` its end.
    #[inline]
    pub(crate) fn note_input(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// The first part of a turn: one read into `buffer`, if it is to read at all.
    #[inline]
    pub(crate) fn receive(&mut self, state: &mut ColumnState, buffer: &mut [u8]) -> Received {
        if self.out.is_some() || self.resumable {
            return Received::Unasked;
        }
        if !self.readable {
            return Received::Nothing(Next::Sleep);
        }
        if let Some(arrival) = self.arrival
            && state.arrivals.must_wait(arrival, &mut state.context.store, state.served_ms)
        {
            return Received::Nothing(Next::AwaitRoom);
        }
        match self.read(state, buffer) {
            Got::Bytes(bytes) => Received::Input(bytes),
            Got::Empty => {
                self.readable = false;
                Received::Nothing(Next::Sleep)
            }
            Got::End | Got::Broken => Received::Nothing(Next::Close),
        }
    }

    /// Between the two parts of a turn, when other connections are received from meanwhile: has
    /// what the first request of `input` looks up brought near.
    #[inline]
    pub(crate) fn hint(&self, state: &ColumnState, input: &[u8]) -> Option<Prefetched> {
        if self.arrival.is_some() {
            return None;
        }
        let key = match self.session.only(input) {
            Some(only) => only.key(),
            None => match self.session.clone().next(input) {
                Step::Request(request, _) => turn::key(&request)?,
                _ => return None,
            },
        };
        Some(state.context.store.prefetch(key))
    }

    /// The second part of a turn: the requests in what was received into `buffer` executed, and
    /// one write. `buffer` may be another one afterwards.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        state: &mut ColumnState,
        buffer: &mut Vec<u8>,
        received: Received,
    ) -> Next {
        match received {
            Received::Nothing(next) => {
                if next == Next::AwaitRoom {
                    self.note_move(state); // it is we who do not read
                }
                return next;
            }
            Received::Unasked if self.out.is_some() => return self.send_rest(state),
            Received::Unasked => {
                let held = mem::take(&mut self.held);
                self.note_move(state);
                let (stop, used) = self.execute(state, held.bytes());
                self.stopped(stop, used, state.served_ms);
                self.held = held.after(used, !self.resumable, self.closing, &mut state.spares);
            }
            Received::Input(bytes) => {
                let (stop, used) = self.execute(state, &buffer[..bytes]);
                self.stopped(stop, used, state.served_ms);
                // The parser never asks for more than the buffer holds; if it did, this would
                // spin.
                self.closing |= used == 0 && bytes == buffer.len() && !self.resumable;
                if used < bytes && !self.closing {
                    let waits = !self.resumable || self.waits_since_ms.is_some();
                    let exact = waits || state.pressed;
                    self.held = Held::keep(buffer, used..bytes, exact, &mut state.spares);
                }
            }
        }
        self.send(state)
    }

    /// Reads once into `buffer`, behind the input kept from before. Says how much of it is input.
    #[inline]
    fn read(&mut self, state: &mut ColumnState, buffer: &mut [u8]) -> Got {
        let kept = self.held.bytes().len();
        if kept > 0 {
            buffer[..kept].copy_from_slice(self.held.bytes());
        }
        let room = state.read_bytes_max(buffer.len() - kept);
        let free = &mut buffer[kept..kept + room];
        let got = match self.arrival {
            None => {
                let got = self.stream.read(free, &state.calls);
                self.note_read(state, got, free.len());
                got
            }
            Some(arrival) => self.read_value(state, arrival, free),
        };
        let Got::Bytes(bytes) = got else { return got };
        if kept > 0 {
            mem::take(&mut self.held).release(&mut state.spares);
        }
        Got::Bytes(kept + bytes)
    }

    /// Reads what a large value still lacks straight into its place, at most `VALUE_READS_MAX`
    /// times; with its last bytes, what follows it into `free`. Says how much is in `free`.
    fn read_value(&mut self, state: &mut ColumnState, arrival: usize, free: &mut [u8]) -> Got {
        for reads_left in (0..VALUE_READS_MAX).rev() {
            let (space, missing) = state.arrivals.space(arrival, &mut state.context.store);
            let room = space.len();
            if room == missing {
                let got = self.stream.read_both(space, free, &state.calls);
                self.note_read(state, got, room + free.len());
                let Got::Bytes(bytes) = got else { return got };
                state.arrivals.filled(arrival, bytes.min(room), state.served_ms);
                return Got::Bytes(bytes.saturating_sub(room));
            }
            let got = self.stream.read(space, &state.calls);
            self.note_read(state, got, room);
            match got {
                Got::Bytes(bytes) => state.arrivals.filled(arrival, bytes, state.served_ms),
                Got::Empty if reads_left + 1 < VALUE_READS_MAX => {
                    self.readable = false;
                    break;
                }
                _ => return got,
            }
            if !self.readable
                || state.arrivals.must_wait(arrival, &mut state.context.store, state.served_ms)
            {
                break;
            }
        }
        Got::Bytes(0)
    }

    /// A read with `room` bytes of room is done.
    #[inline]
    fn note_read(&mut self, state: &ColumnState, got: Got, room: usize) {
        let Got::Bytes(bytes) = got else { return };
        if bytes < room && !self.ended {
            // A short read: the socket is empty, and the next byte will be announced.
            self.readable = false;
        }
        state.context.counters.bytes_read.add(bytes as u64);
        self.note_move(state);
    }

    #[inline]
    fn note_move(&mut self, state: &ColumnState) {
        (self.moved_ms, self.active_ms) = (state.served_ms, state.now_ms);
    }

    #[inline]
    fn stopped(&mut self, stop: Stop, used: usize, served_ms: u64) {
        let waits = stop == Stop::Wait;
        // What was got on with is waited for no more; what comes behind it begins to wait.
        let since_ms = self.waits_since_ms.filter(|_| used == 0).unwrap_or(served_ms);
        self.waits_since_ms = waits.then_some(since_ms);
        self.resumable = stop == Stop::Enough || waits;
        self.closing |= stop == Stop::Close;
    }

    /// Does it keep memory that `limits` bounds: input, a value on its way in, replies?
    pub(crate) fn keeps_memory(&self) -> bool {
        self.held.capacity() > 0 || self.arrival.is_some() || self.out.is_some()
    }

    /// Does it pin values that it is yet to send?
    pub(crate) fn pins_memory(&self) -> bool {
        self.out.as_ref().is_some_and(|out| out.pinned_bytes() > 0)
    }

    /// Gives back everything it borrowed from the column.
    pub(crate) fn release(&mut self, state: &mut ColumnState) {
        mem::take(&mut self.held).release(&mut state.spares);
        if let Some(out) = self.out.take() {
            state.waiting.remove(&out);
        }
        if let Some(arrival) = self.arrival.take() {
            state.arrivals.remove(arrival);
        }
    }

    /// Sends why it is about to be closed, as far as the socket takes it.
    pub(crate) fn send_refusal(&mut self, refusal: Refusal, state: &ColumnState) {
        if self.out.is_none() {
            let _gone = self.stream.write(text::write::line(refusal).as_bytes(), &state.calls);
        }
    }
}
