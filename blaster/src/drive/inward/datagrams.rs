//! Answers in datagrams: assembled, and told apart from lost, late, duplicate and reordered ones.
//!
//! Where: the receiving half, for lines over UDP.
//! Invariant: at most `ASSEMBLIES_MAX` answers of several datagrams are assembled at a time on a
//! line, each of at most `PARTS_MAX`; a part counts once. In memcached's multigets a lost value
//! counts as a miss: the server does not report misses either.
//! Source: memcached's `protocol.txt`, "UDP protocol".

use net::Datagram;
use protocol::udp::Header;

use super::super::Clock;
use super::super::pending::{Entry, STRUCK, State};
use super::super::score::{Books, Outcome};
use super::{InLine, Inward, place_of};
use crate::line::Socket;
use crate::wire::{Found, Piece, Reader, Said, Tag};

/// Most incomplete answers of several datagrams at a time.
const ASSEMBLIES_MAX: usize = 256;
/// Most datagrams of one answer: with memcached's 1,392 bytes in each, more than a megabyte.
const PARTS_MAX: usize = 1024;
/// Most batches of one socket, or queue, before the others have their turn.
pub(super) const BATCHES_MAX: usize = 16;

/// An answer that is being assembled.
#[derive(Debug, Default)]
struct Assembly {
    number: u16,
    total: usize,
    came: usize,
    /// The range of each part in `bytes`; none until it has come.
    parts: Vec<Option<(usize, usize)>>,
    bytes: Vec<u8>,
}

/// The result of adding a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It is kept; others are missing.
    Kept,
    /// It had come before.
    Double,
    /// It completes the answer.
    Last,
    /// It contradicts others, or there are too many parts.
    Refused,
}

/// The first value in a datagram of a multiget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// The value of the key at this index, which had none yet.
    Fresh(usize),
    /// The value of a key that already had one.
    Again,
    /// No value, or a value that was not asked for.
    None,
}

/// The assemblies of a line.
#[derive(Debug)]
pub(super) struct Assemblies {
    open: Vec<Assembly>,
    spare: Vec<Assembly>,
    whole: Vec<u8>,
}

impl Assemblies {
    pub(super) fn new() -> Assemblies {
        Assemblies { open: Vec::new(), spare: Vec::new(), whole: Vec::new() }
    }

