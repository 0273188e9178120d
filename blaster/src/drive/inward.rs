//! The receiving half: reads answers, matches answers with requests, and measures and counts the
//! answers. A line is one of the thread's connections; a broken line is opened again.
//!
//! Where: reads from the sockets, on the sending half's thread or on a separate thread.
//! Invariant: each request that the sending half reports ends exactly once: the request is
//! answered, times out, or fails with its connection. `Feedback` then reports the end to the
//! sending half.
//! Source: memcached's `protocol.txt`, "UDP protocol". memcached answers a multiget over UDP with
//! one datagram for each value. All datagrams have the request's id; only `END` shows that the
//! answer is complete.

mod datagrams;
mod endings;
mod interfaces;
mod quick;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use net::{BATCH_MAX, Calls, Epoll, Event, Inbox, Interest, ReadResult, SLOT_BYTES_MAX, Timeout};

use super::clock::Clock;
use super::messages::{Message, Messages, ReceivingHalf};
use super::pending::{Cause, Entry, NOTHING, Pick, Ring, STRUCK, Sent, State};
use super::plan::EVENTS_MAX;
use super::score::{DriveState, Outcome};
use crate::line::Socket;
use crate::wire::{Content, Piece, Protocol, ReadOutcome, Reader};
use crate::workload::{Names, VALUE_BYTES_MAX, Verb};
use datagrams::Assemblies;
use interfaces::Interfaces;

const READ_BYTES: usize = 256 << 10;
/// The most bytes of an incomplete answer; a connection that receives more is broken.
const HELD_BYTES_MAX: usize = VALUE_BYTES_MAX as usize + (1 << 20);
/// The most reads of one connection before other connections are read.
const READS_MAX: usize = 16;
/// The most multigets with several targets that may wait for answers; equal to `OUTSTANDING_MAX`.
const SPLITS_MAX: usize = 1 << 20;

#[derive(Debug)]
struct InLine {
    socket: Option<Socket>,
    reader: Reader,
    held: Vec<u8>,
    ring: Ring,
    /// UDP: the number of the answered request that was sent last.
    newest: u16,
    assemblies: Assemblies,
    is_closing: bool,
    generation: u64,
}

impl InLine {
    /// True if the line is open and has not been opened again since `generation` was read.
    fn is_same(&self, generation: u64) -> bool {
        self.socket.is_some() && self.generation == generation
    }
}

/// A multiget whose keys are on several targets; each target gets one part of the multiget.
#[derive(Clone, Copy, Debug)]
struct SplitMultiget {
    left: u16,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) protocol: Protocol,
    pub(super) timeout_ns: u64,
    pub(super) verify: bool,
    pub(super) fill: bool,
    /// True if the server answers a line's requests in order, so that only the network reorders.
    pub(super) has_order: bool,
}

#[derive(Debug)]
pub(super) struct Inward {
    pub(super) epoll: Epoll,
    pub(super) calls: Calls,
    options: Options,
    names: Names,
    lines: Vec<InLine>,
    splits: Vec<SplitMultiget>,
    free_splits: Vec<u32>,
    /// The index in `splits` of the multiget whose parts are being added to rings.
    entering: Option<u32>,
    scratch: Vec<u8>,
    inbox: Option<Inbox>,
    interfaces: Interfaces,
    key: Vec<u8>,
    ready: Vec<u32>,
    /// Lines that may have more to read, because reading stopped at `READS_MAX` or `BATCHES_MAX`.
    unread: Vec<u32>,
    pub(super) waiting: u64,
    /// Time of the last read since the last call of `poll_queues`; `None` if nothing was read.
    read_ns: Option<u64>,
    /// Messages from a sending half on another thread. The sending half adds the message about a
    /// request before it sends the request. The receiving half empties the mailbox after it reads a
    /// socket and before it decodes the answers, so that each answer finds its request.
    mailbox: Option<Arc<Mutex<Messages>>>,
    spare_messages: Messages,
}

