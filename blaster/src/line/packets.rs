//! Connections that bypass the kernel's network stack. Each connection has its own source port.
//!
//! ```text
//! thread 0   connections of ports 20000, 20003, ...   queue 0, queue 2
//! thread 1   connections of ports 20001, 20002, ...   queue 1, queue 3
//! ```
//!
//! Where: the module `line` uses these connections like sockets.
//! Invariant: a queue belongs to one thread. The source port identifies an answer's connection; the
//! answer may arrive through any queue of the connection's thread. If several threads have queues,
//! a probe has shown that the answers to each source port arrive through the queues of its thread.
//! Source: the KV-Cache paper, section 4.1.

mod probe;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use net::xdp::{self, Meter, Opened, Peer, Port};
use net::{Calls, Obstacle};

use crate::line::datagram_batch::DatagramBatch;
use crate::target::Bypass;
use crate::wire::Protocol;
use probe::{Probe, ProbeParameters};

/// Number of packet buffers of a queue: half of the buffers receive, and half send.
const CHUNKS: u32 = 4096;
/// The most bytes of all packet buffers. With many queues, a queue has fewer buffers.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// The lowest source port that is tried. The ports that the kernel assigns by itself are higher.
const FIRST_PORT: u16 = 20_000;
/// Number of spare source ports, because a connection that is opened again gets another port.
const SPARE: usize = 16;

/// The open interfaces. All connections over an interface share it.
static OPEN: Mutex<Vec<Weak<Interface>>> = Mutex::new(Vec::new());

/// The resources that a process's threads need at an interface.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceNeeds {
    /// The interface.
    pub bypass: Bypass,
    /// The targets reached over the interface.
    pub targets: Vec<SocketAddr>,
    /// Number of threads of this process that use the interface.
    pub threads: usize,
    /// The most connections that one thread has to one target.
    pub connections: usize,
    /// The protocol of the targets.
    pub protocol: Protocol,
}

#[derive(Debug)]
struct Interface {
    bypass: Bypass,
    all: Vec<Arc<Queues>>,
    /// Sockets that reserve the source ports, so that no other program gets the ports.
    _held: Vec<UdpSocket>,
}

/// One thread's queues of an interface.
#[derive(Debug)]
pub(crate) struct Queues {
    queues: Vec<Queue>,
    thread: usize,
    /// The lowest source port of all threads' ports.
    first: u16,
    /// The owner of each source port, in the order of the ports from `first`.
    owners: Arc<[Owner]>,
    free: Mutex<Vec<(SocketAddr, VecDeque<Source>)>>,
}

/// The thread whose queues receive the answers to a source port; `None` if no thread uses the port.
type Owner = Option<usize>;

#[derive(Debug)]
struct Queue {
    /// A copy of the descriptor of `port`, so that epoll can watch it without locking `port`.
    fd: OwnedFd,
    /// Reads the kernel's counts of `port` without locking `port`.
    meter: Meter,
    port: Mutex<Port>,
}

/// A connection's source port, and the queue through which the connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    port: u16,
    /// Index of the queue among the thread's queues.
    queue: usize,
}

/// A connection that bypasses the kernel's network stack.
#[derive(Debug)]
pub(crate) struct Packets {
    /// The queues of the connection's thread.
    pub(crate) queues: Arc<Queues>,
    source: Source,
    /// The address of the server.
    pub(crate) target: SocketAddr,
    to: Peer,
    _interface: Arc<Interface>,
}

/// Opens an XDP port for each queue of an interface. The XDP ports receive the packets to
/// `addresses` and UDP `ports`. Thread n of `threads` uses XDP ports n, n + threads, and so on.
/// Fails if the interface does not support AF_XDP as needed, or another program uses the interface.
pub(crate) fn open(
    bypass: &Bypass,
    threads: usize,
    addresses: &[IpAddr],
    ports: RangeInclusive<u16>,
) -> io::Result<Vec<Port>> {
    let wanted = xdp::OpenOptions {
        interface: &bypass.interface,
        queues: None,
        addresses,
        ports,
        allow: &[],
        ports_max: usize::MAX,
        chunks: CHUNKS,
        memory_bytes_max: MEMORY_BYTES_MAX,
        mode: bypass.attach.mode(),
        values: None,
    };
    let opened = xdp::open(&wanted).map_err(|error| io::Error::other(error.to_string()))?;
    let Opened { ports, .. } = opened;
    if ports.len() < threads {
        let (name, queues) = (&bypass.interface, ports.len());
        let why = format!("{name} has only {queues} queues: use at most {queues} threads (-t)");
        return Err(io::Error::other(why));
    }
    Ok(ports)
}

