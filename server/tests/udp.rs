//! Requests with memcached's UDP frame, and their answers.
//!
//! Where: an in-process server and plain sockets on loopback.
//! Invariant: an answer is one message, in datagrams with the request's id. Unanswered requests are
//! counted, and do not prevent the answer to the next request.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::net::UdpSocket;

use hypostyle::run::Server;
use hypostyle::start::settings::Settings;
use inprocess::datagrams::{self, Client};
use inprocess::{answer, frame, start};
use protocol::udp::{HEADER_BYTES, Header};
use testing::{PATIENCE, wait_until};

fn settings(columns: usize, host: &str) -> Settings {
    Settings { datagrams: datagrams::at(host), ..inprocess::settings(columns) }
}

fn text_hit(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
}

#[test]
fn every_protocol_is_answered_as_over_a_connection() {
    for host in ["127.0.0.1", "::1"] {
        let server = start(Settings { cas: false, ..settings(2, host) });
        let mut client = Client::of(&server);
        client.ask("set k 0 0 5\r\nvalue\r\n", "STORED\r\n");
        client.ask("get k\r\n", text_hit("k", "value"));
        client.ask("get a k b\r\n", text_hit("k", "value"));
        client.ask("get k\r\nget none\r\nmn\r\n", text_hit("k", "value") + "END\r\nMN\r\n");
        client.ask("mg k v\r\n", "VA 5\r\nvalue\r\n");
        client.ask("incr none 1\r\n", "NOT_FOUND\r\n");
        client.ask("nonsense\r\n", "ERROR\r\n");
        client.ask("version\r\n", "VERSION 1.6.45\r\n");
        client.ask(frame(0, b"", "k", ""), answer(0, &[0; 4], "value"));
        client.ask(frame(1, &[0; 8], "b", "binary"), answer(1, b"", ""));
        client.ask("get b\r\n", text_hit("b", "binary"));
        client.send("set quiet 0 0 1 noreply\r\nq\r\n");
        client.expect_silence();
        client.ask("get quiet\r\n", text_hit("quiet", "q"));
        client.ask("get k\r\nquit\r\nget k\r\n", text_hit("k", "value"));
        client.ask("get k\r\n", text_hit("k", "value"));
        server.stop();
    }
}

#[test]
fn answers_are_cut_into_numbered_datagrams() {
    let server = start(settings(1, "127.0.0.1"));
    let mut client = Client::of(&server);
    let empty = text_hit("k", "").len() - 1;
    // The first datagram's length shows the limit: 1,400 bytes, or fewer with a smaller MTU.
    client.ask(format!("set k 0 0 {}\r\n{}\r\n", 9000, "x".repeat(9000)), "STORED\r\n");
    client.send("get k\r\n");
    let mut first = [0; 2000];
    let payload_bytes = client.socket.recv(&mut first).unwrap() - HEADER_BYTES;
    let mut rest = 9000 + empty + 4 - payload_bytes;
    while rest > 0 {
        rest -= client.socket.recv(&mut first).unwrap() - HEADER_BYTES;
    }
    let sizes = [payload_bytes - 1, payload_bytes, payload_bytes + 1, 65_536];
    for (reply_bytes, parts) in sizes.map(|bytes| (bytes, bytes.div_ceil(payload_bytes))) {
        let digits = (reply_bytes - empty).to_string().len();
        let value = "v".repeat(reply_bytes - empty - digits);
        // The value is too long for a request in one datagram.
        let set = format!("set k 0 0 {}\r\n{value}\r\n", value.len());
        client.send_parts(set.as_bytes(), 1000, |_| {});
        assert_eq!(client.receive().0, b"STORED\r\n");
        client.send("get k\r\n");
        let (reply, count) = client.receive();
        assert!(reply == text_hit("k", &value).as_bytes(), "{reply_bytes} bytes");
        assert_eq!((reply.len(), count), (reply_bytes, parts));
    }
    server.stop();
}

