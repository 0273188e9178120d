//! Columns that steal datagrams from a column that is behind.
//!
//! Where: an in-process server of two or three columns. All requests name the first column, or
//! arrive on one queue of an interface.
//! Invariant: each request is answered once and correctly, by any column. If a client has few
//! requests in flight, only the named column answers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use columns::counters::Sums;
use columns::limits::{ASSEMBLIES_OF_ONE_MAX, BEHIND_DATAGRAMS};
use hypostyle::run::Server;
use hypostyle::start::settings::{Listen, Port, Settings, Xdp};
use inprocess::{datagrams, start};
use protocol::ProtocolMode;
use protocol::udp::Header;
use testing::namespace::{Namespace, Veth, WIRE, pair};
use testing::{PATIENCE, wait_until};

/// The flow that names the first column.
const FLOW: u16 = 1;
/// Number of requests that each of the `CLIENTS` clients has in flight. Half of the requests have
/// several parts, and one host may have at most `ASSEMBLIES_OF_ONE_MAX` incomplete requests.
const WINDOW: u16 = 24;
const CLIENTS: u16 = 3;
const _: () = assert!((WINDOW / 2 * CLIENTS) as usize <= ASSEMBLIES_OF_ONE_MAX);
const STOLEN: u64 = 500;
const MISSES: usize = 500;

fn settings(steal: bool) -> Settings {
    let datagrams = datagrams::at("127.0.0.1");
    Settings { datagrams, steal, ..inprocess::settings(2) }
}

struct Request {
    parts: Vec<Vec<u8>>,
    reply: Vec<u8>,
}

struct Client {
    socket: UdpSocket,
    number: u16,
    round: u32,
}

impl Client {
    fn of(server: &Server, number: u16) -> Client {
        Client::at([127, 0, 0, 1].into(), server.datagram_addresses()[0], number)
    }

    fn at(here: Ipv4Addr, server: SocketAddr, number: u16) -> Client {
        let socket = UdpSocket::bind((here, 0)).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let client = Client { socket, number, round: 0 };
        for at in 0..WINDOW {
            let value = client.value(at, 0);
            let set = format!("set {} 0 0 {}\r\n{value}\r\n", client.key(at), value.len());
            client.exchange(&HashMap::from([(at, client.request(at, &set, "STORED\r\n", 1))]));
        }
        client
    }

    fn key(&self, at: u16) -> String {
        format!("client{}-{at}", self.number)
    }

    fn value(&self, at: u16, round: u32) -> String {
        format!("{}:{at}:{round};", self.number).repeat(6)
    }

    fn request(&self, id: u16, text: &str, reply: &str, parts: usize) -> Request {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(text.len().div_ceil(parts)).collect();
        let total = u16::try_from(pieces.len()).unwrap();
        let part = |(number, piece): (u16, &&[u8])| {
            let header = Header { id, number, total, flow: FLOW };
            [&header.bytes()[..], piece].concat()
        };
        Request { parts: (0..).zip(&pieces).map(part).collect(), reply: reply.into() }
    }

    /// Sends `WINDOW` requests and receives the answers. Even rounds set each key; every second
    /// request has several datagrams. Odd rounds read each key together with many absent keys, so
    /// that the server has more work than its clients.
    fn window(&mut self) {
        let reads = self.round % 2 == 1;
        let round = self.round / 2 + 1;
        let misses = " n".repeat(MISSES);
        let request = |at: u16| {
            if reads {
                let (key, value) = (self.key(at), self.value(at, round));
                let hit = format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
                self.request(at, &format!("get {key}{misses}\r\n"), &hit, 1)
            } else {
                let value = self.value(at, round);
                let set = format!("set {} 0 0 {}\r\n{value}\r\n", self.key(at), value.len());
                self.request(at, &set, "STORED\r\n", 1 + usize::from(at % 2) * 2)
            }
        };
        self.exchange(&(0..WINDOW).map(|at| (at, request(at))).collect());
        self.round += 1;
    }

