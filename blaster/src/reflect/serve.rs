//! The loop of the null server: one thread, its sockets and its connections.
//!
//! Where: between the sockets and the `Responder`s.
//! Invariant: delayed replies keep their order. After an event, a connection is read only once; the
//! next turn of the loop reads the bytes that are left.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use net::{
    Accepted, BATCH_MAX, Calls, Datagrams, Epoll, Event, Inbox, Interest, Listener, Outbox, Peer,
    ReadResult, SLOT_BYTES_MAX, Stream, Timeout, Waker,
};
use protocol::binary::MAGIC_REPLY;
use protocol::flow;
use protocol::udp::{self, Header};
use slab::Slab;

use super::answer::{HELD_BYTES_MAX, ReplyBuffer, Responder, Value};
use super::counts::Counts;
use super::faults::{Fault, Faults, MessageCounter};
use super::flags::Plan;
use super::replies::{Broken, ReplyQueue};
use crate::line::datagram_batch::DatagramBatch;
use crate::wire::{Protocol, ReadOutcome, Reader};

/// A connection with this number of unsent reply bytes is not read.
const OUT_BYTES_MAX: usize = 1 << 20;
const EVENTS_MAX: usize = 256;
const READ_BYTES: usize = 256 << 10;
/// Maximum number of batches of datagrams that one turn of the loop receives from a socket.
const BATCHES_MAX: usize = 16;
/// Maximum number of replies that are delayed at a time. Further replies are sent at once.
const DELAYED_MAX: usize = 1 << 20;
/// A message that waits to be overtaken by the next message is sent after at most this time.
const HOLD_MAX: Duration = Duration::from_millis(5);

const WAKER: u64 = 0;
/// The first listener's token. Datagram sockets, AF_XDP ports and connections have higher tokens.
const FIRST: u64 = 1;

/// The sockets of one thread.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    pub(super) listeners: Vec<Arc<Listener>>,
    pub(super) datagrams: Vec<Datagrams>,
    pub(super) ports: Vec<net::xdp::Port>,
}

struct Connection {
    /// Distinguishes connections that have the same number at different times.
    generation: u64,
    stream: Stream,
    responder: Responder,
    held: Vec<u8>,
    out: ReplyQueue,
    is_full: bool,
    /// True if `held` or the socket may contain unanswered bytes.
    is_unread: bool,
}

struct DelayedReply {
    due: Instant,
    to: Destination,
    bytes: Vec<u8>,
}

enum Destination {
    /// A connection's number and generation.
    Stream(u64, u64),
    /// The index of a UDP socket, and the peer to which the socket sends the reply.
    Udp(usize, Peer),
}

struct Thread<'a> {
    plan: &'a Plan,
    number: usize,
    counts: &'a Counts,
    epoll: Epoll,
    calls: Calls,
    sockets: Sockets,
    connections: Slab<Connection>,
    delayed: VecDeque<DelayedReply>,
    value: Value,
    /// The value, which is the same for all keys; empty if values are copied.
    constant: &'static [u8],
    numbers: MessageCounter,
    /// The UDP message that is held back: bytes, peer, index of the socket, and time of holding.
    held: Option<(Vec<u8>, Peer, usize, Instant)>,
    buffer: Vec<u8>,
    answer: Vec<u8>,
    inbox: Option<Inbox>,
    /// Answers a datagram if no delay and no faults are planned; reset for each datagram.
    datagram_responder: Responder,
    /// Datagram sockets that may have more datagrams, after `BATCHES_MAX` batches were received.
    full_inboxes: Vec<u64>,
    /// AF_XDP ports that may have more datagrams, after `BATCHES_MAX` batches were received.
    full_ports: Vec<u64>,
    batch: DatagramBatch,
    outbox: Outbox,
    unread: Vec<u64>,
    events: Vec<Event>,
    last_generation: u64,
    next_stall: Option<Instant>,
}

