//! Tests of the null server that compare every byte of its answers.
//!
//! Where: unit tests of `reflect`. Invariant: every read ends by a deadline.

use super::answer::{HELD_BYTES_MAX, ReplyBuffer, Responder, Value};
use super::replies::SEND_METHODS;
use super::*;
use net::{Calls, Inbox, Outbox, SLOT_BYTES_MAX};
use protocol::udp::Header;
use std::io::Read;
use std::net::TcpStream;

/// Reading or writing fails if it takes longer than this.
const DEADLINE: Duration = Duration::from_secs(60);

fn connected(running: &RunningServer) -> TcpStream {
    let [Place::Tcp(address), ..] = running.addresses() else { panic!("no TCP") };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

fn running(value_bytes: usize) -> RunningServer {
    let places = vec![Place::Tcp("127.0.0.1:0".parse().unwrap())];
    serve(&Plan { places, threads: 2, value_bytes, ..Plan::default() }).unwrap()
}

/// Passes `input` to a responder in pieces of `each` bytes. Returns answers and their number.
fn answered(input: &[u8], each: usize) -> Option<(Vec<u8>, u64)> {
    let (mut responder, value) = (Responder::default(), Value::new(2));
    let (mut held, mut out, mut answers) = (Vec::new(), Vec::new(), 0);
    for piece in input.chunks(each) {
        held.extend_from_slice(piece);
        let (used, given) =
            responder.respond(&held, &value, usize::MAX, &mut ReplyBuffer::copied(&mut out))?;
        held.drain(..used);
        answers += given;
    }
    assert!(held.is_empty(), "{} left", held.escape_ascii());
    Some((out, answers))
}

#[test]
fn every_request_is_answered_wherever_it_is_cut() {
    let asked: [(&[u8], &[u8], u64); 4] = [
        (
            b"get a bc\r\nset a 0 0 5\r\nhello\r\nset a 0 0 1 noreply\r\nx\r\ndelete a\r\n\
              append a 0 0 0\r\n\r\nnonsense\r\nversion\r\n",
            b"VALUE a 0 2\r\nvv\r\nVALUE bc 0 2\r\nvv\r\nEND\r\nSTORED\r\nDELETED\r\n\
              STORED\r\nERROR\r\nVERSION reflect\r\n",
            8,
        ),
        (
            b"mg a v O7\r\nmg b v q k O8\r\nmn\r\nms a 3 O9 T0\r\nabc\r\nmd a q\r\nmd a\r\n",
            b"VA 2 O7\r\nvv\r\nVA 2 kb O8\r\nvv\r\nMN\r\nHD O9\r\nHD\r\n",
            6,
        ),
        (
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n\
              *3\r\n$3\r\nset\r\n$1\r\na\r\n$2\r\nxy\r\n*2\r\n$3\r\nDEL\r\n$1\r\na\r\n",
            b"$2\r\nvv\r\n*2\r\n$2\r\nvv\r\n$2\r\nvv\r\n+OK\r\n:1\r\n",
            5,
        ),
        (
            b"\x80\x0d\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x07\0\0\0\0\0\0\0\0k\
              \x80\x01\0\x01\x08\0\0\0\0\0\0\x0b\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0khi\
              \x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0",
            b"\x81\x0d\0\x01\x04\0\0\0\0\0\0\x07\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0kvv\
              \x81\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\
              \x81\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0",
            2,
        ),
    ];
    for (asked, answer, count) in asked {
        for each in 1..=asked.len() {
            let (out, answers) = answered(asked, each).unwrap();
            assert_eq!(out.escape_ascii().to_string(), answer.escape_ascii().to_string());
            assert_eq!(answers, count, "in pieces of {each}");
        }
    }
}

#[test]
fn a_datagram_that_came_to_another_thread_than_its_flow_names_is_counted() {
    let places = vec![Place::Udp("127.0.0.1:0".parse().unwrap())];
    let running = serve(&Plan { places, threads: 2, ..Plan::default() }).unwrap();
    let [Place::Udp(address)] = running.addresses() else { panic!("no UDP") };
    let client = Datagrams::connect(*address, Sizes::default()).unwrap();
    // The kernel chooses a burst's receiver by the first datagram.
    let (calls, mut outbox) = (Calls::default(), Outbox::new(4, 4, true));
    let burst = [2, 1, 2, 1]
        .map(|flow| [&Header::request(flow, flow).bytes()[..], b"version\r\n"].concat());
    let mut letters = outbox.open();
    assert!(burst.iter().all(|one| letters.add(None, b"", [&one[..]])));
    assert_eq!(letters.post(&client, &calls).sent, 4);
    let mut inbox = Inbox::new(4, SLOT_BYTES_MAX);
    let (end, mut came) = (std::time::Instant::now() + DEADLINE, 0);
    while came < 4 {
        came += client.receive(&mut inbox, &calls).datagrams;
        assert!(std::time::Instant::now() < end, "{came} answers");
        std::thread::yield_now();
    }
    assert_eq!(running.counts().received(), [[0, 4]]);
    assert_eq!(running.counts().misrouted.load(Ordering::Relaxed), 2);
    running.stop().unwrap();
}

#[test]
fn nonsense_ends_a_connection_and_a_line_without_end_is_not_held_for_ever() {
    for nonsense in [&b"*1\r\n:1\r\n"[..], b"\r\n", b"set a 0 0 x\r\n", b"mg\r\n"] {
        assert_eq!(answered(nonsense, nonsense.len()), None, "{}", nonsense.escape_ascii());
    }
    let running = running(10);
    let mut stream = connected(&running);
    // The write may fail, because the server may close the connection before it has read all.
    let _ = stream.write_all(&vec![b'a'; 4 * HELD_BYTES_MAX]);
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    let is_reset = ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
    assert!(rest.is_empty() || is_reset);
    running.stop().unwrap();
}

#[test]
fn replies_that_nobody_reads_are_bounded_and_all_there_when_somebody_does() {
    const REQUESTS: usize = 300;
    for (send, _) in SEND_METHODS {
        let places = vec![Place::Tcp("127.0.0.1:0".parse().unwrap())];
        let plan = Plan { places, threads: 1, value_bytes: 100_000, send, ..Plan::default() };
        let running = serve(&plan).unwrap();
        let mut stream = connected(&running);
        let mut writer = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope
                .spawn(move || (0..REQUESTS).for_each(|_| writer.write_all(b"get k\r\n").unwrap()));
            let each = b"VALUE k 0 100000\r\n".len() + 100_000 + b"\r\nEND\r\n".len();
            let mut bytes = vec![0; each];
            for _ in 0..REQUESTS {
                stream.read_exact(&mut bytes).unwrap();
                assert!(bytes.starts_with(b"VALUE k 0 100000\r\nvvv"), "{send:?}");
                assert!(bytes.ends_with(b"vvv\r\nEND\r\n"), "{send:?}");
            }
        });
        assert_eq!(running.counts().answers.load(Ordering::Relaxed), REQUESTS as u64);
    }
}

