//! The receiving half: reads answers, matches them with requests, times and counts them.
//!
//! Where: after the sockets; on the sending half's thread, or on one of its own.
//! Invariant: each request that is entered ends once: answered, timed out or failed with its
//! connection. `Feedback` carries what the sending half must do about it.
//! Source: memcached's `protocol.txt`, "UDP protocol"; memcached answers a multiget over UDP with a
//! message for each value, all with the request's id, so only the protocol's own end shows that all
//! is there.

mod datagrams;
mod doors;
mod endings;
mod notes;
mod quick;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use net::{BATCH_MAX, Calls, Epoll, Event, Got, Inbox, Interest, SLOT_BYTES_MAX, Timeout};

use super::pending::{Cause, Entry, Ring, STRUCK, Sent, State};
use super::score::{Books, Outcome};
use super::{Clock, EVENTS_MAX};
use crate::line::Socket;
use crate::wire::{Found, Piece, Reader, Said, Speech};
use crate::workload::{Names, VALUE_BYTES_MAX, Verb};
use datagrams::Assemblies;
use doors::Doors;
pub(super) use notes::{Feedback, Listen, Note, Notes};

const READ_BYTES: usize = 256 << 10;
/// Most bytes of an incomplete answer.
const HELD_BYTES_MAX: usize = VALUE_BYTES_MAX as usize + (1 << 20);
/// Most reads of one connection before the others have their turn.
const READS_MAX: usize = 16;
/// Most multigets that are spread over several targets at a time: far above any outstanding limit.
const WHOLES_MAX: usize = 1 << 20;

/// The receiving half of one connection.
#[derive(Debug)]
struct InLine {
    socket: Option<Socket>,
    reader: Reader,
    held: Vec<u8>,
    ring: Ring,
    /// UDP: the latest request that was answered.
    newest: u16,
    assemblies: Assemblies,
    leaving: bool,
    /// The number of times it was opened.
    birth: u64,
}

impl InLine {
    /// True if the line is open and was not opened again since `birth` was read.
    fn is(&self, birth: u64) -> bool {
        self.socket.is_some() && self.birth == birth
    }
}

/// A multiget over several targets.
#[derive(Clone, Copy, Debug)]
struct Whole {
    left: u16,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) speech: Speech,
    pub(super) timeout_ns: u64,
    pub(super) verify: bool,
    pub(super) fill: bool,
    /// True if the answers on one line come in the order of its requests, unless datagrams overtake
    /// each other.
    pub(super) has_order: bool,
}

#[derive(Debug)]
pub(super) struct Inward {
    pub(super) epoll: Epoll,
    pub(super) calls: Calls,
    options: Options,
    names: Names,
    lines: Vec<InLine>,
    wholes: Vec<Whole>,
    free_wholes: Vec<u32>,
    /// The multiget whose parts are being entered.
    entering: Option<u32>,
    scratch: Vec<u8>,
    inbox: Option<Inbox>,
    /// AF_XDP queues, and the lines whose datagrams come through them.
    doors: Doors,
    key: Vec<u8>,
    ready: Vec<u32>,
    /// Lines with more to read than one turn allows.
    unread: Vec<u32>,
    pub(super) waiting: u64,
    /// The time of the last read since `look`.
    read_ns: Option<u64>,
    /// The mailbox for the sending half's notes, if that has a thread of its own. A note on a
    /// request is there before the request goes out, so the mail is read after each read of a
    /// socket and before its answers.
    mail: Option<Arc<Mutex<Notes>>>,
    letters: Notes,
}