pub(super) fn run(
    (plan, number): (&Plan, usize),
    sockets: Sockets,
    counts: &Counts,
    stop: &AtomicBool,
    waker: &Waker,
) -> io::Result<()> {
    let (epoll, calls) = (Epoll::new(EVENTS_MAX)?, Calls::default());
    epoll.add(waker, WAKER, Interest::Wake, &calls)?;
    let mut token = FIRST;
    for listener in &sockets.listeners {
        epoll.add(&**listener, token, Interest::AcceptShared, &calls)?;
        token += 1;
    }
    for socket in &sockets.datagrams {
        epoll.add(socket, token, Interest::Read, &calls)?;
        token += 1;
    }
    for port in &sockets.ports {
        epoll.add(port, token, Interest::Read, &calls)?;
        token += 1;
    }
    let mut thread = Thread {
        plan,
        number,
        counts,
        epoll,
        calls,
        sockets,
        connections: Slab::new(),
        delayed: VecDeque::new(),
        value: Value::new(plan.value_bytes),
        constant: plan.send.constant(plan.value_bytes),
        numbers: MessageCounter::default(),
        held: None,
        buffer: vec![0; READ_BYTES],
        answer: Vec::new(),
        inbox: Some(Inbox::new(BATCH_MAX, SLOT_BYTES_MAX)),
        datagram_responder: Responder::default(),
        full_inboxes: Vec::new(),
        full_ports: Vec::new(),
        batch: DatagramBatch::default(),
        outbox: DatagramBatch::outbox(true),
        unread: Vec::new(),
        events: Vec::new(),
        last_generation: 0,
        next_stall: plan.stall.map(|(every, _)| Instant::now() + every),
    };
    // Acquire: pairs with the release in `RunningServer::end`.
    while !stop.load(Ordering::Acquire) {
        thread.turn()?;
    }
    Ok(())
}

