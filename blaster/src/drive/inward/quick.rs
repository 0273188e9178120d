//! The fast path of the receiving half, which handles several usual answers at once.
//!
//! Where: the receiving half tries this path first, and decodes other answers piece by piece.
//! Invariant: an answer has the same effect here as through `piece` and `over`. Answers whose
//! contents matter (verified values, misses to be filled) do not take this path.
//! Source: none. Without this path a GET costs 46 to 122 % more instructions (`bench drive` under
//! callgrind, 32 requests in flight, all four protocols).

use net::Datagram;
use protocol::udp::Header;

use super::super::pending::Cause;
use super::super::score::DriveState;
use super::Inward;
use crate::wire::{Tag, UsualKind};

impl Inward {
    /// Handles usual answers at the start of `input`. Returns the length of these answers.
    #[inline]
    pub(super) fn quick(
        &mut self,
        line: u32,
        input: &[u8],
        now_ns: u64,
        state: &mut DriveState,
    ) -> usize {
        if self.options.verify || self.options.fill {
            return 0;
        }
        let own = &mut self.lines[line as usize];
        let (mut at, mut over, mut tokens, mut hits, mut misses) = (0, 0, 0, 0, 0);
        while let Some(quick) = input.get(at..).and_then(|rest| own.reader.next_usual(rest)) {
            let number = quick.tag.map(Tag::number);
            let Some(sent) = own.ring.answer(number, quick.kind != UsualKind::Done) else { break };
            state.score.answered(line, sent, now_ns);
            over += 1;
            tokens += u32::from(sent.cause == Cause::Token);
            hits += u64::from(quick.kind == UsualKind::Hit);
            misses += u64::from(quick.kind == UsualKind::Miss);
            at += quick.used;
        }
        self.count_over(line, over, (hits, misses), tokens, state);
        at
    }

    /// Handles datagrams that hold one usual answer for one key. Returns the first other datagram.
    #[inline]
    pub(super) fn quick_datagrams<'i, P: 'i>(
        &mut self,
        line: u32,
        datagrams: &mut impl Iterator<Item = Datagram<'i, P>>,
        now_ns: u64,
        state: &mut DriveState,
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
            let quick = own.reader.next_usual(bytes).filter(|quick| quick.used == bytes.len());
            let Some(quick) = quick else { break Some(datagram) };
            let is_own = quick.tag.is_none_or(|tag| tag.number() == header.id);
            let is_get = quick.kind != UsualKind::Done;
            let sent = if is_own { own.ring.answer(Some(header.id), is_get) } else { None };
            let Some(sent) = sent else { break Some(datagram) };
            state.score.answered(line, sent, now_ns);
            over += 1;
            tokens += u32::from(sent.cause == Cause::Token);
            hits += u64::from(quick.kind == UsualKind::Hit);
            misses += u64::from(quick.kind == UsualKind::Miss);
            if self.options.has_order && own.is_overtaken(header.id) {
                state.score.tally.udp.reordered += 1;
            }
        };
        self.count_over(line, over, (hits, misses), tokens, state);
        unusual
    }

    #[inline]
    fn count_over(
        &mut self,
        line: u32,
        over: u64,
        (hits, misses): (u64, u64),
        tokens: u32,
        state: &mut DriveState,
    ) {
        if over > 0 {
            self.waiting -= over;
            state.feedback.over += over;
            state.score.found(hits, misses);
            if tokens > 0 {
                state.feedback.give_token(line, tokens);
            }
        }
    }
}
