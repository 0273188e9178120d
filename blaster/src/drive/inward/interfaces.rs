//! Receives datagrams from AF_XDP queues, bypassing the kernel's network stack. Lines share queues.
//!
//! ```text
//! queue -> | datagram | datagram | ...    source port -> line
//! ```
//!
//! Where: part of the receiving half.
//! Invariant: a thread polls the queues, which takes no system call, before it waits with epoll.
//! After `POLLS_MAX` successful polls in a row, the thread calls epoll nevertheless, for the other
//! sockets. A datagram for another thread's line counts as broken; source ports are probed to avoid
//! such datagrams.
//! Source: none.

use std::io;
use std::iter::from_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use net::xdp::Peer;
use net::{Calls, Epoll, Interest, Timeout};

use super::super::clock::Clock;
use super::super::score::DriveState;
use super::Inward;
use super::datagrams::BATCHES_MAX;
use crate::line::Socket;
use crate::line::packets::{Packets, Queues};

/// The epoll token of the first queue. The tokens of lines are lower.
const FIRST_TOKEN: u64 = 1 << 32;
/// The most polls of the queues between two calls of epoll.
const POLLS_MAX: u32 = 64;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Interface {
    queues: Arc<Queues>,
    /// The line of each source port, at the port's index (`Queues::port_index`), or `NONE`.
    lines: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Interfaces {
    all: Vec<Interface>,
    /// For each queue: the index of its interface in `all`, and the queue's number there.
    queues: Vec<(usize, usize)>,
    ready: Vec<usize>,
    polls: u32,
}

impl Interfaces {
    /// Assigns the datagrams that arrive at the source port of `packets` to `line`.
    pub(super) fn open(
        &mut self,
        packets: &Packets,
        line: u32,
        epoll: &Epoll,
        calls: &Calls,
    ) -> io::Result<()> {
        let queues = &packets.queues;
        let at = self.all.iter().position(|interface| Arc::ptr_eq(&interface.queues, queues));
        let at = match at {
            Some(at) => at,
            None => {
                for (number, queue) in
                    (0..queues.count()).filter_map(|it| Some((it, queues.fd(it)?)))
                {
                    let token = FIRST_TOKEN + self.queues.len() as u64;
                    epoll.add(queue, token, Interest::Read, calls)?;
                    self.queues.push((self.all.len(), number));
                }
                let lines = vec![NONE; queues.port_count()];
                self.all.push(Interface { queues: Arc::clone(queues), lines });
                self.all.len() - 1
            }
        };
        if let Some(place) = queues.port_index(packets.port()) {
            self.all[at].lines[place] = line;
        }
        Ok(())
    }

    /// Records that the queue with this token is ready. Returns false if no queue has this token.
    #[inline]
    pub(super) fn is_reported(&mut self, token: u64) -> bool {
        let queue = token.checked_sub(FIRST_TOKEN).and_then(|queue| usize::try_from(queue).ok());
        let queue = queue.filter(|queue| *queue < self.queues.len());
        self.ready.extend(queue);
        queue.is_some()
    }
}

impl Inward {
    /// Begins a turn: reads the packets that have arrived. Returns true if the caller must not call
    /// epoll, because packets were found or the thread does not sleep.
    #[inline]
    pub(crate) fn poll_queues(
        &mut self,
        limit: Timeout,
        clock: &Clock,
        state: &mut DriveState,
    ) -> bool {
        self.read_ns = None;
        if self.interfaces.queues.is_empty() {
            return false;
        }
        for queue in 0..self.interfaces.queues.len() {
            self.read_queue(queue, clock, state);
        }
        let is_busy = self.read_ns.is_some() || limit == Timeout::Zero;
        let is_found = is_busy && self.unread.is_empty() && self.interfaces.polls < POLLS_MAX;
        self.interfaces.polls = if is_found { self.interfaces.polls + 1 } else { 0 };
        if is_found {
            self.ready.clear();
        }
        is_found
    }

    pub(super) fn read_ready_queues(&mut self, clock: &Clock, state: &mut DriveState) {
        while let Some(queue) = self.interfaces.ready.pop() {
            self.read_queue(queue, clock, state);
        }
    }

    fn read_queue(&mut self, queue: usize, clock: &Clock, state: &mut DriveState) {
        let (interface, number) = self.interfaces.queues[queue];
        let queues = Arc::clone(&self.interfaces.all[interface].queues);
        let Some(mut port) = queues.lock(number) else { return };
        for _ in 0..BATCHES_MAX {
            let received = port.inbox.receive(&self.calls);
            if received.datagrams > 0 {
                let now_ns = clock.now_ns();
                self.read_ns = Some(now_ns);
                self.take_messages(state);
                let mut datagrams = port.inbox.datagrams().peekable();
                while let Some(first) = datagrams.peek() {
                    let ends = |peer: &Peer| (peer.destination().port(), peer.address());
                    let (own, from) = ends(first.peer);
                    let mut bytes = 0;
                    let mut of_line = from_fn(|| {
                        let next = datagrams.next_if(|next| ends(next.peer) == (own, from))?;
                        bytes += next.bytes.len();
                        Some(next)
                    });
                    match self.line_of(interface, own, from) {
                        Some(line) => {
                            self.take_datagrams(line, &mut of_line, now_ns, state);
                            state.score.tally.received_bytes += bytes as u64;
                            self.close_if_idle(line, state);
                        }
                        None if queues.belongs_to_other_thread(own) => {
                            of_line.for_each(|_| state.score.tally.broken += 1)
                        }
                        // Ignore the datagram: it answers a probe, is for a closed line, or is not
                        // from a target.
                        None => of_line.for_each(drop),
                    }
                }
            }
            if received.is_drained {
                break;
            }
        }
    }

    /// Returns the line with the source port `own`, or `None` if `from` is not the line's server.
    #[inline]
    fn line_of(&self, interface: usize, own: u16, from: Option<SocketAddr>) -> Option<u32> {
        let interface = &self.interfaces.all[interface];
        let line = *interface.lines.get(interface.queues.port_index(own)?)?;
        match &self.lines.get(line as usize)?.socket {
            Some(Socket::Packets(packets)) => {
                let is_its = packets.port() == own && Some(packets.target) == from;
                is_its.then_some(line)
            }
            _ => None,
        }
    }
}
