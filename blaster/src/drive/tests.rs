//! Tests of the drive with the null server (see `reflect`): all protocols, transports and faults.
//!
//! Where: unit tests of `drive`.
//! Invariant: no assertion depends on this machine's speed. Each run ends after a number of
//! requests or at a deadline.

mod connections;
mod packets;

use super::*;
use crate::reflect::{self, Faults, Plan, RunningServer};
use crate::target::Target;
use crate::target::steer::{STEERS, Steer, Steering};
use crate::target::{self, Place};
use crate::wire::{PROTOCOLS, Protocol};
use crate::workload::{Names, Verb, Workload};
use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time limit of a run, which no run reaches unless it hangs.
const DEADLINE: Duration = Duration::from_secs(120);
/// Timeout of a request. Even on a loaded machine, answers are not delayed this long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout of a request in tests whose server drops answers; short, because these tests wait.
const PATIENCE_FOR_THE_LOST: Duration = Duration::from_secs(10);

fn workload(settings: &[(&str, &str)]) -> Arc<Workload> {
    let mut workload = Workload::preset("uniform").unwrap();
    for (name, value) in [("keys", "1000"), ("mix", "get=1")].iter().chain(settings) {
        workload.set(name, value).unwrap();
    }
    Arc::new(workload)
}

fn socket_file() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("kvblaster-{}-{number}", std::process::id()))
}

fn tcp() -> Place {
    Place::Tcp("127.0.0.1:0".parse().unwrap())
}

fn udp() -> Place {
    Place::Udp("127.0.0.1:0".parse().unwrap())
}

fn server(places: &[Place], plan: Plan) -> RunningServer {
    reflect::serve(&Plan { places: places.to_vec(), ..plan }).unwrap()
}

/// The protocols in which a server at this place is reached.
fn protocols(place: &Place) -> impl Iterator<Item = Protocol> {
    let is_udp = matches!(place, Place::Udp(_));
    PROTOCOLS.into_iter().filter(move |one| !(is_udp && *one == Protocol::Resp))
}

fn plan() -> Plan {
    Plan { threads: 1, value_bytes: 64, ..Plan::default() }
}

fn targets(places: &[Place]) -> Arc<[Target]> {
    let named = places.iter().map(|place| match place {
        Place::Tcp(address) => address.to_string(),
        Place::Udp(address) => format!("udp://{address}"),
        Place::Xdp(bypass, address) => bypass.target_text(address),
        Place::Unix(path) => format!("unix:{}", path.display()),
    });
    named.map(|name| target::parse(&name, target::Family::Any).unwrap()).collect()
}

/// A closed loop with two connections and eight requests in flight on each connection.
fn drive(workload: &Arc<Workload>, places: &[Place], protocol: Protocol) -> Drive {
    let targets = targets(places);
    let end = EndCondition {
        stop: Arc::default(),
        deadline: Some(Instant::now() + DEADLINE),
        requests: Some(3000),
    };
    let pace = Pace::Closed { connections: 2, depth: 8 };
    let drive = Drive::new(Arc::clone(workload), targets, protocol, pace);
    Drive { timeout: PATIENCE, end, ..drive }
}

fn limited(drive: Drive, requests: Option<u64>) -> Drive {
    let end = EndCondition { requests, ..drive.end.clone() };
    Drive { end, ..drive }
}

fn outcome(drive: Drive) -> Result<Tally, DriveError> {
    let (sink, tallies) = mpsc::channel();
    run(drive, Instant::now(), &AtomicU32::new(0), &sink)?;
    drop(sink);
    let mut all = Tally::default();
    tallies.iter().for_each(|(_, _, tally)| all.merge(&tally));
    Ok(all)
}

fn ran(drive: Drive) -> Tally {
    outcome(drive).unwrap()
}

/// Asserts that `requests` gets of one key each were sent, and that all were hits without failures.
fn assert_all_hit(tally: &Tally, requests: u64, what: &str) {
    let get = tally.verb(Verb::Get);
    let counts = (get.sent, get.answered, get.hits, get.misses, get.errors, get.timeouts);
    assert_eq!(counts, (requests, requests, requests, 0, 0, 0), "{what}");
    assert_eq!((tally.broken, tally.offered), (0, requests), "{what}");
    assert_eq!(get.response_ns.len(), requests, "{what}");
    assert!(tally.busy_ns > 0 && tally.wall_ns > 0 && tally.sent_bytes > 0, "{what}");
}

