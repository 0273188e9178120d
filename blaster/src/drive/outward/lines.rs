//! The lines (connections) of the sending half: opening, sending, flushing, closing, opening again.
//!
//! Where: part of the sending half.
//! Invariant: a line accepts requests only while it is up, not full and not being closed. The
//! receiving half learns of a socket before it learns of requests on that socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use net::{Event, Interest, Obstacle, Timeout};

use super::super::clock::Clock;
use super::super::messages::ReceivingHalf;
use super::super::pending::{Cause, Sent};
use super::super::plan::DriveError;
use super::super::score::DriveState;
use super::{Outward, RequestState, WAKER_TOKEN};
use crate::line::packets::Packets;
use crate::line::{self, FlushOutcome, Socket};
use crate::target::steer;
use crate::target::{Bypass, Place};
use crate::wire::{WireRequest, Writer};
use crate::words::ns;

/// The first pause before a line is opened again; the pause doubles with each failure.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The most time that connecting may take before the attempt counts as failed.
const CONNECT_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) enum Phase {
    /// The line is to be opened at this time.
    Down(u64),
    /// The socket has been connecting since this time.
    Connecting(Socket, u64),
    Up(Socket, line::Outward),
}

#[derive(Debug)]
pub(super) struct OutLine {
    pub(super) target: usize,
    pub(super) phase: Phase,
    /// The number of the next request.
    pub(super) next: u32,
    pub(super) sent: u64,
    pause: Duration,
    is_dirty: bool,
    /// True if the socket has no room, or if a write failed and the line is not yet down.
    is_full: bool,
    is_closing: bool,
}

impl OutLine {
    pub(super) fn new(target: usize) -> OutLine {
        OutLine {
            target,
            phase: Phase::Down(0),
            next: 0,
            sent: 0,
            pause: PAUSE_MIN,
            is_dirty: false,
            is_full: false,
            is_closing: false,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up(..))
    }

    #[inline(always)]
    pub(super) fn accepts(&self) -> bool {
        !self.is_closing && self.has_room()
    }

    /// True if the line has room for a fill, which is a set after a miss. A line that is being
    /// closed still accepts fills, but no other requests.
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        match &self.phase {
            Phase::Up(_, out) => !self.is_full && out.has_room(),
            _ => false,
        }
    }

    pub(super) fn mark_broken(&mut self, now_ns: u64) {
        self.phase = Phase::Down(now_ns.saturating_add(ns(self.pause)));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Writes a request into the line's buffer, which the next flush sends. Returns the request and
    /// its length in bytes, or `None` if the line is not up or the request does not fit a datagram.
    #[inline]
    pub(super) fn send(
        &mut self,
        part: WireRequest<'_>,
        flow: u16,
        cause: Cause,
        parts: u16,
        (intended_ns, sent_ns): (u64, u64),
        writer: &mut Writer,
    ) -> Option<(Sent, usize)> {
        let Phase::Up(_, out) = &mut self.phase else { return None };
        let [.., high, low] = self.next.to_be_bytes();
        let number = u16::from_be_bytes([high, low]);
        let part = WireRequest { number, ..part };
        let before = out.total_bytes();
        writer.write(&part, out.begin(number, flow));
        if !out.end() {
            return None;
        }
        let bytes = out.total_bytes() - before;
        self.next = self.next.wrapping_add(1);
        self.sent += 1;
        let keys = u16::try_from(part.keys.len()).unwrap_or(u16::MAX);
        let key = part.keys.first().copied().unwrap_or(0);
        let verb = part.verb;
        let sent = Sent { number, verb, parts, keys, key, intended_ns, sent_ns, cause };
        Some((sent, bytes))
    }
}

impl Outward {
    #[inline]
    pub(super) fn mark_dirty(&mut self, line: u32) {
        let own = &mut self.lines[line as usize];
        if !own.is_dirty {
            own.is_dirty = true;
            self.dirty.push(line);
        }
    }

    /// Closes a line once it has sent `churn_requests` requests. The line is then opened again.
    #[inline]
    pub(super) fn churn(
        &mut self,
        line: u32,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) {
        let Some(most) = self.churn_requests else { return };
        let own = &mut self.lines[line as usize];
        if own.sent >= most && !own.is_closing {
            own.is_closing = true;
            receiver.close_when_idle(line, state);
        }
    }