impl Inward {
    pub(super) fn new(options: Options, names: Names, lines: usize) -> std::io::Result<Inward> {
        let line = || InLine {
            socket: None,
            reader: Reader::new(options.speech),
            held: Vec::new(),
            ring: Ring::new(),
            newest: 0,
            assemblies: Assemblies::new(),
            leaving: false,
            birth: 0,
        };
        Ok(Inward {
            epoll: Epoll::new(EVENTS_MAX)?,
            calls: Calls::default(),
            options,
            names,
            lines: std::iter::repeat_with(line).take(lines).collect(),
            wholes: Vec::new(),
            free_wholes: Vec::new(),
            entering: None,
            scratch: vec![0; READ_BYTES],
            inbox: Some(Inbox::new(BATCH_MAX, SLOT_BYTES_MAX)),
            doors: Doors::default(),
            key: Vec::new(),
            ready: Vec::new(),
            unread: Vec::new(),
            waiting: 0,
            read_ns: None,
            mail: None,
            letters: Notes::default(),
        })
    }

    /// Applies notes of the sending half.
    #[inline]
    pub(super) fn take(&mut self, notes: &mut Notes, books: &mut Books) {
        let mut keys = &notes.keys[..];
        for note in notes.notes.drain(..) {
            match note {
                Note::Sent(line, sent) => {
                    let several = if sent.keys > 1 { usize::from(sent.keys) } else { 0 };
                    let (own, rest) = keys.split_at_checked(several).unwrap_or((&[], keys));
                    keys = rest;
                    self.enter(line, &sent, own, books);
                }
                Note::Opened(line, socket) => self.open(line, socket, books),
                Note::Leave(line) => self.leave(line, books),
                Note::Fallen(line) => {
                    books.score.reset();
                    self.broken(line, books);
                }
            }
        }
        notes.keys.clear();
    }

    /// Sets the mailbox from which notes come.
    pub(super) fn expect_mail(&mut self, mail: Arc<Mutex<Notes>>) {
        self.mail = Some(mail);
    }

    /// Applies the notes in the mailbox.
    #[inline]
    pub(super) fn open_mail(&mut self, books: &mut Books) {
        let Some(mail) = &self.mail else { return };
        let mut notes = std::mem::take(&mut self.letters);
        std::mem::swap(&mut *mail.lock().unwrap_or_else(PoisonError::into_inner), &mut notes);
        self.take(&mut notes, books);
        self.letters = notes;
    }

    fn open(&mut self, line: u32, socket: Socket, books: &mut Books) {
        let Some(at) = self.lines.get_mut(line as usize) else { return };
        let watched = match &socket {
            Socket::Packets(packets) => self.doors.open(packets, line, &self.epoll, &self.calls),
            _ => socket.watch(&self.epoll, line.into(), Interest::Read, &self.calls),
        };
        at.ring.clear(true);
        at.held.clear();
        at.reader = Reader::new(self.options.speech);
        at.newest = u16::MAX;
        at.leaving = false;
        at.birth += 1;
        at.socket = Some(socket);
        if watched.is_err() {
            at.socket = None;
            books.back.broken.push(line);
        }
    }

    #[inline]
    fn enter(&mut self, line: u32, sent: &Sent, keys: &[u64], books: &mut Books) {
        self.waiting += 1;
        let Some(at) = self.lines.get_mut(line as usize) else { return };
        if sent.parts == 1 && at.socket.is_some() && !at.ring.is_full() {
            self.entering = None;
            if at.ring.push(sent, None, keys) == State::TimedOut {
                books.score.lost();
            }
            return;
        }
        self.enter_slowly(line, sent, keys, books);
    }

    #[inline(never)]
    fn enter_slowly(&mut self, line: u32, sent: &Sent, keys: &[u64], books: &mut Books) {
        let whole = match sent.parts {
            1 => None,
            0 => self.entering,
            parts => self.new_whole(parts),
        };
        self.entering = whole;
        let at = &self.lines[line as usize];
        if at.socket.is_some() && at.ring.is_full() {
            match at.socket {
                // Sixteen bits of number have wrapped around: its answer would be ambiguous.
                Some(Socket::Udp(_) | Socket::Packets(_)) => self.expire_oldest(line, books),
                _ => self.broken(line, books),
            }
        }
        let at = &mut self.lines[line as usize];
        if at.socket.is_none() {
            // The line broke before the sending half knew.
            let entry = Entry::failed(sent, whole);
            books.score.cut_off(1);
            return self.over(line, &entry, Outcome::GIVEN_UP, None, books);
        }
        if at.ring.push(sent, whole, keys) == State::TimedOut {
            books.score.lost();
        }
    }