impl Inward {
    pub(super) fn new(options: Options, names: Names, lines: usize) -> std::io::Result<Inward> {
        let line = || InLine {
            socket: None,
            reader: Reader::new(options.protocol),
            held: Vec::new(),
            ring: Ring::new(),
            newest: 0,
            assemblies: Assemblies::new(),
            is_closing: false,
            generation: 0,
        };
        Ok(Inward {
            epoll: Epoll::new(EVENTS_MAX)?,
            calls: Calls::default(),
            options,
            names,
            lines: std::iter::repeat_with(line).take(lines).collect(),
            splits: Vec::new(),
            free_splits: Vec::new(),
            entering: None,
            scratch: vec![0; READ_BYTES],
            inbox: Some(Inbox::new(BATCH_MAX, SLOT_BYTES_MAX)),
            interfaces: Interfaces::default(),
            key: Vec::new(),
            ready: Vec::new(),
            unread: Vec::new(),
            waiting: 0,
            read_ns: None,
            mailbox: None,
            spare_messages: Messages::default(),
        })
    }

    #[inline]
    pub(super) fn apply(&mut self, messages: &mut Messages, state: &mut DriveState) {
        let mut keys = &messages.keys[..];
        for message in messages.queue.drain(..) {
            match message {
                Message::Sent(line, sent) => {
                    let several = if sent.keys > 1 { usize::from(sent.keys) } else { 0 };
                    let (own, rest) = keys.split_at_checked(several).unwrap_or((&[], keys));
                    keys = rest;
                    self.enter(line, &sent, own, state);
                }
                Message::Opened(line, socket) => self.open(line, socket, state),
                Message::CloseWhenIdle(line) => self.close_when_idle(line, state),
                Message::WriteFailed(line) => {
                    state.score.tally.reset += 1;
                    self.broken(line, state);
                }
            }
        }
        messages.keys.clear();
    }

    pub(super) fn set_mailbox(&mut self, mailbox: Arc<Mutex<Messages>>) {
        self.mailbox = Some(mailbox);
    }

    #[inline]
    pub(super) fn take_messages(&mut self, state: &mut DriveState) {
        let Some(mailbox) = &self.mailbox else { return };
        let mut messages = std::mem::take(&mut self.spare_messages);
        std::mem::swap(&mut *mailbox.lock().unwrap_or_else(PoisonError::into_inner), &mut messages);
        self.apply(&mut messages, state);
        self.spare_messages = messages;
    }

    fn open(&mut self, line: u32, socket: Socket, state: &mut DriveState) {
        let Some(at) = self.lines.get_mut(line as usize) else { return };
        let watched = match &socket {
            Socket::Packets(packets) => {
                self.interfaces.open(packets, line, &self.epoll, &self.calls)
            }
            _ => socket.watch(&self.epoll, line.into(), Interest::Read, &self.calls),
        };
        at.ring.clear(true);
        at.held.clear();
        at.reader = Reader::new(self.options.protocol);
        at.newest = u16::MAX;
        at.is_closing = false;
        at.generation += 1;
        at.socket = Some(socket);
        if watched.is_err() {
            at.socket = None;
            state.feedback.broken.push(line);
        }
    }

    #[inline]
    fn enter(&mut self, line: u32, sent: &Sent, keys: &[u64], state: &mut DriveState) {
        self.waiting += 1;
        let Some(at) = self.lines.get_mut(line as usize) else { return };
        if sent.parts == 1 && at.socket.is_some() && !at.ring.is_full() {
            self.entering = None;
            if at.ring.push(sent, None, keys) == State::TimedOut {
                state.score.tally.udp.lost += 1;
            }
            return;
        }
        self.enter_slowly(line, sent, keys, state);
    }

