//! Tests of `udp` over loopback, which neither drops nor reorders datagrams that fit the buffers.
//!
//! Where: in the test's process.
//! Invariant: every wait ends by a deadline.

use super::socket::udp_socket;
use super::*;
use crate::option::switch_on;
use crate::{Calls, Epoll, Interest, Timeout};
use rustix::net::{connect, sockopt};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const LIMIT: Timeout = Timeout::Within(Duration::from_secs(20));
const FAMILIES: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn wait(socket: &Datagrams, calls: &Calls) {
    let mut epoll = Epoll::new(1).unwrap();
    epoll.add(socket, 1, Interest::Read, calls).unwrap();
    assert_eq!(epoll.wait(LIMIT, calls).unwrap().len(), 1, "no datagram arrived");
}

fn arrive(socket: &Datagrams, count: usize) -> Vec<(Vec<u8>, Peer)> {
    let (calls, mut inbox) = (Calls::default(), Inbox::new(BATCH_MAX, SLOT_BYTES_MAX));
    let mut arrived = Vec::new();
    while arrived.len() < count {
        let received = socket.receive(&mut inbox, &calls);
        let shown = inbox.datagrams().map(|one| (one.bytes.to_vec(), *one.peer));
        let before = arrived.len();
        arrived.extend(shown);
        assert_eq!((received.datagrams, received.cut), (arrived.len() - before, 0));
        if received.is_drained && arrived.len() < count {
            wait(socket, &calls);
        }
    }
    assert_eq!(arrived.len(), count);
    arrived
}

fn texts(arrived: &[(Vec<u8>, Peer)]) -> Vec<&[u8]> {
    arrived.iter().map(|(text, _)| &text[..]).collect()
}

fn post(socket: &Datagrams, runs: bool, texts: &[(Option<Peer>, &[u8])]) -> u64 {
    let (calls, mut outbox) = (Calls::default(), Outbox::new(256, 1024, runs));
    let mut batch = outbox.open();
    for (to, text) in texts {
        assert!(batch.add(to.as_ref(), b"", [*text]));
    }
    assert_eq!(batch.len(), texts.len());
    assert_eq!(batch.post(socket, &calls), PostResult { sent: texts.len(), obstacle: None });
    assert!(batch.is_empty());
    calls.writes.get()
}

fn pair(address: &str) -> (Datagrams, Datagrams) {
    let server = Datagrams::bind(address.parse().unwrap(), Sizes::default()).unwrap();
    let client = Datagrams::connect(server.address().unwrap(), Sizes::default()).unwrap();
    (server, client)
}

#[test]
fn datagrams_go_there_and_back_over_both_families_with_and_without_runs() {
    for address in FAMILIES {
        for runs in [false, true] {
            let (server, client) = pair(address);
            let sent: Vec<Vec<u8>> = (0..150_u8)
                .map(|number| vec![number; if number % 40 == 39 { 7 } else { 9 }])
                .collect();
            let addressed: Vec<_> = sent.iter().map(|text| (None, &text[..])).collect();
            let expected = if runs { 1 } else { 3 };
            assert_eq!(post(&client, runs, &addressed), expected);
            let arrived = arrive(&server, sent.len());
            assert_eq!(texts(&arrived), sent);
            for (_, peer) in &arrived {
                assert_eq!(peer.address(), Some(client.address().unwrap()));
                assert!(
                    peer.destination().is_none() && !peer.is_for_many() && peer.interface() == 0
                );
            }
            let back: Vec<_> =
                arrived.iter().map(|(text, peer)| (Some(*peer), &text[..])).collect();
            assert_eq!(post(&server, runs, &back), expected);
            assert_eq!(texts(&arrive(&client, sent.len())), sent);
        }
    }
}

