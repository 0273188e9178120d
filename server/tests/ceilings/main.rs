//! Every command keeps the named limits, in its worst legal forms and over every transport.
//!
//! Where: an in-process server with one thread; clients by TCP, a Unix socket, UDP and AF_XDP. The
//! forms come from the command tables, so that a new command is tested too.
//! Invariant: for any request, a turn takes at most `TURN_STEPS_MAX` steps, a message at most
//! `MESSAGE_STEPS_MAX` steps, and a pass of the loop at most `LOOP_STEPS_MAX` steps. The answer to
//! a message has at most `udp_reply_max` bytes, and the server holds at most `HELD_BYTES_MAX` bytes
//! outside the store. Debug builds count steps, so the machine's speed does not matter.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(debug_assertions)]

#[path = "../inprocess/mod.rs"]
mod inprocess;
mod page;
mod worst;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use columns::limits::MESSAGE_BYTES_MAX;
use hypostyle::limits::{LOOP_STEPS_MAX, MESSAGE_STEPS_MAX, TURN_STEPS_MAX, UDP_REPLY_BYTES_MAX};
use hypostyle::start::settings::{Settings, Xdp};
use inprocess::{Client, connect, datagrams, settings, start};
use protocol::udp::{HEADER_BYTES, Header};
use testing::PATIENCE;
use testing::namespace::{Veth, WIRE, pair};
use worst::{WorstForm, all};

/// Maximum memory that the server may hold outside the store: buffers, and 8 MiB of prefixes.
const HELD_BYTES_MAX: u64 = 32 << 20;
const FLOOD: u16 = 256;
const SENDERS: usize = 16;
/// The client of a stream stops reading an answer after this number of bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Length of a part of a message. A part of this length fits in an Ethernet frame.
const PART_BYTES: usize = 1400;

/// Stores items and makes the server count prefixes, so that the worst forms are expensive.
fn fill(control: &mut Client) {
    for first in (1..=8000).step_by(500) {
        let set = |at| format!("set k{at} 0 0 4 noreply\r\nabcd\r\n");
        let sets: String = (first..first + 500).map(set).collect();
        control.ask(sets + "mn\r\n", "MN\r\n");
    }
    for (key, bytes) in [("b", 400_000), ("v", 7000)] {
        let value = "v".repeat(bytes);
        control.ask(format!("set {key} 0 0 {bytes}\r\n{value}\r\n"), "STORED\r\n");
    }
    control.ask("set n 0 0 1\r\n1\r\n", "STORED\r\n");
    control.ask("stats detail on\r\n", "OK\r\n");
    for first in (0..6000).step_by(50) {
        let keys: String = (first..first + 50).map(|at| format!(" {at:0>240}:k")).collect();
        control.ask(format!("get{keys}\r\n"), "END\r\n");
    }
}

/// Asserts that the server has kept its limits since the last `stats steps`.
fn assert_kept(control: &mut Client, steps_max: u64, what: &str) {
    let steps: u64 = control.stats("steps")["loop_steps_max"].parse().unwrap();
    assert!(steps <= steps_max, "{what}: a loop of {steps} steps");
    let memory = control.stats("memory");
    let rows = ["connection_bytes", "read_buf_bytes", "response_obj_bytes", "prefix_bytes"];
    let held: u64 = rows.map(|row| memory[row].parse::<u64>().unwrap()).iter().sum();
    assert!(held <= HELD_BYTES_MAX, "{what}: {held} bytes outside the store");
}

/// Shuts down the sending side after the request, and returns the length of the whole answer.
fn ask(mut stream: impl Read + Write, shut: impl FnOnce(), bytes: &[u8]) -> usize {
    // If the server closes the connection before it has read everything, the kernel sends a reset.
    let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    let (deadline, mut shut) = (Instant::now() + PATIENCE, Some(shut));
    let (mut answered, mut at, mut chunk) = (0, 0, vec![0; 256 << 10]);
    loop {
        assert!(Instant::now() < deadline, "no end after {answered} bytes");
        // The client reads after each write, so that client and server never block each other.
        if at < bytes.len() {
            match stream.write(&bytes[at..]) {
                Ok(written) => at += written,
                Err(error) if gone.contains(&error.kind()) => at = bytes.len(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        } else if let Some(shut) = shut.take() {
            shut();
        }
        match stream.read(&mut chunk) {
            Ok(0) => return answered,
            // Some answers are too long to be read to the end.
            Ok(_) if answered > ANSWER_BYTES_MAX => return answered,
            Ok(read) => answered += read,
            Err(error) if gone.contains(&error.kind()) => return answered,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                std::thread::yield_now();
            }
        }
    }
}

fn hold_streams(connect: impl Fn() -> TcpStream, way: &str) {
    let control = connect();
    control.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut control = Client(control);
    fill(&mut control);
    control.stats("steps");
    for form in all() {
        for bytes in [form.once(), form.often()] {
            let stream = connect();
            stream.set_nonblocking(true).unwrap();
            let shut = || drop(stream.shutdown(Shutdown::Write));
            let answered = ask(&stream, shut, &bytes);
            let what = format!("{way}: {}, {} bytes", form.name, bytes.len());
            assert_kept(&mut control, TURN_STEPS_MAX, &format!("{what}, answered by {answered}"));
        }
    }
}

#[test]
fn every_command_keeps_its_limits_over_tcp() {
    let server = start(Settings { sizes: true, ..settings(1) });
    hold_streams(|| TcpStream::connect(server.addresses()[0]).unwrap(), "TCP");
    server.stop();
}

#[test]
fn every_command_keeps_its_limits_over_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("hypostyle-ceilings-{}", std::process::id()));
    let server = start(Settings { unix_path: Some(path.clone()), sizes: true, ..settings(1) });
    // `TcpStream` reads, writes and shuts down any stream socket, here a Unix socket.
    let connect = || TcpStream::from(OwnedFd::from(UnixStream::connect(&path).unwrap()));
    hold_streams(connect, "Unix");
    server.stop();
}