    fn exchange(&self, requests: &HashMap<u16, Request>) {
        for part in requests.values().flat_map(|request| &request.parts) {
            assert_eq!(self.socket.send(part).unwrap(), part.len());
        }
        let mut answers: HashMap<u16, Vec<Option<Vec<u8>>>> = HashMap::new();
        let mut missing = requests.len();
        let mut buffer = [0; 2000];
        while missing > 0 {
            let bytes = datagrams::uninterrupted(|| self.socket.recv(&mut buffer)).unwrap();
            let (header, part) = Header::read(&buffer[..bytes]).unwrap();
            let parts = answers.entry(header.id).or_default();
            parts.resize(header.total.into(), None);
            let place = &mut parts[usize::from(header.number)];
            assert!(place.is_none(), "part {} of {} came twice", header.number, header.id);
            *place = Some(part.to_vec());
            if parts.iter().all(Option::is_some) {
                let got: Vec<u8> = parts.iter().flatten().flatten().copied().collect();
                let expected = &requests[&header.id].reply;
                let shown = [&got, expected].map(|it| it.escape_ascii().to_string());
                assert!(got == *expected, "{} instead of {}", shown[0], shown[1]);
                missing -= 1;
            }
        }
    }
}

fn columns(server: &Server) -> Vec<Sums> {
    server.shared().columns.counters.iter().map(|column| Sums::of(column)).collect()
}

/// Lets clients send windows until `enough` is true. Returns the highest number of rounds.
fn drive(server: &Server, clients: Vec<Client>, enough: impl Fn(u32) -> bool + Sync) -> u32 {
    let until = Instant::now() + PATIENCE;
    let of_client = |mut client: Client| {
        while !enough(client.round) {
            assert!(
                Instant::now() < until,
                "after {} windows: {:?}",
                client.round,
                columns(server)
            );
            client.window();
        }
        // A further datagram would be a second answer to a request.
        client.socket.set_nonblocking(true).unwrap();
        assert!(client.socket.recv(&mut [0; 2000]).is_err(), "one answer too many");
        client.round
    };
    std::thread::scope(|scope| {
        let of_client = &of_client;
        let clients = clients.into_iter().map(|client| scope.spawn(move || of_client(client)));
        let clients: Vec<_> = clients.collect();
        let windows = clients.into_iter().map(|client| client.join());
        let windows: Result<Vec<u32>, _> = windows.collect();
        let windows = windows.unwrap_or_else(|_| panic!("{:?}", columns(server)));
        windows.into_iter().max().unwrap()
    })
}

/// Every column must have answered and counted some datagrams that were sent to column `to`.
fn all_have_answered(server: &Server, to: usize) {
    wait_until("all is counted", || {
        let all = server.shared().sums().columns;
        let taken = all.steals_taken_near + all.steals_taken_far;
        taken == all.steals_given_near + all.steals_given_far
    });
    for (at, sums) in server.shared().of_columns().enumerate() {
        let (requests, column) = (sums.requests, sums.columns);
        let taken = column.steals_taken_near + column.steals_taken_far;
        let given = column.steals_given_near + column.steals_given_far;
        if at == to {
            assert_eq!((column.datagrams_stolen, taken), (0, 0), "nothing was sent to others");
            assert!(given > 0);
            continue;
        }
        assert!(requests.gets() > 0 && requests.set_cmds > 0, "{requests:?}");
        assert!(column.udp_sent > 0, "{column:?}");
        assert!(taken > 0 && taken <= column.datagrams_stolen);
        assert_eq!(given, 0);
    }
    let all = server.shared().sums().columns;
    assert_eq!((all.udp_dropped_frame, all.udp_dropped_incomplete, all.udp_unsent), (0, 0, 0));
}

#[test]
fn what_is_sent_to_one_column_is_answered_by_both_and_rightly() {
    let clients = |server: &Server| (0..CLIENTS).map(|at| Client::of(server, at)).collect();
    let server = start(settings(true));
    let stolen = |server: &Server| columns(server)[1].datagrams_stolen;
    let enough = |windows| windows >= 50 && stolen(&server) >= STOLEN;
    let windows = drive(&server, clients(&server), enough);
    all_have_answered(&server, 0);
    let received = |column: Sums| (column.udp_received, column.datagrams_stolen);
    wait_until("all that the second has was sent to the first", || {
        let (received, stolen) = received(columns(&server)[1]);
        received == stolen
    });
    server.stop();
    let server = start(settings(false));
    drive(&server, clients(&server), |round| round >= windows);
    let [first, second] = columns(&server)[..] else { panic!("two columns") };
    assert_eq!((second.udp_received, second.datagrams_stolen), (0, 0));
    assert_eq!((first.steals_given_near, first.steals_given_far), (0, 0));
    server.stop();
}

