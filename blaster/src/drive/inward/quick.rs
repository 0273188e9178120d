//! Usual answers, taken many at once.
//!
//! Where: the receiving half comes here before it looks at answers piece by piece.
//! Invariant: an answer taken here ends its request like `piece` and `over` would; answers whose
//! contents matter (verified values, misses to be filled) are not taken.
//! Source: none. The reason beside `piece`: without it a GET costs 46 to 122 % more instructions
//! (`bench drive` under callgrind, 32 under way, all four protocols).

use net::Datagram;
use protocol::udp::Header;

use super::super::pending::Cause;
use super::super::score::Books;
use super::Inward;
use crate::wire::{Tag, Usual};

impl Inward {
    /// Takes the usual answers at the start of `input`, one behind the other, unless their contents
    /// matter. Returns their length in bytes. They end like `piece` would end them.
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
        self.count_over(line, over, (hits, misses), tokens, books);
        at
    }

    /// Takes usual answers to requests of one key, one per datagram, unless their contents matter.
    /// Returns the first datagram that is no such answer; none if all are.
    #[inline]
    pub(super) fn quick_datagrams<'i, P: 'i>(
        &mut self,
        line: u32,
        datagrams: &mut impl Iterator<Item = Datagram<'i, P>>,
        now_ns: u64,
        books: &mut Books,
    ) -> Option<Datagram<'i, P>> {
        if self.options.verify || self.options.fill {
            return datagrams.next();
        }
        let own = &mut self.lines[line as usize];
        let (mut over, mut tokens, mut hits, mut misses) = (0, 0, 0, 0);
        let unusual = loop {
            let Some(datagram) = datagrams.next() else { break None };
            let Some((header, bytes)) = Header::read(datagram.bytes) else { break Some(datagram) };
            if (header.number, header.total) != (0, 1) {
                break Some(datagram);
            }
            let quick = own.reader.quick(bytes).filter(|quick| quick.used == bytes.len());
            let Some(quick) = quick else { break Some(datagram) };
            let is_own = quick.tag.is_none_or(|tag| tag.number() == header.id);
            let is_get = quick.said != Usual::Done;
            let sent = if is_own { own.ring.answer(Some(header.id), is_get) } else { None };
            let Some(sent) = sent else { break Some(datagram) };
            books.score.answered(sent.verb, sent.intended_ns, sent.sent_ns, now_ns);
            over += 1;
            tokens += u32::from(sent.cause == Cause::Token);
            hits += u64::from(quick.said == Usual::Hit);
            misses += u64::from(quick.said == Usual::Miss);
            if self.options.has_order && own.is_overtaken(header.id) {
                books.score.reordered();
            }
        };
        self.count_over(line, over, (hits, misses), tokens, books);
        unusual
    }

    /// Counts requests that are over with usual answers.
    #[inline]
    fn count_over(
        &mut self,
        line: u32,
        over: u64,
        (hits, misses): (u64, u64),
        tokens: u32,
        books: &mut Books,
    ) {
        if over > 0 {
            self.waiting -= over;
            books.back.over += over;
            books.score.found(hits, misses);
            if tokens > 0 {
                books.back.give_token(line, tokens);
            }
        }
    }
}
