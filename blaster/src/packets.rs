//! Connections past the kernel's network stack: each has a queue of an interface for itself.
//!
//! ```text
//! connection 0   port of queue 0  \
//! connection 1   port of queue 1   >  one program on the interface, one UDP port of ours
//! connection 2   port of queue 2  /
//! ```
//!
//! Where: below `line`, beside the sockets of `net`.
//! Invariant: a queue belongs to one connection at a time. Answers come by the queue by which their
//! requests left, as they do between two ends of a veth; one that comes by another queue is another
//! connection's, which counts it as broken.
//! Source: the KV-Cache paper, section 4.1.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use net::xdp::{self, Mode, Opened, Peer, Port, Wanted};
use net::{Calls, Obstacle};

use crate::bag::Bag;

/// Packets of a queue that are in memory: one half arrives, one half leaves.
const CHUNKS: u32 = 4096;

/// What is open, for connections to take queues from.
static OPEN: Mutex<Vec<Interface>> = Mutex::new(Vec::new());

/// An interface of which this process has the queues.
#[derive(Debug)]
struct Interface {
    name: String,
    /// Holds the port of the kernel's stack that answers come to.
    own: UdpSocket,
    queues: usize,
    free: Vec<Port>,
}

/// A queue as a connection has it.
#[derive(Debug)]
pub struct Packets {
    interface: String,
    /// The port's, for an epoll: it asks for no lock.
    fd: OwnedFd,
    /// None once it is dropped.
    port: Mutex<Option<Port>>,
    to: Peer,
}

/// Opens ports for queues of an interface, which answer to `addresses` and a port.
///
/// # Errors
/// What is missing, or who is in the way.
pub fn open(
    interface: &str,
    queues: Option<Range<u32>>,
    addresses: &[IpAddr],
    port: u16,
) -> io::Result<Vec<Port>> {
    let wanted = Wanted {
        interface,
        queues,
        addresses,
        ports: port..=port,
        allow: &[],
        ports_max: usize::MAX,
        chunks: CHUNKS,
        memory_bytes_max: usize::MAX,
        mode: Mode::Any,
    };
    let opened = xdp::open(&wanted).map_err(|error| io::Error::other(error.to_string()))?;
    let Opened { ports, .. } = opened;
    Ok(ports)
}

impl Packets {
    /// Takes a queue of an interface, for requests to `to`.
    ///
    /// # Errors
    /// There is none left; the interface cannot be opened; nobody is there.
    pub fn connect(interface: &str, to: SocketAddr) -> io::Result<Packets> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let at = match open.iter().position(|one| one.name == interface) {
            Some(at) => at,
            None => {
                open.push(Interface::open(interface)?);
                open.len() - 1
            }
        };
        let Interface { own, queues, free, .. } = &mut open[at];
        let reached = xdp::reach(interface, to, own.local_addr()?.port());
        let ends = reached.map_err(|error| io::Error::other(error.to_string()))?;
        let port = free.pop().ok_or_else(|| {
            let why = format!("{interface} has {queues} queues, one for each connection (-c)");
            io::Error::other(why)
        })?;
        let fd = port.as_fd().try_clone_to_owned()?;
        let (interface, port) = (interface.to_owned(), Mutex::new(Some(port)));
        Ok(Packets { interface, fd, port, to: Peer::at(ends) })
    }

    /// Its queue, for the time of a call.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, Option<Port>> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits. What stands in the way of the rest, if anything does.
    pub fn post(&self, bag: &mut Bag, calls: &Calls) -> Option<Obstacle> {
        let mut port = self.lock();
        let outbox = &mut port.as_mut()?.outbox;
        let (mut sent, mut is_full) = (0, false);
        for datagram in bag.datagrams() {
            if !outbox.add(&self.to, &[], [datagram]) {
                let _ = outbox.post_or_drop(calls);
                is_full = !outbox.add(&self.to, &[], [datagram]);
                if is_full {
                    break;
                }
            }
            sent += 1;
        }
        let tally = outbox.post_or_drop(calls);
        bag.pass(sent);
        if !is_full {
            bag.clear();
        }
        match tally.too_long {
            0 if is_full || outbox.waiting() > 0 => Some(Obstacle::Full),
            0 => None,
            _ => Some(Obstacle::TooLong),
        }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let port = self.lock().take();
        if let Some(own) = open.iter_mut().find(|one| one.name == self.interface) {
            own.free.extend(port);
            if own.free.len() == own.queues {
                open.retain(|one| one.name != self.interface);
            }
        }
    }
}

impl Interface {
    /// Takes all of its queues.
    fn open(name: &str) -> io::Result<Interface> {
        let all = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
        let own = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        let mut free = open(name, None, &all, own.local_addr()?.port())?;
        // The first connection has the first queue.
        free.reverse();
        Ok(Interface { name: name.to_owned(), own, queues: free.len(), free })
    }
}