/// Requests in text, meta, binary and RESP, with all kinds of answers, and requests that store.
const ALL: &[u8] = b"get a bc\r\nmg a v k\r\nset a 0 0 5\r\nhello\r\nms a 1 O1\r\nx\r\nmg a\r\n\
    \x80\x0d\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x07\0\0\0\0\0\0\0\0k\
    *3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\nversion\r\nget a\r\n";

#[test]
fn every_way_of_sending_sends_the_same_bytes() {
    const TIMES: usize = 50;
    for value_bytes in [0, 1, 5_000, 70_000] {
        let (mut expected, value) = (Vec::new(), Value::new(value_bytes));
        let mut out = ReplyBuffer::copied(&mut expected);
        let taken = Responder::default().respond(ALL, &value, usize::MAX, &mut out).unwrap();
        assert_eq!(taken, (ALL.len(), 11));
        for (send, _) in SEND_METHODS {
            let places = vec![Place::Tcp("127.0.0.1:0".parse().unwrap())];
            let plan = Plan { places, threads: 1, value_bytes, send, ..Plan::default() };
            let running = serve(&plan).unwrap();
            let mut stream = connected(&running);
            let mut writer = stream.try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || writer.write_all(&ALL.repeat(TIMES)).unwrap());
                let mut bytes = vec![0; expected.len()];
                for time in 0..TIMES {
                    stream.read_exact(&mut bytes).unwrap();
                    assert!(bytes == expected, "{send:?}, {value_bytes} bytes, time {time}");
                }
            });
        }
    }
}

#[test]
fn a_place_that_somebody_else_has_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let plan = Plan { places: vec![Place::Tcp(address)], ..Plan::default() };
    let error = serve(&plan).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen on {address}: ")), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
}
