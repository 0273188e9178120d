//! Tests of datagrams that were sent to one column and are received by another column.
//!
//! Where: two columns without a store in one thread, with sockets on loopback.
//! Invariant: each request gets one answer, from the socket to which the request was sent, even if
//! another column receives the request.

use std::net::UdpSocket;
use std::sync::Arc;

use net::{Sizes, bind_ports};
use protocol::ProtocolMode;
use protocol::udp::{HEADER_BYTES, Header};

use super::{Datagrams, Gatherer, Guard};
use crate::datapath::Datapath;
use crate::datapath::udp::{ColumnSocket, Udp};
use crate::limits::PARTS_WAIT_MS_MAX;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::storeless::Storeless;
use crate::turn::TurnState;

struct Column {
    datagrams: Datagrams<Udp>,
    turn: TurnState<Storeless>,
}

impl Column {
    fn steal(&mut self) -> usize {
        let other = 1 - self.datagrams.path.column();
        self.datagrams.steal(other, 0, &mut self.turn)
    }

    fn turns(&mut self) -> usize {
        self.datagrams.note_input(0);
        self.datagrams.turns(&mut self.turn)
    }
}

/// Makes two columns, each with its own port, and a client connected to the first.
fn site() -> ([Column; 2], UdpSocket) {
    let settings = Settings { count: 2, ..Settings::default() };
    let shared = Arc::new(Shared::new(settings));
    let sockets = bind_ports(([127, 0, 0, 1], 0).into(), 2, Sizes::default()).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(sockets[0].address().unwrap()).unwrap();
    client.set_nonblocking(true).unwrap();
    let socket = |socket| ColumnSocket {
        socket: Arc::new(socket),
        speak: ProtocolMode::Auto,
        datagram_bytes_max: 1400,
    };
    let sockets: Arc<[_]> = sockets.into_iter().map(|it| vec![socket(it)]).collect();
    let gathers = Gatherer::for_columns(2, None);
    let column = |number: usize| {
        let path = Udp::new(Arc::clone(&sockets), number).unwrap();
        let gathers = Arc::clone(&gathers);
        let datagrams = Datagrams::new(path, Guard::default(), 1 << 20, gathers);
        Column {
            datagrams,
            turn: TurnState::new(Storeless, (Arc::clone(&shared), number), Arc::default()),
        }
    };
    ([column(0), column(1)], client)
}

pub(super) fn turn() -> TurnState<Storeless> {
    let ([column, _], _) = site();
    column.turn
}

fn send(client: &UdpSocket, id: u16, parts: &[&str]) {
    let total = u16::try_from(parts.len()).unwrap();
    for (number, part) in (0..).zip(parts) {
        send_part(client, id, (number, total), part);
    }
}

fn send_part(client: &UdpSocket, id: u16, (number, total): (u16, u16), part: &str) {
    let header = Header { id, number, total, flow: 0 };
    client.send(&[&header.bytes()[..], part.as_bytes()].concat()).unwrap();
}

/// Receives all answers, as id and text, from the one address to which the client is connected.
fn answers(client: &UdpSocket) -> Vec<(u16, String)> {
    let mut buffer = [0; 2000];
    let mut all = Vec::new();
    while let Ok(bytes) = client.recv(&mut buffer) {
        let (header, text) = Header::read(&buffer[..bytes]).unwrap();
        assert_eq!((header.number, header.total), (0, 1));
        assert!(bytes > HEADER_BYTES);
        all.push((header.id, String::from_utf8(text.to_vec()).unwrap()));
    }
    all
}

#[test]
fn what_is_stolen_is_answered_once_from_where_it_was_sent() {
    let ([mut victim, mut thief], client) = site();
    let mut sent_bytes = 0;
    for id in 0..40 {
        let text = format!("set k{id} 0 0 1\r\nv\r\nget k{id}\r\n");
        send(&client, id, &[&text]);
        sent_bytes += HEADER_BYTES + text.len();
    }
    let (mut stolen, mut own) = (0, 0);
    while stolen + own < 40 {
        let (theirs, ours) = (thief.steal(), victim.turns());
        assert!(theirs + ours > 0);
        (stolen, own) = (stolen + theirs, own + ours);
    }
    assert!(stolen > 0 && own > 0, "{stolen} and {own}");
    assert_eq!((thief.steal(), victim.turns(), thief.turns()), (0, 0, 0));
    let mut answers = answers(&client);
    answers.sort_unstable();
    let expected = |id| (id, "STORED\r\nEND\r\n".to_owned());
    assert_eq!(answers, (0..40).map(expected).collect::<Vec<_>>());
    let received = |of: &Column| of.turn.counters.udp_received.get();
    assert_eq!([received(&victim), received(&thief)], [own as u64, stolen as u64]);
    let read = |of: &Column| of.turn.counters.bytes_read.get();
    assert_eq!(read(&victim) + read(&thief), sent_bytes as u64);
}

#[test]
fn parts_that_two_columns_receive_are_one_request() {
    let ([mut victim, mut thief], client) = site();
    let parts = ["set k 0 0 6\r\n", "abc", "def\r\n"];
    let ends = [("STORED\r\n", 5), ("STORED\r\n", 6), ("STORED\r\n", 7)];
    // `theirs` is the number of the part that the thief receives.
    for (theirs, (reply, id)) in ends.into_iter().enumerate() {
        for (number, part) in parts.iter().enumerate() {
            send_part(&client, id, (u16::try_from(number).unwrap(), 3), part);
            let came = if number == theirs { thief.steal() } else { victim.turns() };
            assert_eq!(came, 1);
        }
        assert_eq!(answers(&client), [(id, reply.to_owned())]);
    }
}

#[test]
fn a_part_that_was_stolen_waits_no_longer_than_others() {
    let ([mut victim, mut thief], client) = site();
    let dropped = |of: &Column| of.turn.counters.udp_dropped_incomplete.get();
    // Late requests are dropped by `now_ms`, because `served_ms` stops while a column sleeps.
    (victim.turn.now_ms, thief.turn.now_ms) = (50_000, 50_000);
    send_part(&client, 2, (0, 2), "get ");
    assert_eq!(thief.steal(), 1);
    victim.datagrams.drop_late(&victim.turn);
    assert_eq!(dropped(&victim), 0);
    send_part(&client, 2, (1, 2), "k\r\n");
    assert_eq!(victim.turns(), 1);
    assert_eq!(answers(&client).len(), 1);
    send_part(&client, 3, (0, 2), "get ");
    assert_eq!(thief.steal(), 1);
    // The victim receives nothing more, so the thief drops the victim's late requests too.
    thief.turn.now_ms += PARTS_WAIT_MS_MAX;
    thief.datagrams.drop_late(&thief.turn);
    assert_eq!((dropped(&victim), dropped(&thief)), (0, 1));
    assert!(!victim.datagrams.gathers[0].any());
}

#[test]
fn a_thief_whose_request_waits_takes_no_more() {
    let ([_, mut thief], client) = site();
    send(&client, 1, &["get k\r\n"]);
    // Pretends that an earlier request waits for room.
    thief.datagrams.rest = Some(super::Backlog::default());
    assert_eq!(thief.steal(), 0);
    assert_eq!(answers(&client), []);
    thief.datagrams.rest = None;
    assert_eq!(thief.steal(), 1);
    assert_eq!(answers(&client).len(), 1);
}