/// Number of packets that the kernel has dropped at the queues of all open interfaces.
pub(crate) fn dropped() -> u64 {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let interfaces: Vec<Arc<Interface>> = open.iter().filter_map(Weak::upgrade).collect();
    drop(open);
    let queues = interfaces.iter().flat_map(|one| &one.all).flat_map(|thread| &thread.queues);
    let counted = queues.filter_map(|queue| queue.meter.read());
    counted.map(|counts| counts.dropped + counts.ring_full).sum()
}

impl Packets {
    /// Makes a connection from thread number `thread` of this process to the target `to`. Fails if
    /// the interface cannot be opened, the thread has no queue or port, or `to` cannot be reached.
    pub(crate) fn connect(
        wanted: &InterfaceNeeds,
        thread: usize,
        to: SocketAddr,
    ) -> io::Result<Packets> {
        let interface = Interface::shared(wanted)?;
        let name = &wanted.bypass.interface;
        let no_queue = || io::Error::other(format!("{name} has no queue for thread {thread}"));
        let queues = interface.all.get(thread).cloned().ok_or_else(no_queue)?;
        let source = queues.take(to).ok_or_else(|| {
            let most = wanted.connections;
            let why =
                format!("a thread would have more than {most} connections: use more threads (-t)");
            io::Error::other(why)
        })?;
        let ends = xdp::reach(&wanted.bypass.interface, to, source.port);
        match ends {
            Ok(ends) => {
                let to_peer = Peer::at(ends);
                Ok(Packets { queues, source, target: to, to: to_peer, _interface: interface })
            }
            Err(error) => {
                queues.give(to, source);
                Err(io::Error::other(error.to_string()))
            }
        }
    }

    /// The source port of the connection.
    #[inline]
    pub(crate) fn port(&self) -> u16 {
        self.source.port
    }

    /// Moves `batch` to the queue, from which `Queues::post` sends it. Returns false if the queue
    /// has too little room for the batch.
    #[inline]
    pub(crate) fn enqueue(&self, batch: &mut DatagramBatch, calls: &Calls) -> bool {
        let Some(mut port) = self.queues.lock(self.source.queue) else { return false };
        let outbox = &mut port.outbox;
        let mut add = |datagram| {
            outbox.add(&self.to, &[], [datagram]) || {
                let _ = outbox.post_or_drop(calls);
                outbox.add(&self.to, &[], [datagram])
            }
        };
        let handed = batch.datagrams().take_while(|datagram| add(datagram)).count();
        batch.mark_sent(handed);
        batch.is_empty()
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.queues.give(self.target, self.source);
    }
}

impl Queues {
    /// Number of queues.
    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    /// The descriptor of a queue, for epoll.
    pub(crate) fn fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.queues.get(queue).map(|queue| queue.fd.as_fd())
    }

    /// Locks a queue. The caller must release the lock after a few calls.
    #[inline]
    pub(crate) fn lock(&self, queue: usize) -> Option<MutexGuard<'_, Port>> {
        let queue = self.queues.get(queue)?;
        Some(queue.port.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The index of `port` among the source ports of all threads, or `None` if `port` is none of
    /// these.
    #[inline]
    pub(crate) fn port_index(&self, port: u16) -> Option<usize> {
        let place = usize::from(port.checked_sub(self.first)?);
        (place < self.owners.len()).then_some(place)
    }

    /// Number of source ports of all threads.
    pub(crate) fn port_count(&self) -> usize {
        self.owners.len()
    }

    /// True if a source port belongs to another thread. Answers to such a port should not arrive in
    /// this thread's queues.
    pub(crate) fn belongs_to_other_thread(&self, port: u16) -> bool {
        let owner = self.port_index(port).and_then(|place| self.owners[place]);
        owner.is_some_and(|owner| owner != self.thread)
    }

    /// Sends the datagrams that wait in the queues. If some cannot be sent, returns the reason.
    /// After `Full`, the caller must try again, because no event of the kernel reports new room.
    #[inline]
    pub(crate) fn post(&self, calls: &Calls) -> Option<Obstacle> {
        let mut obstacle = None;
        for at in 0..self.queues.len() {
            let Some(mut port) = self.lock(at) else { continue };
            let tally = port.outbox.post_or_drop(calls);
            if tally.too_long > 0 {
                return Some(Obstacle::TooLong);
            }
            if port.outbox.waiting() > 0 {
                obstacle = Some(Obstacle::Full);
            }
        }
        obstacle
    }

    fn free(&self) -> MutexGuard<'_, Vec<(SocketAddr, VecDeque<Source>)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, target: SocketAddr) -> Option<Source> {
        self.free().iter_mut().find(|(of, _)| *of == target)?.1.pop_front()
    }

    /// Appends a source port to the list of free ports. `take` takes the first port of the list, so
    /// that late answers to a port arrive before the port is used again.
    fn give(&self, target: SocketAddr, source: Source) {
        if let Some((_, free)) = self.free().iter_mut().find(|(of, _)| *of == target) {
            free.push_back(source);
        }
    }
}

