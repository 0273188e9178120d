//! The messages between the sending half and the receiving half of a drive.
//!
//! Where: if both halves run on one thread, a message is a direct call; otherwise it is queued in
//! `Messages`.
//! Invariant: messages keep the order of events. The receiving half gets the message about a
//! request before the request's bytes are sent.

use super::pending::{Pick, Sent};
use super::score::DriveState;
use crate::line::Socket;

#[derive(Debug)]
pub(super) enum Message {
    Opened(u32, Socket),
    Sent(u32, Sent),
    /// Close this line as soon as none of its requests waits for an answer.
    CloseWhenIdle(u32),
    WriteFailed(u32),
}

/// Messages in order. `keys` has the keys of all multigets in `queue`, also in order.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) queue: Vec<Message>,
    pub(super) keys: Vec<u64>,
}

/// The recipient of messages: `Inward` on the same thread, or `Messages` for another thread.
pub(super) trait ReceivingHalf {
    fn opened(&mut self, line: u32, socket: Socket, state: &mut DriveState);
    /// `keys` lists the request's keys if the request has several keys, and is empty otherwise.
    fn sent(&mut self, line: u32, sent: &Sent, keys: &[u64], state: &mut DriveState);
    /// Reports a burst that is about to be sent. The burst has one request for each of `picks`: a
    /// copy of `first` with the pick's verb and key. The requests are numbered from `first.number`.
    fn burst(&mut self, line: u32, first: &Sent, picks: &[Pick], state: &mut DriveState);
    fn close_when_idle(&mut self, line: u32, state: &mut DriveState);
    fn write_failed(&mut self, line: u32, state: &mut DriveState);
}

impl ReceivingHalf for Messages {
    fn opened(&mut self, line: u32, socket: Socket, _: &mut DriveState) {
        self.queue.push(Message::Opened(line, socket));
    }

    #[inline]
    fn sent(&mut self, line: u32, sent: &Sent, keys: &[u64], _: &mut DriveState) {
        self.queue.push(Message::Sent(line, *sent));
        if keys.len() > 1 {
            self.keys.extend_from_slice(keys);
        }
    }

    fn burst(&mut self, line: u32, first: &Sent, picks: &[Pick], _: &mut DriveState) {
        let messages = picks.iter().zip(0_u16..).map(|(pick, at)| {
            let number = first.number.wrapping_add(at);
            Message::Sent(line, Sent { number, verb: pick.verb, key: pick.key, ..*first })
        });
        self.queue.extend(messages);
    }

    fn close_when_idle(&mut self, line: u32, _: &mut DriveState) {
        self.queue.push(Message::CloseWhenIdle(line));
    }

    fn write_failed(&mut self, line: u32, _: &mut DriveState) {
        self.queue.push(Message::WriteFailed(line));
    }
}

/// Reports of the receiving half, on which the sending half acts.
#[derive(Debug, Default)]
pub(super) struct Feedback {
    /// Number of requests that have ended, not counting fills.
    pub(super) over: u64,
    /// Lines on which requests have ended, and the number of tokens freed on each line.
    pub(super) tokens: Vec<(u32, u32)>,
    /// Sets to send for missed keys: line, key, and true if the set takes over the get's token.
    pub(super) fills: Vec<(u32, u64, bool)>,
    pub(super) broken: Vec<u32>,
    pub(super) closed: Vec<u32>,
}

impl Feedback {
    #[inline]
    pub(super) fn give_token(&mut self, line: u32, count: u32) {
        match self.tokens.last_mut() {
            Some((last, tokens)) if *last == line => *tokens += count,
            _ => self.tokens.push((line, count)),
        }
    }

    /// True if the sending half has to act at once.
    pub(super) fn is_urgent(&self) -> bool {
        !(self.tokens.is_empty()
            && self.fills.is_empty()
            && self.broken.is_empty()
            && self.closed.is_empty())
    }

    pub(super) fn add(&mut self, other: &mut Feedback) {
        self.over += std::mem::take(&mut other.over);
        self.tokens.append(&mut other.tokens);
        self.fills.append(&mut other.fills);
        self.broken.append(&mut other.broken);
        self.closed.append(&mut other.closed);
    }
}
