//! The search for source ports whose answers come through a thread's own queues, before the first
//! request.
//!
//! ```text
//! port p, queue q ---- a question ----> server
//!        queue r <---- its answer ----- server        p is of use to a thread that has q and r
//! ```
//!
//! Where: when an interface is opened for several threads, each with queues of its own. A server
//! past its kernel answers through the queue by which the question came; a kernel, and a card,
//! spread answers over queues by addresses and ports.
//! Invariant: it ends: at most `ROUNDS_MAX` questions per port, each with at most `ANSWER_WAIT`.
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

/// Most questions from one port, each through another thread's queue if that helps.
const ROUNDS_MAX: u16 = 8;
/// Most questions under way: a server's socket has room for these.
const ASKED_MAX: usize = 64;
/// The wait for the first answer; below, for each one after another.
const ANSWER_WAIT: Duration = Duration::from_millis(500);
const NEXT_WAIT: Duration = Duration::from_millis(50);

/// The parameters of a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// The addresses and ports from the first of all source ports to the server.
    pub(super) ends: Ends,
    /// Number of threads: thread n has queues n, n + threads, ...
    pub(super) threads: usize,
    /// Number of ports that each thread needs.
    pub(super) each: usize,
    /// A request that every server answers.
    pub(super) question: &'a [u8],
}

/// A source port for a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Its place among all ports.
    pub(super) place: usize,
    pub(super) thread: usize,
    /// The index of the queue that it was tried with, among the thread's queues.
    pub(super) queue: usize,
}

/// A source port that is being tried.
#[derive(Clone, Debug)]
struct Candidate {
    place: usize,
    /// The queue through which it asks.
    queue: usize,
    /// The queue through which the last answer came.
    came_by: Option<usize>,
    is_found: bool,
    is_asked: bool,
}

/// A probe under way.
#[derive(Debug)]
pub(super) struct Probe<'a> {
    asked: Asked<'a>,
    candidates: Vec<Candidate>,
    /// Number of ports found for each thread.
    found: Vec<usize>,
    calls: Calls,
}

impl<'a> Probe<'a> {
    /// Returns a probe of the ports at these places.
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
    /// A thread has too few of them, or the server does not answer.
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

    /// Returns a thread that has too few ports.
    fn lacks(&self) -> Option<usize> {
        self.found.iter().position(|found| *found < self.asked.each)
    }

    fn is_wanted(&self, one: &Candidate) -> bool {
        !one.is_found && self.found[one.queue % self.asked.threads] < self.asked.each
    }

    /// Chooses the queue that asks for each port: all queues in turn at first, then the one through
    /// which the answer came. If that does not help, the next queue.
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
            // A question without room is asked in the next round.
            ports[one.queue].outbox.add(&Peer::at(ends), &header, [self.asked.question]);
        }
        for port in ports {
            port.outbox.post_or_drop(&self.calls);
        }
    }

    /// Takes the answers to `count` questions.
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

    /// Notes that an answer to a source port came through a queue. False if it was not awaited.
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

    /// Describes the counts, so that a user can act on them.
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
