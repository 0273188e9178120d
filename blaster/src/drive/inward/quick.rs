//! The usual answers, taken many at once.
//!
//! Where: the receiving half comes here before it looks at answers piece by piece.
//! Invariant: what is taken here ends as `piece` and `over` would have ended it; what anybody wants
//! to look at (verified values, misses to be filled) is not.
//! Source: none. Why it stands beside `piece`: without it a GET costs 46 to 122 % more instructions
//! (`bench drive` under callgrind, 32 under way, all four protocols).

use super::super::pending::Cause;
use super::super::score::Books;
use super::Inward;
use crate::wire::{Tag, Usual};

impl Inward {
    /// Takes the usual answers at the start of `input`, one behind the other, as far as nobody
    /// wants to look at them: how many bytes they are. They end as `piece` would end them.
    #[inline]
    pub(super) fn quick(
        &mut self,
        line: u32,
        input: &[u8],
        now_ns: u64,
        books: &mut Books,
    ) -> usize {
        if self.options.verify || self.options.fill {
            return 0;
        }
        let own = &mut self.lines[line as usize];
        let (mut at, mut over, mut tokens, mut hits, mut misses) = (0, 0, 0, 0, 0);
        while let Some(quick) = input.get(at..).and_then(|rest| own.reader.quick(rest)) {
            let number = quick.tag.map(Tag::number);
            let Some(sent) = own.ring.answer(number, quick.said != Usual::Done) else { break };
            books.score.answered(sent.verb, sent.intended_ns, sent.sent_ns, now_ns);
            over += 1;
            tokens += u32::from(sent.cause == Cause::Token);
            hits += u64::from(quick.said == Usual::Hit);
            misses += u64::from(quick.said == Usual::Miss);
            at += quick.used;
        }
        if over > 0 {
            self.waiting -= over;
            books.back.over += over;
            books.score.found(hits, misses);
            if tokens > 0 {
                books.back.give_token(line, tokens);
            }
        }
        at
    }

    /// Takes a usual answer to a request of one key; false if this is none.
    #[inline]
    pub(super) fn quick_datagram(
        &mut self,
        line: u32,
        number: u16,
        bytes: &[u8],
        now_ns: u64,
        books: &mut Books,
    ) -> bool {
        let own = &mut self.lines[line as usize];
        let is_looked_at = self.options.verify || self.options.fill;
        let quick = own.reader.quick(bytes).filter(|quick| quick.used == bytes.len());
        let Some(quick) = quick.filter(|_| !is_looked_at) else { return false };
        let is_own = quick.tag.is_none_or(|tag| tag.number() == number);
        let sent =
            if is_own { own.ring.answer(Some(number), quick.said != Usual::Done) } else { None };
        let Some(sent) = sent else { return false };
        books.score.answered(sent.verb, sent.intended_ns, sent.sent_ns, now_ns);
        let is_token = sent.cause == Cause::Token;
        self.waiting -= 1;
        books.back.over += 1;
        books
            .score
            .found(u64::from(quick.said == Usual::Hit), u64::from(quick.said == Usual::Miss));
        if is_token {
            books.back.give_token(line, 1);
        }
        true
    }
}