    fn new_whole(&mut self, parts: u16) -> Option<u32> {
        let whole = Whole { left: parts, outcome: Outcome::default() };
        if let Some(free) = self.free_wholes.pop() {
            self.wholes[free as usize] = whole;
            return Some(free);
        }
        if self.wholes.len() >= WHOLES_MAX {
            return None;
        }
        self.wholes.push(whole);
        u32::try_from(self.wholes.len() - 1).ok()
    }

    /// Sleeps until something comes or `limit` is over. True if `aside`, a token that is not a
    /// line's, is among the events.
    #[inline]
    pub(super) fn wait(&mut self, limit: Timeout, aside: u64) -> std::io::Result<bool> {
        let mut is_aside = false;
        self.ready.clear();
        std::mem::swap(&mut self.ready, &mut self.unread);
        let has_more = !self.ready.is_empty() || self.read_ns.is_some();
        let limit = if has_more { Timeout::Zero } else { limit };
        for Event { token, .. } in self.epoll.wait(limit, &self.calls)? {
            match u32::try_from(token) {
                Ok(line) if token != aside => self.ready.push(line),
                _ => is_aside |= !self.doors.is_reported(token),
            }
        }
        Ok(is_aside)
    }

    /// Reads what `wait` has reported. Returns the time of the last read since `look`; none if
    /// there was none.
    #[inline]
    pub(super) fn read_all(&mut self, clock: &Clock, books: &mut Books) -> Option<u64> {
        let ready = std::mem::take(&mut self.ready);
        for &line in &ready {
            match self.lines.get(line as usize).and_then(|at| at.socket.as_ref()) {
                Some(Socket::Stream(_)) => self.read(line, clock, books),
                Some(Socket::Udp(_)) => self.gather(line, clock, books),
                Some(Socket::Packets(_)) | None => {}
            }
        }
        self.ready = ready;
        self.enter_doors(clock, books);
        self.read_ns
    }

    /// Reads a stream until it is drained or has had its share of the turn.
    fn read(&mut self, line: u32, clock: &Clock, books: &mut Books) {
        let mut buffer = std::mem::take(&mut self.scratch);
        let mut is_drained = false;
        for _ in 0..READS_MAX {
            let mut held = std::mem::take(&mut self.lines[line as usize].held);
            // A long answer grows in place; the beginning of a short one moves to the buffer.
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
            let came = match stream.read(&mut room[before..], &self.calls) {
                Got::Bytes(bytes) => bytes,
                Got::Empty => {
                    held.truncate(before);
                    self.lines[line as usize].held = held;
                    is_drained = true;
                    break;
                }
                Got::End | Got::Broken => {
                    is_drained = true;
                    books.score.reset();
                    self.broken(line, books);
                    break;
                }
            };
            books.score.received(came);
            let now_ns = clock.now_ns();
            self.read_ns = Some(now_ns);
            let birth = self.lines[line as usize].birth;
            self.open_mail(books);
            if !self.lines[line as usize].is(birth) {
                // The line was given up meanwhile, and may have been opened again.
                is_drained = true;
                break;
            }
            let input = &room[..before + came];
            let used = self.decode(line, input, now_ns, books);
            let rest = input.len() - used.unwrap_or(input.len());
            if used.is_none() || rest > HELD_BYTES_MAX {
                books.score.broken();
                is_drained = true;
                self.broken(line, books);
                break;
            }
            let end = before + came;
            keep(&mut held, (!is_long).then_some(&buffer), end - rest..end);
            self.lines[line as usize].held = held;
            if came < asked {
                is_drained = true;
                break;
            }
        }
        self.scratch = buffer;
        if !is_drained {
            self.unread.push(line);
        }
        self.leave_if_idle(line, books);
    }

