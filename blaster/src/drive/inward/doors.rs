//! Datagrams past the kernel's network stack, through AF_XDP queues that lines share.
//!
//! ```text
//! queue -> | datagram | datagram | ...    source port -> line
//! ```
//!
//! Where: the receiving half, for lines past the kernel.
//! Invariant: a look at the queues costs no system call, so a thread looks before it asks the
//! kernel; it asks for everything else after at most `LOOKS_MAX` looks. A datagram for another
//! thread's line counts as broken: ports were probed so that there is none.
//! Source: none.

use std::io;
use std::iter::from_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use net::xdp::Peer;
use net::{Calls, Epoll, Interest, Timeout};

use super::super::Clock;
use super::super::score::Books;
use super::Inward;
use super::datagrams::BATCHES_MAX;
use crate::line::Socket;
use crate::packets::{Packets, Queues};

/// The token of the first queue; lines have lower ones.
const FIRST_TOKEN: u64 = 1 << 32;
/// Most looks for packets between two looks for everything else.
const LOOKS_MAX: u32 = 64;
const NONE: u32 = u32::MAX;

/// This thread's queues of an interface.
#[derive(Debug)]
struct Door {
    queues: Arc<Queues>,
    /// The line of each source port, by the port's place.
    lines: Vec<u32>,
}

/// All interfaces' queues of a thread.
#[derive(Debug, Default)]
pub(super) struct Doors {
    all: Vec<Door>,
    /// For each queue, its door and its number there.
    queues: Vec<(usize, usize)>,
    /// Queues that the kernel has reported as ready.
    ready: Vec<usize>,
    looks: u32,
}

impl Doors {
    /// Assigns a source port's datagrams to a line.
    pub(super) fn open(
        &mut self,
        packets: &Packets,
        line: u32,
        epoll: &Epoll,
        calls: &Calls,
    ) -> io::Result<()> {
        let queues = packets.queues();
        let at = self.all.iter().position(|door| Arc::ptr_eq(&door.queues, queues));
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
                let lines = vec![NONE; queues.places()];
                self.all.push(Door { queues: Arc::clone(queues), lines });
                self.all.len() - 1
            }
        };
        if let Some(place) = queues.place(packets.port()) {
            self.all[at].lines[place] = line;
        }
        Ok(())
    }

    /// Notes that the queue of this token is ready. False if the token is not a queue's.
    #[inline]
    pub(super) fn is_reported(&mut self, token: u64) -> bool {
        let queue = token.checked_sub(FIRST_TOKEN).and_then(|queue| usize::try_from(queue).ok());
        let queue = queue.filter(|queue| *queue < self.queues.len());
        self.ready.extend(queue);
        queue.is_some()
    }
}

impl Inward {
    /// Begins a turn: takes the packets that are there. True if the kernel need not be asked for
    /// more, because some were there, or because the thread must not sleep.
    #[inline]
    pub(in super::super) fn look(
        &mut self,
        limit: Timeout,
        clock: &Clock,
        books: &mut Books,
    ) -> bool {
        self.read_ns = None;
        if self.doors.queues.is_empty() {
            return false;
        }
        for queue in 0..self.doors.queues.len() {
            self.enter_door(queue, clock, books);
        }
        let is_busy = self.read_ns.is_some() || limit == Timeout::Zero;
        let is_found = is_busy && self.unread.is_empty() && self.doors.looks < LOOKS_MAX;
        self.doors.looks = if is_found { self.doors.looks + 1 } else { 0 };
        if is_found {
            self.ready.clear();
        }
        is_found
    }

    pub(super) fn enter_doors(&mut self, clock: &Clock, books: &mut Books) {
        while let Some(queue) = self.doors.ready.pop() {
            self.enter_door(queue, clock, books);
        }
    }

    /// Takes the packets of a queue, up to its share of the turn.
    fn enter_door(&mut self, queue: usize, clock: &Clock, books: &mut Books) {
        let (door, number) = self.doors.queues[queue];
        let queues = Arc::clone(&self.doors.all[door].queues);
        let Some(mut port) = queues.lock(number) else { return };
        for _ in 0..BATCHES_MAX {
            let received = port.inbox.receive(&self.calls);
            if received.datagrams > 0 {
                let now_ns = clock.now_ns();
                self.read_ns = Some(now_ns);
                self.open_mail(books);
                let mut datagrams = port.inbox.datagrams().peekable();
                while let Some(first) = datagrams.peek() {
                    let ends = |peer: &Peer| (peer.asked().port(), peer.address());
                    let (own, from) = ends(first.peer);
                    let mut bytes = 0;
                    let mut of_line = from_fn(|| {
                        let next = datagrams.next_if(|next| ends(next.peer) == (own, from))?;
                        bytes += next.bytes.len();
                        Some(next)
                    });
                    match self.line_of(door, own, from) {
                        Some(line) => {
                            self.take_datagrams(line, &mut of_line, now_ns, books);
                            books.score.received(bytes);
                            self.leave_if_idle(line, books);
                        }
                        None if queues.is_of_another(own) => {
                            of_line.for_each(|_| books.score.broken())
                        }
                        // The datagram is for a line that was left, answers a probe before the
                        // first request, or is not from a target.
                        None => of_line.for_each(drop),
                    }
                }
            }
            if received.is_drained {
                break;
            }
        }
    }

    /// The line of a source port, if the datagram comes from the line's server.
    #[inline]
    fn line_of(&self, door: usize, own: u16, from: Option<SocketAddr>) -> Option<u32> {
        let door = &self.doors.all[door];
        let line = *door.lines.get(door.queues.place(own)?)?;
        match &self.lines.get(line as usize)?.socket {
            Some(Socket::Packets(packets)) => {
                let is_its = packets.port() == own && Some(packets.target()) == from;
                is_its.then_some(line)
            }
            _ => None,
        }
    }
}