#[test]
fn every_protocol_over_every_transport_closed_and_open_together_and_apart() {
    let file = socket_file();
    let v6 = "[::1]:0".parse().unwrap();
    let places = [tcp(), Place::Tcp(v6), Place::Unix(file), udp(), Place::Udp(v6)];
    let running = server(&places, plan());
    let workload = workload(&[]);
    // A datagram socket's buffer holds 200 requests, so unread requests are not lost.
    let open = Pace::Open { rate_per_s: 20_000.0, connections: 2, outstanding_max: 200 };
    for place in running.addresses() {
        for protocol in protocols(place) {
            let closed = drive(&workload, std::slice::from_ref(place), protocol);
            for (pace, apart) in
                [(closed.pace, None), (open, None), (closed.pace, Some(0)), (open, Some(0))]
            {
                let what = format!("{} over {place:?}, {pace:?}, {apart:?}", protocol.name());
                let apart = Drive { pace, receive_cpu: apart, ..closed.clone() };
                assert_all_hit(&ran(apart), 3000, &what);
            }
        }
    }
    running.stop().unwrap();
}

#[test]
fn multigets_are_one_request_of_several_keys() {
    let running = server(&[tcp(), udp()], plan());
    let workload = workload(&[("batch", "48")]);
    for place in running.addresses() {
        for protocol in protocols(place) {
            let drive = drive(&workload, std::slice::from_ref(place), protocol);
            let tally = ran(limited(drive, Some(300)));
            let get = tally.verb(Verb::Get);
            let counts = (get.sent, get.answered, get.keys, get.hits, get.misses, get.timeouts);
            let what = format!("{} over {place:?}", protocol.name());
            assert_eq!(counts, (300, 300, 300 * 48, 300 * 48, 0, 0), "{what}");
            assert_eq!((tally.broken, tally.udp.duplicate), (0, 0), "{what}");
        }
    }
}

#[test]
fn a_multiget_over_several_targets_is_answered_when_all_its_parts_are() {
    let running = server(&[tcp(), tcp(), udp()], plan());
    let workload = workload(&[("batch", "10")]);
    for apart in [None, Some(0)] {
        let drive = drive(&workload, running.addresses(), Protocol::Binary);
        let tally = ran(Drive { receive_cpu: apart, ..drive });
        let get = tally.verb(Verb::Get);
        let counts = (get.sent, get.answered, get.hits, get.response_ns.len());
        assert_eq!(counts, (3000, 3000, 30_000, 3000));
    }
    // The hash ring gives each target about a third of the keys.
    assert!(running.counts().answers.load(Ordering::Relaxed) >= 60_000);
}

#[test]
fn populating_stores_each_key_once_whatever_the_number_of_threads() {
    let running = server(&[tcp()], plan());
    let workload = workload(&[("keys", "1001"), ("value-size", "100")]);
    for protocol in PROTOCOLS {
        let mut stored = 0;
        for thread in 0..3 {
            let drive = drive(&workload, running.addresses(), protocol);
            let drive = Drive { mode: Mode::Populate, thread, threads: 3, ..limited(drive, None) };
            let share = drive.share();
            let tally = ran(drive);
            let set = tally.verb(Verb::Set);
            assert_eq!((set.sent, set.answered), (share.end - share.start, set.sent));
            assert_eq!((set.errors, set.not_done, set.timeouts), (0, 0, 0));
            stored += set.sent;
        }
        assert_eq!(stored, 1001, "{}", protocol.name());
    }
}

#[test]
fn every_verb_is_answered() {
    let running = server(&[tcp(), udp()], plan());
    let mix = [("value-size", "3000"), ("mix", "get=1,set=1,delete=1,append=1,add=1,replace=1")];
    let workload = workload(&mix);
    for place in running.addresses() {
        for protocol in protocols(place) {
            let tally = ran(drive(&workload, std::slice::from_ref(place), protocol));
            for verb in crate::workload::VERBS {
                let seen = tally.verb(verb);
                let what = format!("{} {} over {place:?}", protocol.name(), verb.name());
                assert!(seen.sent > 400, "{what}: {}", seen.sent);
                assert_eq!(
                    (seen.answered, seen.errors, seen.timeouts),
                    (seen.sent, 0, 0),
                    "{what}"
                );
            }
        }
    }
}

