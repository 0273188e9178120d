//! Finds, before the run, source ports whose answers arrive through queues of the thread that
//! sends.
//!
//! ```text
//! port p, queue q ---- request ----> server
//!        queue r <---- answer ------ server         a thread that has q and r can use port p
//! ```
//!
//! Where: used when several threads open an interface. A server that bypasses its kernel answers
//! through the queue through which the request arrived. Kernels and network cards choose an
//! answer's queue by a hash of addresses and ports.
//! Invariant: the probe ends, because it sends at most `ROUNDS_MAX` requests per port, and waits at
//! most `ANSWER_WAIT` for an answer.
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

/// The maximum number of requests from one source port. `assign` chooses a queue for each request.
const ROUNDS_MAX: u16 = 8;
/// The maximum number of requests in flight. A server's receive buffer has room for this number.
const WAITING_MAX: usize = 64;
/// Longest wait for the first answer. Without an answer in this time, the requests count as lost.
const ANSWER_WAIT: Duration = Duration::from_millis(500);
/// Longest wait for each further answer, after which the remaining requests count as lost.
const NEXT_WAIT: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeParameters<'a> {
    /// Addresses and ports of a packet from the first source port to the server.
    pub(super) ends: Ends,
    /// Number of threads. Thread n has queues n, n + threads, and so on.
    pub(super) threads: usize,
    pub(super) each: usize,
    pub(super) request: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadPort {
    /// The port's index among all source ports.
    pub(super) place: usize,
    pub(super) thread: usize,
    /// The queue through which the probe sent, as an index among the thread's queues.
    pub(super) queue: usize,
}

#[derive(Clone, Debug)]
struct Candidate {
    place: usize,
    /// The queue through which the next request is sent.
    queue: usize,
    /// The queue through which the last answer arrived.
    answer_queue: Option<usize>,
    is_found: bool,
    is_waiting: bool,
}

#[derive(Debug)]
pub(super) struct Probe<'a> {
    parameters: ProbeParameters<'a>,
    candidates: Vec<Candidate>,
    found: Vec<usize>,
    calls: Calls,
}

impl<'a> Probe<'a> {
    pub(super) fn new(parameters: ProbeParameters<'a>, places: Range<usize>) -> Probe<'a> {
        let candidate = |place| Candidate {
            place,
            queue: 0,
            answer_queue: None,
            is_found: false,
            is_waiting: false,
        };
        let candidates = places.map(candidate).collect();
        let found = vec![0; parameters.threads];
        Probe { parameters, candidates, found, calls: Calls::default() }
    }

    pub(super) fn run(mut self, ports: &mut [Port]) -> io::Result<Vec<ThreadPort>> {
        let mut epoll = Epoll::new(ports.len())?;
        for (queue, port) in (0..).zip(&*ports) {
            epoll.add(port, queue, Interest::Accept, &self.calls)?;
        }
        for round in 0..ROUNDS_MAX {
            self.assign(round, ports.len());
            let wanted = self.candidates.iter().enumerate().filter(|(_, one)| self.is_wanted(one));
            let wanted: Vec<usize> = wanted.map(|(at, _)| at).collect();
            for some in wanted.chunks(WAITING_MAX) {
                self.send(some, round, ports);
                self.receive(some.len(), round, ports, &mut epoll)?;
                if self.candidates.iter().all(|one| one.answer_queue.is_none()) {
                    let at = self.parameters.ends.to();
                    return Err(io::Error::other(format!("{at} does not answer")));
                }
            }
            if self.lacking_thread().is_none() {
                return Ok(self.all_found());
            }
        }
        Err(self.failed(ports.len()))
    }

    fn lacking_thread(&self) -> Option<usize> {
        self.found.iter().position(|found| *found < self.parameters.each)
    }

    fn is_wanted(&self, one: &Candidate) -> bool {
        !one.is_found && self.found[one.queue % self.parameters.threads] < self.parameters.each
    }

    /// Chooses the queue for each port's next request. Even rounds use all queues in turn. Odd
    /// rounds use the queue through which the port's last answer arrived.
    fn assign(&mut self, round: u16, queues: usize) {
        for (at, one) in self.candidates.iter_mut().enumerate().filter(|(_, one)| !one.is_found) {
            let turn = (at + usize::from(round / 2)) % queues;
            one.queue = one.answer_queue.filter(|_| round % 2 == 1).unwrap_or(turn);
        }
    }

    fn send(&mut self, some: &[usize], round: u16, ports: &mut [Port]) {
        let header = Header::request(round, flow::ANY).bytes();
        for at in some {
            let one = &mut self.candidates[*at];
            one.is_waiting = true;
            let mut ends = self.parameters.ends;
            ends.ports.from += u16::try_from(one.place).unwrap_or(0);
            // If the queue is full, the next round sends the request again.
            ports[one.queue].outbox.add(&Peer::at(ends), &header, [self.parameters.request]);
        }
        for port in ports {
            port.outbox.post_or_drop(&self.calls);
        }
    }

    fn receive(
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
                    let own = datagram.peer.destination().port();
                    if is_answer && self.note_answer(own, queue) {
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
        self.candidates.iter_mut().for_each(|one| one.is_waiting = false);
        Ok(())
    }

    /// Records the queue through which an answer arrived. Returns false if no answer was awaited.
    fn note_answer(&mut self, own: u16, queue: usize) -> bool {
        let first = self.candidates.first().map_or(0, |one| one.place);
        let place = usize::from(own.wrapping_sub(self.parameters.ends.ports.from));
        let at = place.wrapping_sub(first);
        let Some(one) = self.candidates.get_mut(at).filter(|one| one.is_waiting) else {
            return false;
        };
        let thread = one.queue % self.parameters.threads;
        one.is_waiting = false;
        one.answer_queue = Some(queue);
        one.is_found = queue % self.parameters.threads == thread;
        self.found[thread] += usize::from(one.is_found);
        true
    }

    fn all_found(&self) -> Vec<ThreadPort> {
        let found = self.candidates.iter().filter(|one| one.is_found).map(|one| ThreadPort {
            place: one.place,
            thread: one.queue % self.parameters.threads,
            queue: one.queue / self.parameters.threads,
        });
        found.collect()
    }

    /// Returns an error that lists the queues through which answers arrived, to help the user.
    fn failed(&self, queues: usize) -> io::Error {
        let ProbeParameters { ends, threads, each, .. } = self.parameters;
        let thread = self.lacking_thread().unwrap_or(0);
        let mut came = String::new();
        for queue in 0..queues {
            let by = self.candidates.iter().filter(|one| one.answer_queue == Some(queue)).count();
            let comma = if queue > 0 { ", " } else { "" };
            let _ = write!(came, "{comma}in queue {queue} for {by} ports");
        }
        let own: Vec<String> = (thread..queues).step_by(threads).map(|it| it.to_string()).collect();
        io::Error::other(format!(
            "thread {thread} needs {each} UDP ports whose answers arrive in the queues of this \
             thread ({}), but kvblaster found only {} such ports. kvblaster sent requests from {} \
             ports, and the answers from {} arrived {came}. Use fewer threads (-t), so that each \
             thread has more queues",
            own.join(", "),
            self.found[thread],
            self.candidates.len(),
            ends.to(),
        ))
    }
}
