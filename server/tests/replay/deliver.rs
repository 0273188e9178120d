//! Sends the requests of a recording to a live server and compares each reply.
//!
//! Where: client side, over TCP.
//! Invariant: every request is sent, in order, and every difference is kept. After the end of a
//! connection, the next request opens a new connection.
//! Source: `../data/oracle/README.md`.

use crate::form::Form;
use crate::live::{SILENCE, Server, Stop, Wire, show};
use crate::recording::{Answer, Exchange, State};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::Range;

const PIPELINE_REQUESTS_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Delivery {
    /// Sends each request and its fence in one write.
    Whole,
    /// Sends each request in pieces of 1 to 20 bytes, and large values in pieces of up to 8 KiB.
    Pieces,
    /// Sends up to `PIPELINE_REQUESTS_MAX` requests in one write, if none needs an earlier reply.
    Pipelined,
}

pub(crate) struct Difference {
    pub(crate) index: usize,
    sent: Vec<u8>,
    got: Answer,
}

pub(crate) fn report<F: Form>(differences: &[Difference], exchanges: &[Exchange]) -> String {
    let mut text = format!("{} of {} replies differ\n", differences.len(), exchanges.len());
    for difference in differences {
        let expected = &exchanges[difference.index];
        let _ = writeln!(
            text,
            "#{}\n  in:       {}\n  expected: {} [{:?}]\n  got:      {} [{:?}]",
            difference.index,
            show(&difference.sent),
            F::show(&expected.answer.output),
            expected.answer.state,
            F::show(&difference.got.output),
            difference.got.state,
        );
    }
    text
}

pub(crate) struct Replay<F> {
    server: Server,
    wire: Wire,
    form: F,
    differences: Vec<Difference>,
}

impl<F: Form> Replay<F> {
    pub(crate) fn new(form: F, flags: &[&str]) -> Replay<F> {
        let server = Server::under_test(flags);
        let wire = server.connect();
        Replay { server, wire, form, differences: Vec::new() }
    }

    pub(crate) fn run(mut self, exchanges: &[Exchange], delivery: Delivery) -> Vec<Difference> {
        let mut done = 0;
        while done < exchanges.len() {
            let together = together::<F>(&exchanges[done..], delivery);
            self.exchange(exchanges, done..done + together, delivery);
            done += together;
        }
        assert!(self.server.is_alive(), "the server died");
        self.differences
    }

    fn exchange(&mut self, exchanges: &[Exchange], range: Range<usize>, delivery: Delivery) {
        let mut sent = VecDeque::new();
        let mut stream = Vec::new();
        for exchange in &exchanges[range.clone()] {
            let request = self.form.request(exchange);
            stream.extend_from_slice(&request);
            stream.extend_from_slice(&F::fence());
            sent.push_back(request);
        }
        match delivery {
            Delivery::Pieces => send_in_pieces(&mut self.wire, &stream),
            Delivery::Whole | Delivery::Pipelined => self.wire.send(&stream),
        }
        for index in range {
            let sent = sent.pop_front().unwrap_or_default();
            self.compare(index, sent, &exchanges[index], delivery);
        }
    }

    fn compare(&mut self, index: usize, sent: Vec<u8>, expected: &Exchange, delivery: Delivery) {
        let (reply, state) = self.reply(&expected.answer);
        let got = Answer { output: self.form.reply(&sent, &reply), state };
        if !expected.allows(&got, delivery != Delivery::Whole) {
            self.differences.push(Difference { index, sent, got });
        }
        if state != State::Ok {
            self.wire = self.server.connect();
        }
    }

    fn reply(&mut self, expected: &Answer) -> (Vec<u8>, State) {
        let mut reply = Vec::new();
        let read = match expected.state {
            State::Ok | State::Closed => F::read(&mut self.wire, &mut reply),
            // More bytes than the recorded output within `SILENCE` are a fault.
            State::Hang => self.wire.exactly(expected.output.len()).and_then(|bytes| {
                reply = bytes;
                Err(self.wire.ends(SILENCE))
            }),
        };
        let state = match read {
            Ok(()) => return (reply, State::Ok),
            Err(Stop::Closed) => State::Closed,
            Err(Stop::Silent) => State::Hang,
        };
        reply.extend(self.wire.rest());
        (reply, state)
    }
}

/// Returns how many of the next requests can be sent at once. A request whose CAS unique an earlier
/// reply contains starts a new group; a request that may end its connection ends the group.
fn together<F: Form>(exchanges: &[Exchange], delivery: Delivery) -> usize {
    if delivery != Delivery::Pipelined {
        return 1;
    }
    let mut count = 1;
    while count < exchanges.len().min(PIPELINE_REQUESTS_MAX)
        && exchanges[count - 1].goes_on()
        && !F::quotes_unique(&exchanges[count])
    {
        count += 1;
    }
    count
}

fn send_in_pieces(wire: &mut Wire, stream: &[u8]) {
    let bytes_max = if stream.len() > 2000 { 8 << 10 } else { 20 };
    let mut rest = stream;
    let mut seed = stream.len();
    while !rest.is_empty() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let piece = ((seed >> 33) % bytes_max + 1).min(rest.len());
        wire.send(&rest[..piece]);
        rest = &rest[piece..];
    }
}