#[test]
fn a_burst_fills_one_slot_and_comes_apart_into_its_datagrams() {
    for address in FAMILIES {
        let (server, client) = pair(address);
        let sent = [&b"one"[..], b"two", b"six", b"4"];
        post(&client, true, &sent.map(|text| (None, text)));
        post(&client, true, &[(None, b""), (None, b"end")]);
        let (calls, mut inbox) = (Calls::default(), Inbox::new(1, SLOT_BYTES_MAX));
        for expected in [&sent[..], &[b""], &[b"end"]] {
            let received = server.receive(&mut inbox, &calls);
            let datagrams = expected.len();
            assert_eq!(received, Received { datagrams, cut: 0, damaged: 0, is_drained: false });
            let arrived: Vec<_> = inbox.datagrams().map(|one| one.bytes).collect();
            assert_eq!(arrived, expected);
            assert_eq!(inbox.total_bytes(), expected.concat().len());
        }
        assert_eq!(server.receive(&mut inbox, &calls).datagrams, 0);
        assert_eq!(inbox.datagrams().count(), 0);
    }
}

#[test]
fn what_is_longer_than_its_slot_is_counted_and_only_what_is_whole_is_shown() {
    let (server, client) = pair("127.0.0.1:0");
    post(&client, false, &[(None, &[7; 100]), (None, &[8; 64])]);
    let burst = [[9; 20]; 11].map(|text| text.to_vec());
    let burst: Vec<_> = burst.iter().map(|text| (None, &text[..])).collect();
    post(&client, true, &burst);
    let (calls, mut inbox) = (Calls::default(), Inbox::new(4, 64));
    let received = server.receive(&mut inbox, &calls);
    assert_eq!(received, Received { datagrams: 1, cut: 1, damaged: 0, is_drained: false });
    let arrived: Vec<_> = inbox.datagrams().map(|one| one.bytes).collect();
    assert_eq!(arrived, [[8; 64]]);
    let received = server.receive(&mut inbox, &calls);
    assert_eq!(received, Received { datagrams: 3, cut: 8, damaged: 0, is_drained: true });
    assert!(inbox.datagrams().map(|one| one.bytes).eq([[9; 20]; 3]));
}

#[test]
fn as_many_datagrams_as_came_before_take_one_call() {
    let (server, client) = pair("127.0.0.1:0");
    let (calls, mut inbox) = (Calls::default(), Inbox::new(BATCH_MAX, 64));
    for round in 0..40 {
        post(&client, false, &[(None, &b"abc"[..]); 16]);
        let (mut datagrams, before) = (0, calls.reads.get());
        loop {
            let received = server.receive(&mut inbox, &calls);
            datagrams += received.datagrams;
            if received.is_drained {
                break;
            }
        }
        assert_eq!(datagrams, 16);
        // The inbox adapts the number of slots that it offers, so the first rounds need more calls.
        assert!(round < 4 || calls.reads.get() - before == 1, "round {round}");
    }
}

#[test]
fn letters_of_many_pieces_to_many_peers_arrive_as_they_were_written() {
    for runs in [false, true] {
        let (server, one) = pair("127.0.0.1:0");
        let two = Datagrams::connect(server.address().unwrap(), Sizes::default()).unwrap();
        post(&one, false, &[(None, b"1")]);
        post(&two, false, &[(None, b"2")]);
        let peers: Vec<Peer> = arrive(&server, 2).iter().map(|(_, peer)| *peer).collect();
        assert!(peers[0] != peers[1] && peers[1] == peers[1]);
        let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
        let (calls, mut outbox) = (Calls::default(), Outbox::new(300, 4000, runs));
        let (mut batch, mut expected) = (outbox.open(), [Vec::new(), Vec::new()]);
        for number in 0..300_usize {
            // The peers get groups of five datagrams in turn. In half of the groups, the last
            // datagram is a byte shorter, which also ends a run. Only some pieces are adjacent.
            let shorter = usize::from(number % 5 == 4 && number % 20 < 10);
            let (to, each) = (number / 5 % 2, 40 + number / 50 * 30 - shorter);
            let (cut, gap) = (number % 7, number % 3);
            let at = number * 3;
            let (left, right) = (&bytes[at..at + cut], &bytes[at + cut + gap..at + gap + each]);
            let head = &(number as u64).to_be_bytes()[..if number % 50 < 40 { 8 } else { 0 }];
            assert!(batch.add(Some(&peers[to]), head, [left, b"", right]));
            expected[to].push([head, left, right].concat());
        }
        assert_eq!(batch.post(&server, &calls), PostResult { sent: 300, obstacle: None });
        assert_eq!(calls.writes.get(), if runs { 1 } else { 5 });
        for (client, expected) in [one, two].iter().zip(&expected) {
            assert_eq!(texts(&arrive(client, 150)), *expected, "with runs: {runs}");
        }
    }
}

