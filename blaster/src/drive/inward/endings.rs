//! The ends of requests that are not answered, and the consequences of any end.
//!
//! Where: called by the receiving half.
//! Invariant: `over` is called once for each request, and is the only place that counts it as over.

use super::super::pending::{Cause, Entry, Sent, State};
use super::super::score::{Books, Outcome};
use super::Inward;
use crate::line::Socket;

impl Entry {
    /// The entry of a request whose line is down.
    pub(super) fn failed(sent: &Sent, whole: Option<u32>) -> Entry {
        Entry {
            sent: *sent,
            state: State::Free,
            told: 0,
            hits: 0,
            corrupt: 0,
            refused: false,
            whole,
            has_parts: false,
            is_plain: false,
        }
    }
}

impl Inward {
    /// Ends a request: counts it and gives its token back. Without `now_ns` it was not answered.
    #[inline]
    pub(super) fn over(
        &mut self,
        line: u32,
        entry: &Entry,
        outcome: Outcome,
        now_ns: Option<u64>,
        books: &mut Books,
    ) {
        self.waiting -= 1;
        let mut outcome = outcome;
        if let Some(whole) = entry.whole {
            let at = &mut self.wholes[whole as usize];
            at.outcome.add(&outcome);
            at.left = at.left.saturating_sub(1);
            if at.left > 0 {
                return;
            }
            outcome = at.outcome;
            self.free_wholes.push(whole);
        }
        let sent = &entry.sent;
        books.score.over(sent.verb, &outcome, sent.intended_ns, sent.sent_ns, now_ns);
        if !matches!(sent.cause, Cause::Fill { .. }) {
            books.back.over += 1;
        }
        if matches!(sent.cause, Cause::Token | Cause::Fill { token: true }) {
            books.back.give_token(line, 1);
        }
    }

    /// Breaks a line: its waiting requests have failed, and it is to be opened again.
    pub(super) fn broken(&mut self, line: u32, books: &mut Books) {
        let own = &mut self.lines[line as usize];
        let Some(socket) = own.socket.take() else { return };
        socket.forget(&self.epoll, &self.calls);
        own.held.clear();
        own.leaving = false;
        books.score.cut_off(own.ring.waiting() as u64);
        books.back.broken.push(line);
        self.fail_all(line, books);
    }

    /// Ends all requests that wait on a line.
    fn fail_all(&mut self, line: u32, books: &mut Books) {
        while let Some(index) = self.lines[line as usize].ring.oldest() {
            let ring = &mut self.lines[line as usize].ring;
            let entry = *ring.entry(index);
            ring.settle(index, State::Answered);
            self.over(line, &entry, Outcome::GIVEN_UP, None, books);
        }
    }

    /// Ends requests that have waited too long. A stream whose answers do not come is given up,
    /// because they would precede all others. Of a datagram, only the one answer is missing.
    pub(in super::super) fn expire(&mut self, now_ns: u64, books: &mut Books) {
        let Some(late_ns) = now_ns.checked_sub(self.options.timeout_ns) else { return };
        for line in 0..self.lines.len() {
            let Ok(line) = u32::try_from(line) else { return };
            loop {
                let own = &mut self.lines[line as usize];
                let Some(index) = own.ring.oldest() else { break };
                if own.ring.entry(index).sent.sent_ns > late_ns {
                    break;
                }
                match own.socket {
                    Some(Socket::Udp(_) | Socket::Packets(_)) => self.expire_oldest(line, books),
                    _ => {
                        self.fail_all(line, books);
                        self.broken(line, books);
                    }
                }
            }
        }
    }

    /// UDP: times out the oldest request; it is lost, unless its answer still comes.
    pub(super) fn expire_oldest(&mut self, line: u32, books: &mut Books) {
        let own = &mut self.lines[line as usize];
        let Some(index) = own.ring.oldest() else { return };
        let entry = *own.ring.entry(index);
        own.ring.settle(index, State::TimedOut);
        if entry.has_parts {
            own.assemblies.drop(entry.sent.number);
        }
        books.score.udp_timeout();
        self.over(line, &entry, Outcome::GIVEN_UP, None, books);
        self.leave_if_idle(line, books);
    }

    /// Closes a line that is to be left, once no request waits on it.
    #[inline]
    pub(super) fn leave_if_idle(&mut self, line: u32, books: &mut Books) {
        let own = &mut self.lines[line as usize];
        if !own.leaving || own.ring.waiting() > 0 {
            return;
        }
        own.leaving = false;
        if let Some(socket) = own.socket.take() {
            socket.forget(&self.epoll, &self.calls);
            books.back.left.push(line);
        }
    }

    /// Ends the receiving: nothing more is waited for.
    pub(in super::super) fn finish(&mut self, books: &mut Books) {
        for line in 0..self.lines.len() {
            let Ok(line) = u32::try_from(line) else { return };
            while self.lines[line as usize].socket.as_ref().is_some_and(Socket::is_datagrams)
                && self.lines[line as usize].ring.waiting() > 0
            {
                self.expire_oldest(line, books);
            }
            self.fail_all(line, books);
            let lost = self.lines[line as usize].ring.count(State::TimedOut);
            (0..lost).for_each(|_| books.score.lost());
        }
    }
}