    pub(crate) fn open_all(
        &mut self,
        now_ns: u64,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<(), DriveError> {
        for line in 0..self.lines.len() {
            let Ok(line) = u32::try_from(line) else { break };
            self.open(line, now_ns, state, receiver).map_err(|error| self.refused(line, error))?;
        }
        Ok(())
    }

    pub(crate) fn establish(
        &mut self,
        clock: &Clock,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<(), DriveError> {
        let until_ns = clock.now_ns().saturating_add(ns(CONNECT_MAX));
        while let Some(line) = self.lines.iter().position(|line| !line.is_up()) {
            self.handle_events(Timeout::Within(PAUSE_MIN * 10), clock, state, receiver)?;
            let Ok(line) = u32::try_from(line) else { break };
            if let Some(error) = self.open_error.take() {
                return Err(self.refused(line, error));
            }
            if clock.now_ns() > until_ns {
                return Err(self.refused(line, io::ErrorKind::TimedOut.into()));
            }
            self.tick(clock.now_ns(), state, receiver);
        }
        Ok(())
    }

    fn refused(&self, line: u32, error: io::Error) -> DriveError {
        let target = self.lines.get(line as usize).map_or(0, |line| line.target);
        let name = self.targets.get(target).map_or(String::new(), |target| target.name.clone());
        DriveError::Connect { name, error }
    }

    fn open(
        &mut self,
        line: u32,
        now_ns: u64,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> io::Result<()> {
        let own = &mut self.lines[line as usize];
        (own.is_full, own.is_closing, own.sent, own.next) = (false, false, 0, 0);
        let number = self.first_connection + line % u32::try_from(self.lines_each).unwrap_or(1);
        let place = self.steering.place(own.target, &self.targets[own.target].place, number);
        let (wanted, here) = (&self.wanted, self.here);
        let connect_xdp = |over: &Bypass, to| match wanted.iter().find(|it| it.bypass == *over) {
            Some(wanted) => Packets::connect(wanted, here, to),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let opened = match &place {
            Place::Tcp(address) if self.steering.is_to_first() => {
                steer::connect_to_first(*address).map(Socket::connected)
            }
            place => Socket::open(place, connect_xdp),
        };
        let socket = match opened {
            Ok(socket) => socket,
            Err(error) => {
                own.mark_broken(now_ns);
                // A Unix socket's listener has a full backlog, which will have room soon.
                let passes = error.kind() == io::ErrorKind::WouldBlock;
                return if passes { Ok(()) } else { Err(error) };
            }
        };
        if socket.is_datagrams() {
            self.up(line, socket, state, receiver);
        } else {
            socket.watch(&self.epoll, line.into(), Interest::Both, &self.calls)?;
            own.phase = Phase::Connecting(socket, now_ns);
        }
        Ok(())
    }

    fn up(
        &mut self,
        line: u32,
        socket: Socket,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) {
        if let Socket::Packets(packets) = &socket
            && !self.queues.iter().any(|queues| Arc::ptr_eq(queues, &packets.queues))
        {
            self.queues.push(Arc::clone(&packets.queues));
        }
        let own = &mut self.lines[line as usize];
        own.pause = PAUSE_MIN;
        own.phase = Phase::Up(socket.clone(), line::Outward::new(&socket, self.gso));
        state.score.tally.connects += 1;
        receiver.opened(line, socket, state);
    }

    pub(super) fn reopen(
        &mut self,
        line: u32,
        now_ns: u64,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) {
        if let Err(error) = self.open(line, now_ns, state, receiver) {
            state.score.tally.refused += 1;
            self.open_error = Some(error);
        }
    }

    pub(crate) fn handle_events(
        &mut self,
        limit: Timeout,
        clock: &Clock,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<(), DriveError> {
        let mut events = std::mem::take(&mut self.events);
        events.extend(self.epoll.wait(limit, &self.calls)?);
        for event in events.drain(..) {
            let Event { token, .. } = event;
            match u32::try_from(token) {
                Ok(line) if token != WAKER_TOKEN && (line as usize) < self.lines.len() => {
                    self.socket_event(line, event, clock, state, receiver);
                }
                _ => self.waker.clear(),
            }
        }
        self.events = events;
        Ok(())
    }

    fn socket_event(
        &mut self,
        line: u32,
        event: Event,
        clock: &Clock,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) {
        let own = &mut self.lines[line as usize];
        match &own.phase {
            Phase::Connecting(socket, _) if event.writable || event.ended => {
                let socket = socket.clone();
                socket.forget(&self.epoll, &self.calls);
                match socket.outcome() {
                    Ok(()) => self.up(line, socket, state, receiver),
                    Err(error) => {
                        own.mark_broken(clock.now_ns());
                        state.score.tally.refused += 1;
                        self.open_error = Some(error);
                    }
                }
            }
            Phase::Up(socket, _) if own.is_full => {
                socket.forget(&self.epoll, &self.calls);
                own.is_full = false;
                self.mark_dirty(line);
            }
            Phase::Up(..) | Phase::Connecting(..) | Phase::Down(_) => {}
        }
    }

    pub(crate) fn tick(
        &mut self,
        now_ns: u64,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) {
        for line in 0..self.lines.len() {
            let Ok(line) = u32::try_from(line) else { return };
            let own = &mut self.lines[line as usize];
            match &own.phase {
                Phase::Down(at_ns) if *at_ns <= now_ns => {
                    self.reopen(line, now_ns, state, receiver)
                }
                Phase::Connecting(_, since) if since + ns(CONNECT_MAX) < now_ns => {
                    own.mark_broken(now_ns);
                    state.score.tally.refused += 1;
                    self.open_error = Some(io::ErrorKind::TimedOut.into());
                }
                _ => {}
            }
        }
    }

    /// Open loop: gives up requests that have been due for longer than `patience_ns` because no
    /// connection accepted them. A request that is late because this program is slow is sent
    /// nevertheless.
    pub(crate) fn give_up(&mut self, now_ns: u64, patience_ns: u64, state: &mut DriveState) {
        let Some(late_ns) = now_ns.checked_sub(patience_ns) else { return };
        // The loop's requests fell due since the last call, so the rate limits the number of turns.
        while self.is_open
            && self.is_behind
            && (self.request_state != RequestState::NotDrawn || self.draw())
        {
            if self.departures.due_ns > late_ns {
                return;
            }
            if self.request_state == RequestState::Drawn {
                state.score.offered();
                if self.has_own && !self.fill_in(self.turns[0]) {
                    return;
                }
            }
            state.score.unsent(self.request.verb);
            self.request_state = RequestState::NotDrawn;
        }
    }

    /// Sends written requests, with one call per line or AF_XDP queue. False if there were none.
    #[inline]
    pub(crate) fn flush(
        &mut self,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<bool, DriveError> {
        if self.dirty.is_empty() {
            if self.is_unsent {
                self.post()?;
            }
            return Ok(false);
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        for line in dirty.drain(..) {
            let own = &mut self.lines[line as usize];
            own.is_dirty = false;
            let Phase::Up(socket, out) = &mut own.phase else { continue };
            if own.is_full {
                continue;
            }
            match out.flush(&mut self.outbox, &self.calls) {
                FlushOutcome::All => {}
                FlushOutcome::Full => {
                    own.is_full = true;
                    let token = line.into();
                    socket.watch(&self.epoll, token, Interest::Write, &self.calls)?;
                }
                FlushOutcome::Later => {
                    own.is_dirty = true;
                    self.later.push(line);
                }
                FlushOutcome::Broken => {
                    own.is_full = true;
                    receiver.write_failed(line, state);
                }
                FlushOutcome::TooLarge => return Err(self.too_large()),
            }
        }
        self.dirty = dirty;
        self.dirty.append(&mut self.later);
        self.post()?;
        Ok(true)
    }

    fn post(&mut self) -> Result<(), DriveError> {
        self.is_unsent = !self.dirty.is_empty();
        for queues in &self.queues {
            match queues.post(&self.calls) {
                None => {}
                Some(Obstacle::TooLong) => return Err(self.too_large()),
                Some(_) => self.is_unsent = true,
            }
        }
        Ok(())
    }
}
