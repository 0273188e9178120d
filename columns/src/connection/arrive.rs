//! Moves a connection's input into an arriving large value, and stores the value once it is whole.
//!
//! Where: `input` calls `expect` at a command with a large value, and `arrive` for the bytes that
//! follow.
//! Invariant: until the value is whole, only the part of the command is kept that its execution
//! needs.

use protocol::text::head::HEAD_BYTES_MAX;
use protocol::{Request, Tail, TailRead};

use super::arrival::{Arrival, Fill};
use super::{Connection, StreamState};
use crate::executor::{Executor, NextStep};
use crate::stream::Stream;
use crate::turn::TurnState;

impl<E: Executor, S: Stream> Connection<E, S> {
    /// Begins to receive a large value: the input that follows belongs to the command in `header`.
    pub(super) fn expect(
        &mut self,
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        (header, request): (&[u8], &Request<'_>),
        value_bytes: u32,
        tail: Tail,
    ) {
        self.arrival = Some(streams.arrivals.add(Arrival {
            header: kept(header, request, value_bytes),
            draft: turn.executor.store_mut().map(|store| store.draft(value_bytes)),
            missing_bytes: value_bytes as usize,
            tail,
            received_bytes: 0,
            moved_ms: turn.served_ms,
            waits_since_ms: None,
            copied_bytes: 0,
        }));
    }

    /// Moves `input` into the arriving value, and executes the command when the value and its tail
    /// are complete. Returns the state of the value, and how many bytes of `input` were used.
    pub(super) fn arrive(
        &mut self,
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        index: u32,
        input: &[u8],
    ) -> (Fill, usize) {
        let mut used = 0;
        while used < input.len() {
            if streams.arrivals.must_wait(index, turn.executor.store_mut(), turn.served_ms) {
                return (Fill::Wait, used);
            }
            let store = turn.executor.store_mut();
            let (spaces, _) = streams.arrivals.spaces(index, store, input.len() - used);
            let before = used;
            for space in spaces {
                let bytes = space.len().min(input.len() - used);
                space[..bytes].copy_from_slice(&input[used..used + bytes]);
                used += bytes;
            }
            streams.arrivals.filled(index, used - before, turn.served_ms);
            if used == before {
                break;
            }
        }
        let Some(arrival) = streams.arrivals.all.get_mut(index as usize) else {
            return (Fill::Hungry, used);
        };
        let Some(draft) = &mut arrival.draft else {
            let (missing_bytes, tail) = (arrival.missing_bytes as u64, arrival.tail);
            self.arrival = None;
            let header = streams.arrivals.remove(index);
            let answer = turn.executor.give_up(&header);
            self.session.swallow(missing_bytes, tail, answer);
            return (Fill::Done(NextStep::Continue), used);
        };
        if arrival.missing_bytes > 0 {
            return (Fill::Hungry, used);
        }
        let tail = match arrival.tail.read(&input[used..]) {
            TailRead::More => return (Fill::Hungry, used),
            TailRead::Whole(tail) | TailRead::Wrong(tail) => tail,
        };
        let TurnState { executor, out, .. } = turn;
        let after = executor.execute_with_draft((&arrival.header, tail), draft, out);
        if after == NextStep::Wait {
            arrival.waits_since_ms.get_or_insert(turn.served_ms);
            let more_bytes = draft.copied_bytes() - arrival.copied_bytes;
            arrival.copied_bytes += more_bytes;
            streams.arrivals.beside_bytes += more_bytes;
            return (Fill::Wait, used);
        }
        used += tail.len();
        self.arrival = None;
        streams.arrivals.remove(index);
        (Fill::Done(after), used)
    }
}

/// Returns the part of a command that must be kept until the command's value has arrived.
fn kept(header: &[u8], request: &Request<'_>, value_bytes: u32) -> Vec<u8> {
    let mut kept = Vec::with_capacity(header.len().min(HEAD_BYTES_MAX));
    request.short_head(header, value_bytes, &mut kept);
    kept
}
