//! One connection's socket: bytes in, bytes out.
//!
//! Where: where requests enter the column and replies leave it.
//! Invariant: non-blocking; each call makes exactly one system call (but for a signal's
//! interruption), and its result says what the caller must know to save the next one.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::calls::Calls;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// This many bytes, at least one. If they filled the buffer there may be more.
    Bytes(usize),
    /// Nothing is there now.
    Empty,
    /// The peer has shut down its side; nothing will come.
    End,
    /// The connection is broken.
    Broken,
}

/// What a write took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// This many bytes; less than offered, or none, when the socket is full.
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
    /// Reads into `into`, which is not empty.
    #[inline]
    #[must_use]
    pub fn read(&self, into: &mut [u8], calls: &Calls) -> Got {
        loop {
            calls.reads.add(1);
            match rustix::net::recv(&self.0, &mut *into, RecvFlags::empty()) {
                Ok((bytes, _)) => return got(Ok(bytes)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return got(Err(error)),
            }
        }
    }

    /// Reads into `first`, and what `first` has no room for into `second`; not both are empty.
    #[must_use]
    pub fn read_both(&self, first: &mut [u8], second: &mut [u8], calls: &Calls) -> Got {
        loop {
            calls.reads.add(1);
            let mut into = [IoSliceMut::new(&mut *first), IoSliceMut::new(&mut *second)];
            match rustix::io::readv(&self.0, &mut into) {
                Err(rustix::io::Errno::INTR) => {}
                result => return got(result),
            }
        }
    }

    /// Writes from `bytes`, which is not empty.
    #[inline]
    #[must_use]
    pub fn write(&self, bytes: &[u8], calls: &Calls) -> Sent {
        loop {
            calls.writes.add(1);
            match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                result => return sent(result),
            }
        }
    }

    /// Writes from `pieces` in their order; at most 1,024 of them (`IOV_MAX`).
    #[must_use]
    pub fn write_vectored(&self, pieces: &[IoSlice<'_>], calls: &Calls) -> Sent {
        loop {
            calls.writes.add(1);
            let mut none = SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.0, pieces, &mut none, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                result => return sent(result),
            }
        }
    }

    /// Says to the peer that nothing more will come. It may have gone already, which is as good.
    pub fn finish(&self) {
        let _gone = rustix::net::shutdown(&self.0, Shutdown::Write);
    }

    /// The peer's address, for a log line.
    ///
    /// # Errors
    /// The peer has gone.
    pub fn peer(&self) -> io::Result<Option<std::net::SocketAddr>> {
        let address = rustix::net::getpeername(&self.0)?;
        Ok(address.and_then(|any| std::net::SocketAddr::try_from(any).ok()))
    }
}

fn got(result: rustix::io::Result<usize>) -> Got {
    match result {
        Ok(0) => Got::End,
        Ok(bytes) => Got::Bytes(bytes),
        Err(rustix::io::Errno::AGAIN) => Got::Empty,
        Err(_) => Got::Broken,
    }
}

fn sent(result: rustix::io::Result<usize>) -> Sent {
    match result {
        Ok(bytes) => Sent::Bytes(bytes),
        // ENOBUFS passes: the kernel has no memory for it at this moment.
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => Sent::Bytes(0),
        Err(_) => Sent::Broken,
    }
}
