//! The kernel's stream sockets, over TCP or Unix.
//!
//! Where: the first implementor of `StreamWay`. The kernel acknowledges, repeats and orders bytes.
//! Invariant: a stream holds no bytes outside its socket. Each stream is watched by the column's
//! epoll, edge-triggered, until it closes.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use net::{Accepted, Calls, Endpoint, Epoll, Interest, Listener, ReadResult, WriteResult};

use super::{Await, Stream, StreamWay};

/// The way of the kernel's sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

impl Stream for net::Stream {
    #[inline]
    fn read(&mut self, into: &mut [u8], calls: &Calls) -> ReadResult {
        net::Stream::read(self, into, calls)
    }

    fn read_vectored(&mut self, pieces: &mut [IoSliceMut<'_>], calls: &Calls) -> ReadResult {
        net::Stream::read_vectored(self, pieces, calls)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8], calls: &Calls) -> WriteResult {
        net::Stream::write(self, bytes, calls)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>], calls: &Calls) -> WriteResult {
        net::Stream::write_vectored(self, pieces, calls)
    }

    fn peer(&self) -> Option<SocketAddr> {
        net::Stream::peer(self).unwrap_or(None)
    }

    fn own(&self) -> Option<Endpoint> {
        net::own_endpoint(self)
    }

    #[inline]
    fn number(&self) -> i32 {
        self.as_fd().as_raw_fd()
    }
}

impl StreamWay for Kernel {
    type Stream = net::Stream;
    type Listener = Listener;

    fn accept(&mut self, listener: &Listener, calls: &Calls) -> Accepted<net::Stream> {
        listener.accept(calls)
    }

    fn watch(
        &mut self,
        stream: &net::Stream,
        token: u64,
        epoll: &Epoll,
        calls: &Calls,
    ) -> io::Result<()> {
        epoll.add(stream, token, Interest::Read, calls)
    }

    fn change(
        &mut self,
        stream: &net::Stream,
        token: u64,
        on: Await,
        epoll: &Epoll,
        calls: &Calls,
    ) {
        let on = match on {
            Await::Input => Interest::Read,
            Await::Room => Interest::Write,
        };
        // `change` fails only for an unwatched descriptor; a stream is watched until it closes.
        let _watched = epoll.change(stream, token, on, calls);
    }

    fn unwatch(&mut self, stream: &net::Stream, epoll: &Epoll, calls: &Calls) {
        // `remove` fails only for an unwatched descriptor; a stream is watched until it closes.
        let _watched = epoll.remove(stream, calls);
    }
}
