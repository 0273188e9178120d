//! UDP sockets.
//!
//! Where: a column has one or more sockets, from which `inbox` receives and `outbox` sends.
//! Invariant: no call on a socket blocks. If a socket is bound to all addresses, the kernel reports
//! the destination of each datagram.
//! Source: udp(7); memcached's `server_socket`, which restricts an IPv6 socket to IPv6.
#![allow(unsafe_code, reason = "rustix lacks SO_MEMINFO")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with, sockopt,
};

use crate::option::switch_on;

/// Maximum number of slots that one call receives into, and of messages that one call sends.
pub const BATCH_MAX: usize = 64;

/// Sizes of a socket's buffers in the kernel, in bytes. The kernel grants at most
/// `net.core.rmem_max` and `net.core.wmem_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Size of the buffer for datagrams that have arrived and are not yet read; 0 for the default.
    pub receive_bytes: usize,
    /// Size of the buffer for datagrams that have not left the machine yet; 0 for the default.
    pub send_bytes: usize,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { receive_bytes: 4 << 20, send_bytes: 0 }
    }
}

/// A UDP socket. Closed when dropped.
#[derive(Debug)]
pub struct Datagrams(pub(super) OwnedFd);

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Datagrams {
    /// Makes a socket on a free port that sends to `peer` and receives only from `peer`. Fails if
    /// there is no route to `peer`, or if no descriptor is left.
    pub fn connect(peer: SocketAddr, sizes: Sizes) -> io::Result<Datagrams> {
        let fd = udp_socket(peer, sizes)?;
        connect(&fd, &peer)?;
        Ok(Datagrams(fd))
    }

    /// Makes a socket at `address` that receives from every sender. Port 0 stands for a free port.
    /// Fails if the port is taken, or if the machine lacks the address or the IP version.
    pub fn bind(address: SocketAddr, sizes: Sizes) -> io::Result<Datagrams> {
        let fd = udp_socket(address, sizes)?;
        bind(&fd, &address)?;
        Ok(Datagrams(fd))
    }

    /// The socket's local address and port.
    pub fn address(&self) -> io::Result<SocketAddr> {
        SocketAddr::try_from(getsockname(&self.0)?).map_err(io::Error::from)
    }

    /// Number of datagrams that the kernel has dropped since the socket was made, because the
    /// buffer was full. A joined burst counts as one datagram. The number wraps around.
    pub fn dropped(&self) -> io::Result<u32> {
        /// `SK_MEMINFO_DROPS` and `SK_MEMINFO_VARS` of `linux/sock_diag.h`.
        const DROPS: usize = 8;
        const VARS: usize = 9;
        let mut values = [0_u32; VARS];
        #[expect(clippy::cast_possible_truncation, reason = "36 bytes")]
        let mut bytes = size_of_val(&values) as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes into `values`, which has this size, and
        // the length into `bytes`; both are local variables and outlive the call.
        let failed = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                values.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(values[DROPS]) }
    }
}

/// Makes a socket. If `address` is unspecified (`0.0.0.0` or `::`), the kernel reports the
/// destination of each datagram, so that the reply can leave from the destination's address.
pub(super) fn udp_socket(address: SocketAddr, sizes: Sizes) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::DGRAM, flags, None)?;
    if sizes.receive_bytes > 0 {
        sockopt::set_socket_recv_buffer_size(&fd, sizes.receive_bytes)?;
    }
    if sizes.send_bytes > 0 {
        sockopt::set_socket_send_buffer_size(&fd, sizes.send_bytes)?;
    }
    if address.is_ipv6() {
        // Without this option the socket would also take the IPv4 port, which another socket needs.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            switch_on(&fd, libc::IPPROTO_IP, libc::IP_PKTINFO)?;
        }
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            switch_on(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
        }
        _ => {}
    }
    // Linux before 5.0 lacks this option, and delivers the datagrams of a burst separately.
    let _ = switch_on(&fd, libc::SOL_UDP, libc::UDP_GRO);
    Ok(fd)
}
