//! Malicious or broken clients: the server serves other clients, and its memory stays bounded.
//!
//! Where: the built binary, seen from outside.
//! Invariant: a harmful client can at worst lose its own connection.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

use inprocess::{Client, allow_files, answer, frame, resident_bytes_of};
use live::Server;
use rustix::process::{Pid, Signal, kill_process};
use testing::{Random, wait_until};

const VERSION: &str = "VERSION 1.6.45\r\n";
const MIB: usize = 1 << 20;

/// Maximum memory that the server may take in addition to `-m`: for each thread (column),
/// `limits::kept_bytes_max` and the thread's buffers; and the program itself.
const BESIDE_BYTES_MAX: usize = 48 * MIB;

fn connect(server: &Server) -> Client {
    Client::to(server.address())
}

fn resident_bytes(server: &Server) -> usize {
    resident_bytes_of(&server.pid().to_string())
}

fn check_service(client: &mut Client, round: usize) {
    let small = format!("set small 0 0 6\r\n{round:06}\r\n");
    client.ask(small, "STORED\r\n");
    client.ask("get small\r\n", format!("VALUE small 0 6\r\n{round:06}\r\nEND\r\n"));
    let value = format!("{round:08}").repeat(100_000 / 8);
    client.ask(format!("set large 7 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    let hit = format!("VALUE large 7 {}\r\n{value}\r\nEND\r\n", value.len());
    client.ask("get large\r\n", hit);
}

/// Sends `bytes` repeatedly until the socket is full or `bytes_max` bytes are sent.
fn flood(client: &mut Client, bytes: &[u8], bytes_max: usize) {
    client.0.set_nonblocking(true).unwrap();
    let (mut sent, mut at) = (0, 0);
    while sent < bytes_max {
        match client.0.write(&bytes[at..]) {
            Ok(written) => {
                sent += written;
                at = (at + written) % bytes.len();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    client.0.set_nonblocking(false).unwrap();
}

/// Makes random bytes, in which some sequences of `PIECES` nearly form requests.
fn garbage(random: &mut Random) -> Vec<u8> {
    const PIECES: [&[u8]; 16] = [
        b"get ",
        b"gets ",
        b"set k 0 0 ",
        b"set k 0 0 70000\r\n",
        b"10\r\n",
        b"\r\n",
        b"\n",
        b" ",
        b"cas k 0 0 5 1 noreply\r\n",
        b"mg k v q\r\n",
        b"ms k 99999999999\r\n",
        b"incr k -1\r\n",
        b"\0\x80\xff",
        b"gat 0 a b ",
        b"verbosity\r\n",
        b"touch k 2147483648\r\n",
    ];
    let mut bytes = Vec::new();
    for _ in 0..random.index(60) {
        match random.index(4) {
            0 => bytes.push(u8::try_from(random.index(256)).unwrap()),
            1 => bytes.extend(std::iter::repeat_n(b'x', random.index(3000))),
            _ => bytes.extend_from_slice(PIECES[random.index(PIECES.len())]),
        }
    }
    bytes
}

/// Makes random binary frames. Most lengths fit the body, and most opcodes exist.
fn garbage_frames(random: &mut Random) -> Vec<u8> {
    let byte = |random: &mut Random, below| u8::try_from(random.index(below)).unwrap();
    let mut bytes = Vec::new();
    for _ in 0..random.index(40) {
        let extras = vec![byte(random, 256); [0, 4, 8, 20, 255][random.index(5)]];
        let key = "k".repeat([0, 1, 1, 250, 251, 65_535][random.index(6)]);
        let value = "v".repeat(random.index(3) * random.index(20_000));
        let mut frame = frame(byte(random, 0x30), &extras, &key, &value);
        if random.index(8) == 0 {
            let at = random.index(24);
            frame[at] = byte(random, 256);
        }
        bytes.extend_from_slice(&frame);
    }
    bytes
}

#[test]
fn garbage_cut_anywhere_harms_nobody_else() {
    let mut server = Server::under_test(&["-t", "2"]);
    let mut good = connect(&server);
    let mut random = Random::new(1);
    for round in 0..300 {
        let garbage = if round % 2 == 0 { garbage } else { garbage_frames };
        let bytes = garbage(&mut random);
        let mut bad = connect(&server);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + random.index(rest.len()));
            if !bad.try_send(now) {
                break;
            }
            rest = later;
        }
        let _gone = bad.0.shutdown(Shutdown::Write);
        bad.rest();
        if round % 30 == 0 {
            check_service(&mut good, round);
        }
    }
    check_service(&mut good, 300);
    assert!(server.is_alive());
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let server = Server::under_test(&["-t", "1"]);
    let mut client = connect(&server);
    let value = "0123456789".repeat(10);
    let requests = format!("set k 5 0 100\r\n{value}\r\nget k absent\r\nmg k s\r\nversion\r\n");
    let replies = format!("STORED\r\nVALUE k 5 100\r\n{value}\r\nEND\r\nHD s100\r\n{VERSION}");
    for byte in requests.as_bytes() {
        client.send([*byte]);
    }
    client.expect(&replies);
    // Separate code receives large values, so cut the request near the ends of line and value.
    let value = "abcdefg".repeat(5000);
    let request = format!("set big 5 0 35000\r\n{value}\r\nget big\r\n");
    let reply = format!("STORED\r\nVALUE big 5 35000\r\n{value}\r\nEND\r\n");
    let header_bytes = "set big 5 0 35000\r\n".len();
    let seams = [1, header_bytes - 1, header_bytes, header_bytes + 1];
    let ends = [35_000 - 1, 35_000, 35_000 + 1, 35_000 + 2].map(|at| at + header_bytes);
    for cut in seams.into_iter().chain(ends) {
        ask_in_two(&server, &mut client, request.as_bytes(), cut, reply.as_bytes());
    }
}

#[test]
fn a_frame_may_come_byte_by_byte() {
    // `-C` turns off CAS uniques, which would make binary answers vary.
    let server = Server::under_test(&["-t", "1", "-C"]);
    let mut client = connect(&server);
    let (get, set, noop) = (0x00, 0x01, 0x0a);
    let flags = [0, 0, 0, 5];
    let extras = [&flags[..], &[0; 4]].concat();
    let value = "0123456789".repeat(10);
    let requests = [frame(set, &extras, "k", &value), frame(get, b"", "k", "")].concat();
    let replies = [answer(set, b"", ""), answer(get, &flags, &value)].concat();
    for byte in &requests {
        client.send([*byte]);
    }
    client.expect(&replies);
    // Separate code receives large values, so cut the request near the end of its header, of its
    // key and of its value. No line end follows a binary value.
    let value = "abcdefg".repeat(5000);
    let request = [frame(set, &extras, "big", &value), frame(get, b"", "big", "")].concat();
    let reply = [answer(set, b"", ""), answer(get, &flags, &value)].concat();
    let (header_bytes, value_end) = (24 + 8 + 3, 24 + 8 + 3 + value.len());
    for cut in [1, 23, 24, header_bytes - 1, header_bytes, header_bytes + 1].into_iter().chain([
        value_end - 1,
        value_end,
        value_end + 1,
    ]) {
        ask_in_two(&server, &mut client, &request, cut, &reply);
    }
    let value = "x".repeat(3 * MIB);
    client.send([frame(set, &extras, "huge", &value), frame(noop, b"", "", "")].concat());
    let mut refused = answer(set, b"", "Too large.");
    refused[7] = 3;
    client.expect([refused, answer(noop, b"", "")].concat());
}

fn ask_in_two(server: &Server, client: &mut Client, request: &[u8], cut: usize, reply: &[u8]) {
    let (head, tail) = request.split_at(cut);
    client.send(head);
    // An answer on another connection shows that the server has read the first piece.
    connect(server).ask("version\r\n", VERSION);
    client.send(tail);
    client.expect(reply);
}

#[test]
fn endless_lines_end() {
    let server = Server::under_test(&["-t", "1"]);
    let mut client = connect(&server);
    client.try_send("x".repeat(MIB));
    client.rest();
    let mut client = connect(&server);
    let keys = 100_000;
    client.ask("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    let mut line = "get".to_owned();
    for at in 0..keys {
        line.push_str(if at % 1000 == 0 { " k" } else { " missing" });
    }
    line.push_str("\r\n");
    let mut writer = client.0.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(line.as_bytes()).unwrap());
    client.expect("VALUE k 0 1\r\nv\r\n".repeat(keys / 1000));
    client.expect("END\r\n");
    writing.join().unwrap();
}

#[test]
fn a_thousand_declared_bodies_stall_nobody() {
    assert!(allow_files(4000));
    let server = Server::under_test(&["-t", "2", "-m", "64", "-c", "3000"]);
    let mut good = connect(&server);
    check_service(&mut good, 0);
    let part = vec![b'x'; 200 << 10];
    let mut stalled = Vec::new();
    for number in 0..1000 {
        let mut client = connect(&server);
        client.send(format!("set stalled{number} 0 0 {}\r\n", MIB - 100));
        // Half of the clients send a part of their value, and these parts together exceed `-m`.
        if number % 2 == 0 {
            flood(&mut client, &part, part.len());
        }
        stalled.push(client);
        if number % 50 == 0 {
            check_service(&mut good, number);
        }
    }
    check_service(&mut good, 1001);
    let resident = resident_bytes(&server);
    assert!(resident < 64 * MIB + BESIDE_BYTES_MAX, "{resident} bytes resident");
    // The server answers a client that completes its value, even if the first part was dropped.
    for client in stalled.iter_mut().skip(1).step_by(200) {
        client.send(vec![b'y'; MIB - 100]);
        client.send("\r\nversion\r\n");
        let stored = client.line();
        assert!(
            stored == "STORED" || stored == "SERVER_ERROR out of memory storing object",
            "{stored}"
        );
        client.expect(VERSION);
    }
    check_service(&mut good, 1002);
}

#[test]
fn half_requests_of_thousands_are_bounded() {
    assert!(allow_files(5000));
    let server = Server::under_test(&["-t", "2", "-m", "64", "-c", "5000"]);
    let mut good = connect(&server);
    check_service(&mut good, 0);
    let mut stalled = Vec::new();
    // 4,000 clients send 16 KiB each, which are 64 MiB in total.
    let half = format!("set half 0 0 16384\r\n{}", "h".repeat(16_300));
    for round in 0..4000 {
        let mut client = connect(&server);
        client.try_send(&half);
        stalled.push(client);
        if round % 500 == 0 {
            check_service(&mut good, round);
        }
    }
    check_service(&mut good, 4001);
    let resident = resident_bytes(&server);
    assert!(resident < 64 * MIB + BESIDE_BYTES_MAX, "{resident} bytes resident");
}

#[test]
fn padded_headers_of_thousands_are_bounded() {
    assert!(allow_files(5000));
    let server = Server::under_test(&["-t", "1", "-m", "64", "-c", "5000"]);
    let mut good = connect(&server);
    check_service(&mut good, 0);
    let (zeros, letters) = ("0".repeat(60_000), "x".repeat(16_000));
    let headers = [
        // This line exceeds the limit, so the server closes the connection.
        format!("set k 0 0 1000000 {zeros}\r\n"),
        // The next two lines are within the limit. The server stores only the words that it needs.
        format!("set k 0 0 1000000 {}\r\n", &zeros[..16_000]),
        format!("ms k 1000000 q{letters}\r\n"),
    ];
    for (round, header) in (1..).zip(&headers) {
        let before = resident_bytes(&server);
        let mut stalled = Vec::new();
        for _ in 0..2000 {
            let mut client = connect(&server);
            client.try_send(header);
            stalled.push(client);
        }
        let waiting = if round == 1 { 0 } else { stalled.len() as u64 };
        wait_until("the receipt of all headers", || {
            good.stat("total_connections") == 1 + 2000 * round
                && good.stat("curr_connections") == 1 + waiting
        });
        check_service(&mut good, 1);
        let more = resident_bytes(&server).saturating_sub(before);
        assert!(more < 16 * MIB, "{more} bytes for 2,000 of {} bytes", header.len());
        if round == 1 {
            stalled.iter_mut().for_each(Client::expect_end);
        }
    }
}

#[test]
fn many_busy_clients_are_slowed_down_and_none_is_closed() {
    assert!(allow_files(2000));
    let server = Server::under_test(&["-t", "1", "-m", "64", "-c", "2000", "-R", "20"]);
    let mut good = connect(&server);
    check_service(&mut good, 0);
    // Each client sends more requests than `-R` allows in a turn. All clients together send more
    // bytes than connections may hold.
    let requests = b"get absent\r\n".repeat(5000);
    let mut busy: Vec<Client> = (0..1000).map(|_| connect(&server)).collect();
    for client in &mut busy {
        client.send(&requests);
    }
    check_service(&mut good, 1);
    let replies = "END\r\n".repeat(5000);
    for client in &mut busy {
        client.expect(&replies);
    }
    check_service(&mut good, 2);
    let resident = resident_bytes(&server);
    assert!(resident < 64 * MIB + BESIDE_BYTES_MAX, "{resident} bytes resident");
}

#[test]
fn peers_that_never_read_are_bounded() {
    assert!(allow_files(1000));
    let server = Server::under_test(&["-t", "2", "-m", "64", "-c", "1000"]);
    let mut good = connect(&server);
    check_service(&mut good, 0);
    let value = "w".repeat(10_000);
    good.ask(format!("set wide 0 0 10000\r\n{value}\r\n"), "STORED\r\n");
    let requests = "get wide\r\n".repeat(1000);
    let mut deaf = Vec::new();
    for round in 0..400 {
        let mut client = connect(&server);
        flood(&mut client, requests.as_bytes(), MIB);
        deaf.push(client);
        if round % 50 == 0 {
            check_service(&mut good, round);
        }
    }
    check_service(&mut good, 401);
    let resident = resident_bytes(&server);
    assert!(resident < 64 * MIB + BESIDE_BYTES_MAX, "{resident} bytes resident");
}

#[test]
fn slow_readers_of_large_values_do_not_stop_sets() {
    assert!(allow_files(1000));
    let server = Server::under_test(&["-t", "2", "-m", "64", "-c", "1000"]);
    let mut good = connect(&server);
    let bytes = MIB - 1000;
    let mut slow = Vec::new();
    for number in 0..200 {
        let byte = char::from(b'a' + number % 26);
        let value = String::from(byte).repeat(bytes);
        // Each client's unsent replies pin another value. A reply exceeds the socket's buffer.
        good.ask(format!("set pinned{number} 0 0 {bytes}\r\n{value}\r\n"), "STORED\r\n");
        let mut client = connect(&server);
        client.send(format!("get pinned{number}\r\n").repeat(50));
        // The first byte has arrived, so the server has executed the first `get`.
        client.0.peek(&mut [0]).unwrap();
        slow.push((client, number, byte));
        check_service(&mut good, usize::from(number));
    }
    let resident = resident_bytes(&server);
    assert!(resident < 64 * MIB + BESIDE_BYTES_MAX, "{resident} bytes resident");
    // A client that reads now gets the whole value, even of an evicted item, or the end of the
    // stream if the server had to close the connection.
    let mut missed = 0;
    for (client, number, byte) in &mut slow {
        let header = format!("VALUE pinned{number} 0 {bytes}\r\n");
        let expected = [header.as_bytes(), &vec![*byte as u8; bytes], b"\r\nEND\r\n"].concat();
        let mut got = vec![0; expected.len()];
        let mut at = 0;
        while at < got.len() && !got.starts_with(b"END\r\n") {
            match client.0.read(&mut got[at..]) {
                Ok(0) | Err(_) => break,
                Ok(read) => at += read,
            }
        }
        if got.starts_with(b"END\r\n") {
            missed += 1;
            continue;
        }
        let differs = got[..at].iter().zip(&expected).position(|(got, expected)| got != expected);
        if let Some(at) = differs {
            let near = live::show(&got[at..(at + 60).min(got.len())]);
            panic!("value {number} of letter {byte} is torn at {at}: {near}");
        }
    }
    // A miss means that the value was evicted before the client's first get.
    assert!(missed < 100, "{missed} of 200 values were evicted at once");
    check_service(&mut good, 201);
}

#[test]
fn a_peer_that_floods_does_not_starve_another() {
    let server = Server::under_test(&["-t", "1", "-R", "20"]);
    let mut flooding = connect(&server);
    let mut modest = connect(&server);
    for client in [&mut flooding, &mut modest] {
        client.ask("version\r\n", VERSION);
    }
    // Both clients send while the server is stopped, so the server finds both requests at once.
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    wait_until("the stop", || is_stopped(server.pid()));
    flood(&mut flooding, &b"get absent\r\n".repeat(5000), 5000 * 12);
    modest.send("stats\r\n");
    wait_until("the arrival of the request", || has_arrived(&modest));
    kill_process(pid, Signal::CONT).unwrap();
    let gets = modest_stat(&mut modest, "cmd_get");
    assert!(gets <= 100, "{gets} requests of another client came first");
    wait_until("the flood's end", || modest.stat("cmd_get") == 5000);
    let yields = modest.stat("conn_yields");
    assert!(yields >= 200, "{yields} yields for 5000 requests at -R 20");
}

/// True if everything that a client sent has reached the server's socket.
fn has_arrived(client: &Client) -> bool {
    let hexadecimal = |address: SocketAddr| format!(":{:04X}", address.port());
    let own = hexadecimal(client.0.local_addr().unwrap());
    let peer = hexadecimal(client.0.peer_addr().unwrap());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // Columns: number, own address, peer's address, state, unacknowledged and unread bytes.
    table.lines().any(|line| {
        let cells: Vec<&str> = line.split_whitespace().take(5).collect();
        matches!(cells[..], [_, from, to, _, queues]
            if from.ends_with(&own) && to.ends_with(&peer) && queues.starts_with("00000000:"))
    })
}

fn is_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

/// Reads the reply to an earlier `stats`. Returns the statistic `name`.
fn modest_stat(client: &mut Client, name: &str) -> u64 {
    let mut found = None;
    loop {
        let line = client.line();
        if line == "END" {
            return found.unwrap();
        }
        if let Some(value) = line.strip_prefix(&format!("STAT {name} ")) {
            found = Some(value.parse().unwrap());
        }
    }
}