    #[inline(never)]
    fn enter_slowly(&mut self, line: u32, sent: &Sent, keys: &[u64], state: &mut DriveState) {
        let split = match sent.parts {
            1 => None,
            0 => self.entering,
            parts => self.new_split(parts),
        };
        self.entering = split;
        let at = &self.lines[line as usize];
        if at.socket.is_some() && at.ring.is_full() {
            match at.socket {
                // With one more request in flight, a 16-bit number could belong to two requests.
                Some(Socket::Udp(_) | Socket::Packets(_)) => self.expire_oldest(line, state),
                _ => self.broken(line, state),
            }
        }
        let at = &mut self.lines[line as usize];
        if at.socket.is_none() {
            // The sending half sent this request before it learned that the line is broken.
            let entry = Entry { sent: *sent, split, ..NOTHING };
            state.score.tally.cut_off += 1;
            return self.over(line, &entry, Outcome::GIVEN_UP, None, state);
        }
        if at.ring.push(sent, split, keys) == State::TimedOut {
            state.score.tally.udp.lost += 1;
        }
    }

    fn new_split(&mut self, parts: u16) -> Option<u32> {
        let split = SplitMultiget { left: parts, outcome: Outcome::default() };
        if let Some(free) = self.free_splits.pop() {
            self.splits[free as usize] = split;
            return Some(free);
        }
        if self.splits.len() >= SPLITS_MAX {
            return None;
        }
        self.splits.push(split);
        u32::try_from(self.splits.len() - 1).ok()
    }

    /// Sleeps until an event occurs or `limit` has passed. Returns true if an event belongs to
    /// neither a line nor a queue.
    #[inline]
    pub(super) fn wait(&mut self, limit: Timeout, other_half: u64) -> std::io::Result<bool> {
        let mut is_other_half = false;
        self.ready.clear();
        std::mem::swap(&mut self.ready, &mut self.unread);
        let has_more = !self.ready.is_empty() || self.read_ns.is_some();
        let limit = if has_more { Timeout::Zero } else { limit };
        for Event { token, .. } in self.epoll.wait(limit, &self.calls)? {
            match u32::try_from(token) {
                Ok(line) if token != other_half => self.ready.push(line),
                _ => is_other_half |= !self.interfaces.is_reported(token),
            }
        }
        Ok(is_other_half)
    }

    /// Reads the sockets that `wait` reported. Returns the time of the last read, if any.
    #[inline]
    pub(super) fn read_all(&mut self, clock: &Clock, state: &mut DriveState) -> Option<u64> {
        let ready = std::mem::take(&mut self.ready);
        for &line in &ready {
            match self.lines.get(line as usize).and_then(|at| at.socket.as_ref()) {
                Some(Socket::Stream(_)) => self.read(line, clock, state),
                Some(Socket::Udp(_)) => self.read_datagrams(line, clock, state),
                Some(Socket::Packets(_)) | None => {}
            }
        }
        self.ready = ready;
        self.read_ready_queues(clock, state);
        self.read_ns
    }

    fn read(&mut self, line: u32, clock: &Clock, state: &mut DriveState) {
        let mut buffer = std::mem::take(&mut self.scratch);
        let mut is_drained = false;
        for _ in 0..READS_MAX {
            let mut held = std::mem::take(&mut self.lines[line as usize].held);
            // A long answer is read into `held`; a short answer is copied from `held` to `buffer`.
            let is_long = held.len() > buffer.len() / 2;
            let before = held.len();
            let room = if is_long {
                held.resize(before + READ_BYTES, 0);
                &mut held[..]
            } else {
                if before > 0 {
                    buffer[..before].copy_from_slice(&held);
                }
                &mut buffer[..]
            };
            let asked = room.len() - before;
            let Some(Socket::Stream(stream)) = &self.lines[line as usize].socket else {
                is_drained = true;
                break;
            };
            let received = match stream.read(&mut room[before..], &self.calls) {
                ReadResult::Bytes(bytes) => bytes,
                ReadResult::Empty => {
                    held.truncate(before);
                    self.lines[line as usize].held = held;
                    is_drained = true;
                    break;
                }
                ReadResult::End | ReadResult::Broken => {
                    is_drained = true;
                    state.score.tally.reset += 1;
                    self.broken(line, state);
                    break;
                }
            };
            state.score.tally.received_bytes += received as u64;
            let now_ns = clock.now_ns();
            self.read_ns = Some(now_ns);
            let generation = self.lines[line as usize].generation;
            self.take_messages(state);
            if !self.lines[line as usize].is_same(generation) {
                // A message reported the line as broken, so the bytes are from a closed connection.
                is_drained = true;
                break;
            }
            let input = &room[..before + received];
            let used = self.decode(line, input, now_ns, state);
            let rest = input.len() - used.unwrap_or(input.len());
            if used.is_none() || rest > HELD_BYTES_MAX {
                state.score.tally.broken += 1;
                is_drained = true;
                self.broken(line, state);
                break;
            }
            let end = before + received;
            keep(&mut held, (!is_long).then_some(&buffer), end - rest..end);
            self.lines[line as usize].held = held;
            if received < asked {
                is_drained = true;
                break;
            }
        }
        self.scratch = buffer;
        if !is_drained {
            self.unread.push(line);
        }
        self.close_if_idle(line, state);
    }