struct Way<'w> {
    start: &'w dyn Fn(Plan) -> RunningServer,
    place: &'w dyn Fn(&Place) -> Place,
    ran: &'w dyn Fn(Drive) -> Tally,
}

const BY_SOCKETS: Way<'_> =
    Way { start: &|plan| server(&[udp()], plan), place: &Place::clone, ran: &ran };

impl Way<'_> {
    fn drive(
        &self,
        running: &RunningServer,
        workload: &Arc<Workload>,
        protocol: Protocol,
    ) -> Drive {
        let places: Vec<Place> = running.addresses().iter().map(self.place).collect();
        drive(workload, &places, protocol)
    }
}

#[test]
fn datagrams_that_are_dropped_doubled_or_swapped_are_counted() {
    dropped_doubled_or_swapped(&BY_SOCKETS);
}

fn dropped_doubled_or_swapped(way: &Way<'_>) {
    let faults = Faults { drop_every: 100, duplicate_every: 50, reorder_every: 40 };
    let workload = workload(&[]);
    for (protocol, value_bytes) in [(Protocol::Text, 64), (Protocol::Binary, 64)] {
        let running = (way.start)(Plan { faults, value_bytes, ..plan() });
        let drive = way.drive(&running, &workload, protocol);
        let pace = Pace::Closed { connections: 1, depth: 64 };
        let drive = Drive { pace, timeout: PATIENCE_FOR_THE_LOST, ..limited(drive, Some(2000)) };
        let tally = (way.ran)(drive);
        let counts = running.counts();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let get = tally.verb(Verb::Get);
        assert_eq!((get.sent, get.answered + get.timeouts), (2000, 2000));
        let done = (count(&counts.dropped), count(&counts.duplicated), count(&counts.reordered));
        assert!(done.0 == 20 && done.1 == 40 && done.2 > 20, "{done:?}");
        let seen = (tally.udp.lost, tally.udp.duplicate, tally.udp.reordered);
        assert_eq!(seen, done, "{}", protocol.name());
        assert_eq!((tally.udp.timeouts, get.timeouts, tally.broken), (done.0, done.0, 0));
    }
}

#[test]
fn requests_come_to_the_columns_that_they_are_steered_to() {
    // With few keys, the columns (server threads) get unequal shares of the keys.
    let workload = workload(&[("keys", "7")]);
    let columns = [NonZeroU16::new(3).unwrap()];
    let names = Names::new(&workload);
    let mut keys = [0_u64; 3];
    for key in 0..workload.keys() {
        let mut text = Vec::new();
        names.key(key, &mut text);
        keys[usize::from(protocol::flow::column(&text, columns[0]))] += 1;
    }
    // Only connections over TCP can be steered to the first column.
    let ways = STEERS.map(|(steer, _)| steer).into_iter().filter(|steer| *steer != Steer::First);
    for (steer, gso, rate) in ways.flat_map(|steer| {
        [(steer, false, None), (steer, true, None), (steer, true, Some(50_000.0))]
    }) {
        let what = format!("{steer:?}, gso {gso}, rate {rate:?}");
        let has_ports = steer == Steer::Ports;
        let running = server(&[udp()], Plan { threads: 3, has_ports, ..plan() });
        let drive = drive(&workload, running.addresses(), Protocol::Text);
        let connections = 6;
        let closed = Pace::Closed { connections, depth: 16 };
        let open = |rate_per_s| Pace::Open { rate_per_s, connections, outstanding_max: 64 };
        let steering = Steering::new(steer, &columns);
        let (pace, first_connection) = (rate.map_or(closed, open), (0, connections));
        let tally = ran(Drive { pace, first_connection, gso, steering, ..drive });
        assert_all_hit(&tally, 3000, &what);
        assert_eq!((tally.udp.lost, tally.udp.reordered), (0, 0), "{what}");
        let counts = running.counts();
        assert_eq!(counts.misrouted.load(Ordering::Relaxed), 0, "{what}");
        let reached = counts.received().concat();
        assert_eq!(reached.iter().sum::<u64>(), 3000, "{what}");
        for (reached, keys) in reached.iter().zip(keys) {
            // All keys are equally popular. The count may deviate by five standard deviations.
            let share = keys as f64 / workload.keys() as f64;
            let off = (*reached as f64 - 3000.0 * share).abs();
            let most = 5.0 * (3000.0 * share * (1.0 - share)).sqrt();
            match steer {
                Steer::RoundRobin => assert_eq!(*reached, 1000, "{what}"),
                Steer::Key => assert!(off < most, "{what}: {reached} of {share}"),
                Steer::Ports | Steer::First => assert!(*reached > 0, "{what}"),
            }
        }
    }
    let running = server(&[udp()], Plan { threads: 3, has_ports: true, ..plan() });
    let drive = drive(&workload, running.addresses(), Protocol::Text);
    let refused = outcome(Drive { steering: Steering::new(Steer::Ports, &columns), ..drive });
    assert!(refused.unwrap_err().to_string().contains("fewer connections than columns"));
}

