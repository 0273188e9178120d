//! Connects a client's stream without blocking.
//!
//! Where: a load generator connects before it sends the first byte. The server only uses this
//! module to find out if another server answers on a Unix socket's path.
//! Invariant: `connect` does not block, so its stream may still be connecting. The stream becomes
//! writable (`Interest::Both`) when connecting has ended; `outcome` then gives the result.
//! Source: connect(2) on `EINPROGRESS`; unix(7) on a full backlog (`EAGAIN`).

use std::io;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

use crate::listener::Endpoint;
use crate::stream::Stream;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

impl Stream {
    /// Begins to connect to `endpoint`. A TCP socket gets `TCP_NODELAY`, so that a small request
    /// does not wait until the preceding request is acknowledged. Fails if no process listens on
    /// the Unix socket, if its backlog is full, if there is no route, or if no descriptor is left.
    pub fn connect(endpoint: &Endpoint) -> io::Result<Stream> {
        let (fd, begun) = match endpoint {
            Endpoint::Tcp(address) => {
                let family =
                    if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
                let fd = socket_with(family, SocketType::STREAM, FLAGS, None)?;
                sockopt::set_tcp_nodelay(&fd, true)?;
                let begun = connect(&fd, address);
                (fd, begun)
            }
            Endpoint::Unix(path) => {
                let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
                let begun = connect(&fd, &SocketAddrUnix::new(path)?);
                (fd, begun)
            }
        };
        match begun {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Stream::from(fd)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the result of connecting, and clears the socket's error. Call `outcome` after the
    /// stream has become writable.
    pub fn outcome(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(self)??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Accepted, Calls, Epoll, Interest, Listener, ReadResult, ReservedPort, Timeout, WriteResult,
    };
    use std::time::Duration;

    fn talks(listener: &Listener) {
        let calls = Calls::default();
        let mut epoll = Epoll::new(8).unwrap();
        let client = Stream::connect(listener.endpoint()).unwrap();
        epoll.add(&client, 1, Interest::Both, &calls).unwrap();
        epoll.add(listener, 2, Interest::Accept, &calls).unwrap();
        let (mut writable, mut accepted) = (false, None);
        while !writable || accepted.is_none() {
            let events: Vec<_> =
                epoll.wait(Timeout::Within(Duration::from_secs(20)), &calls).unwrap().collect();
            assert!(!events.is_empty(), "no event within the timeout");
            writable |= events.iter().any(|event| event.token == 1 && event.writable);
            if accepted.is_none()
                && let Accepted::Stream(stream) = listener.accept(&calls)
            {
                accepted = Some(stream);
            }
        }
        client.outcome().unwrap();
        assert_eq!(client.write(b"word", &calls), WriteResult::Bytes(4));
        let (accepted, mut arrival) = (accepted.unwrap(), Epoll::new(8).unwrap());
        arrival.add(&accepted, 3, Interest::Read, &calls).unwrap();
        let limit = Timeout::Within(Duration::from_secs(20));
        assert_eq!(arrival.wait(limit, &calls).unwrap().len(), 1);
        let mut word = [0; 8];
        assert_eq!(accepted.read(&mut word, &calls), ReadResult::Bytes(4));
    }

    #[test]
    fn a_client_reaches_a_listener_over_ipv4_ipv6_and_a_unix_socket() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let hold = ReservedPort::take(address.parse().unwrap()).unwrap();
            talks(&hold.listen(8).unwrap());
        }
        let path = std::env::temp_dir().join(format!("net-connect-{}", std::process::id()));
        let listener = Listener::unix(&path, 0o700, 8).unwrap();
        talks(&listener);
        listener.remove_file();
        assert!(Stream::connect(&Endpoint::Unix(path)).is_err());
    }

    #[test]
    fn a_refused_connection_says_so_once_it_is_writable() {
        // The port is bound, but no socket listens on it: the kernel refuses the connection.
        let hold = ReservedPort::take("127.0.0.1:0".parse().unwrap()).unwrap();
        let calls = Calls::default();
        let mut epoll = Epoll::new(8).unwrap();
        let Ok(client) = Stream::connect(&Endpoint::Tcp(hold.address())) else { return };
        epoll.add(&client, 1, Interest::Both, &calls).unwrap();
        let limit = Timeout::Within(Duration::from_secs(20));
        assert_eq!(epoll.wait(limit, &calls).unwrap().len(), 1);
        assert_eq!(client.outcome().unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