impl Thread<'_> {
    fn turn(&mut self) -> io::Result<()> {
        let limit = self.limit();
        let mut events = std::mem::take(&mut self.events);
        events.extend(self.epoll.wait(limit, &self.calls)?);
        self.stall();
        let mut unread = std::mem::take(&mut self.unread);
        // A connection that also had an event in the last turn is listed twice.
        unread.sort_unstable();
        unread.dedup();
        for number in unread {
            self.connection(number, false);
        }
        for socket in std::mem::take(&mut self.full_inboxes) {
            self.answer_datagrams(socket);
        }
        for port in std::mem::take(&mut self.full_ports) {
            self.answer_packets(port);
        }
        let listeners = FIRST + self.sockets.listeners.len() as u64;
        let datagrams = listeners + self.sockets.datagrams.len() as u64;
        let streams = self.first_stream();
        for event in events.drain(..) {
            match event.token {
                WAKER => {}
                token if token < listeners => self.accept(token - FIRST),
                token if token < datagrams => self.answer_datagrams(token - listeners),
                token if token < streams => self.answer_packets(token - datagrams),
                token => self.connection(token - streams, event.writable),
            }
        }
        self.events = events;
        self.send_delayed();
        self.release(false);
        Ok(())
    }

    fn limit(&self) -> Timeout {
        let is_full = !self.full_inboxes.is_empty() || !self.full_ports.is_empty();
        if !self.unread.is_empty() || is_full {
            return Timeout::Zero;
        }
        let held = self.held.as_ref().map(|(.., since)| *since + HOLD_MAX);
        let due = self.delayed.front().map(|delayed| delayed.due);
        let next = [held, due, self.next_stall].into_iter().flatten().min();
        next.map_or(Timeout::Never, |next| {
            Timeout::Exactly(next.saturating_duration_since(Instant::now()))
        })
    }

    fn stall(&mut self) {
        let (Some((every, lasting)), Some(next)) = (self.plan.stall, self.next_stall) else {
            return;
        };
        if Instant::now() >= next {
            std::thread::sleep(lasting);
            Counts::add(&self.counts.stalls, 1);
            self.next_stall = Some(Instant::now() + every);
        }
    }

    fn accept(&mut self, listener: u64) {
        let Some(listener) =
            usize::try_from(listener).ok().and_then(|at| self.sockets.listeners.get(at))
        else {
            return;
        };
        let Accepted::Stream(stream) = listener.accept(&self.calls) else { return };
        let Ok(out) = ReplyQueue::new(&stream, self.plan.send, self.constant) else { return };
        let first = self.first_stream();
        let entry = self.connections.vacant_entry();
        let token = first + entry.key() as u64;
        if self.epoll.add(&stream, token, Interest::Read, &self.calls).is_err() {
            return;
        }
        self.last_generation += 1;
        entry.insert(Connection {
            generation: self.last_generation,
            stream,
            responder: Responder::default(),
            held: Vec::new(),
            out,
            is_full: false,
            is_unread: false,
        });
    }

    fn connection(&mut self, number: u64, is_writable: bool) {
        let Ok(at) = usize::try_from(number) else { return };
        let mut connections = std::mem::take(&mut self.connections);
        if let Some(own) = connections.get_mut(at) {
            own.is_full &= !is_writable;
            if !self.serve(number, own) {
                connections.remove(at);
            }
        }
        self.connections = connections;
    }

    /// Sends waiting replies, reads once, and answers. Returns false if the connection has ended.
    fn serve(&mut self, number: u64, own: &mut Connection) -> bool {
        if !self.flush(number, own) {
            return false;
        }
        own.is_unread = true;
        if own.is_full || own.out.bytes_left() >= OUT_BYTES_MAX {
            return true;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let held = own.held.len();
        buffer[..held].copy_from_slice(&own.held);
        own.held.clear();
        let got = own.stream.read(&mut buffer[held..], &self.calls);
        let came = match got {
            ReadResult::Bytes(bytes) => bytes,
            ReadResult::Empty => 0,
            ReadResult::End | ReadResult::Broken => {
                self.buffer = buffer;
                return false;
            }
        };
        let input = &buffer[..held + came];
        let mut late = Vec::new();
        let is_late = !self.plan.delay.is_zero() && self.delayed.len() < DELAYED_MAX;
        let mut out = if is_late { ReplyBuffer::copied(&mut late) } else { own.out.buffer() };
        let taken = own.responder.respond(input, &self.value, OUT_BYTES_MAX, &mut out);
        let is_good = taken.is_some_and(|(used, answers)| {
            Counts::add(&self.counts.answers, answers);
            own.held.extend_from_slice(&input[used..]);
            // `held` has requests whose answers wait for room, and then an incomplete request.
            own.held.len() <= HELD_BYTES_MAX + READ_BYTES / 2
        });
        let may_be_more = held + came == buffer.len();
        let waits = taken.is_some_and(|(used, _)| used < input.len())
            && own.out.bytes_left() >= OUT_BYTES_MAX;
        self.buffer = buffer;
        if !late.is_empty() {
            let (due, to) =
                (Instant::now() + self.plan.delay, Destination::Stream(number, own.generation));
            self.delayed.push_back(DelayedReply { due, to, bytes: late });
        }
        own.is_unread = may_be_more || waits;
        if !is_good || !self.flush(number, own) {
            return false;
        }
        if own.is_unread && !own.is_full {
            self.unread.push(number);
        }
        true
    }

    /// Sends waiting replies. Returns false if the connection has ended.
    fn flush(&mut self, number: u64, own: &mut Connection) -> bool {
        if own.is_full {
            return true;
        }
        let was_full = own.out.is_begun();
        own.is_full = match own.out.send(&own.stream, self.counts, &self.calls) {
            Ok(is_empty) => !is_empty,
            Err(Broken) => return false,
        };
        let first = self.first_stream();
        if own.is_full {
            let both = Interest::Both;
            return self.epoll.change(&own.stream, first + number, both, &self.calls).is_ok();
        }
        if was_full {
            let read = Interest::Read;
            return self.epoll.change(&own.stream, first + number, read, &self.calls).is_ok();
        }
        true
    }

    fn send_delayed(&mut self) {
        let now = Instant::now();
        while self.delayed.front().is_some_and(|delayed| delayed.due <= now) {
            let Some(DelayedReply { to, bytes, .. }) = self.delayed.pop_front() else { return };
            match to {
                Destination::Stream(number, generation) => {
                    let Ok(at) = usize::try_from(number) else { continue };
                    let mut connections = std::mem::take(&mut self.connections);
                    let own = connections.get_mut(at).filter(|own| own.generation == generation);
                    if let Some(own) = own {
                        own.out.add(&bytes);
                        if !self.flush(number, own) {
                            connections.remove(at);
                        }
                    }
                    self.connections = connections;
                }
                Destination::Udp(socket, source) => {
                    self.deliver(socket, source, &bytes);
                    self.post(socket);
                }
            }
        }
    }

    fn answer_datagrams(&mut self, socket: u64) {
        let Ok(socket) = usize::try_from(socket) else { return };
        let Some(mut inbox) = self.inbox.take() else { return };
        let is_plain = self.plan.delay.is_zero()
            && self.plan.faults == Faults::default()
            && !self.plan.is_apart;
        for _ in 0..BATCHES_MAX {
            let Some(own) = self.sockets.datagrams.get(socket) else { break };
            let received = own.receive(&mut inbox, &self.calls);
            let mut misrouted = 0;
            for datagram in inbox.datagrams() {
                let read = Header::read(datagram.bytes).filter(|(header, _)| header.is_part());
                let Some((header, bytes)) = read else { continue };
                misrouted += u64::from(self.is_misrouted(header.flow));
                if !is_plain || !self.answer_at_once(header, bytes, datagram.peer) {
                    self.answer_with_faults(socket, header, bytes, datagram.peer);
                }
            }
            if let Some(count) = self.counts.received.get(socket).and_then(|of| of.get(self.number))
            {
                Counts::add(count, received.datagrams as u64);
            }
            Counts::add(&self.counts.misrouted, misrouted);
            self.post(socket);
            if received.is_drained {
                self.inbox = Some(inbox);
                return;
            }
        }
        self.inbox = Some(inbox);
        self.full_inboxes.push(socket as u64);
    }

    fn first_stream(&self) -> u64 {
        let Sockets { listeners, datagrams, ports } = &self.sockets;
        FIRST + (listeners.len() + datagrams.len() + ports.len()) as u64
    }

    fn answer_packets(&mut self, number: u64) {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(port) = self.sockets.ports.get_mut(at) else { return };
        for _ in 0..BATCHES_MAX {
            let received = port.inbox.receive(&self.calls);
            for datagram in port.inbox.datagrams() {
                let read = Header::read(datagram.bytes).filter(|(header, _)| header.is_part());
                let Some((header, bytes)) = read else { continue };
                self.answer.clear();
                self.datagram_responder.reset();
                let taken = self.datagram_responder.respond(
                    bytes,
                    &self.value,
                    OUT_BYTES_MAX,
                    &mut ReplyBuffer::copied(&mut self.answer),
                );
                let Some((_, answers)) = taken.filter(|_| !self.answer.is_empty()) else {
                    continue;
                };
                Counts::add(&self.counts.answers, answers);
                for (head, part) in parts(header.id, &self.answer) {
                    if !port.outbox.add(datagram.peer, &head, [part]) {
                        port.outbox.post_or_drop(&self.calls);
                        // If the outbox still has no room, this datagram is lost.
                        port.outbox.add(datagram.peer, &head, [part]);
                    }
                }
            }
            port.outbox.post_or_drop(&self.calls);
            if received.is_drained {
                port.inbox.release();
                return;
            }
        }
        self.full_ports.push(number);
    }

    fn is_misrouted(&self, flow: u16) -> bool {
        let threads = 1..=self.plan.threads;
        let flow = usize::from(flow);
        !self.plan.has_ports && threads.contains(&flow) && flow != self.number + 1
    }

    /// Writes an answer into the batch. Returns false if the answer needs more than one datagram.
    fn answer_at_once(&mut self, header: Header, bytes: &[u8], source: &Peer) -> bool {
        let out = self.batch.begin(Some(source), flow::ANY);
        let head = Header { id: header.id, number: 0, total: 1, flow: 0 };
        let start = out.len();
        out.extend_from_slice(&head.bytes());
        let most = start + udp::ANSWER_BYTES_MAX;
        self.datagram_responder.reset();
        let taken = self.datagram_responder.respond(
            bytes,
            &self.value,
            most,
            &mut ReplyBuffer::copied(out),
        );
        let is_whole = taken.is_some_and(|(used, _)| used == bytes.len());
        let length = self.batch.end();
        if !is_whole || length > udp::ANSWER_BYTES_MAX || length <= udp::HEADER_BYTES {
            self.batch.remove_last();
            return taken.is_none() || length <= udp::HEADER_BYTES;
        }
        Counts::add(&self.counts.answers, taken.map_or(0, |(_, answers)| answers));
        true
    }

    fn answer_with_faults(&mut self, socket: usize, header: Header, bytes: &[u8], source: &Peer) {
        let mut answer = Vec::new();
        let taken = Responder::default().respond(
            bytes,
            &self.value,
            OUT_BYTES_MAX,
            &mut ReplyBuffer::copied(&mut answer),
        );
        let Some((_, answers)) = taken.filter(|_| !answer.is_empty()) else { return };
        Counts::add(&self.counts.answers, answers);
        let ends = if self.plan.is_apart { ends(&answer) } else { vec![answer.len()] };
        let mut from = 0;
        for end in ends {
            let bytes = messages(header.id, &answer[from..end]);
            from = end;
            if self.plan.delay.is_zero() || self.delayed.len() >= DELAYED_MAX {
                self.deliver(socket, *source, &bytes);
            } else {
                let (due, to) =
                    (Instant::now() + self.plan.delay, Destination::Udp(socket, *source));
                self.delayed.push_back(DelayedReply { due, to, bytes });
            }
        }
    }

    fn deliver(&mut self, socket: usize, source: Peer, bytes: &[u8]) {
        let copies = match self.plan.faults.fault_of(self.numbers.next()) {
            Fault::Drop => return Counts::add(&self.counts.dropped, 1),
            Fault::Reorder => {
                self.release(true);
                self.held = Some((bytes.to_vec(), source, socket, Instant::now()));
                return;
            }
            Fault::Duplicate => {
                Counts::add(&self.counts.duplicated, 1);
                2
            }
            Fault::None => 1,
        };
        (0..copies).for_each(|_| self.append(source, bytes));
        if let Some((held, source, ..)) = self.held.take_if(|held| held.2 == socket) {
            Counts::add(&self.counts.reordered, 1);
            self.append(source, &held);
        }
    }

    /// Sends the message that is held back, if `HOLD_MAX` has passed or `at_once` is true.
    fn release(&mut self, at_once: bool) {
        let is_due = |since: &Instant| at_once || since.elapsed() >= HOLD_MAX;
        if self.held.as_ref().is_some_and(|(.., since)| is_due(since))
            && let Some((held, source, socket, _)) = self.held.take()
        {
            // The batch, which may be for another socket, is put aside until the message is sent.
            let waiting = std::mem::take(&mut self.batch);
            self.append(source, &held);
            self.post(socket);
            self.batch = waiting;
        }
    }

    fn append(&mut self, source: Peer, bytes: &[u8]) {
        for datagram in bytes.chunks(udp::ANSWER_BYTES_MAX) {
            self.batch.begin(Some(&source), flow::ANY).extend_from_slice(datagram);
            self.batch.end();
        }
    }

    /// Sends the batch. Datagrams that the socket does not accept are lost.
    fn post(&mut self, socket: usize) {
        let Some(own) = self.sockets.datagrams.get(socket) else { return };
        let _ = self.batch.post(&mut self.outbox, own, &self.calls);
        self.batch.clear();
    }
}

