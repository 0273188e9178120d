//! Sending a turn's replies.
//!
//! Where: the end of a turn, and the start of one when replies wait.
//! Invariant: at most one write per turn. What the socket does not take is copied out of the
//! column's buffers and waits with the connection; only frames stay where they are, pinned.

use std::io::IoSlice;

use net::{Calls, Sent, Stream};

use super::ColumnState;
use super::{Connection, Next};
use crate::limits::PIECES_MAX;
use crate::out::Out;

/// What one write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrote {
    /// Everything is out.
    All,
    /// The socket takes no more.
    Full,
    /// More pieces than one write takes.
    Some,
    /// The connection is broken.
    Broken,
}

/// What all of a column's waiting replies take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// Memory beside the store.
    pub(crate) held_bytes: usize,
    /// Large values pinned.
    pub(crate) pinned_bytes: usize,
}

impl Waiting {
    fn add(&mut self, out: &Out) {
        self.held_bytes += out.held_bytes();
        self.pinned_bytes += out.pinned_bytes();
    }

    /// They wait no longer.
    pub(crate) fn remove(&mut self, out: &Out) {
        self.held_bytes -= out.held_bytes();
        self.pinned_bytes -= out.pinned_bytes();
    }
}

impl Connection {
    /// Sends the turn's replies, as far as the socket takes them.
    #[inline]
    pub(super) fn send(&mut self, state: &mut ColumnState) -> Next {
        if state.out.is_empty() {
            return self.rest();
        }
        let (wrote, bytes) = write(&self.stream, &mut state.out, &state.calls);
        state.context.counters.bytes_written.add(bytes as u64);
        match wrote {
            Wrote::All => {
                state.out.clear();
                self.rest()
            }
            Wrote::Broken => {
                state.out.clear();
                Next::Close
            }
            Wrote::Full | Wrote::Some => {
                let rest = Box::new(state.out.take_rest());
                state.waiting.add(&rest);
                self.out = Some(rest);
                if wrote == Wrote::Full { Next::AwaitWrite } else { Next::Again }
            }
        }
    }

    /// Sends replies that waited.
    pub(super) fn send_rest(&mut self, state: &mut ColumnState) -> Next {
        let Some(mut out) = self.out.take() else { return self.rest() };
        state.waiting.remove(&out);
        let (wrote, bytes) = write(&self.stream, &mut out, &state.calls);
        state.context.counters.bytes_written.add(bytes as u64);
        if bytes > 0 {
            self.note_move(state);
        }
        match wrote {
            Wrote::All => self.rest(),
            Wrote::Broken => Next::Close,
            Wrote::Full | Wrote::Some => {
                state.waiting.add(&out);
                self.out = Some(out);
                if wrote == Wrote::Full { Next::AwaitWrite } else { Next::Again }
            }
        }
    }

    /// What comes next when nothing waits to be sent.
    #[inline]
    fn rest(&self) -> Next {
        if self.closing {
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

/// One write from `out`, and how many bytes it took.
#[inline]
fn write(stream: &Stream, out: &mut Out, calls: &Calls) -> (Wrote, usize) {
    let (sent, offered) = match out.text() {
        Some(text) => (stream.write(text, calls), text.len()),
        None => write_pieces(stream, out, calls),
    };
    let Sent::Bytes(bytes) = sent else { return (Wrote::Broken, 0) };
    out.advance(bytes);
    if bytes < offered {
        (Wrote::Full, bytes)
    } else if out.is_empty() {
        (Wrote::All, bytes)
    } else {
        (Wrote::Some, bytes)
    }
}

fn write_pieces(stream: &Stream, out: &Out, calls: &Calls) -> (Sent, usize) {
    let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
    let used = out.gather(&mut pieces);
    let pieces = &pieces[..used];
    (stream.write_vectored(pieces, calls), pieces.iter().map(|piece| piece.len()).sum())
}