fn send(socket: &UdpSocket, (id, message): (u16, &[u8])) {
    let parts = message.chunks(PART_BYTES);
    let total = u16::try_from(parts.len()).unwrap();
    for (number, part) in (0..).zip(parts) {
        let header = Header { id, number, total, flow: 0 };
        socket.send(&[&header.bytes()[..], part].concat()).unwrap();
    }
}

/// Sends `mn` until it is answered. Returns the number of bytes in answers to the message `id`.
fn answered(socket: &UdpSocket, id: u16) -> usize {
    const LAST: u16 = 60_000;
    let (deadline, mut bytes, mut buffer) = (Instant::now() + PATIENCE, 0, [0; 2000]);
    send(socket, (LAST, b"mn\r\n"));
    loop {
        assert!(Instant::now() < deadline, "the server answers nothing");
        let Ok(read) = datagrams::uninterrupted(|| socket.recv(&mut buffer)) else {
            send(socket, (LAST, b"mn\r\n"));
            continue;
        };
        let (header, text) = Header::read(&buffer[..read]).unwrap();
        if header.id == LAST && text == b"MN\r\n" {
            return bytes;
        }
        bytes += if header.id == id { read - HEADER_BYTES } else { 0 };
    }
}

fn hold_messages(sockets: &[UdpSocket], control: &mut Client, way: &str) {
    for socket in sockets {
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    }
    fill(control);
    control.stats("steps");
    for form in all() {
        let whole = [form.once(), form.often()];
        for message in whole.iter().filter(|it| it.len() <= MESSAGE_BYTES_MAX) {
            send(&sockets[0], (1, message));
            let bytes = answered(&sockets[0], 1);
            let what = format!("{way}: {}, {} bytes", form.name, message.len());
            assert!(bytes <= UDP_REPLY_BYTES_MAX, "{what}: answered by {bytes}");
            assert_kept(control, MESSAGE_STEPS_MAX, &what);
        }
        flood(sockets, &form);
        assert_kept(control, LOOP_STEPS_MAX, &format!("{way}: a flood of {}", form.name));
    }
}

/// Sends datagrams full of `form` from several sockets, and reads no answer in between.
fn flood(sockets: &[UdpSocket], form: &WorstForm) {
    let datagram = form.filling(PART_BYTES);
    for number in 0..FLOOD {
        let socket = &sockets[usize::from(number) % sockets.len()];
        send(socket, (number, &datagram));
    }
    for socket in sockets {
        answered(socket, u16::MAX);
    }
}

fn sockets(server: SocketAddr) -> Vec<UdpSocket> {
    let here = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = |_| {
        let socket = UdpSocket::bind(here).unwrap();
        socket.connect(server).unwrap();
        socket
    };
    (0..SENDERS).map(socket).collect()
}

#[test]
fn every_command_keeps_its_limits_over_udp() {
    let datagrams = datagrams::at("127.0.0.1");
    let server = start(Settings { datagrams, sizes: true, udp_admin: true, ..settings(1) });
    let sockets = sockets(server.datagram_addresses()[0]);
    hold_messages(&sockets, &mut connect(&server), "UDP");
    server.stop();
}

#[test]
fn every_command_keeps_its_limits_past_the_kernel() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let settings = Settings {
        datagrams: datagrams::at(&far.v4.to_string()),
        xdp: Some(Xdp::of(WIRE)),
        udp_allow: datagrams::everybody(),
        udp_admin: true,
        sizes: true,
        ..settings(1)
    };
    let server = far.on(|| start(settings));
    let mut control = far.on(|| connect(&server));
    let sockets = near.on(|| sockets(server.datagram_addresses()[0]));
    hold_messages(&sockets, &mut control, "AF_XDP");
    server.stop();
}
