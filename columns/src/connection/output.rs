//! Sends a turn's replies.
//!
//! Where: at the end of a turn, or at its start if replies of an earlier turn are still unsent.
//! Invariant: at most one write per turn. Bytes that the socket does not take are copied out of the
//! column's buffers and wait with the connection; bytes in frames are pinned instead of copied.

use std::io::IoSlice;

use net::{Calls, WriteResult};

use super::unsent::{UnsentReplies, gather};
use super::{Connection, Next, StreamState};
use crate::executor::Executor;
use crate::limits::PIECES_MAX;
use crate::out::Mark;
use crate::stream::Stream;
use crate::turn::TurnState;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendProgress {
    All,
    /// The socket's buffer is full: the socket took only some of the bytes.
    Full,
    /// The socket took all pieces of this write; further pieces wait for the next write.
    Some,
    Broken,
}

impl<E: Executor, S: Stream> Connection<E, S> {
    #[inline]
    pub(super) fn send(&mut self, turn: &mut TurnState<E>, streams: &mut StreamState) -> Next {
        if turn.out.is_empty() {
            return self.rest();
        }
        let all_bytes = turn.out.bytes();
        let (sent, offered) = write(&mut self.stream, turn);
        let (wrote, bytes) = SendProgress::of(sent, offered, all_bytes);
        turn.counters.bytes_written.add(bytes as u64);
        self.work_bytes += bytes as u64;
        match wrote {
            SendProgress::All => {
                turn.out.clear();
                self.rest()
            }
            SendProgress::Broken => {
                turn.out.clear();
                Next::Close
            }
            SendProgress::Full | SendProgress::Some => {
                turn.out.settle(turn.executor.store());
                let unsent = Box::new(UnsentReplies::rest_of(&mut turn.out, bytes));
                self.wait_with(unsent, wrote, streams)
            }
        }
    }

    pub(super) fn send_rest(&mut self, turn: &mut TurnState<E>, streams: &mut StreamState) -> Next {
        let Some(mut unsent) = self.unsent.take() else { return self.rest() };
        streams.waiting.remove(&unsent);
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let used = unsent.gather(&mut pieces);
        let (sent, offered) = write_pieces(&mut self.stream, &pieces[..used], &turn.calls);
        let (wrote, bytes) = SendProgress::of(sent, offered, unsent.left_bytes());
        unsent.advance(bytes);
        turn.counters.bytes_written.add(bytes as u64);
        self.work_bytes += bytes as u64;
        if bytes > 0 {
            self.note_move(turn);
        }
        match wrote {
            SendProgress::All => self.rest(),
            SendProgress::Broken => Next::Close,
            SendProgress::Full | SendProgress::Some => self.wait_with(unsent, wrote, streams),
        }
    }

    fn wait_with(
        &mut self,
        unsent: Box<UnsentReplies>,
        wrote: SendProgress,
        streams: &mut StreamState,
    ) -> Next {
        streams.waiting.add(&unsent);
        self.unsent = Some(unsent);
        if wrote == SendProgress::Full { Next::AwaitWrite } else { Next::Again }
    }

    /// Sends the bytes that the stream has taken but not sent yet.
    #[cold]
    pub(super) fn flush(&mut self, turn: &mut TurnState<E>) -> Next {
        if !self.stream.flush(&turn.calls) {
            return Next::Close;
        }
        self.note_move(turn);
        match self.unsent {
            Some(_) if !self.stream.has_output() => Next::Again,
            _ => self.rest(),
        }
    }

    #[inline]
    fn rest(&self) -> Next {
        if self.stream.has_output() {
            Next::AwaitWrite
        } else if self.closing {
            Next::Close
        } else if self.waits_since_ms.is_some() {
            Next::AwaitRoom
        } else if self.resumable || self.readable {
            Next::Again
        } else {
            Next::Sleep
        }
    }
}

impl SendProgress {
    /// Returns the progress of a write with the result `sent`, and how many bytes the socket took.
    /// The write offered `offered` of all `all_bytes` bytes to the socket.
    #[inline]
    fn of(sent: WriteResult, offered: usize, all_bytes: usize) -> (SendProgress, usize) {
        match sent {
            WriteResult::Bytes(bytes) if bytes < offered => (SendProgress::Full, bytes),
            WriteResult::Bytes(bytes) if bytes < all_bytes => (SendProgress::Some, bytes),
            WriteResult::Bytes(bytes) => (SendProgress::All, bytes),
            _ => (SendProgress::Broken, 0),
        }
    }
}

/// Writes at most `PIECES_MAX` pieces at once. Returns the result and the number of offered bytes.
#[inline]
fn write<E: Executor>(stream: &mut impl Stream, turn: &TurnState<E>) -> (WriteResult, usize) {
    let TurnState { out, executor, calls, .. } = turn;
    if out.is_lost(executor.store()) {
        return (WriteResult::Broken, 0);
    }
    if out.bytes() == out.buf.len() {
        return (stream.write(&out.buf, calls), out.buf.len());
    }
    let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
    let all = out.pieces(Mark::default(), out.mark(), executor.store());
    let used = gather(all, &mut pieces);
    write_pieces(stream, &pieces[..used], calls)
}

fn write_pieces(
    stream: &mut impl Stream,
    pieces: &[IoSlice<'_>],
    calls: &Calls,
) -> (WriteResult, usize) {
    (stream.write_vectored(pieces, calls), pieces.iter().map(|piece| piece.len()).sum())
}
