//! The load: one thread, many connections, each with a fixed number of requests in flight.
//!
//! Where: the client's side of the socket; the same code drives both servers.
//! Invariant: every reply is compared whole with what it must be, and the first difference ends the
//! run, so a figure never counts a miss or an error. Steady state allocates nothing and makes per
//! batch one write, one read, and its share of an `epoll_wait`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

use crate::measure::requests::{Batch, CAS_BYTES};
use crate::measure::{Outcome, fail};
use crate::workload::Workload;

/// Bytes one read takes at most.
const READ_BYTES: usize = 65_536;
/// Connections one `epoll_wait` reports at most.
const EVENTS: usize = 64;
/// A server that says nothing for this long has failed.
const SILENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Looks for replies without sleeping.
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Empty looks in a row before the client sleeps after all: a few hundred milliseconds, longer than
/// any server pauses between two windows' requests.
const LOOKS_MAX: u32 = 1_000_000;
/// Of a wrong reply, how much is shown before and after the first difference.
const SHOWN_BYTES: usize = 60;
/// Sets in flight while the keys are stored.
const STORE_BATCH: u32 = 100;

/// The connections to one server.
pub(crate) struct Client {
    epoll: OwnedFd,
    peers: Vec<Peer>,
    workload: Workload,
    in_flight: u32,
    scratch: Vec<u8>,
    answered: u64,
    sleeps: bool,
    empty_looks: u32,
}

/// One connection: the batch it sends and the replies it must get.
struct Peer {
    stream: TcpStream,
    batch: Batch,
    sent_bytes: usize,
    seen_bytes: usize,
    /// How many CAS uniques have been seen whole.
    cas_seen: usize,
}

impl Client {
    /// Connects, and sends nothing yet.
    pub(crate) fn connect(
        address: SocketAddr,
        connections: u32,
        in_flight: u32,
        workload: &Workload,
        sleeps: bool,
    ) -> Outcome<Client> {
        let mut workload = workload.clone();
        workload.rewind();
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut peers = Vec::new();
        for number in 0..u64::from(connections) {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let events = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            epoll::add(&epoll, &stream, EventData::new_u64(number), events)?;
            peers.push(Peer::new(stream));
        }
        let scratch = vec![0; READ_BYTES];
        Ok(Client {
            epoll,
            peers,
            workload,
            in_flight,
            scratch,
            answered: 0,
            sleeps,
            empty_looks: 0,
        })
    }

    /// Sends the first batch of every connection.
    pub(crate) fn start(&mut self) -> Outcome<()> {
        for peer in &mut self.peers {
            peer.refill(&mut self.workload, self.in_flight);
            peer.send()?;
        }
        Ok(())
    }

    /// Keeps the load up for `span`; returns the requests answered in it.
    pub(crate) fn drive(&mut self, span: Duration) -> Outcome<u64> {
        let before = self.answered;
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.turn(true)?;
        }
        Ok(self.answered - before)
    }

    /// Waits for what is in flight, sending no more.
    pub(crate) fn drain(&mut self) -> Outcome<()> {
        while self.peers.iter().any(|peer| !peer.is_answered()) {
            self.turn(false)?;
        }
        Ok(())
    }

    /// One wait, and a turn for each connection it names.
    fn turn(&mut self, refill: bool) -> Outcome<()> {
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [none; EVENTS];
        let sleep = self.sleeps || self.empty_looks > LOOKS_MAX;
        let limit = if sleep { &SILENCE } else { &NO_WAIT };
        let ready = match epoll::wait(&self.epoll, &mut events, Some(limit)) {
            Ok(0) if sleep => return fail("the server has not answered for 10 s".to_owned()),
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        self.empty_looks = if ready == 0 { self.empty_looks + 1 } else { 0 };
        for event in &events[..ready] {
            let Some(peer) =
                usize::try_from(event.data.u64()).ok().and_then(|at| self.peers.get_mut(at))
            else {
                continue;
            };
            peer.send()?;
            if peer.is_answered() {
                continue;
            }
            peer.receive(&mut self.scratch)?;
            if peer.is_answered() {
                self.answered += u64::from(self.in_flight);
                if refill {
                    peer.refill(&mut self.workload, self.in_flight);
                    peer.send()?;
                }
            }
        }
        Ok(())
    }
}

