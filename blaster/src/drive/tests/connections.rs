//! Tests that answers are counted on the connections that they arrive on.
//!
//! Where: unit tests of `drive`.
//! Invariant: every answer counts on one connection, over every transport on one thread and on two.

use super::*;
use crate::measure::connections::CONNECTIONS_APART_MAX;
use std::io::{BufRead, BufReader, Write};
use std::sync::mpsc::{Receiver, Sender, channel};

#[test]
fn each_answer_counts_on_one_connection_over_every_transport() {
    let places = [tcp(), udp(), Place::Unix(socket_file())];
    let server = server(&places, plan());
    let workload = workload(&[("mix", "get=3,set=1"), ("batch", "1-3")]);
    let open = Pace::Open { rate_per_s: 20_000.0, connections: 3, outstanding_max: 64 };
    let closed = Pace::Closed { connections: 3, depth: 4 };
    for place in server.addresses() {
        for (pace, receive_cpu) in [(closed, None), (open, None), (closed, Some(0))] {
            let drive = drive(&workload, &[place.clone(), place.clone()], Protocol::Text);
            let end = EndCondition { requests: Some(3000), ..drive.end.clone() };
            let tally = ran(Drive { pace, receive_cpu, end, first_connection: (2, 7), ..drive });
            let connections = &tally.connections;
            assert_eq!(connections.answered(), tally.total().answered, "{place:?} {pace:?}");
            // There are seven connections to each target, and the thread has numbers 2, 3 and 4.
            // The second target's connections are numbered from 7.
            let numbers: Vec<u32> = connections.numbers().collect();
            assert_eq!(numbers, [2, 3, 4, 9, 10, 11], "{place:?} {pace:?}");
        }
    }
    server.stop().unwrap();
}

#[test]
fn more_connections_than_are_kept_apart_are_not_counted() {
    let server = server(&[tcp()], plan());
    let workload = workload(&[]);
    let drive = drive(&workload, server.addresses(), Protocol::Text);
    let end = EndCondition { requests: Some(100), ..drive.end.clone() };
    let drive = Drive { end, ..drive };
    for (all, kept) in [(CONNECTIONS_APART_MAX, 1), (CONNECTIONS_APART_MAX + 1, 0)] {
        let pace = Pace::Closed { connections: 1, depth: 1 };
        let tally = ran(Drive { pace, first_connection: (all - 1, all), ..drive.clone() });
        assert_eq!((tally.connections.len(), tally.total().answered), (kept, 100), "{all}");
    }
    server.stop().unwrap();
}

/// Answers the gets of a connection. Sends a report to `tell` after each of the first `told_max`
/// answers. If `told` is given, waits for nine reports from it before each answer.
fn answer(
    stream: std::net::TcpStream,
    (tell, told_max): (Option<Sender<()>>, u32),
    told: Option<Receiver<()>>,
) {
    let (mut tell, mut line, mut count) = (tell, vec![], 0);
    let mut source = BufReader::new(&stream);
    while source.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
        // Once the sender is dropped, `recv` returns at once.
        told.iter().for_each(|told| (0..9).for_each(|_| _ = told.recv()));
        if (&stream).write_all(b"END\r\n").is_err() {
            return;
        }
        count += 1;
        tell = tell.filter(|tell| count < told_max && tell.send(()).is_ok());
    }
}

#[test]
fn a_connection_that_waits_for_another_has_fewer_answers_and_the_longer_times() {
    let workload = workload(&[("mix", "get=1")]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let drive = drive(&workload, &[Place::Tcp(listener.local_addr().unwrap())], Protocol::Text);
    let end = EndCondition { requests: Some(200), ..drive.end.clone() };
    let drive = Drive { pace: Pace::Closed { connections: 2, depth: 1 }, end, ..drive };
    let tally = std::thread::scope(|scope| {
        scope.spawn(move || {
            let [one, other] = [(); 2].map(|()| listener.accept().unwrap().0);
            let (tell, told) = channel();
            std::thread::scope(|scope| {
                // `other` gets one answer per nine answers of `one`, up to answer 150 of `one`.
                scope.spawn(move || answer(one, (Some(tell), 150), None));
                scope.spawn(move || answer(other, (None, 0), Some(told)));
            });
        });
        ran(drive)
    });
    let (connections, all) = (&tally.connections, tally.total());
    let (fewest, most) = connections.answered_range().unwrap();
    assert!(fewest + most == 200 && most >= 150, "{fewest} and {most}");
    let fairness = connections.fairness().unwrap();
    assert!(fairness <= 0.8, "{fairness}");
    let (worst_ns, median_ns) = (connections.worst_p99_ns(), all.response_ns.quantile_ns(0.5));
    assert!(worst_ns > median_ns, "{worst_ns:?} {median_ns:?}");
}