#[test]
fn an_answer_of_a_megabyte_comes_whole_and_a_longer_one_is_refused() {
    let server = start(settings(1, "127.0.0.1"));
    let mut stream = inprocess::connect(&server);
    let value = "m".repeat(512 << 10);
    stream.ask(format!("set m 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    let mut client = Client::of(&server);
    if !live::messages::keep_megabytes(&client.socket) {
        server.stop();
        return testing::skip("no privilege for a socket's buffer of four megabytes");
    }
    client.ask("get m\r\n", text_hit("m", &value));
    let more = "m".repeat((512 << 10) - 100);
    stream.ask(format!("set n 0 0 {}\r\n{more}\r\n", more.len()), "STORED\r\n");
    client.ask(
        "get m n\r\n",
        format!("VALUE m 0 {}\r\n{value}\r\n", value.len()) + &text_hit("n", &more),
    );
    let refused = "SERVER_ERROR reply is longer than udp_reply_max\r\n";
    client.ask("get m m m\r\n", refused);
    client.ask("get m m\r\n", refused);
    let gets = "get m\r\n".repeat(3);
    client.ask(gets, refused);
    client.send(frame(0, b"", "m", "").repeat(3));
    let (reply, _) = client.receive();
    assert!(reply.ends_with(b"Reply is longer than udp_reply_max"), "{}", reply.escape_ascii());
    client.ask("get none\r\n", "END\r\n");
    assert_eq!(stream.stat("udp_replies_too_long"), 4);
    server.stop();
}

#[test]
fn a_request_in_datagrams_of_any_order_is_put_together() {
    let server = start(settings(1, "127.0.0.1"));
    let mut client = Client::of(&server);
    for (size, order) in [
        (1, (|_| {}) as fn(&mut Vec<Vec<u8>>)),
        (700, |parts| parts.reverse()),
        (30_000, |parts| parts.rotate_left(7)),
        (60_000, |parts| {
            let doubled: Vec<_> =
                parts.iter().flat_map(|part| [part.clone(), part.clone()]).collect();
            // A second copy of the last part would begin a new request.
            parts.splice(.., doubled[..doubled.len() - 1].iter().cloned());
        }),
    ] {
        let value = "p".repeat(size);
        let set = format!("set parts 0 0 {size}\r\n{value}\r\n");
        client.send_parts(set.as_bytes(), set.len().div_ceil(40), order);
        assert_eq!(client.receive().0, b"STORED\r\n", "{size} bytes");
        client.ask("get parts\r\n", text_hit("parts", &value));
    }
    server.stop();
}

#[test]
fn what_is_no_whole_request_is_dropped_and_counted() {
    let server = start(settings(1, "127.0.0.1"));
    let mut stream = inprocess::connect(&server);
    let mut client = Client::of(&server);
    client.send("get k");
    client.send("set k 0 0 5\r\nva");
    client.send("set k 0 0 100000\r\nva");
    client.send(&frame(0, b"", "k", "")[..20]);
    wait_until("four drops", || stream.stat("udp_dropped_incomplete") == 4);
    // The server answers the complete request, and drops the incomplete request after it.
    client.ask("get k\r\nget k", "END\r\n");
    assert_eq!(stream.stat("udp_dropped_incomplete"), 5);
    for datagram in [
        &b""[..],
        b"1234567",
        b"\x00\x01\x00\x00\x00\x01\x00\x00",
        b"\x00\x01\x00\x00\x00\x00\x00\x00x",
    ] {
        client.socket.send_to(datagram, client.server).unwrap();
    }
    wait_until("four drops of wrong headers", || stream.stat("udp_dropped_frame") == 4);
    client.expect_silence();
    client.ask("get k\r\n", "END\r\n");
    server.stop();
}

#[test]
fn what_servers_answer_is_answered_by_none() {
    let server = start(settings(1, "127.0.0.1"));
    let mut stream = inprocess::connect(&server);
    let mut client = Client::of(&server);
    let answers: [&[u8]; 10] = [
        b"ERROR\r\n",
        b"END\r\n",
        b"VALUE k 0 1\r\nv\r\nEND\r\n",
        b"STORED\r\n",
        b"CLIENT_ERROR bad data chunk\r\n",
        b"SERVER_ERROR out of memory\r\n",
        b"5\r\n",
        b"HD\r\n",
        b"VA 1\r\nv\r\n",
        &answer(0, &[0; 4], "value"),
    ];
    for answer in answers {
        client.send(answer);
    }
    client.send_parts(&b"VALUE k 0 1\r\n".repeat(200), 1000, |_| {});
    wait_until("the drop of all answers", || stream.stat("udp_dropped_answer") == 11);
    client.expect_silence();
    client.ask("get k\r\n", "END\r\n");
    server.stop();
}

#[test]
fn a_request_that_is_too_long_is_refused_by_name_and_a_flood_of_parts_is_bounded() {
    let server = start(settings(1, "127.0.0.1"));
    let mut stream = inprocess::connect(&server);
    let mut client = Client::of(&server);
    let long = vec![b'x'; 70_000];
    client.send_parts(&long, 10_000, |_| {});
    let (reply, _) = client.receive();
    assert_eq!(reply, b"SERVER_ERROR request is longer than 65536 bytes or 128 datagrams\r\n");
    let held = stream.stat("read_buf_bytes");
    let mut flood = Client::of(&server);
    for _ in 0..2000 {
        flood.send_parts(&long[..60_000], 30_000, |parts| parts.truncate(1));
    }
    wait_until("drops of parts", || stream.stat("udp_dropped_incomplete") > 100);
    assert!(stream.stat("read_buf_bytes") < held + (8 << 20));
    client.ask("get k\r\n", "END\r\n");
    server.stop();
}

#[test]
fn bytes_that_mean_nothing_stop_nobody() {
    let server = start(settings(2, "127.0.0.1"));
    let mut random = testing::Random::new(13);
    let words: [&[u8]; 8] =
        [b"get ", b"k", b"\r\n", b"set k 0 0 ", b"\x80\x00", b"mg k v", b" ", b"\xff\x00\x00"];
    let mut client = Client::of(&server);
    for round in 0..200 {
        for _ in 0..50 {
            let mut below = |end: u16| u16::try_from(random.number(end.into())).unwrap();
            let parts = 1 + below(5);
            let header = Header {
                id: below(4),
                number: below(parts + 2),
                total: below(parts + 1),
                flow: below(5),
            };
            let mut datagram = header.bytes().to_vec();
            for _ in 0..random.number(12) {
                datagram.extend_from_slice(random.pick(&words));
            }
            datagram.truncate(random.index(60));
            client.socket.send_to(&datagram, client.server).unwrap();
        }
        // The loop skips answers to the random datagrams, and waits for the answer to this request.
        client.id = 1000 + round;
        client.send("mn\r\n");
        let mut buffer = [0; 2000];
        let wanted = [&client.id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0], b"MN\r\n"].concat();
        loop {
            let bytes = client.socket.recv(&mut buffer).unwrap();
            if buffer[..bytes] == wanted {
                break;
            }
        }
    }
    server.stop();
}

#[test]
fn a_wildcard_socket_answers_from_the_address_that_was_asked() {
    let udp_allow = datagrams::everybody();
    let server = start(Settings { udp_allow, ..settings(2, "0.0.0.0") });
    let port = server.datagram_addresses()[0].port();
    for host in ["127.0.0.1", "127.0.0.2", "127.3.4.5"] {
        let mut client = Client::to(format!("{host}:{port}").parse().unwrap());
        client.ask("get none\r\n", "END\r\n");
        let value = "v".repeat(5000);
        client.ask(format!("set k 0 0 5000\r\n{value}\r\n"), "STORED\r\n");
        client.ask("get k\r\n", text_hit("k", &value));
    }
    server.stop();
}

#[test]
fn networks_that_are_not_allowed_get_no_answer() {
    let allow = vec!["127.0.0.2/32".parse().unwrap()];
    let server = start(Settings { udp_allow: allow, ..settings(1, "127.0.0.1") });
    let mut stream = inprocess::connect(&server);
    let mut client = Client::of(&server);
    client.send("set k 0 0 1\r\nv\r\n");
    wait_until("a drop", || stream.stat("udp_dropped_network") == 1);
    client.expect_silence();
    let mut allowed = Client::of(&server);
    allowed.socket = UdpSocket::bind("127.0.0.2:0").unwrap();
    allowed.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    allowed.ask("get k\r\n", "END\r\n");
    server.stop();
}

fn received(server: &Server) -> Vec<u64> {
    server.shared().columns.counters.iter().map(|column| column.udp_received.get()).collect()
}

#[test]
fn flows_reach_the_columns_that_they_name() {
    let server = start(Settings { steal: false, ..settings(4, "127.0.0.1") });
    for flow in 1..=4_u16 {
        let before = received(&server);
        for id in 0..50 {
            // Without a flow, the kernel would spread different senders over the columns.
            let mut client = Client::of(&server);
            let header = Header { id, number: 0, total: 1, flow };
            let datagram = [&header.bytes()[..], b"get k\r\n"].concat();
            client.socket.send_to(&datagram, client.server).unwrap();
            client.id = id;
            assert_eq!(client.receive().0, b"END\r\n");
        }
        let after = received(&server);
        let mut expected = before;
        expected[usize::from(flow) - 1] += 50;
        assert_eq!(after, expected, "flow {flow}");
    }
    server.stop();
}

#[test]
fn what_columns_have_done_adds_up_to_all_that_was_done() {
    let server = start(settings(3, "127.0.0.1"));
    let mut stream = inprocess::connect(&server);
    let steered = |flow: u16, requests: u16| {
        let client = Client::of(&server);
        for id in 0..requests {
            let header = Header { id, number: 0, total: 1, flow };
            let datagram = [&header.bytes()[..], b"set k 0 0 1\r\nv\r\nget k\r\n"].concat();
            client.socket.send_to(&datagram, client.server).unwrap();
            client.socket.recv(&mut [0; 2000]).unwrap();
        }
    };
    for (flow, requests) in [(1, 10), (2, 20), (3, 40)] {
        steered(flow, requests);
    }
    stream.ask("get k\r\n", text_hit("k", "v"));
    // The server counts an answer after sending it, perhaps after the client has received it.
    testing::wait_until("a count of 70", || stream.stats("udp")["udp_sent"] == "70");
    let of_columns = stream.stats("columns");
    let column = |name: &str| -> Vec<u64> {
        (0..3).map(|at| of_columns[&format!("columns:{at}:{name}")].parse().unwrap()).collect()
    };
    assert_eq!(column("udp_received"), [10, 20, 40]);
    assert_eq!(column("udp_sent"), [10, 20, 40]);
    assert_eq!(column("executed").iter().sum::<u64>(), 2 * 70 + 1);
    assert_eq!(column("curr_connections").iter().sum::<u64>(), 1);
    assert!(column("batches").iter().all(|batches| *batches > 0));
    assert!(column("idle_percent").iter().all(|percent| *percent <= 100));
    let mut all = stream.stats("");
    all.extend(stream.stats("udp"));
    for name in ["udp_received", "udp_sent", "total_connections"] {
        assert_eq!(column(name).iter().sum::<u64>().to_string(), all[name], "{name}");
    }
    server.stop();
}

#[test]
fn each_column_may_have_a_port() {
    let server = start(Settings { udp_port_per_column: true, ..settings(3, "127.0.0.1") });
    let addresses = server.datagram_addresses().to_vec();
    assert_eq!(addresses.len(), 3);
    for (column, address) in addresses.iter().enumerate() {
        assert_eq!(usize::from(address.port() - addresses[0].port()), column);
        let before = received(&server);
        Client::to(*address).ask("get k\r\n", "END\r\n");
        let mut expected = before;
        expected[column] += 1;
        assert_eq!(received(&server), expected);
    }
    server.stop();
}

#[test]
fn many_clients_at_once_lose_nothing_while_items_are_evicted() {
    let server = start(Settings { memory_bytes: 8 << 20, ..settings(2, "127.0.0.1") });
    let address = server.datagram_addresses()[0];
    let value = "e".repeat(20_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let value = &value;
            scope.spawn(move || {
                let mut client = Client::to(address);
                for at in 0..500 {
                    let key = format!("k{thread}-{at}");
                    client.ask(format!("set {key} 0 0 20000\r\n{value}\r\n"), "STORED\r\n");
                    client.send(format!("get {key}\r\n"));
                    let (reply, _) = client.receive();
                    assert!(reply == text_hit(&key, value).as_bytes() || reply == b"END\r\n");
                }
            });
        }
    });
    server.stop();
}
