//! A way of streams in memory, with all that TLS and TCP without the kernel will need.
//!
//! ```text
//! client --  input (masked) --> | stream.read  | column
//! client <-- sent  (masked) <-- | stream.write |
//! ```
//!
//! Where: in place of the kernel's sockets, between a column and `relay`.
//! Invariant: bytes are masked (each is XORed) on their way, as if they were encrypted. A stream
//! has no descriptor: only `InMemory::ready` reports input, room and acknowledgements. At most
//! `WINDOW` bytes are sent and not acknowledged; a stream holds `OUTPUT_BYTES_MAX` more. A read
//! returns at most one record of `RECORD_BYTES`, so that input is left that nothing reports.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use columns::stream::{Await, Ready, Stream, StreamWay};
use net::{Accepted, Calls, Endpoint, Epoll, ReadResult, Waker, WriteResult};

const MASK: u8 = 0xa5;
/// A record holds the longest line of the transcripts: a longer unfinished line ends a connection.
const RECORD_BYTES: usize = 3500;
const WINDOW: usize = 3000;
const OUTPUT_BYTES_MAX: usize = 5000;

/// The streams that are ready, and the waker of the column that must be told.
#[derive(Debug)]
pub(crate) struct Told {
    ready: Mutex<Vec<(u64, Ready)>>,
    waker: Arc<Waker>,
}

#[derive(Debug)]
pub(crate) struct InMemory(Arc<Told>);

/// New connections for one column. The waker's descriptor is readable while one waits.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<InMemoryStream>>,
    waker: Waker,
}

/// The two directions of one connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    state: Mutex<State>,
    /// Notified when `sent` or `is_closed` changes.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The column that watches the stream, and the stream's token.
    watched: Option<(Arc<Told>, u64)>,
    input: VecDeque<u8>,
    input_ended: bool,
    /// Masked bytes that `write` has taken and that have not been sent.
    output: VecDeque<u8>,
    /// Bytes that were sent and are not acknowledged. The relay has taken the first `taken`.
    sent: VecDeque<u8>,
    taken: usize,
    is_closed: bool,
}

#[derive(Debug)]
pub(crate) struct InMemoryStream {
    pipe: Arc<Pipe>,
    peer: SocketAddr,
    number: i32,
}

impl InMemory {
    pub(crate) fn new(waker: Arc<Waker>) -> InMemory {
        InMemory(Arc::new(Told { ready: Mutex::default(), waker }))
    }
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue { waiting: Mutex::default(), waker: Waker::new().unwrap() }
    }

    /// Opens a connection, and returns the client's side.
    pub(crate) fn connect(&self, peer: SocketAddr) -> Arc<Pipe> {
        static NUMBER: AtomicI32 = AtomicI32::new(1000);
        let pipe = Arc::new(Pipe { state: Mutex::default(), changed: Condvar::new() });
        let number = NUMBER.fetch_add(1, Ordering::Relaxed); // any number that no other has
        let stream = InMemoryStream { pipe: Arc::clone(&pipe), peer, number };
        self.waiting.lock().unwrap().push_back(stream);
        self.waker.wake();
        pipe
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl State {
    fn has_input(&self) -> bool {
        !self.input.is_empty() || self.input_ended
    }

    fn tell(&self, readable: bool) {
        if let Some((told, token)) = &self.watched {
            let ready = Ready { readable, ended: readable && self.input_ended };
            told.ready.lock().unwrap().push((*token, ready));
            told.waker.wake();
        }
    }

    /// Moves bytes from `output` to `sent`, as many as the window allows.
    fn send(&mut self, window: usize) {
        let room = window.saturating_sub(self.sent.len()).min(self.output.len());
        self.sent.extend(self.output.drain(..room));
    }
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Passes bytes of the client to the server; no bytes mean that the client has ended.
    pub(crate) fn pass(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        state.input.extend(bytes.iter().map(|byte| byte ^ MASK));
        state.input_ended |= bytes.is_empty();
        state.tell(true);
    }

    /// Waits for bytes of the server. Returns none if the server has closed the connection.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut state = self.lock();
        while state.sent.len() == state.taken && !state.is_closed {
            state = self.changed.wait(state).unwrap();
        }
        let bytes = state.sent.range(state.taken..).map(|byte| byte ^ MASK).collect();
        state.taken = state.sent.len();
        bytes
    }

    /// Acknowledges `bytes` bytes that `take` has returned.
    pub(crate) fn acknowledge(&self, bytes: usize) {
        let mut state = self.lock();
        state.sent.drain(..bytes);
        state.taken -= bytes;
        if state.is_closed {
            state.send(WINDOW);
            self.changed.notify_all();
        }
        state.tell(false);
    }
}

