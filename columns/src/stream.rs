//! The seam between a connection and the way by which its bytes travel.
//!
//! ```text
//! column -- watch, ready --> way:     which streams may be read or written now
//! connection -- read, write -> stream: the bytes of one connection
//! ```
//!
//! Where: between `connection`, which gives each stream its turns, and the kernel's sockets or
//! another way. TLS and TCP without the kernel are further ways.
//! Invariant: no call blocks. A way reports input once: whoever reads must read until a read
//! returns fewer bytes than there was room for, or must read later without another report.

mod kernel;

use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use net::{Accepted, Calls, Endpoint, Epoll, ReadResult, WriteResult};

pub use kernel::Kernel;

/// The bytes of one connection.
pub trait Stream: Debug + Send {
    /// Reads into `into`, which must not be empty.
    fn read(&mut self, into: &mut [u8], calls: &Calls) -> ReadResult;

    /// Reads into `pieces`, in order. There may be at most 1,024 pieces, not all empty.
    fn read_vectored(&mut self, pieces: &mut [IoSliceMut<'_>], calls: &Calls) -> ReadResult;

    /// True if the next read returns bytes although the way will not report them: the stream has
    /// received them already, such as the rest of a decrypted record.
    fn has_input(&self) -> bool {
        false
    }

    /// Takes bytes to be sent. The stream may change them before they leave, and may hold them
    /// until the peer acknowledges them.
    fn write(&mut self, bytes: &[u8], calls: &Calls) -> WriteResult;

    /// Like `write`, for at most 1,024 pieces that are sent one after the other.
    fn write_vectored(&mut self, pieces: &[IoSlice<'_>], calls: &Calls) -> WriteResult;

    /// True if bytes that `write` has taken have not left yet, because the way had no room. When
    /// the way reports room, the column calls `flush`.
    fn has_output(&self) -> bool {
        false
    }

    /// Sends bytes that `write` has taken. Returns false if the connection is broken.
    fn flush(&mut self, _calls: &Calls) -> bool {
        true
    }

    /// Bytes of memory that the stream holds, such as bytes that are not acknowledged yet.
    fn held_bytes(&self) -> usize {
        0
    }

    /// The address of the peer, if it has one.
    fn peer(&self) -> Option<SocketAddr>;

    /// The stream's own address.
    fn own(&self) -> Option<Endpoint>;

    /// The number by which `watch` and `stats conns` name the stream: that of its descriptor.
    fn number(&self) -> i32;
}

/// Something to which a stream or a way has been waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The stream has input, or its peer has ended.
    pub readable: bool,
    /// The peer has ended; input before the end may be unread.
    pub ended: bool,
}

/// The event for which a column waits at a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Await {
    /// Input.
    Input,
    /// Room to write.
    Room,
}

/// A way by which streams reach one column.
pub trait StreamWay: Debug + Send {
    /// The bytes of one connection.
    type Stream: Stream;
    /// The source of new connections. Its descriptor is readable while a connection waits.
    type Listener: AsFd + Debug + Send + Sync;

    /// Accepts one connection.
    fn accept(&mut self, listener: &Self::Listener, calls: &Calls) -> Accepted<Self::Stream>;

    /// Reports from now on when the stream is ready. The way may report by events of `epoll` that
    /// carry `token`, or by `ready`.
    ///
    /// # Errors
    /// The kernel has no memory to watch the stream.
    fn watch(
        &mut self,
        stream: &Self::Stream,
        token: u64,
        epoll: &Epoll,
        calls: &Calls,
    ) -> io::Result<()>;

    /// Changes the event for which a watched stream is watched.
    fn change(
        &mut self,
        stream: &Self::Stream,
        token: u64,
        on: Await,
        epoll: &Epoll,
        calls: &Calls,
    );

    /// Ends the watch of a stream, which stays open.
    fn unwatch(&mut self, stream: &Self::Stream, epoll: &Epoll, calls: &Calls);

    /// Passes to `found` the streams that are ready without an event of the epoll. Called once per
    /// loop, `now_ms` milliseconds after the server started.
    fn ready(&mut self, _now_ms: u64, _found: impl FnMut(u64, Ready)) {}

    /// The time at which `ready` must be called next, even without an event of the epoll.
    fn due_ms(&self) -> Option<u64> {
        None
    }
}
