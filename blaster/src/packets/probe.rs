//! By which queue answers come: asked from one source port after the other, before the first
//! request.
//!
//! ```text
//! port p, queue q ---- a question ----> server
//!        queue r <---- its answer ----- server        p is of use to a thread that has q and r
//! ```
//!
//! Where: when an interface is opened for several threads, each with queues of its own. A server
//! past its kernel answers by the queue that the question came by; a kernel, and a card, spread
//! answers over queues by addresses and ports.
//! Invariant: it ends: `ROUNDS_MAX` questions from a port at most, of which each has `ANSWER_WAIT`.
//! Source: `skb_tx_hash` of Linux; Microsoft, "Introduction to Receive Side Scaling", for cards.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use net::wire::Ends;
use net::xdp::{Peer, Port};
use net::{Calls, Epoll, Interest, Timeout};
use protocol::flow;
use protocol::udp::Header;

/// Questions from one port, each by another thread's queue where that is of use.
const ROUNDS_MAX: u16 = 8;
/// Questions under way: a server's socket has room for so many.
const ASKED_MAX: usize = 64;
/// How long the first answer has to come, and each one after another.
const ANSWER_WAIT: Duration = Duration::from_millis(500);
const NEXT_WAIT: Duration = Duration::from_millis(50);

/// What is tried, and with whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// From the first of all ports to the server.
    pub(super) ends: Ends,
    /// Thread n has queues n, n + threads, ...
    pub(super) threads: usize,
    /// Ports that each thread needs.
    pub(super) each: usize,
    /// What every server answers.
    pub(super) question: &'a [u8],
}

/// A source port for a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Its place among all ports.
    pub(super) place: usize,
    pub(super) thread: usize,
    /// The index of the queue that it was tried with, among the thread's.
    pub(super) queue: usize,
}

/// A source port that is tried.
#[derive(Clone, Debug)]
struct Candidate {
    place: usize,
    /// The queue that asks.
    queue: usize,
    /// The queue by which the last answer came.
    came_by: Option<usize>,
    is_found: bool,
    is_asked: bool,
}

/// Under way.
#[derive(Debug)]
pub(super) struct Probe<'a> {
    asked: Asked<'a>,
    candidates: Vec<Candidate>,
    /// Of each thread.
    found: Vec<usize>,
    calls: Calls,
}