impl Peer {
    fn new(stream: TcpStream) -> Peer {
        Peer { stream, batch: Batch::default(), sent_bytes: 0, seen_bytes: 0, cas_seen: 0 }
    }

    fn is_answered(&self) -> bool {
        self.seen_bytes == self.batch.reply.len()
    }

    /// Renders the next batch and the replies it must get.
    fn refill(&mut self, workload: &mut Workload, in_flight: u32) {
        self.empty();
        for _ in 0..in_flight {
            workload.next(&mut self.batch);
        }
    }

    fn empty(&mut self) {
        self.batch.clear();
        self.sent_bytes = 0;
        self.seen_bytes = 0;
        self.cas_seen = 0;
    }

    /// Writes what the socket takes; the edge tells when it takes more.
    fn send(&mut self) -> Outcome<()> {
        while self.sent_bytes < self.batch.request.len() {
            match self.stream.write(&self.batch.request[self.sent_bytes..]) {
                Ok(bytes) => self.sent_bytes += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads until the socket is empty or the batch is answered. A short read has emptied it: the
    /// next edge comes with the next bytes.
    fn receive(&mut self, scratch: &mut [u8]) -> Outcome<()> {
        while !self.is_answered() {
            match self.stream.read(scratch) {
                Ok(0) => return fail("the server closed a connection".to_owned()),
                Ok(bytes) => {
                    self.check(&mut scratch[..bytes])?;
                    if bytes < scratch.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Compares the next bytes with those due, but for CAS uniques.
    fn check(&mut self, bytes: &mut [u8]) -> Outcome<()> {
        self.blank_cas(bytes);
        let due = &self.batch.reply[self.seen_bytes..];
        if !due.starts_with(bytes) {
            let alike = due.iter().zip(&*bytes).take_while(|(due, got)| due == got).count();
            let shown = |text: &[u8]| {
                let end = text.len().min(alike + SHOWN_BYTES);
                String::from_utf8_lossy(&text[alike.saturating_sub(SHOWN_BYTES)..end]).into_owned()
            };
            return fail(format!(
                "wrong reply: expected {:?}, got {:?} (differs after {alike} bytes)",
                shown(due),
                shown(bytes)
            ));
        }
        self.seen_bytes += bytes.len();
        Ok(())
    }
}

impl Peer {
    /// Puts zeros, as `batch.reply` has them, where the next bytes show CAS uniques.
    fn blank_cas(&mut self, bytes: &mut [u8]) {
        let end = self.seen_bytes + bytes.len();
        while let Some(&at) = self.batch.cas_at.get(self.cas_seen) {
            let first = at.max(self.seen_bytes).min(end) - self.seen_bytes;
            let last = (at + CAS_BYTES).clamp(self.seen_bytes, end) - self.seen_bytes;
            bytes[first..last].fill(0);
            if at + CAS_BYTES > end {
                return;
            }
            self.cas_seen += 1;
        }
    }
}

/// Stores every key once, on one connection.
pub(crate) fn store_all(address: SocketAddr, workload: &Workload) -> Outcome<()> {
    let mut client = Client::connect(address, 1, STORE_BATCH, workload, true)?;
    let mut workload = workload.clone();
    let mut next = 0;
    while next < workload.keys() {
        let end = workload.keys().min(next.saturating_add(STORE_BATCH));
        if let [peer] = client.peers.as_mut_slice() {
            peer.empty();
            for number in next..end {
                workload.store(number, &mut peer.batch);
            }
            peer.send()?;
        }
        client.drain()?;
        next = end;
    }
    Ok(())
}