/// Sends multigets of ten keys over UDP to a server that sends each value in its own datagram.
/// Returns the tally, and the numbers of duplicated and overtaken datagrams.
fn multigets_apart(way: &Way<'_>, protocol: Protocol, faults: Faults) -> (Tally, u64, u64) {
    let running = (way.start)(Plan { faults, is_apart: true, ..plan() });
    let workload = workload(&[("batch", "10")]);
    let drive = way.drive(&running, &workload, protocol);
    let pace = Pace::Closed { connections: 1, depth: 4 };
    let tally = (way.ran)(Drive { pace, ..limited(drive, Some(500)) });
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    (tally, count(&running.counts().duplicated), count(&running.counts().reordered))
}

#[test]
fn values_of_a_multiget_that_come_twice_are_counted_and_are_no_hits() {
    values_twice(&BY_SOCKETS);
}

fn values_twice(way: &Way<'_>) {
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        // 9 does not divide 5,000: a duplicate of the last value would arrive after the run.
        let faults = Faults { duplicate_every: 9, ..Faults::default() };
        let (tally, doubled, _) = multigets_apart(way, protocol, faults);
        let (get, what) = (tally.verb(Verb::Get), protocol.name());
        assert_eq!((get.answered, get.hits, get.misses, get.corrupt), (500, 5000, 0, 0), "{what}");
        assert!(doubled > 500, "{what}: {doubled}");
        let udp = (tally.udp.duplicate, tally.udp.lost, tally.udp.reordered, tally.broken);
        assert_eq!(udp, (doubled, 0, 0, 0), "{what}");
    }
}

#[test]
fn values_of_a_multiget_that_its_end_overtakes_are_out_of_order_and_not_double() {
    values_overtaken(&BY_SOCKETS);
}

fn values_overtaken(way: &Way<'_>) {
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        let faults = Faults { reorder_every: 7, ..Faults::default() };
        let (tally, _, overtaken) = multigets_apart(way, protocol, faults);
        let (get, what) = (tally.verb(Verb::Get), protocol.name());
        assert_eq!((get.answered, get.hits + get.misses, get.corrupt), (500, 5000, 0), "{what}");
        // A value that arrives after its multiget's end has already counted as a miss.
        let reordered = tally.udp.reordered;
        assert!(get.misses > 0 && get.misses <= reordered, "{what}: {}", get.misses);
        assert!(reordered <= overtaken, "{what}: {reordered} of {overtaken}");
        assert_eq!((tally.udp.duplicate, tally.udp.lost, tally.broken), (0, 0, 0), "{what}");
    }
}

#[test]
fn a_long_answer_over_udp_is_put_together_and_lost_with_any_part() {
    long_answers(&BY_SOCKETS);
}