impl<'a> Probe<'a> {
    /// Of the ports at these places.
    pub(super) fn new(asked: Asked<'a>, places: Range<usize>) -> Probe<'a> {
        let candidate =
            |place| Candidate { place, queue: 0, came_by: None, is_found: false, is_asked: false };
        let candidates = places.map(candidate).collect();
        let found = vec![0; asked.threads];
        Probe { asked, candidates, found, calls: Calls::default() }
    }

    /// Finds ports for all threads, at least as many as each needs.
    ///
    /// # Errors
    /// There are not enough of them for a thread, or nobody answers.
    pub(super) fn run(mut self, ports: &mut [Port]) -> io::Result<Vec<Found>> {
        let mut epoll = Epoll::new(ports.len())?;
        for (queue, port) in (0..).zip(&*ports) {
            epoll.add(port, queue, Interest::Accept, &self.calls)?;
        }
        for round in 0..ROUNDS_MAX {
            self.assign(round, ports.len());
            let wanted = self.candidates.iter().enumerate().filter(|(_, one)| self.is_wanted(one));
            let wanted: Vec<usize> = wanted.map(|(at, _)| at).collect();
            for some in wanted.chunks(ASKED_MAX) {
                self.ask(some, round, ports);
                self.hear(some.len(), round, ports, &mut epoll)?;
                if self.candidates.iter().all(|one| one.came_by.is_none()) {
                    let at = self.asked.ends.to();
                    return Err(io::Error::other(format!("{at} answers nothing")));
                }
            }
            if self.lacks().is_none() {
                return Ok(self.all_found());
            }
        }
        Err(self.failed(ports.len()))
    }

    /// A thread that has too few ports.
    fn lacks(&self) -> Option<usize> {
        self.found.iter().position(|found| *found < self.asked.each)
    }

    fn is_wanted(&self, one: &Candidate) -> bool {
        !one.is_found && self.found[one.queue % self.asked.threads] < self.asked.each
    }

    /// Says who asks: all in turn at first, then the queue by which the answer came. Where that has
    /// not helped, or does not, another one.
    fn assign(&mut self, round: u16, queues: usize) {
        for (at, one) in self.candidates.iter_mut().enumerate() {
            if one.is_found {
                continue;
            }
            one.queue = match one.came_by.filter(|_| round % 2 == 1) {
                Some(queue) => queue,
                None => (at + usize::from(round / 2)) % queues,
            };
        }
    }

    fn ask(&mut self, some: &[usize], round: u16, ports: &mut [Port]) {
        let header = Header::request(round, flow::ANY).bytes();
        for at in some {
            let one = &mut self.candidates[*at];
            one.is_asked = true;
            let mut ends = self.asked.ends;
            ends.ports.from += u16::try_from(one.place).unwrap_or(0);
            // What finds no room is asked in the next round.
            ports[one.queue].outbox.add(&Peer::at(ends), &header, [self.asked.question]);
        }
        for port in ports {
            port.outbox.post_or_drop(&self.calls);
        }
    }

    /// Takes what is answered to so many questions.
    fn hear(
        &mut self,
        count: usize,
        round: u16,
        ports: &mut [Port],
        epoll: &mut Epoll,
    ) -> io::Result<()> {
        let mut left = count;
        let mut until = Instant::now() + ANSWER_WAIT;
        while left > 0 && Instant::now() < until {
            for (queue, port) in ports.iter_mut().enumerate() {
                let _ = port.inbox.receive(&self.calls);
                for datagram in port.inbox.datagrams() {
                    let is_answer =
                        Header::read(datagram.bytes).is_some_and(|(header, _)| header.id == round);
                    let own = datagram.peer.asked().port();
                    if is_answer && self.came(own, queue) {
                        left -= 1;
                        until = Instant::now() + NEXT_WAIT;
                    }
                }
                port.inbox.release();
                port.outbox.post_or_drop(&self.calls);
            }
            if left > 0 {
                let _ = epoll.wait(Timeout::Within(NEXT_WAIT), &self.calls)?;
            }
        }
        self.candidates.iter_mut().for_each(|one| one.is_asked = false);
        Ok(())
    }

    /// An answer to a source port came by a queue. False: it was not waited for.
    fn came(&mut self, own: u16, queue: usize) -> bool {
        let first = self.candidates.first().map_or(0, |one| one.place);
        let place = usize::from(own.wrapping_sub(self.asked.ends.ports.from));
        let at = place.wrapping_sub(first);
        let Some(one) = self.candidates.get_mut(at).filter(|one| one.is_asked) else {
            return false;
        };
        let thread = one.queue % self.asked.threads;
        one.is_asked = false;
        one.came_by = Some(queue);
        one.is_found = queue % self.asked.threads == thread;
        self.found[thread] += usize::from(one.is_found);
        true
    }

    fn all_found(&self) -> Vec<Found> {
        let found = self.candidates.iter().filter(|one| one.is_found).map(|one| Found {
            place: one.place,
            thread: one.queue % self.asked.threads,
            queue: one.queue / self.asked.threads,
        });
        found.collect()
    }

    /// What happened, for whoever has to help himself.
    fn failed(&self, queues: usize) -> io::Error {
        let Asked { ends, threads, each, .. } = self.asked;
        let thread = self.lacks().unwrap_or(0);
        let mut came = String::new();
        for queue in 0..queues {
            let by = self.candidates.iter().filter(|one| one.came_by == Some(queue)).count();
            let _ = write!(came, "{}{by} by queue {queue}", if queue > 0 { ", " } else { "" });
        }
        let own: Vec<String> = (thread..queues).step_by(threads).map(|it| it.to_string()).collect();
        io::Error::other(format!(
            "thread {thread} needs {each} source ports whose answers come by its own queues ({}), \
             and has {}: of {} that were tried, the answers of {} came: {came}. Fewer threads (-t) \
             have more queues each",
            own.join(", "),
            self.found[thread],
            self.candidates.len(),
            ends.to(),
        ))
    }
}