    /// Adds a part. After the last one, `whole` holds the answer.
    fn add(&mut self, header: Header, bytes: &[u8]) -> Part {
        let total = usize::from(header.total);
        let at = self.open.iter().position(|one| one.number == header.id);
        let at = match at {
            Some(at) => at,
            None if total > PARTS_MAX || self.open.len() >= ASSEMBLIES_MAX => return Part::Refused,
            None => {
                let mut fresh = self.spare.pop().unwrap_or_default();
                fresh.number = header.id;
                (fresh.total, fresh.came) = (total, 0);
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
        assembly.came += 1;
        if assembly.came < total {
            return Part::Kept;
        }
        self.whole.clear();
        for &(start, end) in assembly.parts.iter().flatten() {
            self.whole.extend_from_slice(&assembly.bytes[start..end]);
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
    /// Reads the waiting datagrams of a line, up to its share of the turn.
    pub(super) fn gather(&mut self, line: u32, clock: &Clock, books: &mut Books) {
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
            let birth = self.lines[line as usize].birth;
            self.open_mail(books);
            if !self.lines[line as usize].is(birth) {
                // The line was given up meanwhile, and may have been opened again.
                is_drained = true;
                break;
            }
            books.score.received(inbox.total_bytes());
            self.take_datagrams(line, &mut inbox.datagrams(), now_ns, books);
            if is_drained {
                break;
            }
        }
        self.inbox = Some(inbox);
        if !is_drained {
            self.unread.push(line);
        }
        self.leave_if_idle(line, books);
    }

    #[inline]
    pub(super) fn take_datagrams<'i, P: 'i>(
        &mut self,
        line: u32,
        datagrams: &mut impl Iterator<Item = Datagram<'i, P>>,
        now_ns: u64,
        books: &mut Books,
    ) {
        while let Some(datagram) = self.quick_datagrams(line, datagrams, now_ns, books) {
            match Header::read(datagram.bytes) {
                Some((header, bytes)) if header.is_part() => {
                    self.datagram(line, header, bytes, now_ns, books);
                }
                // memcached sends an empty datagram, 0 of 0, if a quiet request has no answer.
                Some((_, [])) => {}
                _ => books.score.broken(),
            }
        }
    }

    fn datagram(
        &mut self,
        line: u32,
        header: Header,
        bytes: &[u8],
        now_ns: u64,
        books: &mut Books,
    ) {
        let own = &mut self.lines[line as usize];
        let Some(index) = own.ring.find(header.id) else { return books.score.broken() };
        let entry = own.ring.entry(index);
        let is_part = entry.sent.keys > 1 && header.total == 1;
        match entry.state {
            State::Waiting if is_part => match self.first_value(line, index, bytes) {
                (Value::Again, false) => return books.score.duplicate(),
                // The multiget asks for one key twice: one of its values is the duplicate.
                (Value::Again, true) => {
                    books.score.duplicate();
                    let end = Piece { tag: None, said: Said::End, ends: true };
                    return self.piece(line, index, &end, now_ns, books);
                }
                (Value::Fresh(_) | Value::None, _) => {}
            },
            State::Waiting => {}
            State::Answered if is_part => return self.behind(line, index, bytes, books),
            // Only the first datagram of a late answer is remembered.
            State::Late if is_part || header.total > 1 => return,
            State::Answered | State::Late => return books.score.duplicate(),
            State::TimedOut => {
                entry.state = State::Late;
                return;
            }
            State::Free => return books.score.broken(),
        }
        let own = &mut self.lines[line as usize];
        if header.total == 1 {
            return self.answer(line, index, header.id, bytes, now_ns, books);
        }
        own.ring.entry(index).has_parts = true;
        match own.assemblies.add(header, bytes) {
            Part::Kept => {}
            Part::Double => books.score.duplicate(),
            Part::Last => {
                let whole = std::mem::take(&mut own.assemblies.whole);
                self.answer(line, index, header.id, &whole, now_ns, books);
                self.lines[line as usize].assemblies.whole = whole;
            }
            Part::Refused => books.score.broken(),
        }
    }

    /// Takes a datagram of a multiget that is already over: a value that the multiget's end has
    /// overtaken, and that therefore counted as a miss; or a duplicate.
    fn behind(&mut self, line: u32, index: usize, bytes: &[u8], books: &mut Books) {
        match self.first_value(line, index, bytes).0 {
            Value::Fresh(at) => {
                self.lines[line as usize].ring.keys(index)[at] |= STRUCK;
                books.score.reordered();
            }
            Value::Again | Value::None => books.score.duplicate(),
        }
    }

    /// Finds the value with which a datagram of a multiget begins, and whether it ends the
    /// multiget. memcached sends each value in a datagram of its own, all with the same header.
    fn first_value(&mut self, line: u32, index: usize, bytes: &[u8]) -> (Value, bool) {
        let mut reader = Reader::new(self.options.speech);
        let Found::Piece(Piece { tag, said: Said::Value(name, _), ends }, _) = reader.next(bytes)
        else {
            return (Value::None, false);
        };
        let ring = &mut self.lines[line as usize].ring;
        let told = usize::from(ring.entry(index).told);
        let keys = &ring.keys(index)[..];
        let mut find = |struck| place_of((&self.names, &mut self.key), keys, (told, name), struck);
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

    /// Takes the bytes of an answer or of a part of it, in whole pieces.
    #[inline]
    fn answer(
        &mut self,
        line: u32,
        index: usize,
        number: u16,
        bytes: &[u8],
        now_ns: u64,
        books: &mut Books,
    ) {
        let mut at = 0;
        while at < bytes.len() {
            let is_waiting = self.lines[line as usize].ring.entry(index).state == State::Waiting;
            // Over UDP, nothing of an answer is carried over to the next.
            match self.lines[line as usize].reader.next(&bytes[at..]) {
                Found::Piece(piece, used)
                    if is_waiting && piece.tag.is_none_or(|tag| tag.number() == number) =>
                {
                    at += used;
                    self.piece(line, index, &piece, now_ns, books);
                }
                _ => {
                    books.score.broken();
                    if is_waiting {
                        let ring = &mut self.lines[line as usize].ring;
                        let entry: Entry = *ring.entry(index);
                        ring.settle(index, State::Answered);
                        self.over(line, &entry, Outcome::GIVEN_UP, None, books);
                    }
                    return;
                }
            }
        }
        let own = &mut self.lines[line as usize];
        if own.ring.entry(index).state != State::Waiting {
            self.order(line, number, books);
        }
    }

    /// Counts an answer that came after that to a later request.
    fn order(&mut self, line: u32, number: u16, books: &mut Books) {
        if self.options.has_order && self.lines[line as usize].is_overtaken(number) {
            books.score.reordered();
        }
    }
}

impl InLine {
    /// Notes that a request was answered; true if a later one was answered before.
    #[inline]
    pub(super) fn is_overtaken(&mut self, number: u16) -> bool {
        // Numbers wrap around: a later one is less than half the range ahead.
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
            (part, assemblies.whole.clone())
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
