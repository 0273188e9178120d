//! Connections past the kernel's network stack: our own source ports on the shared queues of an
//! interface.
//!
//! ```text
//! thread 0   connections of ports 20000, 20003, ...   queue 0, queue 2
//! thread 1   connections of ports 20001, 20002, ...   queue 1, queue 3
//! ```
//!
//! Where: below `line`, beside the sockets of `net`.
//! Invariant: a queue belongs to one thread. A connection is known by its source port, through
//! whichever of its thread's queues an answer comes. If several threads have queues, each
//! connection gets a port whose answers were found, by trying, to come through its own thread's
//! queues.
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

/// Packet buffers of a queue: one half receives, one half sends.
const CHUNKS: u32 = 4096;
/// Most bytes of all queues' packet buffers: with many queues each has fewer.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// The lowest source port used, below those that the kernel assigns by itself.
const FIRST_PORT: u16 = 20_000;
/// Source ports beyond one per connection: a connection that is opened again gets another port.
const SPARE: usize = 16;

/// The open interfaces, which connections share.
static OPEN: Mutex<Vec<Weak<Interface>>> = Mutex::new(Vec::new());

/// The needs of all threads of this process at an interface.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The interface.
    pub bypass: Bypass,
    /// The targets reached over the interface.
    pub targets: Vec<SocketAddr>,
    /// Number of threads.
    pub threads: usize,
    /// Most connections of a thread to each target.
    pub connections: usize,
    /// The protocol of the targets.
    pub speech: Speech,
}

/// An open interface, with all queues that this process has.
#[derive(Debug)]
struct Interface {
    bypass: Bypass,
    all: Vec<Arc<Queues>>,
    /// Sockets that reserve the source ports in the kernel's stack.
    _held: Vec<UdpSocket>,
}

/// One thread's queues of an interface.
#[derive(Debug)]
pub struct Queues {
    queues: Vec<Queue>,
    /// The number of the thread among those of this process.
    thread: usize,
    /// The lowest source port of all threads.
    first: u16,
    /// The owner of each source port, from `first` on.
    owners: Arc<[Owner]>,
    /// For each target, source ports without a connection.
    free: Mutex<Vec<(SocketAddr, VecDeque<Source>)>>,
}

/// The thread through whose queues a source port's answers come; none if the port is unused.
type Owner = Option<usize>;

#[derive(Debug)]
struct Queue {
    /// The port's descriptor for an epoll, usable without the lock.
    fd: OwnedFd,
    port: Mutex<Port>,
}

/// A connection's source port and queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    port: u16,
    /// The index of the queue through which it sends, among its thread's.
    queue: usize,
}

/// A connection past the kernel's stack.
#[derive(Debug)]
pub struct Packets {
    queues: Arc<Queues>,
    source: Source,
    target: SocketAddr,
    to: Peer,
    _interface: Arc<Interface>,
}

/// Opens a port for each queue of an interface; the ports answer to `addresses` and UDP `ports`.
/// Thread n of `threads` uses ports n, n + threads, ...
///
/// # Errors
/// The error says what is missing, or which program is in the way.
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
    /// Connects this process's thread number `thread` to one of the targets.
    ///
    /// # Errors
    /// The interface cannot be opened as wanted, the target is not there, or its answers do not
    /// come through this thread's queues.
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

    /// The queues of the connection's thread.
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

    /// Moves waiting datagrams to the queue, which sends them when it is posted. False if there is
    /// no room for the rest.
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
    /// Number of queues.
    #[must_use]
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// The descriptor of a queue, for an epoll.
    #[must_use]
    pub fn fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.queues.get(queue).map(|queue| queue.fd.as_fd())
    }

    /// Locks a queue for the time of a call.
    #[inline]
    pub fn lock(&self, queue: usize) -> Option<MutexGuard<'_, Port>> {
        let queue = self.queues.get(queue)?;
        Some(queue.port.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The place of a source port among those of all threads; none if it is not among them.
    #[inline]
    #[must_use]
    pub fn place(&self, port: u16) -> Option<usize> {
        let place = usize::from(port.checked_sub(self.first)?);
        (place < self.owners.len()).then_some(place)
    }

    /// Number of source ports of all threads.
    #[must_use]
    pub fn places(&self) -> usize {
        self.owners.len()
    }

    /// True if a source port belongs to another thread, so its answers should not come here.
    #[must_use]
    pub fn is_of_another(&self, port: u16) -> bool {
        let owner = self.place(port).and_then(|place| self.owners[place]);
        owner.is_some_and(|owner| owner != self.thread)
    }

    /// Sends all that waits in the queues. Returns the obstacle for the rest, if any: `Full` may
    /// pass at any time, without an event from the kernel.
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

    /// Returns a source port, to be used again last: a late answer is not taken for another
    /// connection's.
    fn give(&self, target: SocketAddr, source: Source) {
        if let Some((_, free)) = self.free().iter_mut().find(|(of, _)| *of == target) {
            free.push_back(source);
        }
    }
}

impl Interface {
    /// Returns the interface; the first connection opens it.
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

    /// Opens all queues of the interface, and finds source ports for the connections of each
    /// thread.
    fn open(wanted: &Wanted) -> io::Result<Interface> {
        let Wanted { bypass, targets, threads, connections, .. } = wanted;
        let (threads, each) = ((*threads).max(1), connections + SPARE);
        // If ports are tried, half of them and more may turn out to be of no use.
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

/// Reserves `count` free consecutive ports. Returns the first.
fn hold(count: usize) -> io::Result<(u16, Vec<UdpSocket>)> {
    let none = || io::Error::other(format!("no {count} ports of UDP are free side by side"));
    let (mut first, mut held) = (FIRST_PORT, Vec::new());
    while held.len() < count {
        let next = u16::try_from(held.len()).ok().and_then(|more| first.checked_add(more));
        let next = next.ok_or_else(none)?;
        // One socket reserves both families, if there is IPv6.
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
