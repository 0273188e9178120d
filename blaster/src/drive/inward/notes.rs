//! What the two halves tell each other.
//!
//! Where: between the sending and the receiving half, at once on one thread, by notes between two.
//! Invariant: the order in which things were told is that in which they happened; a request is told
//! of before its bytes go out.

use super::super::pending::{Pick, Sent};
use super::super::score::Books;
use super::Inward;
use crate::line::Socket;

/// What the sending half tells the receiving one, in the order in which it happened.
#[derive(Debug)]
pub(in super::super) enum Note {
    /// A line has a new socket.
    Opened(u32, Socket),
    /// A request goes out on a line.
    Sent(u32, Sent),
    /// Tell when nothing waits on this line: it is to be closed then.
    Leave(u32),
    /// Writing to this line has failed.
    Fallen(u32),
}

/// Notes, and the keys of the multigets among them.
#[derive(Debug, Default)]
pub(in super::super) struct Notes {
    pub(in super::super) notes: Vec<Note>,
    pub(in super::super) keys: Vec<u64>,
}

/// Who is told what the sending half does, as it does it: the receiving half itself where one
/// thread is both, and notes to it where it has a thread of its own.
pub(in super::super) trait Listen {
    /// A line has a new socket.
    fn opened(&mut self, line: u32, socket: Socket, books: &mut Books);
    /// A request goes out on a line; with the keys, if there are several.
    fn sent(&mut self, line: u32, sent: &Sent, keys: &[u64], books: &mut Books);
    /// Many requests of one key each go out on a line, all like `first`.
    fn burst(&mut self, line: u32, first: &Sent, picks: &[Pick], books: &mut Books);
    /// Tell when nothing waits on this line: it is to be closed then.
    fn leave(&mut self, line: u32, books: &mut Books);
    /// Writing to this line has failed.
    fn fallen(&mut self, line: u32, books: &mut Books);
}

impl Listen for Notes {
    fn opened(&mut self, line: u32, socket: Socket, _: &mut Books) {
        self.notes.push(Note::Opened(line, socket));
    }

    #[inline]
    fn sent(&mut self, line: u32, sent: &Sent, keys: &[u64], _: &mut Books) {
        self.notes.push(Note::Sent(line, *sent));
        if keys.len() > 1 {
            self.keys.extend_from_slice(keys);
        }
    }

    fn burst(&mut self, line: u32, first: &Sent, picks: &[Pick], _: &mut Books) {
        let notes = picks.iter().zip(0_u16..).map(|(pick, at)| {
            let number = first.number.wrapping_add(at);
            Note::Sent(line, Sent { number, verb: pick.verb, key: pick.key, ..*first })
        });
        self.notes.extend(notes);
    }

    fn leave(&mut self, line: u32, _: &mut Books) {
        self.notes.push(Note::Leave(line));
    }

    fn fallen(&mut self, line: u32, _: &mut Books) {
        self.notes.push(Note::Fallen(line));
    }
}

impl Listen for Inward {
    fn opened(&mut self, line: u32, socket: Socket, books: &mut Books) {
        self.open(line, socket, books);
    }

    #[inline]
    fn sent(&mut self, line: u32, sent: &Sent, keys: &[u64], books: &mut Books) {
        self.enter(line, sent, keys, books);
    }

    #[inline]
    fn burst(&mut self, line: u32, first: &Sent, picks: &[Pick], books: &mut Books) {
        let Some(at) = self.lines.get_mut(line as usize) else { return };
        if at.socket.is_some() && at.ring.has_room(picks.len()) {
            self.waiting += picks.len() as u64;
            self.entering = None;
            let lost = at.ring.push_all(first, picks);
            (0..lost).for_each(|_| books.score.lost());
            return;
        }
        for (pick, number) in picks.iter().zip(0_u16..) {
            let number = first.number.wrapping_add(number);
            let sent = Sent { number, verb: pick.verb, key: pick.key, ..*first };
            self.enter(line, &sent, &[], books);
        }
    }

    fn leave(&mut self, line: u32, books: &mut Books) {
        let Some(at) = self.lines.get_mut(line as usize) else { return };
        at.leaving = true;
        self.leave_if_idle(line, books);
    }

    fn fallen(&mut self, line: u32, books: &mut Books) {
        self.broken(line, books);
    }
}

/// What the receiving half tells the sending one.
#[derive(Debug, Default)]
pub(in super::super) struct Feedback {
    /// Requests that are over, fills not counted.
    pub(in super::super) over: u64,
    /// Lines of requests that are over, and how many of their tokens may be used again.
    pub(in super::super) tokens: Vec<(u32, u32)>,
    /// Keys that were missed: line, key, and whether the token goes on with its set.
    pub(in super::super) fills: Vec<(u32, u64, bool)>,
    /// Lines that are broken.
    pub(in super::super) broken: Vec<u32>,
    /// Lines that were to be left and have nothing waiting.
    pub(in super::super) left: Vec<u32>,
}

impl Feedback {
    /// So many tokens of a line may be used again.
    #[inline]
    pub(in super::super) fn give_token(&mut self, line: u32, count: u32) {
        match self.tokens.last_mut() {
            Some((last, tokens)) if *last == line => *tokens += count,
            _ => self.tokens.push((line, count)),
        }
    }

    /// Something in it has to be acted upon.
    pub(in super::super) fn is_urgent(&self) -> bool {
        !(self.tokens.is_empty()
            && self.fills.is_empty()
            && self.broken.is_empty()
            && self.left.is_empty())
    }

    /// Takes over another's, which is empty then.
    pub(in super::super) fn add(&mut self, other: &mut Feedback) {
        self.over += std::mem::take(&mut other.over);
        self.tokens.append(&mut other.tokens);
        self.fills.append(&mut other.fills);
        self.broken.append(&mut other.broken);
        self.left.append(&mut other.left);
    }
}