    /// Handles the complete pieces of `input`. Returns their length, or `None` if `input` is
    /// invalid.
    #[inline]
    fn decode(
        &mut self,
        line: u32,
        input: &[u8],
        now_ns: u64,
        state: &mut DriveState,
    ) -> Option<usize> {
        let mut at = 0;
        while at < input.len() {
            at += self.quick(line, &input[at..], now_ns, state);
            let own = &mut self.lines[line as usize];
            let (piece, used) = match own.reader.next(&input[at..]) {
                ReadOutcome::Piece(piece, used) => (piece, used),
                ReadOutcome::More => break,
                ReadOutcome::Broken => return None,
            };
            at += used;
            let ring = &own.ring;
            let index = piece.tag.map_or_else(|| ring.oldest(), |tag| ring.find(tag.number()));
            let index = index.filter(|&index| own.ring.entry(index).state == State::Waiting)?;
            self.piece(line, index, &piece, now_ns, state);
        }
        Some(at)
    }

    #[inline]
    fn piece(
        &mut self,
        line: u32,
        index: usize,
        piece: &Piece<'_>,
        now_ns: u64,
        state: &mut DriveState,
    ) {
        let own = &mut self.lines[line as usize];
        let (ring, is_udp) = (&mut own.ring, own.socket.as_ref().is_some_and(Socket::is_datagrams));
        let entry = ring.entry(index);
        entry.is_plain = false;
        if entry.sent.verb != Verb::Get {
            let mut outcome = Outcome::default();
            outcome.add_answer(piece.content.outcome(entry.sent.verb));
            if outcome.refused > 0 {
                state.score.refused(piece.content.error_text());
            }
            let entry = *entry;
            ring.settle(index, State::Answered);
            return self.over(line, &entry, outcome, Some(now_ns), state);
        }
        let place = piece.tag.map_or(usize::from(entry.keys_answered), |tag| tag.index());
        match piece.content {
            Content::Value(name, value) => {
                entry.keys_answered = entry.keys_answered.saturating_add(1);
                entry.hits = entry.hits.saturating_add(1);
                let strikes = entry.sent.keys > 1 && (self.options.fill || is_udp);
                if self.options.verify || strikes {
                    self.match_value(line, index, place, name, value);
                }
            }
            Content::Absent => entry.keys_answered = entry.keys_answered.saturating_add(1),
            Content::End => {}
            _ => {
                entry.refused = true;
                state.score.refused(piece.content.error_text());
            }
        }
        if piece.ends {
            let ring = &mut self.lines[line as usize].ring;
            let entry = *ring.entry(index);
            ring.settle(index, State::Answered);
            let outcome = Outcome::of_get(&entry);
            if self.options.fill && outcome.misses > 0 && self.fill(line, index, &entry, state) {
                let entry = Entry { sent: Sent { cause: Cause::Due, ..entry.sent }, ..entry };
                return self.over(line, &entry, outcome, Some(now_ns), state);
            }
            self.over(line, &entry, outcome, Some(now_ns), state);
        }
    }

