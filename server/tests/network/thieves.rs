//! Idle columns steal datagrams from an interface's queues. Each answer leaves by the queue of its
//! request, even after the link was down.
//!
//! Where: a client with AF_XDP on one end of a link, which sees the queue of each answer, and a
//! server with `--xdp` on the other end.
//! Invariant: each request is answered once, by any column, on the queue by which it arrived.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::bypass::bypassing;
use super::{Network, Veth};
use columns::counters::Sums;
use hypostyle::start::settings::Settings;
use net::Calls;
use net::xdp::{self, Mode, OpenOptions, Opened, Peer, Port};
use protocol::udp::Header;
use testing::namespace::WIRE;
use testing::{PATIENCE, wait_until};

const OWN_PORT: u16 = 40_000;
/// Maximum number of requests in flight. The veth's queue of 256 packets must also hold the
/// requests of `is_answered`.
const WINDOW: usize = 128;
const ATTEMPT: Duration = Duration::from_millis(20);
const REQUESTS: u16 = 2000;
const MISSES: usize = 700;
const STOLEN: u64 = 100;
/// The queue through which the client sends.
const ASKED: usize = 0;

struct Client {
    ports: Vec<Port>,
    to: Peer,
    request: String,
    calls: Calls,
}

impl Client {
    fn of(network: &Network) -> Client {
        let opened = network.near.on(|| {
            let server = network.asks(network.far.v4.into());
            let ends = xdp::reach(WIRE, server, OWN_PORT).unwrap_or_else(|error| panic!("{error}"));
            let opened = xdp::open(&OpenOptions {
                interface: WIRE,
                queues: None,
                ports_max: usize::MAX,
                addresses: &[network.near.v4.into()],
                ports: OWN_PORT..=OWN_PORT,
                allow: &[],
                chunks: 512,
                memory_bytes_max: usize::MAX,
                mode: Mode::Native,
                values: None,
            });
            (ends, opened.unwrap_or_else(|refused| panic!("{refused}")))
        });
        let (ends, Opened { ports, .. }) = opened;
        let request = format!("get{}\r\n", " n".repeat(MISSES));
        Client { ports, to: Peer::at(ends), request, calls: Calls::default() }
    }

    /// Sends `REQUESTS` requests through one queue. Each must be answered once, by the same queue.
    fn ask(&mut self) {
        let (mut missing, mut ids) = (HashSet::new(), 0..REQUESTS);
        let until = Instant::now() + PATIENCE;
        loop {
            for id in ids.by_ref().take(WINDOW - missing.len()) {
                let head = Header::request(id, 0).bytes();
                assert!(self.ports[ASKED].outbox.add(&self.to, &head, [self.request.as_bytes()]));
                missing.insert(id);
            }
            if missing.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "no answer to {missing:?}");
            self.ports[ASKED].outbox.post_or_drop(&self.calls);
            for (queue, port) in self.ports.iter_mut().enumerate() {
                let _ = port.inbox.receive(&self.calls);
                for datagram in port.inbox.datagrams() {
                    let (header, text) = Header::read(datagram.bytes).unwrap();
                    assert_eq!((queue, text), (ASKED, &b"END\r\n"[..]));
                    // A late answer to a request of `is_answered` has the id `REQUESTS`.
                    let is_due = missing.remove(&header.id) || header.id == REQUESTS;
                    assert!(is_due, "{} is answered twice", header.id);
                }
                port.inbox.release();
            }
            std::thread::yield_now();
        }
    }

    /// Sends one request. Returns true if an answer to this or to an earlier request arrives.
    fn is_answered(&mut self) -> bool {
        let head = Header::request(REQUESTS, 0).bytes();
        self.ports[ASKED].outbox.add(&self.to, &head, [&b"get n\r\n"[..]]);
        self.ports[ASKED].outbox.post_or_drop(&self.calls);
        let until = Instant::now() + ATTEMPT;
        while Instant::now() < until {
            if self.hears() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    fn hears(&mut self) -> bool {
        let port = &mut self.ports[ASKED];
        let _ = port.inbox.receive(&self.calls);
        let came = port.inbox.datagrams().count();
        port.inbox.release();
        came > 0
    }
}

fn columns(network: &Network) -> Vec<Sums> {
    network.server.shared().columns.counters.iter().map(|column| Sums::of(column)).collect()
}

fn drive(network: &Network, client: &mut Client) {
    let before = columns(network);
    let until = Instant::now() + PATIENCE;
    let has_enough =
        |(now, before): (Sums, &Sums)| now.datagrams_stolen - before.datagrams_stolen >= STOLEN;
    while !columns(network).into_iter().zip(&before).skip(ASKED + 1).all(has_enough) {
        assert!(Instant::now() < until, "{:?}", columns(network));
        client.ask();
    }
}

/// One of the two stealing columns has its own queue, and the other stealing column has no queue.
#[test]
fn answers_leave_by_the_queue_that_was_asked_also_after_the_link_was_down() {
    let veth = Veth { queues: 2, ..Veth::default() };
    let settings = Settings { steal_rings: true, ..bypassing(3, &[]) };
    let Some(mut network) = Network::of(veth, settings) else { return };
    let mut client = Client::of(&network);
    for _ in 0..2 {
        wait_until("an answer over the link", || client.is_answered());
        drive(&network, &mut client);
        network.far.ip(&format!("link set {WIRE} down"));
        network.far.ip(&format!("link set {WIRE} up"));
    }
    wait_until("all is counted", || {
        let all = network.server.shared().sums().columns;
        all.steals_taken_near + all.steals_taken_far == all.steals_given_near + all.steals_given_far
    });
    let [victim, thieves @ ..] = &columns(&network)[..] else { panic!("three columns") };
    assert_eq!(victim.datagrams_stolen, 0);
    for thief in thieves {
        assert_eq!(thief.steals_given_near + thief.steals_given_far, 0);
        assert_eq!(thief.udp_received, thief.datagrams_stolen);
    }
    for counter in ["udp_unsent", "udp_dropped_damaged", "xdp_invalid"] {
        assert_eq!(network.count(counter), 0, "{counter}");
    }
    network.server.stop();
}