/// Starts a server over AF_XDP, on an interface whose driver copies packets.
fn past_the_kernel(far: &Namespace, columns: usize, steal_rings: bool) -> Server {
    let host = Some("0.0.0.0".into());
    let listen = Listen { host, port: Port::Any, protocol: ProtocolMode::Auto };
    let xdp = Some(Xdp::of(WIRE));
    let (datagrams, udp_allow) = (vec![listen], datagrams::everybody());
    let mut settings = Settings { datagrams, udp_allow, xdp, steal_rings, ..settings(true) };
    settings.columns.count = columns;
    far.on(|| start(settings))
}

fn of_one_queue(near: &Namespace, far: &Namespace, server: &Server) -> (Vec<Client>, usize) {
    let at = (far.v4, server.datagram_addresses()[0].port()).into();
    // A socket's addresses and ports select its queue. Some of 64 sockets share a queue.
    let (mut clients, mut queue) = (Vec::new(), None);
    for number in 0..64 {
        let received = || columns(server).iter().map(|it| it.udp_received).collect::<Vec<_>>();
        let before = received();
        let client = near.on(|| Client::at(near.v4, at, number));
        let after = received();
        // The previous client's last datagram may have been counted late, and so be included here.
        let [first, second] = [0, 1].map(|at| after[at] - before[at]);
        let of_client = usize::from(second > first);
        if *queue.get_or_insert(of_client) == of_client && clients.len() < CLIENTS.into() {
            clients.push(client);
        }
    }
    assert_eq!(clients.len(), usize::from(CLIENTS));
    (clients, queue.unwrap())
}

/// In the first case the thief has a queue, and in the second case the thief has none. In the third
/// case one thief has a queue and the other thief has none.
#[test]
fn what_reaches_one_queue_is_answered_by_all_and_rightly() {
    for (queues, of_columns) in [(2, 2), (1, 2), (2, 3)] {
        let Some([near, far]) = pair(Veth { queues, ..Veth::default() }) else { return };
        let server = past_the_kernel(&far, of_columns, true);
        let by_the_kernel = || far.counter("Udp", "OutDatagrams");
        let before = by_the_kernel();
        let (clients, queue) = of_one_queue(&near, &far, &server);
        let enough = |windows| {
            let columns = columns(&server);
            let mut thieves = columns.iter().enumerate().filter(|(at, _)| *at != queue);
            windows >= 50 && thieves.all(|(_, thief)| thief.datagrams_stolen >= STOLEN)
        };
        drive(&server, clients, enough);
        all_have_answered(&server, queue);
        assert_eq!(by_the_kernel(), before, "all went past the kernel");
        server.stop();
    }
}

#[test]
fn of_packets_that_are_copied_nothing_is_stolen_unless_that_is_asked_for() {
    for (queues, of_columns) in [(2, 2), (1, 2)] {
        let Some([near, far]) = pair(Veth { queues, ..Veth::default() }) else { return };
        let server = past_the_kernel(&far, of_columns, false);
        let (clients, queue) = of_one_queue(&near, &far, &server);
        let before = columns(&server);
        drive(&server, clients, |windows| windows >= 50);
        for (at, (column, before)) in columns(&server).iter().zip(&before).enumerate() {
            assert_eq!((column.datagrams_stolen, column.steals_given_near), (0, 0));
            assert_eq!(column.udp_received > before.udp_received, at == queue, "{column:?}");
        }
        server.stop();
    }
}

#[test]
fn a_request_alone_or_among_few_is_not_stolen() {
    let server = start(settings(true));
    let client = Client::of(&server, 0);
    // With one more datagram in flight, the column would count as behind after a slow turn.
    let few = u16::try_from(BEHIND_DATAGRAMS / 4).unwrap() - 1;
    for window in [1, few] {
        for _ in 0..500 {
            let request = |id| (id, client.request(id, "get none\r\n", "END\r\n", 1));
            client.exchange(&(0..window).map(request).collect());
        }
    }
    let [first, second] = columns(&server)[..] else { panic!("two columns") };
    assert_eq!(second.udp_received, 0);
    assert_eq!((first.steals_given_near, first.steals_given_far), (0, 0));
    server.stop();
}
