//! Lines in the sending half: opened, used, flushed, left and opened again.
//!
//! Where: part of the sending half.
//! Invariant: a line takes requests only while it is up, not full and not being left; the receiving
//! half hears of a socket before it hears of a request on it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use net::{Event, Interest, Obstacle, Timeout};

use super::super::inward::Listen;
use super::super::pending::{Cause, Sent};
use super::super::score::Books;
use super::super::{Clock, DriveError};
use super::{BELL, Drawn, Outward};
use crate::line::{self, Flushed, Socket};
use crate::packets::Packets;
use crate::target::Bypass;
use crate::wire::{Part, Writer};

/// The first pause before a line is opened again.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time within which a connection must be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug)]
pub(super) enum Phase {
    /// To be opened at this time.
    Down(u64),
    /// Connecting since this time.
    Connecting(Socket, u64),
    Up(Socket, line::Outward),
}

/// The sending half of one connection.
#[derive(Debug)]
pub(super) struct OutLine {
    pub(super) target: usize,
    pub(super) phase: Phase,
    /// The number of the next request.
    pub(super) next: u32,
    /// Number of requests since it was opened.
    pub(super) sent: u64,
    pause: Duration,
    /// True if it has bytes to be flushed.
    is_dirty: bool,
    /// True if its socket is full, or is broken and the receiving half does not know yet.
    is_full: bool,
    is_leaving: bool,
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
            is_leaving: false,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up(..))
    }

    #[inline(always)]
    pub(super) fn takes(&self) -> bool {
        !self.is_leaving && self.has_room()
    }

    /// Like `takes`, but for a fill, which a line that is being left takes too.
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        match &self.phase {
            Phase::Up(_, out) => !self.is_full && out.has_room(),
            _ => false,
        }
    }

    /// Marks the line as broken; it is opened again after a pause.
    pub(super) fn fall(&mut self, now_ns: u64) {
        self.phase = Phase::Down(now_ns.saturating_add(ns(self.pause)));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Writes a request into the next flush; none if it fits no datagram.
    #[inline]
    pub(super) fn send(
        &mut self,
        part: Part<'_>,
        flow: u16,
        cause: Cause,
        parts: u16,
        (intended_ns, sent_ns): (u64, u64),
        writer: &mut Writer,
    ) -> Option<(Sent, usize)> {
        let Phase::Up(_, out) = &mut self.phase else { return None };
        let [.., high, low] = self.next.to_be_bytes();
        let number = u16::from_be_bytes([high, low]);
        let part = Part { number, ..part };
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
    /// Remembers that a line has bytes to be flushed.
    #[inline]
    pub(super) fn soil(&mut self, line: u32) {
        let own = &mut self.lines[line as usize];
        if !own.is_dirty {
            own.is_dirty = true;
            self.dirty.push(line);
        }
    }

    /// Leaves a line that has had its share of requests; it is opened again afterwards.
    #[inline]
    pub(super) fn churn(&mut self, line: u32, books: &mut Books, hears: &mut impl Listen) {
        let Some(most) = self.churn_requests else { return };
        let own = &mut self.lines[line as usize];
        if own.sent >= most && !own.is_leaving {
            own.is_leaving = true;
            hears.leave(line, books);
        }
    }

    pub(in super::super) fn open_all(
        &mut self,
        now_ns: u64,
        books: &mut Books,
        hears: &mut impl Listen,
    ) -> Result<(), DriveError> {
        for line in 0..self.lines.len() {
            let Ok(line) = u32::try_from(line) else { break };
            self.open(line, now_ns, books, hears).map_err(|error| self.refused(line, error))?;
        }
        Ok(())
    }

    /// Waits until all lines are up.
    pub(in super::super) fn establish(
        &mut self,
        clock: &Clock,
        books: &mut Books,
        hears: &mut impl Listen,
    ) -> Result<(), DriveError> {
        let until_ns = clock.now_ns().saturating_add(ns(CONNECT_MAX));
        while let Some(line) = self.lines.iter().position(|line| !line.is_up()) {
            self.hear(Timeout::Within(PAUSE_MIN * 10), clock, books, hears)?;
            let Ok(line) = u32::try_from(line) else { break };
            if let Some(error) = self.trouble.take() {
                return Err(self.refused(line, error));
            }
            if clock.now_ns() > until_ns {
                return Err(self.refused(line, io::ErrorKind::TimedOut.into()));
            }
            self.tick(clock.now_ns(), books, hears);
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
        books: &mut Books,
        hears: &mut impl Listen,
    ) -> io::Result<()> {
        let own = &mut self.lines[line as usize];
        (own.is_full, own.is_leaving, own.sent, own.next) = (false, false, 0, 0);
        let number = self.first_connection + line % u32::try_from(self.lines_each).unwrap_or(1);
        let place = self.steering.place(own.target, &self.targets[own.target].place, number);
        let (wanted, here) = (&self.wanted, self.here);
        let past_the_kernel = |over: &Bypass, to| match wanted.iter().find(|it| it.bypass == *over)
        {
            Some(wanted) => Packets::connect(wanted, here, to),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let socket = match Socket::open(&place, past_the_kernel) {
            Ok(socket) => socket,
            Err(error) => {
                own.fall(now_ns);
                // A Unix listener's backlog is full: it will accept soon.
                let passes = error.kind() == io::ErrorKind::WouldBlock;
                return if passes { Ok(()) } else { Err(error) };
            }
        };
        if socket.is_datagrams() {
            self.up(line, socket, books, hears);
        } else {
            socket.watch(&self.epoll, line.into(), Interest::Both, &self.calls)?;
            own.phase = Phase::Connecting(socket, now_ns);
        }
        Ok(())
    }

    fn up(&mut self, line: u32, socket: Socket, books: &mut Books, hears: &mut impl Listen) {
        if let Socket::Packets(packets) = &socket
            && !self.queues.iter().any(|queues| Arc::ptr_eq(queues, packets.queues()))
        {
            self.queues.push(Arc::clone(packets.queues()));
        }
        let own = &mut self.lines[line as usize];
        own.pause = PAUSE_MIN;
        own.phase = Phase::Up(socket.clone(), line::Outward::new(&socket, self.gso));
        books.score.connected();
        hears.opened(line, socket, books);
    }

    pub(super) fn reopen(
        &mut self,
        line: u32,
        now_ns: u64,
        books: &mut Books,
        hears: &mut impl Listen,
    ) {
        if let Err(error) = self.open(line, now_ns, books, hears) {
            books.score.refused_connection();
            self.trouble = Some(error);
        }
    }

    /// Handles events of sockets that connect or were full, and of the doorbell.
    pub(in super::super) fn hear(
        &mut self,
        limit: Timeout,
        clock: &Clock,
        books: &mut Books,
        hears: &mut impl Listen,
    ) -> Result<(), DriveError> {
        let mut events = std::mem::take(&mut self.events);
        events.extend(self.epoll.wait(limit, &self.calls).map_err(DriveError::System)?);
        for event in events.drain(..) {
            let Event { token, .. } = event;
            match u32::try_from(token) {
                Ok(line) if token != BELL && (line as usize) < self.lines.len() => {
                    self.socket_event(line, event, clock, books, hears);
                }
                _ => self.bell.clear(),
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
        books: &mut Books,
        hears: &mut impl Listen,
    ) {
        let own = &mut self.lines[line as usize];
        match &own.phase {
            Phase::Connecting(socket, _) if event.writable || event.ended => {
                let socket = socket.clone();
                socket.forget(&self.epoll, &self.calls);
                match socket.outcome() {
                    Ok(()) => self.up(line, socket, books, hears),
                    Err(error) => {
                        own.fall(clock.now_ns());
                        books.score.refused_connection();
                        self.trouble = Some(error);
                    }
                }
            }
            Phase::Up(socket, _) if own.is_full => {
                socket.forget(&self.epoll, &self.calls);
                own.is_full = false;
                self.soil(line);
            }
            Phase::Up(..) | Phase::Connecting(..) | Phase::Down(_) => {}
        }
    }

    /// Opens lines that are due, and gives up connecting that takes too long.
    pub(in super::super) fn tick(
        &mut self,
        now_ns: u64,
        books: &mut Books,
        hears: &mut impl Listen,
    ) {
        for line in 0..self.lines.len() {
            let Ok(line) = u32::try_from(line) else { return };
            let own = &mut self.lines[line as usize];
            match &own.phase {
                Phase::Down(at_ns) if *at_ns <= now_ns => self.reopen(line, now_ns, books, hears),
                Phase::Connecting(_, since) if since + ns(CONNECT_MAX) < now_ns => {
                    own.fall(now_ns);
                    books.score.refused_connection();
                    self.trouble = Some(io::ErrorKind::TimedOut.into());
                }
                _ => {}
            }
        }
    }

    /// Open loop: gives up requests that were due for longer than `patience_ns` and that no
    /// connection took. A generator that is late by itself gives nothing up: it sends late.
    pub(in super::super) fn give_up(&mut self, now_ns: u64, patience_ns: u64, books: &mut Books) {
        let Some(late_ns) = now_ns.checked_sub(patience_ns) else { return };
        // These fell due since the last look, so the rate bounds their number.
        while self.is_open && self.is_behind && (self.drawn != Drawn::No || self.draw()) {
            if self.departures.due_ns() > late_ns {
                return;
            }
            if self.drawn == Drawn::Yes {
                books.score.offered();
                if self.has_own && !self.fill_in(self.turns[0]) {
                    return;
                }
            }
            books.score.unsent(self.ask.verb);
            self.drawn = Drawn::No;
        }
    }

    /// Hands over the written requests: one write for each line, and past the kernel one call for
    /// each queue. False if there were none.
    #[inline]
    pub(in super::super) fn flush(
        &mut self,
        books: &mut Books,
        hears: &mut impl Listen,
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
                Flushed::All => {}
                Flushed::Full => {
                    own.is_full = true;
                    let token = line.into();
                    socket
                        .watch(&self.epoll, token, Interest::Write, &self.calls)
                        .map_err(DriveError::System)?;
                }
                Flushed::Later => {
                    own.is_dirty = true;
                    self.later.push(line);
                }
                Flushed::Broken => {
                    own.is_full = true;
                    hears.fallen(line, books);
                }
                Flushed::TooLarge => return Err(self.too_large()),
            }
        }
        self.dirty = dirty;
        self.dirty.append(&mut self.later);
        self.post()?;
        Ok(true)
    }

    /// Lets the queues of lines past the kernel send what they hold.
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