#[test]
fn datagrams_side_by_side_are_one_letter_and_go_as_if_each_were_one() {
    let (server, client) = pair("127.0.0.1:0");
    let bytes: Vec<u8> = (0..=255).cycle().take(80_000).collect();
    // For each entry, the length of one datagram and of all its datagrams together.
    let shapes = [
        (9, 9),
        (9, 27),
        (9, 25),
        (9, 27),
        (5, 3),
        (1000, 70_000),
        (0, 0),
        (70, 70 * 200 + 1),
        (70, 7),
        (7, 0),
    ];
    for (runs, calls_expected) in [(false, 5), (true, 1)] {
        let (calls, mut outbox) = (Calls::default(), Outbox::new(11, 11, runs));
        let (mut batch, mut expected) = (outbox.open(), Vec::new());
        for (each, all) in shapes {
            assert!(batch.add_several(None, &bytes[..all], each));
            let before = expected.len();
            expected.extend(bytes[..all].chunks(each.max(1)));
            if expected.len() == before {
                expected.push(b"");
            }
        }
        assert!(batch.add(None, b"head", [&b" and piece"[..]]));
        expected.push(b"head and piece");
        assert!(!batch.add_several(None, b"more", 1), "twelve entries of eleven");
        assert_eq!(batch.len(), expected.len());
        let sent = expected.len();
        assert_eq!(batch.post(&client, &calls), PostResult { sent, obstacle: None });
        assert_eq!(calls.writes.get(), calls_expected, "with runs: {runs}");
        assert_eq!(texts(&arrive(&server, sent)), expected);
    }
}

#[test]
fn an_outbox_takes_what_it_has_room_for_and_has_room_again_when_it_is_posted() {
    let (server, client) = pair("127.0.0.1:0");
    let (calls, mut outbox) = (Calls::default(), Outbox::new(2, 3, true));
    let mut batch = outbox.open();
    assert!(batch.add(None, b"", [&b"ab"[..], b"c"]));
    assert!(!batch.add(None, b"", [&b"d"[..], b"e"]), "four pieces of three");
    assert!(!batch.add(None, &[0; 9], [&b"d"[..]]), "a head of nine bytes");
    assert!(batch.add(None, b"12345678", [&b"d"[..]]));
    assert!(!batch.add(None, b"third", []), "three entries of two");
    assert_eq!(batch.post(&client, &calls), PostResult { sent: 2, obstacle: None });
    assert!(batch.add(None, b"third", []));
    assert_eq!(batch.post_or_drop(&client, &calls), Tally { sent: 1, ..Tally::default() });
    assert!(!batch.add(None, b"", [&b"x"[..]; 4]), "room for three pieces, never four");
    assert!(batch.add(None, b"lost", []));
    // Datagrams that are not posted are dropped.
    assert!(outbox.open().is_empty());
    assert_eq!(texts(&arrive(&server, 3)), [&b"abc"[..], b"12345678d", b"third"]);
    let (mut outbox, piece) = (Outbox::new(1, 2000, false), [&b"x"[..]]);
    assert!(!outbox.open().add(None, b"", piece.into_iter().cycle().take(1024)));
    let mut batch = outbox.open();
    assert!(batch.add(None, b"1", piece.into_iter().cycle().take(1023)));
    assert_eq!(batch.post(&client, &calls), PostResult { sent: 1, obstacle: None });
    assert_eq!(arrive(&server, 1)[0].0.len(), 1024);
    let is_send = |_: &dyn Send| {};
    is_send(&outbox);
}