/// Positions at which the pieces of an answer end: each value, and the line after the last value.
fn ends(answer: &[u8]) -> Vec<usize> {
    let protocol = match answer {
        [MAGIC_REPLY, ..] => Protocol::Binary,
        [b'V', b'A', b' ', ..] => Protocol::Meta,
        _ => Protocol::Text,
    };
    let (mut reader, mut ends, mut at) = (Reader::new(protocol), Vec::new(), 0);
    while let ReadOutcome::Piece(_, used) = reader.next(&answer[at..]) {
        at += used;
        ends.push(at);
    }
    if at < answer.len() {
        ends.push(answer.len());
    }
    ends
}

/// Returns an answer as consecutive datagrams. Each except the last has `ANSWER_BYTES_MAX` bytes.
fn messages(id: u16, answer: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (head, part) in parts(id, answer) {
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(part);
    }
    bytes
}

/// An answer's datagrams, each as a header and a part of the answer.
fn parts(id: u16, answer: &[u8]) -> impl Iterator<Item = ([u8; udp::HEADER_BYTES], &[u8])> {
    let each = udp::ANSWER_BYTES_MAX - udp::HEADER_BYTES;
    let total = u16::try_from(answer.len().div_ceil(each)).unwrap_or(u16::MAX);
    let head = move |number| Header { id, number, total, flow: 0 }.bytes();
    (0..total).map(head).zip(answer.chunks(each))
}