    /// Finds a value's key, marks the key as a hit (`STRUCK`), and verifies the value if requested.
    fn match_value(
        &mut self,
        line: u32,
        index: usize,
        place: usize,
        name: Option<&[u8]>,
        value: &[u8],
    ) {
        let ring = &mut self.lines[line as usize].ring;
        let several = ring.entry(index).sent.keys > 1;
        let first = ring.entry(index).sent.key;
        let keys = if several { &mut ring.keys(index)[..] } else { &mut [first][..] };
        let is_right = match place_of((&self.names, &mut self.key), keys, (place, name), 0) {
            Some(at) => {
                let key = keys[at];
                keys[at] = key | STRUCK;
                !self.options.verify || self.names.verify(key, value)
            }
            None => false,
        };
        if !is_right {
            self.lines[line as usize].ring.entry(index).corrupt += 1;
        }
    }

    /// Requests a set for each key that a get missed. Returns true if the last set takes over the
    /// get's token.
    fn fill(&mut self, line: u32, index: usize, entry: &Entry, state: &mut DriveState) -> bool {
        if entry.refused {
            return false;
        }
        let before = state.feedback.fills.len();
        if entry.sent.keys == 1 {
            state.feedback.fills.push((line, entry.sent.key, false));
        } else {
            let keys = self.lines[line as usize].ring.keys(index);
            let missed = keys.iter().filter(|key| **key & STRUCK == 0);
            state.feedback.fills.extend(missed.map(|&key| (line, key, false)));
        }
        let token = entry.sent.cause == Cause::Token && entry.split.is_none();
        match state.feedback.fills[before..].last_mut() {
            Some(last) => {
                last.2 = token;
                token
            }
            None => false,
        }
    }
}

/// Returns the place of a value's key among a request's keys. Searches only hits if `struck` is
/// `STRUCK`, and only keys that are not hits if `struck` is 0. Tries `place` first, but the key may
/// be at a later place, because the text protocol leaves out missed keys.
fn place_of(
    (names, scratch): (&Names, &mut Vec<u8>),
    keys: &[u64],
    (place, name): (usize, Option<&[u8]>),
    struck: u64,
) -> Option<usize> {
    let mut is = |key: u64| {
        if key & STRUCK != struck {
            return false;
        }
        scratch.clear();
        names.key(key & !STRUCK, scratch);
        name.is_none_or(|name| name.is_empty() || name == scratch.as_slice())
    };
    match keys.get(place) {
        Some(&key) if is(key) => Some(place),
        _ => keys.iter().position(|&key| is(key)),
    }
}

/// Keeps the undecoded range `rest` of the input in `held`. The input is `buffer`, or `held` itself
/// if `buffer` is `None`.
#[inline]
fn keep(held: &mut Vec<u8>, buffer: Option<&Vec<u8>>, rest: Range<usize>) {
    let Some(buffer) = buffer else {
        held.truncate(rest.end);
        held.drain(..rest.start);
        return;
    };
    held.clear();
    if !rest.is_empty() {
        held.extend_from_slice(&buffer[rest]);
    }
}

impl ReceivingHalf for Inward {
    fn opened(&mut self, line: u32, socket: Socket, state: &mut DriveState) {
        self.open(line, socket, state);
    }

    #[inline]
    fn sent(&mut self, line: u32, sent: &Sent, keys: &[u64], state: &mut DriveState) {
        self.enter(line, sent, keys, state);
    }

    #[inline]
    fn burst(&mut self, line: u32, first: &Sent, picks: &[Pick], state: &mut DriveState) {
        let Some(at) = self.lines.get_mut(line as usize) else { return };
        if at.socket.is_some() && at.ring.has_room(picks.len()) {
            self.waiting += picks.len() as u64;
            self.entering = None;
            let lost = at.ring.push_all(first, picks);
            state.score.tally.udp.lost += lost;
            return;
        }
        for (pick, number) in picks.iter().zip(0_u16..) {
            let number = first.number.wrapping_add(number);
            let sent = Sent { number, verb: pick.verb, key: pick.key, ..*first };
            self.enter(line, &sent, &[], state);
        }
    }

    fn close_when_idle(&mut self, line: u32, state: &mut DriveState) {
        let Some(at) = self.lines.get_mut(line as usize) else { return };
        at.is_closing = true;
        self.close_if_idle(line, state);
    }

    fn write_failed(&mut self, line: u32, state: &mut DriveState) {
        self.broken(line, state);
    }
}