#[test]
fn what_the_system_refuses_is_dropped_and_told_and_the_rest_goes() {
    let (server, client) = pair("127.0.0.1:0");
    let long = vec![7; 70_000];
    let mut nowhere = Peer::NONE;
    nowhere.address.bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
    nowhere.address.bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
    nowhere.address.len = 16;
    assert_eq!(nowhere.address(), Some(([127, 0, 0, 1], 0).into()));
    let (calls, mut outbox) = (Calls::default(), Outbox::new(9, 9, true));
    let mut batch = outbox.open();
    post(&client, false, &[(None, b"")]);
    let peer = arrive(&server, 1)[0].1;
    for text in [&b"one"[..], &long, b"two"] {
        assert!(batch.add(Some(&peer), b"", [text]));
    }
    assert!(batch.add(Some(&nowhere), b"", [&b"lost"[..]]));
    assert!(batch.add(Some(&peer), b"", [&b"end"[..]]));
    let tally = batch.post_or_drop(&server, &calls);
    assert_eq!(tally, Tally { sent: 3, full: 0, too_long: 1, refused: 1, ..Tally::default() });
    assert!(batch.is_empty());
    assert_eq!(texts(&arrive(&client, 3)), [b"one", b"two", b"end"]);
    assert!(batch.add_several(Some(&nowhere), b"112233", 2));
    assert!(batch.add_several(Some(&peer), b"4455", 2));
    let tally = batch.post_or_drop(&server, &calls);
    assert_eq!(tally, Tally { sent: 2, full: 0, too_long: 0, refused: 3, ..Tally::default() });
    assert_eq!(texts(&arrive(&client, 2)), [b"44", b"55"]);
    assert!(batch.add(Some(&peer), b"", [&b"one"[..]]) && batch.add(None, b"", [&long[..]]));
    let posted = batch.post(&server, &calls);
    assert_eq!(posted, PostResult { sent: 1, obstacle: Some(Obstacle::TooLong) });
    assert_eq!(batch.len(), 1);
}

#[test]
fn a_run_that_the_kernel_refuses_goes_letter_by_letter_and_runs_rest_after_some() {
    let (server, client) = pair("127.0.0.1:0");
    // If a socket computes no checksums, the kernel refuses to split a run.
    switch_on(&client.0, libc::SOL_SOCKET, libc::SO_NO_CHECK).unwrap();
    let (calls, mut outbox) = (Calls::default(), Outbox::new(64, 64, true));
    let text = [b"abc"; 64];
    let mut seen = Vec::new();
    for _ in 0..40 {
        let before = calls.writes.get();
        let mut batch = outbox.open();
        assert!(text.iter().all(|text| batch.add(None, b"", [&text[..]])));
        assert_eq!(batch.post(&client, &calls), PostResult { sent: 64, obstacle: None });
        assert_eq!(arrive(&server, 64).len(), 64);
        seen.push(calls.writes.get() - before);
    }
    // The kernel refuses eight runs. Then 1,024 datagrams are sent separately, including the 64 of
    // the eighth run. Then one run is tried.
    let is_tried = |at: u64| at < 8 || at % 16 == 7;
    let expected: Vec<u64> = (0..40).map(|at| if is_tried(at) { 2 } else { 1 }).collect();
    assert_eq!(seen, expected);
    let (mut outbox, several) = (Outbox::new(1, 1, true), text.map(|text| *text).concat());
    let mut batch = outbox.open();
    let before = calls.writes.get();
    assert!(batch.add_several(None, &several, 3));
    assert_eq!(batch.post(&client, &calls), PostResult { sent: 64, obstacle: None });
    assert_eq!(texts(&arrive(&server, 64)), text);
    assert_eq!(calls.writes.get() - before, 2);
    let mut outbox = Outbox::new(64, 64, true);
    let mut batch = outbox.open();
    assert!(text.iter().all(|text| batch.add(None, b"", [&text[..]])));
    let other = Datagrams::connect(server.address().unwrap(), Sizes::default()).unwrap();
    let before = calls.writes.get();
    assert_eq!(batch.post(&other, &calls).sent, 64);
    assert_eq!(calls.writes.get() - before, 1);
}

