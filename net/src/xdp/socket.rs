//! The AF_XDP socket of a queue, with the memory that the socket shares with the kernel.
//!
//! Where: below a queue. A queue's receiving half and its sending half wake the driver by the
//! socket.
//! Invariant: the socket is closed before the references to chunks of values are released.
//! Source: `Documentation/networking/af_xdp.rst` of Linux, "XDP_USE_NEED_WAKEUP bind flag".

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::in_flight::InFlight;
use super::umem::Umem;

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    pub(super) umem: Umem,
    /// Declared after `fd`, so that references are released after the socket is closed.
    pub(super) in_flight: InFlight,
}

impl Socket {
    pub(super) fn kick_transmit(&self) -> Result<usize, Errno> {
        send(&self.fd, &[], SendFlags::DONTWAIT)
    }

    /// Makes the driver take chunks from the fill ring.
    pub(super) fn kick_receive(&self) {
        // If the call fails, the next receive repeats the call.
        let _ = recv(&self.fd, &mut [0_u8; 0], RecvFlags::DONTWAIT);
    }
}
