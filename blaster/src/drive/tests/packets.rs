//! Tests of the drive over AF_XDP, against the null server on the other end of a virtual link.
//!
//! Where: unit tests of `drive`, in network namespaces.
//! Invariant: the results are the same as over UDP sockets; each test closes its interface.

use super::*;
use crate::target::{Attach, Bypass};
use protocol::udp::Header;
use std::mem;
use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use testing::namespace::{Namespace, Veth, WIRE, pair};

/// The tests run one at a time, because all tests use an interface of the same name.
static ALONE: Mutex<()> = Mutex::new(());

fn over(interface: &str) -> Bypass {
    Bypass { interface: interface.to_owned(), attach: Attach::Any }
}

/// Starts a null server in namespace `far`, with one thread for each of two AF_XDP queues.
fn packets(far: &Namespace) -> RunningServer {
    let place = Place::Xdp(over(WIRE), (far.v4, 11211).into());
    far.on(|| server(&[place], Plan { threads: 2, ..plan() }))
}

#[test]
fn every_protocol_past_the_kernel_closed_and_open_together_and_apart() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some([near, far]) = pair(Veth { queues: 2, mtu: 1500 }) else { return };
    let running = packets(&far);
    let open = Pace::Open { rate_per_s: 20_000.0, connections: 2, outstanding_max: 200 };
    // More than 16 keys would not fit one packet, and requests over AF_XDP are not fragmented.
    for batch in ["1", "16"] {
        let workload = workload(&[("batch", batch)]);
        for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
            let closed = near.on(|| drive(&workload, running.addresses(), protocol));
            for (pace, apart) in
                [(closed.pace, None), (open, None), (closed.pace, Some(0)), (open, Some(0))]
            {
                let what = format!("{} of {batch}, {pace:?}, {apart:?}", protocol.name());
                let apart = Drive { pace, receive_cpu: apart, ..closed.clone() };
                let tally = near.on(|| ran(apart));
                let get = tally.verb(Verb::Get);
                assert_eq!((get.sent, get.answered, get.timeouts), (3000, 3000, 0), "{what}");
                assert_eq!((get.hits, get.misses), (3000 * get.keys / get.sent, 0), "{what}");
                assert_eq!((tally.broken, tally.udp.lost), (0, 0), "{what}");
            }
        }
    }
    running.stop().unwrap();
}

#[test]
fn a_thread_without_a_queue_and_a_server_that_is_nowhere_are_told() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some([near, far]) = pair(Veth { queues: 2, mtu: 1500 }) else { return };
    let running = packets(&far);
    let workload = workload(&[]);
    let drive_there = || drive(&workload, running.addresses(), Protocol::Text);
    let too_many = near.on(|| Drive { here: (0, 3), ..drive_there() });
    let error = near.on(|| outcome(too_many)).unwrap_err().to_string();
    assert!(error.contains("wire has only 2 queues: use at most 2 threads (-t)"), "{error}");
    let nowhere = Place::Xdp(over(WIRE), ([192, 0, 2, 1], 11211).into());
    let nowhere = near.on(|| drive(&workload, &[nowhere], Protocol::Text));
    let error = near.on(|| outcome(nowhere)).unwrap_err().to_string();
    assert!(error.contains("no route to 192.0.2.1"), "{error}");
    let places = [Place::Xdp(over("nosuchnic"), (far.v4, 11211).into())];
    let nosuch = near.on(|| drive(&workload, &places, Protocol::Text));
    let error = near.on(|| outcome(nosuch)).unwrap_err().to_string();
    assert!(error.contains("there is no interface nosuchnic"), "{error}");
    // The failed runs above have released their resources, so this run succeeds.
    assert_all_hit(
        &near.on(|| ran(drive(&workload, running.addresses(), Protocol::Text))),
        3000,
        "",
    );
    running.stop().unwrap();
}

#[test]
fn what_is_lost_doubled_or_overtaken_is_counted_past_the_kernel_as_by_sockets() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some([near, far]) = pair(Veth::default()) else { return };
    // Datagrams sent by a thread that stays on one processor keep their order.
    let cpu = net::thread_cpus().unwrap().first().copied();
    let way = Way {
        start: &|plan| far.on(|| server(&[Place::Udp((far.v4, 0).into())], plan)),
        place: &|place| Place::Xdp(over(WIRE), place.datagrams().unwrap()),
        ran: &|drive| near.on(|| ran(Drive { cpu, ..drive })),
    };
    for counted in [dropped_doubled_or_swapped, values_twice, values_overtaken, long_answers] {
        counted(&way);
    }
}

/// Number of request ids per connection for which false answers are sent in one round.
const FORGED_IDS: usize = 32;

#[test]
fn what_somebody_else_sends_is_no_answer() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some([near, far]) = pair(Veth { queues: 2, mtu: 1500 }) else { return };
    let running = packets(&far);
    let mut drive = near.on(|| drive(&workload(&[]), running.addresses(), Protocol::Text));
    drive.end.requests = Some(30_000);
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let forge = || {
        let socket = UdpSocket::bind((far.v4, 0)).unwrap();
        let ports = || (20_000..20_002).map(|port| (near.v4, port));
        let mut answers_before = u64::MAX;
        while !is_over.load(Ordering::Relaxed) {
            // Forge a round only after a real answer, because a flood would fill the receive ring.
            // At most 16 requests are in flight, so at most 16 rounds are in the ring.
            let answers = running.counts().answers.load(Ordering::Relaxed);
            if mem::replace(&mut answers_before, answers) == answers {
                std::thread::yield_now();
                continue;
            }
            let soon = (answers / 2..).take(FORGED_IDS).map(|id| u16::try_from(id).unwrap());
            for (id, to) in soon.flat_map(|id| ports().map(move |to| (id, to))) {
                let answer = [&Header::request(id, 0).bytes()[..], b"END\r\n"].concat();
                // Sending fails while the ports are closed, before and after the run.
                let is_sent = socket.send_to(&answer, to).is_ok();
                sent.fetch_add(is_sent.into(), Ordering::Relaxed);
            }
        }
    };
    let tally = std::thread::scope(|scope| {
        scope.spawn(|| far.on(forge));
        let tally = near.on(|| outcome(drive));
        is_over.store(true, Ordering::Relaxed);
        tally.unwrap()
    });
    assert!(sent.load(Ordering::Relaxed) > 1000);
    assert_all_hit(&tally, 30_000, "");
    let udp = (tally.udp.duplicate, tally.udp.lost, tally.udp.timeouts);
    assert_eq!(udp, (0, 0, 0));
    running.stop().unwrap();
}