#[test]
fn datagrams_that_nobody_receives_are_lost_and_the_socket_stays_usable() {
    let (nobody, client) = pair("127.0.0.1:0");
    drop(nobody);
    for _ in 0..10 {
        post(&client, false, &[(None, &[1])]);
    }
    let mut inbox = Inbox::new(BATCH_MAX, 64);
    assert_eq!(client.receive(&mut inbox, &Calls::default()).datagrams, 0);
}

#[test]
fn a_socket_at_every_address_answers_from_the_one_that_was_asked() {
    for (everywhere, here) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "::1")] {
        let server = Datagrams::bind(everywhere.parse().unwrap(), Sizes::default()).unwrap();
        let here: IpAddr = here.parse().unwrap();
        let at = SocketAddr::new(here, server.address().unwrap().port());
        // A connected socket receives only from the address `at`.
        let client = Datagrams::connect(at, Sizes::default()).unwrap();
        post(&client, true, &[(None, b"who"), (None, b"are"), (None, b"you")]);
        let arrived = arrive(&server, 3);
        for (_, peer) in &arrived {
            assert_eq!((peer.destination(), peer.is_for_many()), (Some(here), false));
            assert!(peer.interface() > 0);
        }
        let peer = arrived[0].1;
        if here.is_ipv4() {
            let elsewhere = Peer { destination: peer::Destination::Bound, ..peer };
            post(&server, true, &[(Some(elsewhere), b"not heard")]);
        }
        post(&server, true, &[(Some(peer), b"one"), (Some(peer), b"two"), (Some(peer), b"3")]);
        assert_eq!(texts(&arrive(&client, 3)), [&b"one"[..], b"two", b"3"]);
    }
}

#[test]
fn a_datagram_for_many_is_known_as_one() {
    let server = Datagrams::bind("0.0.0.0:0".parse().unwrap(), Sizes::default()).unwrap();
    let many = Ipv4Addr::new(127, 255, 255, 255);
    let at = SocketAddr::new(many.into(), server.address().unwrap().port());
    let fd = udp_socket(at, Sizes::default()).unwrap();
    sockopt::set_socket_broadcast(&fd, true).unwrap();
    connect(&fd, &at).unwrap();
    post(&Datagrams(fd), false, &[(None, b"all of you")]);
    let peer = arrive(&server, 1)[0].1;
    assert!(peer.is_for_many());
    assert_eq!(peer.destination(), Some(many.into()));
}

#[test]
fn a_full_socket_drops_and_counts_what_it_drops() {
    let sizes = Sizes { receive_bytes: 1, send_bytes: 1 };
    let server = Datagrams::bind("127.0.0.1:0".parse().unwrap(), sizes).unwrap();
    let client = Datagrams::connect(server.address().unwrap(), Sizes::default()).unwrap();
    assert_eq!(server.dropped().unwrap(), 0);
    post(&client, false, &[(None, &[0; 500][..]); 100]);
    let dropped = server.dropped().unwrap();
    assert!(dropped > 0);
    arrive(&server, 100 - dropped as usize);
    assert_eq!(server.dropped().unwrap(), dropped);
}
