//! The socket of a connection.
//!
//! Where: a column reads requests from a stream, and writes replies to it.
//! Invariant: no call blocks. A call makes exactly one system call, repeated only after a signal.
//! From the result, the caller knows if another call can read or write more.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::calls::Calls;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// The number of bytes read, at least one. If the buffer is full, more bytes may be waiting.
    Bytes(usize),
    /// No bytes are waiting.
    Empty,
    /// The peer has shut down its side. No more bytes will arrive.
    End,
    /// The connection is broken.
    Broken,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The number of bytes that the socket accepted: fewer than offered (or 0) if its buffer is
    /// full.
    Bytes(usize),
    /// The connection is broken.
    Broken,
}

/// A connected TCP or Unix socket. Closed when dropped.
#[derive(Debug)]
pub struct Stream(OwnedFd);

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Stream {
    /// `fd` must be a non-blocking stream socket.
    fn from(fd: OwnedFd) -> Stream {
        Stream(fd)
    }
}

impl Stream {
    /// Reads into `into`, which must not be empty.
    #[inline]
    #[must_use]
    pub fn read(&self, into: &mut [u8], calls: &Calls) -> ReadResult {
        loop {
            calls.reads.add(1);
            match rustix::net::recv(&self.0, &mut *into, RecvFlags::empty()) {
                Ok((bytes, _)) => return got(Ok(bytes)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return got(Err(error)),
            }
        }
    }

    /// Reads into `pieces`, in order. There may be at most 1,024 pieces (`IOV_MAX`), not all empty.
    #[must_use]
    pub fn read_vectored(&self, pieces: &mut [IoSliceMut<'_>], calls: &Calls) -> ReadResult {
        loop {
            calls.reads.add(1);
            match rustix::io::readv(&self.0, pieces) {
                Err(rustix::io::Errno::INTR) => {}
                result => return got(result),
            }
        }
    }

    /// Writes bytes from the start of `bytes`, which must not be empty.
    #[inline]
    #[must_use]
    pub fn write(&self, bytes: &[u8], calls: &Calls) -> WriteResult {
        loop {
            calls.writes.add(1);
            match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                result => return sent(result),
            }
        }
    }

    /// Writes `pieces`, in order. There may be at most 1,024 pieces (`IOV_MAX`).
    #[must_use]
    pub fn write_vectored(&self, pieces: &[IoSlice<'_>], calls: &Calls) -> WriteResult {
        loop {
            calls.writes.add(1);
            let mut none = SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.0, pieces, &mut none, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                result => return sent(result),
            }
        }
    }

    /// Shuts down our side: the peer reads end of file after the last byte sent.
    pub fn finish(&self) {
        // Shutting down fails only if the peer has closed the connection already.
        let _gone = rustix::net::shutdown(&self.0, Shutdown::Write);
    }

    /// The peer's address; `None` for a Unix socket. Fails if the peer has closed the connection.
    pub fn peer(&self) -> io::Result<Option<std::net::SocketAddr>> {
        let address = rustix::net::getpeername(&self.0)?;
        Ok(address.and_then(|any| std::net::SocketAddr::try_from(any).ok()))
    }
}

fn got(result: rustix::io::Result<usize>) -> ReadResult {
    match result {
        Ok(0) => ReadResult::End,
        Ok(bytes) => ReadResult::Bytes(bytes),
        Err(rustix::io::Errno::AGAIN) => ReadResult::Empty,
        Err(_) => ReadResult::Broken,
    }
}

pub(crate) fn sent(result: rustix::io::Result<usize>) -> WriteResult {
    match result {
        Ok(bytes) => WriteResult::Bytes(bytes),
        // ENOBUFS leaves the connection intact: the kernel has no memory at this moment.
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => WriteResult::Bytes(0),
        Err(_) => WriteResult::Broken,
    }
}