fn long_answers(way: &Way<'_>) {
    let workload = workload(&[]);
    let faults = Faults { drop_every: 100, ..Faults::default() };
    let running = (way.start)(Plan { value_bytes: 10_000, faults, ..plan() });
    let drive = way.drive(&running, &workload, Protocol::Text);
    let tally = (way.ran)(Drive { timeout: PATIENCE_FOR_THE_LOST, ..limited(drive, Some(500)) });
    let get = tally.verb(Verb::Get);
    assert_eq!((get.answered, get.hits, tally.udp.lost), (495, 495, 5));
    assert!(tally.received_bytes > 495 * 10_000);
}

#[test]
fn a_stall_of_the_server_is_in_the_open_loops_response_times() {
    const STALL: Duration = Duration::from_millis(100);
    let stall = Some((Duration::from_millis(300), STALL));
    let running = server(&[tcp()], Plan { stall, ..plan() });
    let workload = workload(&[("gap", "fixed")]);
    let drive = drive(&workload, running.addresses(), Protocol::Text);
    let pace = Pace::Open { rate_per_s: 2000.0, connections: 2, outstanding_max: 10_000 };
    let tally = ran(Drive { pace, ..limited(drive, Some(2000)) });
    let get = tally.verb(Verb::Get);
    assert!(running.counts().stalls.load(Ordering::Relaxed) > 0);
    assert_eq!(get.answered, 2000);
    assert!(get.response_ns.max_ns().unwrap() >= 95_000_000, "{:?}", get.response_ns.max_ns());
    // About 200 requests are due during a stall of 100 ms, and half of these requests wait longer
    // than 50 ms; on a slow machine, more than half.
    assert!(get.response_ns.quantile_ns(0.97).unwrap() > 45_000_000);
}

#[test]
fn what_is_due_while_too_much_is_outstanding_is_late_and_not_left_out() {
    // 1,000 requests fall due per second, but only two may be outstanding and each takes 20 ms, so
    // requests wait for earlier requests.
    let running = server(&[tcp()], Plan { delay: Duration::from_millis(20), ..plan() });
    let workload = workload(&[("gap", "fixed")]);
    let drive = drive(&workload, running.addresses(), Protocol::Text);
    let pace = Pace::Open { rate_per_s: 1000.0, connections: 1, outstanding_max: 2 };
    let tally = ran(Drive { pace, ..limited(drive, Some(60)) });
    let get = tally.verb(Verb::Get);
    assert_eq!((get.answered, tally.offered), (60, 60));
    assert!(tally.held_back > 0);
    assert!(get.service_ns.min_ns().unwrap() >= 19_900_000);
    // The last of 60 requests is due at 60 ms, but sent at 580 ms: 29 pairs of requests, which take
    // 20 ms each, are answered first.
    assert!(get.response_ns.max_ns().unwrap() > 500_000_000);
    assert!(tally.lateness_ns.max_ns().unwrap() > 480_000_000);
}

