//! Assembles answers from datagrams, and detects lost, late, duplicate and reordered answers.
//!
//! Where: the receiving half uses this module for lines over UDP.
//! Invariant: a line assembles at most `ASSEMBLIES_MAX` answers at a time, each of at most
//! `PARTS_MAX` datagrams; each datagram counts once. If a value of a multiget is lost, the value's
//! key counts as a miss, because memcached does not report misses.
//! Source: memcached's `protocol.txt`, "UDP protocol".

use net::Datagram;
use protocol::udp::Header;

use super::super::clock::Clock;
use super::super::pending::{Entry, STRUCK, State};
use super::super::score::{DriveState, Outcome};
use super::{InLine, Inward, place_of};
use crate::line::Socket;
use crate::wire::{Content, Piece, ReadOutcome, Reader, Tag};

/// The most incomplete answers on one line. A datagram of a further answer counts as broken.
const ASSEMBLIES_MAX: usize = 256;
/// The most datagrams of one answer: more than a megabyte in memcached's datagrams of 1,392 bytes.
const PARTS_MAX: usize = 1024;
/// The most batches read from one socket or queue before other sockets and queues are read.
pub(super) const BATCHES_MAX: usize = 16;

#[derive(Debug, Default)]
struct Assembly {
    number: u16,
    total: usize,
    received: usize,
    /// The range of each part in `bytes`; `None` until the part arrives.
    parts: Vec<Option<(usize, usize)>>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Kept,
    /// The same datagram has already arrived.
    Double,
    Last,
    /// The datagram contradicts an earlier datagram, or exceeds a limit.
    Refused,
}

/// The first value in a datagram that answers a multiget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// A value for the key at this index, which had no value yet.
    Fresh(usize),
    /// A value for a key that already has a value.
    Again,
    /// No value, or a value that was not requested.
    None,
}

#[derive(Debug)]
pub(super) struct Assemblies {
    open: Vec<Assembly>,
    spare: Vec<Assembly>,
    assembled: Vec<u8>,
}

impl Assemblies {
    pub(super) fn new() -> Assemblies {
        Assemblies { open: Vec::new(), spare: Vec::new(), assembled: Vec::new() }
    }

    /// Adds a datagram to its answer. After `Part::Last`, `assembled` holds the whole answer.
    fn add(&mut self, header: Header, bytes: &[u8]) -> Part {
        let total = usize::from(header.total);
        let at = self.open.iter().position(|one| one.number == header.id);
        let at = match at {
            Some(at) => at,
            None if total > PARTS_MAX || self.open.len() >= ASSEMBLIES_MAX => return Part::Refused,
            None => {
                let mut fresh = self.spare.pop().unwrap_or_default();
                fresh.number = header.id;
                (fresh.total, fresh.received) = (total, 0);
                fresh.parts.clear();
                fresh.parts.resize(total, None);
                fresh.bytes.clear();
                self.open.push(fresh);
                self.open.len() - 1
            }
        };
        let assembly = &mut self.open[at];
        let place = usize::from(header.number);
        if assembly.total != total || place >= total {
            return Part::Refused;
        }
        if assembly.parts[place].is_some() {
            return Part::Double;
        }
        let start = assembly.bytes.len();
        assembly.bytes.extend_from_slice(bytes);
        assembly.parts[place] = Some((start, start + bytes.len()));
        assembly.received += 1;
        if assembly.received < total {
            return Part::Kept;
        }
        self.assembled.clear();
        for &(start, end) in assembly.parts.iter().flatten() {
            self.assembled.extend_from_slice(&assembly.bytes[start..end]);
        }
        self.drop(header.id);
        Part::Last
    }

    pub(super) fn drop(&mut self, number: u16) {
        if let Some(at) = self.open.iter().position(|one| one.number == number) {
            self.spare.push(self.open.swap_remove(at));
        }
    }
}