impl Stream for InMemoryStream {
    fn read(&mut self, into: &mut [u8], _: &Calls) -> ReadResult {
        let mut state = self.pipe.lock();
        let bytes = into.len().min(state.input.len()).min(RECORD_BYTES);
        if bytes == 0 {
            return if state.input_ended { ReadResult::End } else { ReadResult::Empty };
        }
        for (to, byte) in into.iter_mut().zip(state.input.drain(..bytes)) {
            *to = byte ^ MASK;
        }
        ReadResult::Bytes(bytes)
    }

    fn read_vectored(&mut self, pieces: &mut [IoSliceMut<'_>], calls: &Calls) -> ReadResult {
        let mut all = 0;
        for piece in pieces.iter_mut().filter(|piece| !piece.is_empty()) {
            match self.read(piece, calls) {
                ReadResult::Bytes(bytes) if bytes == piece.len() => all += bytes,
                ReadResult::Bytes(bytes) => return ReadResult::Bytes(all + bytes),
                other if all == 0 => return other,
                _ => break,
            }
        }
        ReadResult::Bytes(all)
    }

    fn has_input(&self) -> bool {
        self.pipe.lock().has_input()
    }

    fn write(&mut self, bytes: &[u8], _: &Calls) -> WriteResult {
        let mut state = self.pipe.lock();
        let room = OUTPUT_BYTES_MAX.saturating_sub(state.output.len()).min(bytes.len());
        state.output.extend(bytes[..room].iter().map(|byte| byte ^ MASK));
        state.send(WINDOW);
        self.pipe.changed.notify_all();
        WriteResult::Bytes(room)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>], calls: &Calls) -> WriteResult {
        let mut all = 0;
        for piece in pieces {
            let WriteResult::Bytes(bytes) = self.write(piece, calls) else { break };
            all += bytes;
            if bytes < piece.len() {
                break;
            }
        }
        WriteResult::Bytes(all)
    }

    fn has_output(&self) -> bool {
        !self.pipe.lock().output.is_empty()
    }

    fn flush(&mut self, _: &Calls) -> bool {
        self.pipe.lock().send(WINDOW);
        self.pipe.changed.notify_all();
        true
    }

    fn held_bytes(&self) -> usize {
        let state = self.pipe.lock();
        state.output.len() + state.sent.len()
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn own(&self) -> Option<Endpoint> {
        None
    }

    fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for InMemoryStream {
    fn drop(&mut self) {
        let mut state = self.pipe.lock();
        state.is_closed = true;
        state.watched = None;
        state.send(WINDOW);
        self.pipe.changed.notify_all();
    }
}

impl StreamWay for InMemory {
    type Stream = InMemoryStream;
    type Listener = Queue;

    fn accept(&mut self, queue: &Queue, _: &Calls) -> Accepted<InMemoryStream> {
        queue.waker.clear();
        match queue.waiting.lock().unwrap().pop_front() {
            Some(stream) => Accepted::Stream(stream),
            None => Accepted::Empty,
        }
    }

    fn watch(
        &mut self,
        stream: &InMemoryStream,
        token: u64,
        _: &Epoll,
        _: &Calls,
    ) -> io::Result<()> {
        let mut state = stream.pipe.lock();
        state.watched = Some((Arc::clone(&self.0), token));
        state.tell(state.has_input());
        Ok(())
    }

    fn change(&mut self, stream: &InMemoryStream, _: u64, on: Await, _: &Epoll, _: &Calls) {
        // The room or the input may have come before this call.
        let state = stream.pipe.lock();
        state.tell(on == Await::Input && state.has_input());
    }

    fn unwatch(&mut self, stream: &InMemoryStream, _: &Epoll, _: &Calls) {
        stream.pipe.lock().watched = None;
    }

    fn ready(&mut self, _: u64, mut found: impl FnMut(u64, Ready)) {
        let all = std::mem::take(&mut *self.0.ready.lock().unwrap());
        all.into_iter().for_each(|(token, ready)| found(token, ready));
    }
}
