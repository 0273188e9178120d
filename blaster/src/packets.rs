//! Connections past the kernel's network stack: source ports of ours, which share the queues of an
//! interface.
//!
//! ```text
//! thread 0   connections of ports 20000, 20003, ...   queue 0, queue 2
//! thread 1   connections of ports 20001, 20002, ...   queue 1, queue 3
//! ```
//!
//! Where: below `line`, beside the sockets of `net`.
//! Invariant: a queue belongs to one thread. A connection is known by its source port, by whichever
//! of its thread's queues an answer comes; where several threads have queues, a connection has a
//! port whose answers come by one of its own thread's, which was tried.
//! Source: the KV-Cache paper, section 4.1.

mod probe;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use net::xdp::{self, Opened, Peer, Port};
use net::{Calls, Obstacle};

use crate::bag::Bag;
use crate::target::Bypass;
use crate::wire::Speech;
use probe::{Asked, Probe};

/// Packets of a queue that are in memory: one half arrives, one half leaves.
const CHUNKS: u32 = 4096;
/// Most bytes of all queues' packets: with many queues each has fewer.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// The lowest source port that is taken, below those that the kernel gives out by itself.
const FIRST_PORT: u16 = 20_000;
/// Source ports beside one for each connection: one that is opened again has another port.
const SPARE: usize = 16;

/// What is open, for connections to share.
static OPEN: Mutex<Vec<Weak<Interface>>> = Mutex::new(Vec::new());

/// What all threads of this process want of an interface.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The interface.
    pub bypass: Bypass,
    /// Those that are reached over it.
    pub targets: Vec<SocketAddr>,
    /// How many threads there are.
    pub threads: usize,
    /// Most connections of a thread to each target.
    pub connections: usize,
    /// How the targets are spoken to.
    pub speech: Speech,
}

/// An interface of which this process has the queues.
#[derive(Debug)]
struct Interface {
    bypass: Bypass,
    /// Of each thread.
    all: Vec<Arc<Queues>>,
    /// They hold the source ports in the kernel's stack.
    _held: Vec<UdpSocket>,
}

/// The queues of an interface that one thread has.
#[derive(Debug)]
pub struct Queues {
    queues: Vec<Queue>,
    /// The number of the thread among those of this process.
    thread: usize,
    /// The lowest source port of all threads.
    first: u16,
    /// Whose source port each is, from the first on.
    owners: Arc<[Owner]>,
    /// Of each target: source ports that no connection has.
    free: Mutex<Vec<(SocketAddr, VecDeque<Source>)>>,
}

/// The thread whose queues a source port's answers come by; none is known of those that nobody has.
type Owner = Option<usize>;

#[derive(Debug)]
struct Queue {
    /// The port's, for an epoll: it asks for no lock.
    fd: OwnedFd,
    port: Mutex<Port>,
}

/// Where a connection's requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    port: u16,
    /// The index of the queue by which they leave, among its thread's.
    queue: usize,
}

/// A connection.
#[derive(Debug)]
pub struct Packets {
    queues: Arc<Queues>,
    source: Source,
    target: SocketAddr,
    to: Peer,
    _interface: Arc<Interface>,
}

/// Opens a port for each queue of an interface, which answer to `addresses` and UDP ports. Thread n
/// of so many is to have ports n, n + threads, ...
///
/// # Errors
/// What is missing, or who is in the way.
pub fn open(
    bypass: &Bypass,
    threads: usize,
    addresses: &[IpAddr],
    ports: RangeInclusive<u16>,
) -> io::Result<Vec<Port>> {
    let wanted = xdp::Wanted {
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
        let why = format!("{name} has {queues} queues, and each thread (-t) needs one");
        return Err(io::Error::other(why));
    }
    Ok(ports)
}