impl Inward {
    pub(super) fn read_datagrams(&mut self, line: u32, clock: &Clock, state: &mut DriveState) {
        let Some(mut inbox) = self.inbox.take() else { return };
        let mut is_drained = false;
        for _ in 0..BATCHES_MAX {
            let Some(Socket::Udp(socket)) = &self.lines[line as usize].socket else {
                is_drained = true;
                break;
            };
            is_drained = socket.receive(&mut inbox, &self.calls).is_drained;
            let now_ns = clock.now_ns();
            self.read_ns = Some(now_ns);
            let generation = self.lines[line as usize].generation;
            self.take_messages(state);
            if !self.lines[line as usize].is_same(generation) {
                // A message reported the line as broken, so the datagrams are from a closed socket.
                is_drained = true;
                break;
            }
            state.score.tally.received_bytes += inbox.total_bytes() as u64;
            self.take_datagrams(line, &mut inbox.datagrams(), now_ns, state);
            if is_drained {
                break;
            }
        }
        self.inbox = Some(inbox);
        if !is_drained {
            self.unread.push(line);
        }
        self.close_if_idle(line, state);
    }

    #[inline]
    pub(super) fn take_datagrams<'i, P: 'i>(
        &mut self,
        line: u32,
        datagrams: &mut impl Iterator<Item = Datagram<'i, P>>,
        now_ns: u64,
        state: &mut DriveState,
    ) {
        while let Some(datagram) = self.quick_datagrams(line, datagrams, now_ns, state) {
            match Header::read(datagram.bytes) {
                Some((header, bytes)) if header.is_part() => {
                    self.datagram(line, header, bytes, now_ns, state);
                }
                // memcached sends an empty datagram if a quiet request has no answer.
                Some((_, [])) => {}
                _ => state.score.tally.broken += 1,
            }
        }
    }

    fn datagram(
        &mut self,
        line: u32,
        header: Header,
        bytes: &[u8],
        now_ns: u64,
        state: &mut DriveState,
    ) {
        let own = &mut self.lines[line as usize];
        let Some(index) = own.ring.find(header.id) else { return state.score.tally.broken += 1 };
        let entry = own.ring.entry(index);
        let is_part = entry.sent.keys > 1 && header.total == 1;
        match entry.state {
            State::Waiting if is_part => match self.first_value(line, index, bytes) {
                (Value::Again, false) => return state.score.tally.udp.duplicate += 1,
                // The multiget asks for a key twice, so its last value looks like a duplicate.
                (Value::Again, true) => {
                    state.score.tally.udp.duplicate += 1;
                    let end = Piece { tag: None, content: Content::End, ends: true };
                    return self.piece(line, index, &end, now_ns, state);
                }
                (Value::Fresh(_) | Value::None, _) => {}
            },
            State::Waiting => {}
            State::Answered if is_part => return self.after_end(line, index, bytes, state),
            // Further datagrams of a late answer are ignored: they may be parts or duplicates.
            State::Late if is_part || header.total > 1 => return,
            State::Answered | State::Late => return state.score.tally.udp.duplicate += 1,
            State::TimedOut => {
                entry.state = State::Late;
                return;
            }
            State::Free => return state.score.tally.broken += 1,
        }
        let own = &mut self.lines[line as usize];
        if header.total == 1 {
            return self.answer(line, index, header.id, bytes, now_ns, state);
        }
        own.ring.entry(index).has_parts = true;
        match own.assemblies.add(header, bytes) {
            Part::Kept => {}
            Part::Double => state.score.tally.udp.duplicate += 1,
            Part::Last => {
                let assembled = std::mem::take(&mut own.assemblies.assembled);
                self.answer(line, index, header.id, &assembled, now_ns, state);
                self.lines[line as usize].assemblies.assembled = assembled;
            }
            Part::Refused => state.score.tally.broken += 1,
        }
    }

    /// Handles a datagram that arrives after its multiget's end. The datagram counts as reordered
    /// if its value is the first for a key (which has counted as a miss), and otherwise as a
    /// duplicate.
    fn after_end(&mut self, line: u32, index: usize, bytes: &[u8], state: &mut DriveState) {
        match self.first_value(line, index, bytes).0 {
            Value::Fresh(at) => {
                self.lines[line as usize].ring.keys(index)[at] |= STRUCK;
                state.score.tally.udp.reordered += 1;
            }
            Value::Again | Value::None => state.score.tally.udp.duplicate += 1,
        }
    }