#[test]
fn connections_are_left_and_opened_again_after_their_share() {
    let workload = workload(&[]);
    let file = socket_file();
    let running = server(&[tcp(), Place::Unix(file), udp()], plan());
    for place in running.addresses() {
        for apart in [None, Some(0)] {
            let drive = drive(&workload, std::slice::from_ref(place), Protocol::Text);
            let drive = Drive { churn_requests: Some(100), receive_cpu: apart, ..drive };
            let tally = ran(drive);
            assert_all_hit(&tally, 3000, &format!("{place:?}, {apart:?}"));
            // 3,000 requests at 100 per connection take about 30 connections.
            assert!((27..=32).contains(&tally.connects), "{}", tally.connects);
            assert!(tally.connects - tally.disconnects <= 2, "{}", tally.disconnects);
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_named_at_the_start() {
    let hold = net::ReservedPort::take("127.0.0.1:0".parse().unwrap()).unwrap();
    let workload = workload(&[]);
    let gone = drive(&workload, &[Place::Tcp(hold.address())], Protocol::Text);
    let error = outcome(gone).unwrap_err().to_string();
    assert!(error.contains(&hold.address().to_string()), "{error}");
    assert!(error.contains("is the server running"), "{error}");
}

#[test]
fn a_request_that_fits_no_datagram_is_refused_in_words() {
    let running = server(&[udp()], plan());
    let workload = workload(&[("value-size", "70000")]);
    let drive = drive(&workload, running.addresses(), Protocol::Text);
    let error =
        outcome(Drive { mode: Mode::Populate, ..limited(drive, None) }).unwrap_err().to_string();
    assert!(error.contains("70000 bytes") && error.contains("use TCP"), "{error}");
    let resp = self::drive(&workload, running.addresses(), Protocol::Resp);
    assert!(outcome(resp).unwrap_err().to_string().contains("use TCP"));
}

#[test]
fn requests_that_are_never_answered_run_out_of_time_and_the_run_ends() {
    let workload = workload(&[]);
    // Each answer takes longer than the timeout, so connections are given up and opened again.
    let running = server(&[tcp(), udp()], Plan { delay: Duration::from_secs(60), ..plan() });
    for place in running.addresses() {
        for apart in [None, Some(0)] {
            let drive = drive(&workload, std::slice::from_ref(place), Protocol::Text);
            let timeout = Duration::from_millis(50);
            let tally = ran(Drive { timeout, receive_cpu: apart, ..limited(drive, Some(40)) });
            let get = tally.verb(Verb::Get);
            assert_eq!((get.sent, get.timeouts, get.answered), (40, 40, 0), "{place:?} {apart:?}");
        }
    }
}

/// Serves `connections` connections until they close. Returns for each connection the keys of its
/// gets, and the keys and exptimes of its sets.
fn heard(listener: &std::net::TcpListener, connections: usize) -> Vec<[Vec<Vec<u8>>; 3]> {
    use std::io::{BufRead, BufReader, Write};
    let serve = |stream: std::net::TcpStream| {
        let (mut seen, mut line) = ([vec![], vec![], vec![]], vec![]);
        let mut source = BufReader::new(&stream);
        while source.read_until(b'\n', &mut line).unwrap() > 0 {
            let word =
                |nth| line.trim_ascii_end().split(|byte| *byte == b' ').nth(nth).unwrap().to_vec();
            let (key, is_set) = (word(1), line.starts_with(b"set "));
            if is_set {
                seen[2].push(word(3));
                source.read_until(b'\n', &mut line).unwrap();
            }
            seen[usize::from(is_set)].push(key);
            (&stream).write_all(if is_set { b"STORED\r\n" } else { b"END\r\n" }).unwrap();
            line.clear();
        }
        seen
    };
    std::thread::scope(|scope| {
        let streams = (0..connections).map(|_| listener.accept().unwrap().0);
        let threads: Vec<_> = streams.map(|stream| scope.spawn(move || serve(stream))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn each_connection_asks_for_keys_of_its_own_and_sets_its_oldest() {
    let settings = [("keys-per", "connection"), ("set-order", "oldest"), ("mix", "get=3,set=1")];
    let workload = workload(&[&settings[..], &[("keys", "40"), ("key-size", "2")]].concat());
    let open = Pace::Open { rate_per_s: 1e6, connections: 4, outstanding_max: 1000 };
    for pace in [Pace::Closed { connections: 4, depth: 3 }, open] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap());
        let drive = drive(&workload, &[place], Protocol::Text);
        let drive = Drive { pace, first_connection: (0, 4), ..drive };
        let all = std::thread::scope(|scope| {
            let server = scope.spawn(|| heard(&listener, 4));
            ran(drive);
            server.join().unwrap()
        });
        // A connection may get few requests if its server thread gets no CPU, so check the busiest.
        let most = all.iter().map(|[_, sets, _]| sets.len()).max();
        assert!(most > Some(10), "{pace:?}: no round is complete");
        let mut parts = BTreeSet::new();
        for [gets, sets, _] in all {
            // Keys have two digits. The first digit is the same for all keys of a connection.
            let Some(part) = gets.iter().chain(&sets).map(|key| key[0]).next() else { continue };
            assert!(gets.iter().all(|key| key[0] == part), "{gets:?}");
            let turn = (0..10).map(|last| vec![part, b'0' + last]).cycle();
            assert!(sets.iter().cloned().eq(turn.take(sets.len())), "{sets:?}");
            assert!(b"0123".contains(&part) && parts.insert(part), "{pace:?}: {part} twice");
        }
        assert!(parts.len() == 4 || pace == open, "{pace:?}: {parts:?}");
    }
    let few = self::workload(&[("keys-per", "connection"), ("keys", "1")]);
    let error = outcome(drive(&few, &[Place::Tcp("127.0.0.1:9".parse().unwrap())], Protocol::Text))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("there are fewer keys than connections"), "{error}");
}

#[test]
fn threads_fill_what_their_connections_ask_for_and_each_of_those_has_an_equal_part() {
    // Three threads have 6, 5 and 5 of 16 connections.
    for (keys, parts) in [("16", vec![6, 5, 5]), ("99", vec![37, 31, 31])] {
        let workload = workload(&[("keys-per", "connection"), ("keys", keys)]);
        let shares = [(0, 6), (6, 5), (11, 5)].map(|(first, connections)| {
            let place = Place::Tcp("127.0.0.1:9".parse().unwrap());
            let drive = drive(&workload, &[place], Protocol::Text);
            let pace = Pace::Closed { connections, depth: 1 };
            let drive = Drive { pace, first_connection: (first, 16), threads: 3, ..drive };
            drive.check().unwrap();
            drive.share()
        });
        assert_eq!(shares.clone().map(|keys| keys.end - keys.start).to_vec(), parts);
        assert_eq!(shares.iter().cloned().flatten().count() as u64, workload.keys());
    }
}

#[test]
fn the_threads_of_an_agent_fill_the_keys_of_that_agent() {
    let workload = workload(&[("keys-per", "agent"), ("keys", "101")]);
    let share = |agent, here| {
        let place = Place::Tcp("127.0.0.1:9".parse().unwrap());
        Drive { agent, here, threads: 3, ..drive(&workload, &[place], Protocol::Text) }
    };
    let shares = [((0, 2), (0, 1)), ((1, 2), (0, 2)), ((1, 2), (1, 2))].map(|(agent, here)| {
        let drive = share(agent, here);
        drive.check().unwrap();
        drive.share()
    });
    assert_eq!(shares, [0..50, 50..75, 75..101]);
    for agent in [(2, 2), (0, 102)] {
        let why = share(agent, (0, 1)).check().unwrap_err().to_string();
        assert!(why.starts_with("there are fewer keys than agents"), "{why}");
    }
}

#[test]
fn a_connection_that_is_away_does_not_hold_up_those_with_other_keys() {
    use std::io::{BufRead, BufReader, Write};
    let workload = workload(&[("keys-per", "connection"), ("gap", "fixed")]);
    let pace = Pace::Open { rate_per_s: 200.0, connections: 2, outstanding_max: 100 };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::Tcp(listener.local_addr().unwrap());
    let drive = drive(&workload, &[place], Protocol::Text);
    let drive = Drive { pace, ..limited(drive, Some(100)) };
    let tally = std::thread::scope(|scope| {
        scope.spawn(move || {
            let [one, other] = [(); 2].map(|()| listener.accept().unwrap().0);
            // Without a listener the second connection, once closed, cannot be opened again.
            drop(listener);
            let (mut other, mut line) = (Some(other), vec![]);
            let mut source = BufReader::new(&one);
            while source.read_until(b'\n', &mut line).unwrap() > 0 {
                // Close the second connection while the next request for its keys is not yet due.
                other.take();
                (&one).write_all(b"END\r\n").unwrap();
            }
        });
        ran(drive)
    });
    let get = tally.verb(Verb::Get);
    assert!(get.sent == 100 && get.answered >= 90, "{} of {}", get.answered, get.sent);
}

#[test]
fn what_spins_is_busy_while_it_sends() {
    // Nobody answers on this socket, so a turn that sends finds no answers.
    let hole = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let workload = workload(&[("mix", "set=1"), ("value-size", "8000")]);
    let drive = drive(&workload, &[Place::Udp(hole.local_addr().unwrap())], Protocol::Text);
    let pace = Pace::Open { rate_per_s: 1e7, connections: 2, outstanding_max: 100_000 };
    // No request is answered, so the run ends when the timeout of the last request has passed.
    let drive =
        Drive { pace, spin: true, timeout: Duration::from_secs(1), ..limited(drive, Some(3_000)) };
    let tally = ran(drive);
    let (set, busy_ns) = (tally.verb(Verb::Set), tally.busy_ns);
    assert!(set.sent > 0 && set.sent + set.unsent == 3_000, "{} {}", set.sent, set.unsent);
    // A send copies 8,000 bytes into the kernel, which takes more than 200 ns on every CPU.
    assert!(busy_ns > 200 * set.sent, "{busy_ns} ns, {} sent", set.sent);
}

#[test]
fn what_fills_the_cache_lives_as_long_as_what_is_set() {
    let workload = workload(&[("keys", "100"), ("ttl", "60-300"), ("mix", "get=1")]);
    let exptimes = |mode, fill_on_miss| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap());
        let drive = Drive { mode, fill_on_miss, ..drive(&workload, &[place], Protocol::Text) };
        let all = std::thread::scope(|scope| {
            let server = scope.spawn(|| heard(&listener, 2));
            ran(drive);
            server.join().unwrap()
        });
        let seconds = |word: Vec<u8>| String::from_utf8(word).unwrap().parse::<u32>().unwrap();
        let of_keys =
            all.into_iter().flat_map(|[_, keys, exptimes]| keys.into_iter().zip(exptimes));
        of_keys.map(|(key, exptime)| (key, seconds(exptime))).collect::<BTreeSet<_>>()
    };
    // The exptime is the same whether populating or a fill stores the key.
    let filled = exptimes(Mode::Populate, false);
    assert!(filled.len() == 100 && filled.iter().all(|(_, ttl)| (60..=300).contains(ttl)));
    assert!(filled.iter().map(|(_, ttl)| ttl).collect::<BTreeSet<_>>().len() > 50);
    assert_eq!(exptimes(Mode::Traffic, true), filled);
}

#[test]
fn a_stop_ends_a_run_and_epochs_split_what_was_seen() {
    let running = server(&[tcp()], plan());
    let workload = workload(&[]);
    for apart in [None, Some(0)] {
        let drive = drive(&workload, running.addresses(), Protocol::Text);
        let stop = Arc::clone(&drive.end.stop);
        let drive = Drive { receive_cpu: apart, ..limited(drive, None) };
        let reporters = drive.reporters();
        let (sink, tallies) = mpsc::channel();
        let epoch = AtomicU32::new(5);
        std::thread::scope(|scope| {
            let epoch = &epoch;
            let running = scope.spawn(move || run(drive, Instant::now(), epoch, &sink));
            // Raises the epoch until a tally arrives, because a thread that starts late misses
            // epochs.
            let next = || loop {
                epoch.fetch_add(1, Ordering::Release);
                if let Ok(tally) = tallies.recv_timeout(Duration::from_millis(20)) {
                    return tally;
                }
            };
            let mut seen: Vec<_> = (0..8 * reporters).map(|_| next()).collect();
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap().unwrap();
            seen.extend(tallies.iter());
            let numbers = seen.iter().map(|(thread, number, _)| (*thread, *number));
            let mut numbers: Vec<_> = numbers.collect();
            assert!(numbers.iter().all(|&(thread, number)| thread == 0 && number >= 5));
            numbers.sort_unstable();
            numbers.dedup();
            assert!(numbers.len() > 4, "{numbers:?}");
            let mut all = Tally::default();
            seen.iter().for_each(|(.., tally)| all.merge(tally));
            let get = all.verb(Verb::Get);
            assert!(get.answered > 0 && get.answered == get.sent, "{} {}", get.answered, get.sent);
        });
    }
}

#[test]
fn values_that_were_never_stored_are_seen_when_they_are_verified() {
    let running = server(&[tcp(), udp()], plan());
    for batch in ["1", "5"] {
        let workload = workload(&[("batch", batch)]);
        for place in running.addresses() {
            for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
                let drive = drive(&workload, std::slice::from_ref(place), protocol);
                let tally = ran(Drive { verify: true, ..limited(drive, Some(200)) });
                let get = tally.verb(Verb::Get);
                assert_eq!((get.hits, get.corrupt), (get.keys, get.keys), "{protocol:?} {batch}");
            }
        }
    }
}