    /// Takes all whole pieces. Returns their length in bytes; none if the bytes are no answer.
    #[inline]
    fn decode(&mut self, line: u32, input: &[u8], now_ns: u64, books: &mut Books) -> Option<usize> {
        let mut at = 0;
        while at < input.len() {
            at += self.quick(line, &input[at..], now_ns, books);
            let own = &mut self.lines[line as usize];
            let (piece, used) = match own.reader.next(&input[at..]) {
                Found::Piece(piece, used) => (piece, used),
                Found::More => break,
                Found::Broken => return None,
            };
            at += used;
            let index = match piece.tag {
                None => own.ring.oldest(),
                Some(tag) => own.ring.find(tag.number()),
            };
            let index = index.filter(|&index| own.ring.entry(index).state == State::Waiting)?;
            self.piece(line, index, &piece, now_ns, books);
        }
        Some(at)
    }

    /// Applies a piece to the request that waits at `index`.
    #[inline]
    fn piece(
        &mut self,
        line: u32,
        index: usize,
        piece: &Piece<'_>,
        now_ns: u64,
        books: &mut Books,
    ) {
        let own = &mut self.lines[line as usize];
        let (ring, is_udp) = (&mut own.ring, own.socket.as_ref().is_some_and(Socket::is_datagrams));
        let entry = ring.entry(index);
        entry.is_plain = false;
        if entry.sent.verb != Verb::Get {
            let mut outcome = Outcome::default();
            outcome.tell(piece.said.outcome(entry.sent.verb));
            if outcome.refused > 0 {
                books.score.refused(piece.said.words());
            }
            let entry = *entry;
            ring.settle(index, State::Answered);
            return self.over(line, &entry, outcome, Some(now_ns), books);
        }
        let place = piece.tag.map_or(usize::from(entry.told), |tag| tag.index());
        match piece.said {
            Said::Value(name, value) => {
                entry.told = entry.told.saturating_add(1);
                entry.hits = entry.hits.saturating_add(1);
                let strikes = entry.sent.keys > 1 && (self.options.fill || is_udp);
                if self.options.verify || strikes {
                    self.look_at(line, index, place, name, value);
                }
            }
            Said::Absent => entry.told = entry.told.saturating_add(1),
            Said::End => {}
            _ => {
                entry.refused = true;
                books.score.refused(piece.said.words());
            }
        }
        if piece.ends {
            let ring = &mut self.lines[line as usize].ring;
            let entry = *ring.entry(index);
            ring.settle(index, State::Answered);
            let outcome = Outcome::of_get(&entry);
            if self.options.fill && outcome.misses > 0 && self.fill(line, index, &entry, books) {
                let entry = Entry { sent: Sent { cause: Cause::Due, ..entry.sent }, ..entry };
                return self.over(line, &entry, outcome, Some(now_ns), books);
            }
            self.over(line, &entry, outcome, Some(now_ns), books);
        }
    }

    /// Finds the key of a value, and verifies the value if asked to.
    fn look_at(
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

    /// Asks for sets of the missed keys; true if the last of them carries the get's token.
    fn fill(&mut self, line: u32, index: usize, entry: &Entry, books: &mut Books) -> bool {
        if entry.refused {
            return false;
        }
        let before = books.back.fills.len();
        if entry.sent.keys == 1 {
            books.back.fills.push((line, entry.sent.key, false));
        } else {
            let keys = self.lines[line as usize].ring.keys(index);
            let missed = keys.iter().filter(|key| **key & STRUCK == 0);
            books.back.fills.extend(missed.map(|&key| (line, key, false)));
        }
        let token = entry.sent.cause == Cause::Token && entry.whole.is_none();
        match books.back.fills[before..].last_mut() {
            Some(last) => {
                last.2 = token;
                token
            }
            None => false,
        }
    }
}

/// Finds a value's key among those of a request that are struck out (`STRUCK`), or that are not
/// (0). In text, values come in the order of the keys, but missed keys are left out: so `place` is
/// only the first guess.
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

/// Keeps the unread rest of the input in `held`, where it already is unless it is in `buffer`.
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