impl Packets {
    /// Connects a thread of this process, the `thread`th, to one of the targets.
    ///
    /// # Errors
    /// The interface cannot be opened, or not as it is wanted; nobody is there; answers do not come
    /// by this thread's queues.
    pub fn connect(wanted: &Wanted, thread: usize, to: SocketAddr) -> io::Result<Packets> {
        let interface = Interface::of(wanted)?;
        let no_queue = || io::Error::other("no queue of the interface is this thread's");
        let queues = interface.all.get(thread).cloned().ok_or_else(no_queue)?;
        let source = queues.take(to).ok_or_else(|| {
            let why = format!("more than {} connections of a thread", wanted.connections);
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

    /// The queues of its thread.
    #[inline]
    #[must_use]
    pub fn queues(&self) -> &Arc<Queues> {
        &self.queues
    }

    /// The source port.
    #[inline]
    #[must_use]
    pub fn port(&self) -> u16 {
        self.source.port
    }

    /// The server.
    #[inline]
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// Hands over what waits, which leaves when the queues are posted. False: there is no room for
    /// the rest.
    #[inline]
    pub fn hand(&self, bag: &mut Bag, calls: &Calls) -> bool {
        let Some(mut port) = self.queues.lock(self.source.queue) else { return false };
        let outbox = &mut port.outbox;
        let mut add = |datagram| {
            outbox.add(&self.to, &[], [datagram]) || {
                let _ = outbox.post_or_drop(calls);
                outbox.add(&self.to, &[], [datagram])
            }
        };
        let handed = bag.datagrams().take_while(|datagram| add(datagram)).count();
        bag.pass(handed);
        bag.is_empty()
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.queues.give(self.target, self.source);
    }
}

impl Queues {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// A queue, for an epoll.
    #[must_use]
    pub fn fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.queues.get(queue).map(|queue| queue.fd.as_fd())
    }

    /// A queue, for the time of a call.
    #[inline]
    pub fn lock(&self, queue: usize) -> Option<MutexGuard<'_, Port>> {
        let queue = self.queues.get(queue)?;
        Some(queue.port.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The place of a source port among those of all threads; none if it is nobody's.
    #[inline]
    #[must_use]
    pub fn place(&self, port: u16) -> Option<usize> {
        let place = usize::from(port.checked_sub(self.first)?);
        (place < self.owners.len()).then_some(place)
    }

    /// How many source ports all threads have.
    #[must_use]
    pub fn places(&self) -> usize {
        self.owners.len()
    }

    /// True if a source port is another thread's, whose answers should not come here.
    #[must_use]
    pub fn is_of_another(&self, port: u16) -> bool {
        let owner = self.place(port).and_then(|place| self.owners[place]);
        owner.is_some_and(|owner| owner != self.thread)
    }

    /// Sends what was handed over, and what waited. What stands in the way of the rest, if anything
    /// does: `Full` may pass at any time, without a word from the kernel.
    #[inline]
    pub fn post(&self, calls: &Calls) -> Option<Obstacle> {
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

    /// The last to be taken again: what comes late is not taken for another connection's.
    fn give(&self, target: SocketAddr, source: Source) {
        if let Some((_, free)) = self.free().iter_mut().find(|(of, _)| *of == target) {
            free.push_back(source);
        }
    }
}

impl Interface {
    /// The interface, which the first connection opens.
    fn of(wanted: &Wanted) -> io::Result<Arc<Interface>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|one| one.strong_count() > 0);
        let name = &wanted.bypass.interface;
        let there = open.iter().filter_map(Weak::upgrade);
        match { there }.find(|one| one.bypass.interface == *name) {
            Some(one) if one.bypass == wanted.bypass => Ok(one),
            Some(_) => Err(io::Error::other(format!("{name} is open in another mode"))),
            None => {
                let one = Arc::new(Interface::open(wanted)?);
                open.push(Arc::downgrade(&one));
                Ok(one)
            }
        }
    }

    /// Takes all of its queues, and finds source ports for the connections of each thread.
    fn open(wanted: &Wanted) -> io::Result<Interface> {
        let Wanted { bypass, targets, threads, connections, .. } = wanted;
        let (threads, each) = ((*threads).max(1), connections + SPARE);
        // Where ports are tried, half of them and more may be found to be of no use.
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
                let question = wanted.speech.question();
                let asked = Asked { ends, threads, each: *connections, question };
                Probe::new(asked, places).run(&mut ports)?
            } else {
                let queues = ports.len();
                let source = |(at, place)| probe::Found { place, thread: 0, queue: at % queues };
                places.enumerate().map(source).collect()
            };
            let mut of_threads = vec![VecDeque::new(); threads];
            for probe::Found { place, thread, queue } in sources {
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
            let (fd, port) = (port.as_fd().try_clone_to_owned()?, Mutex::new(port));
            all[at % threads].queues.push(Queue { fd, port });
        }
        let all = all.into_iter().map(Arc::new).collect();
        Ok(Interface { bypass: bypass.clone(), all, _held: held })
    }
}

/// Holds so many ports side by side that nobody has: the first of them.
fn hold(count: usize) -> io::Result<(u16, Vec<UdpSocket>)> {
    let none = || io::Error::other(format!("no {count} ports of UDP are free side by side"));
    let (mut first, mut held) = (FIRST_PORT, Vec::new());
    while held.len() < count {
        let next = u16::try_from(held.len()).ok().and_then(|more| first.checked_add(more));
        let next = next.ok_or_else(none)?;
        // Both families at once, where there is IPv6.
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
