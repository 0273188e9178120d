//! Tests of `datagram` over loopback, which neither drops nor reorders what fits its buffers.
//!
//! Where: beside the path of a request.
//! Invariant: every wait ends by a deadline.

use super::*;
use crate::{Epoll, Interest, Timeout};
use std::time::Duration;

/// A server's socket, a client's, and the epoll that watches both.
struct Pair {
    server: Datagrams,
    client: Datagrams,
    epoll: Epoll,
    calls: Calls,
}

fn pair(address: &str) -> Pair {
    let calls = Calls::default();
    let server = Datagrams::bind(address.parse().unwrap(), false).unwrap();
    let client = Datagrams::connect(server.address().unwrap()).unwrap();
    let epoll = Epoll::new(8).unwrap();
    epoll.add(&server, 1, Interest::Read, &calls).unwrap();
    epoll.add(&client, 2, Interest::Read, &calls).unwrap();
    Pair { server, client, epoll, calls }
}

impl Pair {
    /// Receives `count` datagrams at the server or at the client.
    fn arrive(&mut self, at_server: bool, count: usize) -> Vec<(Vec<u8>, Sender)> {
        let mut inbox = Inbox::new(64);
        let mut came = Vec::new();
        while came.len() < count {
            let limit = Timeout::Within(Duration::from_secs(20));
            let socket = if at_server { &self.server } else { &self.client };
            let mut received = socket.receive(&mut inbox, &self.calls);
            while received.datagrams > 0 {
                came.extend((0..received.datagrams).map(|index| {
                    let datagram = inbox.datagram(index).unwrap();
                    assert!(!datagram.is_cut);
                    (datagram.bytes.to_vec(), *datagram.sender)
                }));
                received = socket.receive(&mut inbox, &self.calls);
            }
            assert!(received.is_drained);
            let waits = came.len() < count;
            assert!(!waits || self.epoll.wait(limit, &self.calls).unwrap().len() > 0, "lost some");
        }
        came
    }
}

#[test]
fn datagrams_go_there_and_back_over_both_families_with_and_without_segmentation() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        for gso in [false, true] {
            let mut pair = pair(address);
            let mut outbox = Outbox::new();
            let texts: Vec<Vec<u8>> = (0..150_u8)
                .map(|number| vec![number; if number % 40 == 39 { 7 } else { 9 }])
                .collect();
            texts.iter().for_each(|text| outbox.begin(None).extend_from_slice(text));
            assert_eq!((outbox.len(), outbox.last_bytes()), (150, 9));
            let mut first = 0;
            while first < outbox.len() {
                match pair.client.send(&outbox, first, gso, &pair.calls) {
                    SentDatagrams::Some(sent @ 1..) => first += sent,
                    other => panic!("{other:?} with gso {gso}"),
                }
            }
            let calls = pair.calls.writes.get();
            assert!(if gso { calls == 1 } else { calls == 3 }, "{calls} sends with gso {gso}");
            let came = pair.arrive(true, texts.len());
            assert!(came.iter().map(|(text, _)| text).eq(&texts), "with gso {gso}");
            outbox.clear();
            for (text, sender) in &came {
                outbox.begin(Some(*sender)).extend_from_slice(text);
            }
            let mut first = 0;
            while let SentDatagrams::Some(sent @ 1..) =
                pair.server.send(&outbox, first, gso, &pair.calls)
            {
                first += sent;
            }
            let back = pair.arrive(false, texts.len());
            assert!(back.iter().map(|(text, _)| text).eq(&texts));
        }
    }
}

#[test]
fn a_datagram_too_long_for_its_slot_is_cut_and_one_too_long_for_its_path_refused() {
    let mut pair = pair("127.0.0.1:0");
    let mut outbox = Outbox::new();
    outbox.begin(None).extend_from_slice(&[7; 100]);
    assert_eq!(pair.client.send(&outbox, 0, false, &pair.calls), SentDatagrams::Some(1));
    let mut inbox = Inbox::new(64);
    let limit = Timeout::Within(Duration::from_secs(20));
    assert_eq!(pair.epoll.wait(limit, &pair.calls).unwrap().len(), 1);
    let received = pair.server.receive(&mut inbox, &pair.calls);
    assert_eq!(received, Received { datagrams: 1, is_drained: true });
    let datagram = inbox.datagram(0).unwrap();
    assert!(datagram.is_cut && datagram.bytes == [7; 64]);
    outbox.begin(None).extend_from_slice(&[7; 70_000]);
    assert_eq!(pair.client.send(&outbox, 1, false, &pair.calls), SentDatagrams::TooLarge);
    outbox.take_back();
    assert_eq!(outbox.len(), 1);
}

#[test]
fn datagrams_that_nobody_receives_are_lost_and_the_socket_stays_usable() {
    let nobody = Datagrams::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let client = Datagrams::connect(nobody.address().unwrap()).unwrap();
    drop(nobody);
    let (calls, mut outbox) = (Calls::default(), Outbox::new());
    for _ in 0..10 {
        outbox.clear();
        outbox.begin(None).push(1);
        assert_eq!(client.send(&outbox, 0, false, &calls), SentDatagrams::Some(1));
    }
    assert_eq!(client.receive(&mut Inbox::new(64), &calls).datagrams, 0);
}
