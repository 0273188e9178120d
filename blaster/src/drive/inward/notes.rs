//! The messages between the sending and the receiving half.
//!
//! Where: between the halves: direct calls on one thread, notes between two.
//! Invariant: messages come in the order of events; the receiving half hears of a request before
//! its bytes go out.

use super::super::pending::{Pick, Sent};
use super::super::score::Books;
use super::Inward;
use crate::line::Socket;

/// A message of the sending half to the receiving one.
#[derive(Debug)]
pub(in super::super) enum Note {
    /// A line has a new socket.
    Opened(u32, Socket),
    /// A request goes out on a line.
    Sent(u32, Sent),
    /// Report when no request waits on this line: it is to be closed then.
    Leave(u32),
    /// Writing to this line has failed.
    Fallen(u32),
}

/// Notes in their order, and the keys of the multigets among them.
#[derive(Debug, Default)]
pub(in super::super) struct Notes {
    pub(in super::super) notes: Vec<Note>,
    pub(in super::super) keys: Vec<u64>,
}

/// The listener to the sending half: the receiving half itself if one thread is both, or else notes
/// to it.
pub(in super::super) trait Listen {
    fn opened(&mut self, line: u32, socket: Socket, books: &mut Books);
    /// Tells that a request goes out on a line; with its keys, if there are several.
    fn sent(&mut self, line: u32, sent: &Sent, keys: &[u64], books: &mut Books);
    /// Tells that many requests of one key each go out on a line, all like `first`.
    fn burst(&mut self, line: u32, first: &Sent, picks: &[Pick], books: &mut Books);
    /// Asks for a report when no request waits on this line: it is to be closed then.
    fn leave(&mut self, line: u32, books: &mut Books);
    /// Tells that writing to this line has failed.
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

/// The answers of the receiving half to the sending one.
#[derive(Debug, Default)]
pub(in super::super) struct Feedback {
    /// Number of requests that are over, without fills.
    pub(in super::super) over: u64,
    /// Lines of requests that are over, and the number of their tokens that are free again.
    pub(in super::super) tokens: Vec<(u32, u32)>,
    /// Keys that were missed: line, key, and whether the token passes to the set.
    pub(in super::super) fills: Vec<(u32, u64, bool)>,
    pub(in super::super) broken: Vec<u32>,
    /// Lines that were to be left and on which no request waits.
    pub(in super::super) left: Vec<u32>,
}

impl Feedback {
    #[inline]
    pub(in super::super) fn give_token(&mut self, line: u32, count: u32) {
        match self.tokens.last_mut() {
            Some((last, tokens)) if *last == line => *tokens += count,
            _ => self.tokens.push((line, count)),
        }
    }

    /// True if the sending half has to act on it.
    pub(in super::super) fn is_urgent(&self) -> bool {
        !(self.tokens.is_empty()
            && self.fills.is_empty()
            && self.broken.is_empty()
            && self.left.is_empty())
    }

    /// Takes over the contents of another, which becomes empty.
    pub(in super::super) fn add(&mut self, other: &mut Feedback) {
        self.over += std::mem::take(&mut other.over);
        self.tokens.append(&mut other.tokens);
        self.fills.append(&mut other.fills);
        self.broken.append(&mut other.broken);
        self.left.append(&mut other.left);
    }
}