    /// Returns the first value in a multiget's datagram, and true if this value ends the multiget.
    fn first_value(&mut self, line: u32, index: usize, bytes: &[u8]) -> (Value, bool) {
        let mut reader = Reader::new(self.options.protocol);
        let ReadOutcome::Piece(Piece { tag, content: Content::Value(name, _), ends }, _) =
            reader.next(bytes)
        else {
            return (Value::None, false);
        };
        let ring = &mut self.lines[line as usize].ring;
        let keys_answered = usize::from(ring.entry(index).keys_answered);
        let keys = &ring.keys(index)[..];
        let mut find =
            |struck| place_of((&self.names, &mut self.key), keys, (keys_answered, name), struck);
        let value = match tag.map(Tag::index) {
            Some(at) => match keys.get(at) {
                Some(key) if key & STRUCK != 0 => Value::Again,
                Some(_) => Value::Fresh(at),
                None => Value::None,
            },
            None => match (find(0), find(STRUCK)) {
                (Some(at), _) => Value::Fresh(at),
                (None, Some(_)) => Value::Again,
                (None, None) => Value::None,
            },
        };
        (value, ends)
    }

    #[inline]
    fn answer(
        &mut self,
        line: u32,
        index: usize,
        number: u16,
        bytes: &[u8],
        now_ns: u64,
        state: &mut DriveState,
    ) {
        let mut at = 0;
        while at < bytes.len() {
            let is_waiting = self.lines[line as usize].ring.entry(index).state == State::Waiting;
            // A UDP answer may not end within a piece, because no later datagram completes the
            // piece.
            match self.lines[line as usize].reader.next(&bytes[at..]) {
                ReadOutcome::Piece(piece, used)
                    if is_waiting && piece.tag.is_none_or(|tag| tag.number() == number) =>
                {
                    at += used;
                    self.piece(line, index, &piece, now_ns, state);
                }
                _ => {
                    state.score.tally.broken += 1;
                    if is_waiting {
                        let ring = &mut self.lines[line as usize].ring;
                        let entry: Entry = *ring.entry(index);
                        ring.settle(index, State::Answered);
                        self.over(line, &entry, Outcome::GIVEN_UP, None, state);
                    }
                    return;
                }
            }
        }
        let own = &mut self.lines[line as usize];
        if own.ring.entry(index).state != State::Waiting {
            self.count_if_overtaken(line, number, state);
        }
    }

    fn count_if_overtaken(&mut self, line: u32, number: u16, state: &mut DriveState) {
        if self.options.has_order && self.lines[line as usize].is_overtaken(number) {
            state.score.tally.udp.reordered += 1;
        }
    }
}

impl InLine {
    /// Records an answered request. True if a request that was sent later was answered earlier.
    #[inline]
    pub(super) fn is_overtaken(&mut self, number: u16) -> bool {
        // Numbers wrap around, so a number is later if it is ahead by less than half the range.
        let ahead = number.wrapping_sub(self.newest);
        if ahead < 1 << 15 {
            self.newest = number;
        }
        ahead >= 1 << 15
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_put_together_in_any_order_and_a_part_counts_once() {
        let mut assemblies = Assemblies::new();
        let mut add = |id, number, total, bytes: &[u8]| {
            let part = assemblies.add(Header { id, number, total, flow: 0 }, bytes);
            (part, assemblies.assembled.clone())
        };
        assert_eq!(add(7, 2, 3, b"c").0, Part::Kept);
        assert_eq!(add(8, 1, 2, b"B").0, Part::Kept);
        assert_eq!(add(7, 2, 3, b"c").0, Part::Double);
        assert_eq!(add(7, 0, 3, b"a").0, Part::Kept);
        assert_eq!(add(7, 1, 4, b"b").0, Part::Refused);
        assert_eq!(add(7, 1, 3, b"b"), (Part::Last, b"abc".to_vec()));
        assert_eq!(add(8, 0, 2, b"A"), (Part::Last, b"AB".to_vec()));
        assert_eq!(add(9, 0, u16::MAX, b"").0, Part::Refused);
        for id in 0..300 {
            let kept = add(id, 0, 2, b"").0;
            assert_eq!(kept == Part::Kept, usize::from(id) < ASSEMBLIES_MAX);
        }
    }
}
