//! Ends requests. `over` ends one request; the other functions call `over` for requests that got no
//! answer.
//!
//! Where: called by the receiving half.
//! Invariant: each request is counted as over once, either by `over` or by the module `quick`.

use super::super::pending::{Cause, Entry, State};
use super::super::score::{DriveState, Outcome};
use super::Inward;
use crate::line::Socket;

impl Inward {
    /// Ends a request or a part of a split multiget, and frees the request's token. `now_ns` is the
    /// time of the answer, or `None` if there is no answer.
    #[inline]
    pub(super) fn over(
        &mut self,
        line: u32,
        entry: &Entry,
        outcome: Outcome,
        now_ns: Option<u64>,
        state: &mut DriveState,
    ) {
        self.waiting -= 1;
        let mut outcome = outcome;
        if let Some(split) = entry.split {
            let at = &mut self.splits[split as usize];
            at.outcome.add(&outcome);
            at.left = at.left.saturating_sub(1);
            if at.left > 0 {
                return;
            }
            outcome = at.outcome;
            self.free_splits.push(split);
        }
        let sent = &entry.sent;
        state.score.over(line, sent, &outcome, now_ns);
        if !matches!(sent.cause, Cause::Fill { .. }) {
            state.feedback.over += 1;
        }
        if matches!(sent.cause, Cause::Token | Cause::Fill { token: true }) {
            state.feedback.give_token(line, 1);
        }
    }

    /// Marks a line as broken: waiting requests fail, and the sending half opens the line again.
    pub(super) fn broken(&mut self, line: u32, state: &mut DriveState) {
        let own = &mut self.lines[line as usize];
        let Some(socket) = own.socket.take() else { return };
        socket.forget(&self.epoll, &self.calls);
        own.held.clear();
        own.is_closing = false;
        state.score.tally.cut_off += own.ring.waiting() as u64;
        state.feedback.broken.push(line);
        self.fail_all(line, state);
    }

    fn fail_all(&mut self, line: u32, state: &mut DriveState) {
        while let Some(index) = self.lines[line as usize].ring.oldest() {
            let ring = &mut self.lines[line as usize].ring;
            let entry = *ring.entry(index);
            ring.settle(index, State::Answered);
            self.over(line, &entry, Outcome::GIVEN_UP, None, state);
        }
    }

    /// Ends requests that have waited longer than the timeout. On a stream, a missing answer blocks
    /// all later answers, so the whole connection is given up.
    pub(crate) fn expire(&mut self, now_ns: u64, state: &mut DriveState) {
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
                    Some(Socket::Udp(_) | Socket::Packets(_)) => self.expire_oldest(line, state),
                    _ => {
                        self.fail_all(line, state);
                        self.broken(line, state);
                    }
                }
            }
        }
    }

    /// UDP: times out the oldest request, which counts as lost unless its answer still arrives.
    pub(super) fn expire_oldest(&mut self, line: u32, state: &mut DriveState) {
        let own = &mut self.lines[line as usize];
        let Some(index) = own.ring.oldest() else { return };
        let entry = *own.ring.entry(index);
        own.ring.settle(index, State::TimedOut);
        if entry.has_parts {
            own.assemblies.drop(entry.sent.number);
        }
        state.score.tally.udp.timeouts += 1;
        self.over(line, &entry, Outcome::GIVEN_UP, None, state);
        self.close_if_idle(line, state);
    }

    #[inline]
    pub(super) fn close_if_idle(&mut self, line: u32, state: &mut DriveState) {
        let own = &mut self.lines[line as usize];
        if !own.is_closing || own.ring.waiting() > 0 {
            return;
        }
        own.is_closing = false;
        if let Some(socket) = own.socket.take() {
            socket.forget(&self.epoll, &self.calls);
            state.feedback.closed.push(line);
        }
    }

    pub(crate) fn finish(&mut self, state: &mut DriveState) {
        for line in 0..self.lines.len() {
            let Ok(line) = u32::try_from(line) else { return };
            while self.lines[line as usize].socket.as_ref().is_some_and(Socket::is_datagrams)
                && self.lines[line as usize].ring.waiting() > 0
            {
                self.expire_oldest(line, state);
            }
            self.fail_all(line, state);
            let lost = self.lines[line as usize].ring.count(State::TimedOut);
            state.score.tally.udp.lost += lost;
        }
    }
}