impl Interface {
    /// Returns the interface, which the first call opens.
    fn shared(wanted: &InterfaceNeeds) -> io::Result<Arc<Interface>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|one| one.strong_count() > 0);
        let name = &wanted.bypass.interface;
        let there = open.iter().filter_map(Weak::upgrade);
        match { there }.find(|one| one.bypass.interface == *name) {
            Some(one) if one.bypass == wanted.bypass => Ok(one),
            Some(_) => Err(io::Error::other(format!(
                "all targets that are reached through {name} must have the same ?mode="
            ))),
            None => {
                let one = Arc::new(Interface::open(wanted)?);
                open.push(Arc::downgrade(&one));
                Ok(one)
            }
        }
    }

    /// Opens all queues of the interface, and finds source ports for each thread's connections.
    fn open(wanted: &InterfaceNeeds) -> io::Result<Interface> {
        let InterfaceNeeds { bypass, targets, threads, connections, .. } = wanted;
        let (threads, each) = ((*threads).max(1), connections + SPARE);
        // If there are several threads, the probe may reject more than half of the ports.
        let tried = if threads > 1 { 2 * threads * each + 4 * SPARE } else { each };
        let count = tried * targets.len();
        let (first, held) = hold(count)?;
        let last = first + u16::try_from(count - 1).unwrap_or(0);
        let all = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
        let mut ports = open(bypass, threads, &all, first..=last)?;
        let mut owners = vec![None; count];
        let mut free = vec![Vec::new(); threads];
        for (at, target) in targets.iter().enumerate() {
            let places = at * tried..(at + 1) * tried;
            let sources = if threads > 1 {
                let ends = xdp::reach(&bypass.interface, *target, first);
                let ends = ends.map_err(|error| io::Error::other(error.to_string()))?;
                let request = wanted.protocol.ping();
                let parameters = ProbeParameters { ends, threads, each: *connections, request };
                Probe::new(parameters, places).run(&mut ports)?
            } else {
                let queues = ports.len();
                let source =
                    |(at, place)| probe::ThreadPort { place, thread: 0, queue: at % queues };
                places.enumerate().map(source).collect()
            };
            let mut of_threads = vec![VecDeque::new(); threads];
            for probe::ThreadPort { place, thread, queue } in sources {
                owners[place] = Some(thread);
                let port = first + u16::try_from(place).unwrap_or(0);
                of_threads[thread].push_back(Source { port, queue });
            }
            for (free, found) in free.iter_mut().zip(of_threads) {
                free.push((*target, found));
            }
        }
        let owners: Arc<[Owner]> = owners.into();
        let mut all = Vec::new();
        for (thread, free) in free.into_iter().enumerate() {
            let (queues, owners) = (Vec::new(), Arc::clone(&owners));
            all.push(Queues { queues, thread, first, owners, free: Mutex::new(free) });
        }
        for (at, port) in ports.into_iter().enumerate() {
            let (fd, meter) = (port.as_fd().try_clone_to_owned()?, port.meter());
            all[at % threads].queues.push(Queue { fd, meter, port: Mutex::new(port) });
        }
        let all = all.into_iter().map(Arc::new).collect();
        Ok(Interface { bypass: bypass.clone(), all, _held: held })
    }
}

/// Reserves `count` consecutive free ports. Returns the lowest port and the sockets that hold them.
fn hold(count: usize) -> io::Result<(u16, Vec<UdpSocket>)> {
    let none = || {
        io::Error::other(format!(
            "kvblaster needs {count} consecutive free UDP ports, but found no such range from port \
             {FIRST_PORT} up: use fewer --connections"
        ))
    };
    let (mut first, mut held) = (FIRST_PORT, Vec::new());
    while held.len() < count {
        let next = u16::try_from(held.len()).ok().and_then(|more| first.checked_add(more));
        let next = next.ok_or_else(none)?;
        // With IPv6, one socket reserves the port for both address families.
        let bound = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, next)).or_else(|error| {
            let is_taken = error.kind() == io::ErrorKind::AddrInUse;
            if is_taken { Err(error) } else { UdpSocket::bind((Ipv4Addr::UNSPECIFIED, next)) }
        });
        match bound {
            Ok(socket) => held.push(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                held.clear();
                first = next.checked_add(1).ok_or_else(none)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok((first, held))
}
