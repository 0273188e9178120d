//! Gives the ready connections their turns.
//!
//! Where: a column calls `turns` once per loop, after it has waited for events.
//! Invariant: each connection in the queue gets one turn per loop. The requests of up to
//! `TURNS_AHEAD` connections go through one batch, as if one connection had pipelined them. Each
//! connection's replies are sent before the next connection's requests are executed.

use std::mem;

use super::Column;
use super::connections::Connections;
use crate::batch::{self, End, Input, Inputs};
use crate::budget::Budget;
use crate::connection::{Connection, Next, ReceiveResult, StreamState, TurnInput};
use crate::executor::Executor;
use crate::limits::TURNS_AHEAD;
use crate::stream::{Await, Stream, StreamWay};
use crate::turn::TurnState;

impl<E: Executor, W: StreamWay> Column<E, W> {
    pub(super) fn turns(&mut self) {
        let mut queue = mem::take(&mut self.queue);
        for tokens in queue.chunks(TURNS_AHEAD) {
            if let [token] = *tokens {
                let received = self.receive(token, 0);
                self.finish(token, 0, received);
            } else {
                self.turns_together(tokens);
            }
        }
        queue.clear();
        self.queue = mem::replace(&mut self.queue_next, queue);
    }

    /// Gives each of at most `TURNS_AHEAD` connections a turn, and executes their requests as one
    /// batch. A connection whose turn must do more than execute requests is not in the batch.
    #[inline(never)]
    fn turns_together(&mut self, tokens: &[u64]) {
        let mut taken: [Option<TurnInput>; TURNS_AHEAD] = [const { None }; TURNS_AHEAD];
        for (at, (&token, taken)) in tokens.iter().zip(&mut taken).enumerate() {
            if self.buffers[at].is_empty() {
                self.buffers[at] = vec![0; self.streams.spares.large_bytes()];
            }
            let received = self.receive(token, at);
            match self.connections.get(token) {
                Some(connection) if connection.only_executes(received) => {
                    *taken = Some(connection.take_input(&self.turn, received));
                }
                _ => self.finish(token, at, received),
            }
        }
        let inputs = std::array::from_fn(|at| {
            taken[at].as_ref().map(|input| input.bytes(&self.buffers[at]))
        });
        let mut batch_inputs = BatchInputs {
            connections: &mut self.connections,
            streams: &mut self.streams,
            tokens,
            inputs,
            buffer_bytes: self.buffers[0].len(),
            next: 0,
            ended: [None; TURNS_AHEAD],
        };
        batch::run(&mut self.turn, &mut batch_inputs);
        let ended = batch_inputs.ended;
        for (at, (&token, taken)) in tokens.iter().zip(taken).enumerate() {
            if let (Some(input), Some((next, used))) = (taken, ended[at])
                && let Some(connection) = self.connections.get(token)
            {
                connection.keep(&mut self.streams, &mut self.buffers[at], input, used);
                self.follow(token, next);
            }
        }
    }

    /// Does the first half of a turn: receives bytes into the buffer with the number `at`.
    #[inline]
    fn receive(&mut self, token: u64, at: usize) -> ReceiveResult {
        let Some(connection) = self.connections.get(token) else {
            return ReceiveResult::Nothing(Next::Sleep);
        };
        connection.queued = false;
        connection.receive(&mut self.turn, &mut self.streams, &mut self.buffers[at])
    }

    /// Does the second half of a turn: executes requests, sends replies, prepares the next step.
    #[inline]
    fn finish(&mut self, token: u64, at: usize, received: ReceiveResult) {
        let Some(connection) = self.connections.get(token) else { return };
        let buffer = &mut self.buffers[at];
        let next = connection.finish(&mut self.turn, &mut self.streams, buffer, received);
        self.follow(token, next);
    }

    #[inline]
    fn follow(&mut self, token: u64, next: Next) {
        let Some(connection) = self.connections.get(token) else { return };
        connection.count_stream_bytes(&mut self.streams);
        match next {
            Next::Again => {
                connection.queued = true;
                self.queue_next.push(token);
            }
            Next::AwaitRoom => {
                connection.queued = true;
                self.awaiting_room.push(token);
            }
            Next::AwaitErrand => {
                connection.queued = true;
                self.awaiting_errand.push(token);
            }
            Next::Sleep | Next::AwaitWrite | Next::Close => {}
        }
        let awaits_write = next == Next::AwaitWrite;
        if next == Next::Close {
            let reason = connection.close_reason();
            self.close_for(token, reason);
        } else if connection.awaits_write != awaits_write {
            connection.awaits_write = awaits_write;
            let on = if awaits_write { Await::Room } else { Await::Input };
            self.way.change(connection.stream(), token, on, &self.epoll, &self.turn.calls);
        }
        self.streams.pressed = self.streams.is_pressed(2);
        if self.streams.pressed {
            self.relieve();
        }
    }
}

/// Connections whose inputs are executed as one batch.
struct BatchInputs<'c, 'i, E: Executor, S> {
    connections: &'c mut Connections<E, S>,
    streams: &'c mut StreamState,
    tokens: &'c [u64],
    inputs: [Option<&'i [u8]>; TURNS_AHEAD],
    buffer_bytes: usize,
    /// The position, in `tokens`, of the connection whose input is returned next.
    next: usize,
    /// For each executed connection: its next step, and how many bytes of its input are used.
    ended: [Option<(Next, usize)>; TURNS_AHEAD],
}

impl<'i, E: Executor, S: Stream> Inputs<'i, E> for BatchInputs<'_, 'i, E, S> {
    #[inline]
    fn next(&mut self) -> Option<Input<'i>> {
        while let Some(&token) = self.tokens.get(self.next) {
            let number = self.next;
            self.next += 1;
            if let Some(bytes) = self.inputs[number]
                && let Some(connection) = self.connections.get(token)
            {
                let session = connection.session().clone();
                return Some(Input { number, bytes, at: 0, session });
            }
        }
        None
    }

    #[inline]
    fn begin(&mut self, number: usize, turn: &mut TurnState<E>) -> Budget {
        match self.connections.get(self.tokens[number]) {
            Some(connection) => {
                let may_wait = connection.begin_input(turn);
                Connection::<E, S>::budget(may_wait, self.streams)
            }
            None => Budget::none(),
        }
    }

    #[inline]
    fn end(&mut self, number: usize, end: End<'_>, turn: &mut TurnState<E>) {
        let Some(connection) = self.connections.get(self.tokens[number]) else { return };
        let bytes = self.inputs[number].unwrap_or_default();
        let input = (bytes, bytes.len() == self.buffer_bytes);
        self.ended[number] = Some(connection.end(turn, self.streams, input, end));
        self.streams.pressed = self.streams.is_pressed(2);
    }
}
