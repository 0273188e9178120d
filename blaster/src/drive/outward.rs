//! The sending half: draws requests, routes them, writes them, and keeps connections open. A line
//! is one of the thread's connections; a broken line is opened again. A token is the permission to
//! send one request of a closed loop.
//!
//! Where: between the workload and the sockets.
//! Invariant: a drawn request is sent or given up before the next request is drawn. So a delayed
//! request also delays later requests, and the measured times include these delays. A broken line
//! is opened again after a pause, which doubles with each failure up to `PAUSE_MAX`.

mod bursts;
mod lines;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use net::{Calls, Epoll, Event, Interest, Outbox, Waker};

use super::clock::Clock;
use super::departures::Departures;
use super::messages::ReceivingHalf;
use super::pending::Cause;
use super::plan::{Drive, DriveError, EVENTS_MAX, Mode, Pace};
use super::score::DriveState;
use crate::line::datagram_batch::DatagramBatch;
use crate::line::packets::{InterfaceNeeds, Queues};
use crate::target::steer::{Flows, Steering};
use crate::target::{Ring, Target};
use crate::wire::{WireRequest, Writer};
use crate::workload::{Names, Stream, Verb, WorkloadRequest};
use bursts::Picks;
use lines::OutLine;

/// The most requests sent between two readings of the clock.
const BURST_MAX: usize = 32;
/// The most requests that an open loop sends before it reads answers.
const TURN_MAX: usize = 256;
const WAKER_TOKEN: u64 = u64::MAX;

#[derive(Debug)]
enum Source {
    Stream(Box<Stream>),
    /// One request of this verb (set or delete) for each key in the range.
    Each(Verb, Range<u64>, Names),
}

/// The progress of the request in `Outward::request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    NotDrawn,
    /// The request is drawn, and not yet counted as due.
    Drawn,
    /// The request is counted as due, and waits to be sent.
    Due,
}

#[derive(Debug)]
pub(super) struct Outward {
    pub(super) epoll: Epoll,
    pub(super) calls: Calls,
    waker: Arc<Waker>,
    targets: Arc<[Target]>,
    ring: Arc<Ring>,
    writer: Writer,
    names: Names,
    source: Source,
    outbox: Outbox,
    gso: bool,
    wanted: Vec<InterfaceNeeds>,
    here: usize,
    queues: Vec<Arc<Queues>>,
    /// True if datagrams wait for room in `queues`. The thread polls, because no event reports
    /// room.
    pub(super) is_unsent: bool,
    steering: Steering,
    flows: Flows,
    /// Number of this thread's first connection, among all threads' connections to a target.
    first_connection: u32,
    churn_requests: Option<u64>,
    lines: Vec<OutLine>,
    lines_each: usize,
    /// For each target, the line that was chosen last (round robin).
    turns: Vec<usize>,
    request: WorkloadRequest,
    picks: Picks,
    request_state: RequestState,
    /// True if each connection has its own keys. The keys of a request are then drawn only once a
    /// connection can send the request, so that a connection that is down does not delay other
    /// connections.
    has_own: bool,
    departures: Departures,
    is_open: bool,
    /// Lines with unused tokens, and the number of each line's tokens.
    tokens: Vec<(u32, u32)>,
    /// Swapped with `tokens`, so that no new vector is allocated.
    spare_tokens: Vec<(u32, u32)>,
    outstanding_max: u64,
    pub(super) outstanding: u64,
    requests_left: u64,
    pub(super) is_ended: bool,
    dirty: Vec<u32>,
    /// Lines that could not flush all their bytes. The next turn flushes these lines again.
    later: Vec<u32>,
    key: Vec<u8>,
    /// For each target, the keys of the current multiget that this target stores.
    split: Vec<Vec<u64>>,
    /// For each target, the line that sends this target's part of the current multiget.
    chosen: Vec<Option<u32>>,
    /// True if the last attempt to send a due request failed.
    pub(super) is_stuck: bool,
    /// Becomes true when a due request cannot be sent, and false when all due requests are sent.
    is_behind: bool,
    pub(super) open_error: Option<io::Error>,
    events: Vec<Event>,
}

impl Outward {
    pub(super) fn new(drive: &Drive, waker: Arc<Waker>, now_ns: u64) -> io::Result<Outward> {
        let (mean_ns, depth, outstanding_max) = match drive.pace {
            Pace::Open { rate_per_s, outstanding_max, .. } => {
                (1e9 / rate_per_s, 0, outstanding_max)
            }
            Pace::Closed { depth, .. } => (f64::NAN, depth, u32::MAX),
        };
        let lines_each = drive.connection_numbers().0.len().max(1);
        let source = match drive.mode {
            Mode::Traffic => Source::Stream(Box::new(drive.stream())),
            Mode::Populate => Source::Each(Verb::Set, drive.share(), drive.names.clone()),
            Mode::Clear => Source::Each(Verb::Delete, drive.share(), drive.names.clone()),
        };
        let epoll = Epoll::new(EVENTS_MAX)?;
        let calls = Calls::default();
        epoll.add(&*waker, WAKER_TOKEN, Interest::Wake, &calls)?;
        let of_target = |target| (0..lines_each).map(move |_| OutLine::new(target));
        let lines: Vec<OutLine> = (0..drive.targets.len()).flat_map(of_target).collect();
        // Each line starts with `depth` tokens. A token may be used for another target than its
        // line's, because the hash ring chooses the target of a request.
        let tokens = (0..lines.len()).map(|line| (u32::try_from(line).unwrap_or(0), depth));
        let tokens = tokens.filter(|(_, depth)| *depth > 0);
        Ok(Outward {
            epoll,
            calls,
            waker,
            tokens: tokens.collect(),
            spare_tokens: Vec::new(),
            lines,
            lines_each,
            turns: vec![0; drive.targets.len()],
            split: vec![Vec::new(); drive.targets.len()],
            targets: Arc::clone(&drive.targets),
            ring: Arc::clone(&drive.ring),
            writer: Writer::new(drive.protocol, drive.names.clone()),
            names: drive.names.clone(),
            source,
            outbox: DatagramBatch::outbox(drive.gso),
            gso: drive.gso,
            wanted: drive.interface_needs(),
            here: drive.here.0 as usize,
            queues: Vec::new(),
            is_unsent: false,
            steering: drive.steering.clone(),
            flows: Flows::new(&drive.steering, drive.thread),
            first_connection: drive.first_connection.0,
            churn_requests: drive.churn_requests,
            request: WorkloadRequest::default(),
            picks: Picks::new(),
            request_state: RequestState::NotDrawn,
            has_own: drive.mode == Mode::Traffic && drive.workload.per_connection(),
            departures: Departures::new(mean_ns, now_ns),
            is_open: depth == 0,
            outstanding_max: outstanding_max.max(1).into(),
            outstanding: 0,
            requests_left: drive.end.requests.unwrap_or(u64::MAX),
            is_ended: false,
            dirty: Vec::new(),
            later: Vec::new(),
            key: Vec::new(),
            chosen: Vec::new(),
            is_stuck: false,
            is_behind: false,
            open_error: None,
            events: Vec::new(),
        })
    }

    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Starts the schedule now, so that the time spent on connecting makes no request late.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.departures.begin(now_ns);
    }

    #[inline]
    pub(super) fn act_on_feedback(
        &mut self,
        clock: &Clock,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) {
        self.outstanding -= state.feedback.over;
        state.feedback.over = 0;
        self.tokens.append(&mut state.feedback.tokens);
        if state.feedback.fills.is_empty()
            && state.feedback.broken.is_empty()
            && state.feedback.closed.is_empty()
        {
            return;
        }
        for line in std::mem::take(&mut state.feedback.closed) {
            state.score.tally.disconnects += 1;
            self.reopen(line, clock.now_ns(), state, receiver);
        }
        for line in std::mem::take(&mut state.feedback.broken) {
            state.score.tally.disconnects += 1;
            self.lines[line as usize].mark_broken(clock.now_ns());
        }
        let mut fills = std::mem::take(&mut state.feedback.fills);
        let now_ns = if fills.is_empty() { 0 } else { clock.now_ns() };
        for (line, key, token) in fills.drain(..) {
            self.fill(line, key, token, now_ns, state, receiver);
        }
        state.feedback.fills = fills;
    }

    /// Sends the set that follows a miss, on the connection of the get.
    fn fill(
        &mut self,
        line: u32,
        key: u64,
        token: bool,
        now_ns: u64,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) {
        let own = &self.lines[line as usize];
        if !own.is_up() || !own.has_room() {
            if token {
                self.tokens.push((line, 1));
            }
            return;
        }
        let (value_bytes, exptime_s) = (self.names.value_bytes(key), self.names.exptime_s(key));
        let cause = Cause::Fill { token };
        let part = WireRequest { verb: Verb::Set, keys: &[key], value_bytes, exptime_s, number: 0 };
        let times = (now_ns, now_ns);
        let own = &mut self.lines[line as usize];
        let flow = self.flows.next(own.target, key, &self.names, &mut self.key);
        let Some((sent, bytes)) = own.send(part, flow, cause, 1, times, &mut self.writer) else {
            if token {
                self.tokens.push((line, 1));
            }
            return;
        };
        state.score.sent(Verb::Set, 1, now_ns, now_ns);
        state.score.tally.sent_bytes += bytes as u64;
        receiver.sent(line, &sent, &[], state);
        self.mark_dirty(line);
    }

    /// Sends the requests that are due (open loop) or for which there are tokens (closed loop).
    #[inline]
    pub(super) fn send(
        &mut self,
        clock: &Clock,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<(), DriveError> {
        if self.is_open {
            self.send_due(clock, state, receiver)
        } else {
            self.send_for_tokens(clock, state, receiver)
        }
    }

    fn send_due(
        &mut self,
        clock: &Clock,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<(), DriveError> {
        for _ in 0..TURN_MAX / BURST_MAX {
            let now_ns = clock.now_ns();
            for _ in 0..BURST_MAX {
                if self.request_state == RequestState::NotDrawn && !self.draw() {
                    return Ok(());
                }
                let due_ns = self.departures.due_ns;
                if due_ns > now_ns {
                    self.is_behind = false;
                    return Ok(());
                }
                if self.request_state == RequestState::Drawn {
                    state.score.offered();
                    self.request_state = RequestState::Due;
                }
                let has_room = self.outstanding < self.outstanding_max;
                if !has_room || !self.try_to_send(None, due_ns, now_ns, state, receiver)? {
                    (self.is_stuck, self.is_behind) = (true, true);
                    return Ok(());
                }
                self.is_stuck = false;
                if self.is_behind {
                    state.score.tally.held_back += 1;
                }
            }
        }
        Ok(())
    }

    /// Closed loop: sends one request per token. Reads the clock once per `BURST_MAX` requests.
    fn send_for_tokens(
        &mut self,
        clock: &Clock,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<(), DriveError> {
        if self.tokens.is_empty() {
            return Ok(());
        }
        let mut tokens = std::mem::take(&mut self.spare_tokens);
        std::mem::swap(&mut self.tokens, &mut tokens);
        let (mut now_ns, mut burst) = (clock.now_ns(), 0);
        for (line, count) in tokens.drain(..) {
            let mut left = count;
            while left > 0 {
                if burst >= BURST_MAX {
                    (now_ns, burst) = (clock.now_ns(), 0);
                }
                let made = self.burst(line, left, now_ns, state, receiver)?;
                if made > 0 {
                    left -= u32::try_from(made).unwrap_or(left).min(left);
                    burst += made;
                    continue;
                }
                if self.request_state == RequestState::NotDrawn && !self.draw() {
                    left = 0;
                    break;
                }
                if self.request_state == RequestState::Drawn {
                    state.score.offered();
                    self.request_state = RequestState::Due;
                }
                if !self.try_to_send(Some(line), now_ns, now_ns, state, receiver)? {
                    break;
                }
                left -= 1;
                burst += 1;
            }
            if left > 0 {
                self.tokens.push((line, left));
            }
        }
        self.is_stuck = !self.tokens.is_empty();
        self.spare_tokens = tokens;
        Ok(())
    }

    /// Draws a request. If `has_own` is true, its keys are drawn later, by `fill_in`. Returns false
    /// if no request is left.
    #[inline]
    fn draw(&mut self) -> bool {
        self.is_ended |= self.requests_left == 0;
        if self.is_ended || !self.has_own && !self.fill_in(0) {
            self.is_ended = true;
            return false;
        }
        self.requests_left -= 1;
        if self.is_open {
            let mean_ns = self.departures.mean_ns();
            let gap_ns = match &mut self.source {
                Source::Stream(stream) => stream.gap_ns(mean_ns),
                Source::Each(..) => whole_ns(mean_ns),
            };
            self.departures.advance(gap_ns);
        }
        self.request_state = RequestState::Drawn;
        true
    }

    /// Draws the contents of `request` for a connection. Returns false if no request is left.
    #[inline]
    fn fill_in(&mut self, connection: usize) -> bool {
        let is_there = match &mut self.source {
            Source::Stream(stream) => stream.next_on(connection, &mut self.request),
            Source::Each(verb, keys, names) => keys.next().is_some_and(|key| {
                self.request.keys.clear();
                self.request.keys.push(key);
                self.request.verb = *verb;
                self.request.value_bytes = names.value_bytes(key);
                self.request.exptime_s = names.exptime_s(key);
                true
            }),
        };
        is_there && !self.request.keys.is_empty()
    }

    /// Sends the request if each part finds a line. `hint` is the line whose token the request
    /// uses.
    #[inline]
    fn try_to_send(
        &mut self,
        hint: Option<u32>,
        intended_ns: u64,
        now_ns: u64,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<bool, DriveError> {
        let cause = if hint.is_some() { Cause::Token } else { Cause::Due };
        let (mut hint, times) = (hint, (intended_ns, now_ns));
        if self.has_own {
            let Some(place) = self.own_place(hint) else { return Ok(false) };
            if !self.fill_in(place) {
                return Ok(false);
            }
            hint = u32::try_from(place).ok();
        }
        let verb = self.request.verb;
        let keys = self.request.keys.len();
        if self.targets.len() > 1 && keys > 1 {
            if !self.send_split(hint, cause, times, state, receiver)? {
                return Ok(false);
            }
        } else {
            let first = self.request.keys.first().copied().unwrap_or(0);
            let target = self.place(first);
            let Some(line) = self.choose(target, hint) else { return Ok(false) };
            let part = WireRequest {
                verb,
                keys: &self.request.keys,
                value_bytes: self.request.value_bytes,
                exptime_s: self.request.exptime_s,
                number: 0,
            };
            let at = &mut self.lines[line as usize];
            let flow = self.flows.next(target, first, &self.names, &mut self.key);
            let sent = at.send(part, flow, cause, 1, times, &mut self.writer);
            let Some((sent, bytes)) = sent else { return Err(self.too_large()) };
            state.score.tally.sent_bytes += bytes as u64;
            receiver.sent(line, &sent, &self.request.keys, state);
            self.mark_dirty(line);
            self.churn(line, state, receiver);
        }
        state.score.sent(verb, keys, intended_ns, now_ns);
        self.outstanding += 1;
        self.request_state = RequestState::NotDrawn;
        Ok(true)
    }

    /// Sends one part of a multiget to each target that stores some of the multiget's keys. If a
    /// part finds no line that accepts it, sends nothing and returns false.
    fn send_split(
        &mut self,
        hint: Option<u32>,
        cause: Cause,
        times: (u64, u64),
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<bool, DriveError> {
        let mut split = std::mem::take(&mut self.split);
        split.iter_mut().for_each(Vec::clear);
        for at in 0..self.request.keys.len() {
            let key = self.request.keys[at];
            split[self.place(key)].push(key);
        }
        let mut parts = u16::try_from(split.iter().filter(|keys| !keys.is_empty()).count());
        let mut lines = std::mem::take(&mut self.chosen);
        lines.clear();
        for (target, keys) in split.iter().enumerate() {
            lines.push(if keys.is_empty() { None } else { self.choose(target, hint) });
        }
        let has_all =
            split.iter().zip(&lines).all(|(keys, line)| keys.is_empty() || line.is_some());
        for (target, (keys, line)) in split.iter().zip(&lines).enumerate() {
            let (true, Some(line), Some(first)) = (has_all, *line, keys.first()) else { continue };
            let (verb, value_bytes) = (self.request.verb, self.request.value_bytes);
            let part = WireRequest {
                verb,
                keys,
                value_bytes,
                exptime_s: self.request.exptime_s,
                number: 0,
            };
            let count = std::mem::replace(&mut parts, Ok(0)).unwrap_or(u16::MAX);
            let at = &mut self.lines[line as usize];
            let flow = self.flows.next(target, *first, &self.names, &mut self.key);
            let sent = at.send(part, flow, cause, count, times, &mut self.writer);
            let Some((sent, bytes)) = sent else { return Err(self.too_large()) };
            state.score.tally.sent_bytes += bytes as u64;
            receiver.sent(line, &sent, keys, state);
            self.mark_dirty(line);
            self.churn(line, state, receiver);
        }
        self.chosen = lines;
        self.split = split;
        Ok(has_all)
    }

    #[inline]
    fn place(&mut self, key: u64) -> usize {
        if self.targets.len() == 1 {
            return 0;
        }
        self.key.clear();
        self.names.key(key, &mut self.key);
        self.ring.place(&self.key)
    }

    /// Returns a line to `target` that accepts a request now. If the line `hint`, whose token is
    /// used, is the n-th line to its target, only the n-th line to `target` is tried. Without
    /// `hint`, the lines to `target` are tried in turn.
    #[inline]
    fn choose(&mut self, target: usize, hint: Option<u32>) -> Option<u32> {
        let first = target * self.lines_each;
        if let Some(hint) = hint {
            let hint = hint as usize;
            let line = if self.targets.len() == 1 { hint } else { first + hint % self.lines_each };
            let accepts = self.lines[line].accepts();
            return accepts.then(|| u32::try_from(line).ok()).flatten();
        }
        let turn = &mut self.turns[target];
        for _ in 0..self.lines_each {
            *turn = if *turn + 1 < self.lines_each { *turn + 1 } else { 0 };
            if self.lines[first + *turn].accepts() {
                return u32::try_from(first + *turn).ok();
            }
        }
        None
    }

    /// Returns an n such that the n-th line to every target accepts a request now. If `hint` is the
    /// n-th line to its target, only this n is tried. Without `hint`, all n are tried in turn.
    fn own_place(&mut self, hint: Option<u32>) -> Option<usize> {
        let each = self.lines_each;
        let accepts =
            |place: &usize| self.lines[*place..].iter().step_by(each).all(OutLine::accepts);
        if let Some(hint) = hint {
            return Some(hint as usize % each).filter(accepts);
        }
        let first = self.turns[0] + 1;
        let place = (first..first + each).map(|place| place % each).find(accepts)?;
        self.turns[0] = place;
        Some(place)
    }

    /// The time at which the next request is due. `None` in a closed loop, after the last request,
    /// or if the next request has to wait for an answer or a connection.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let is_waiting = self.is_open && !self.is_stuck && !self.is_ended;
        is_waiting.then_some(match self.request_state {
            // The last turn stopped after `TURN_MAX` requests, so more requests may be due already.
            RequestState::NotDrawn => 0,
            RequestState::Drawn | RequestState::Due => self.departures.due_ns,
        })
    }

    fn too_large(&self) -> DriveError {
        DriveError::TooLarge {
            value_bytes: self.request.value_bytes,
            keys: self.request.keys.len(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and converts NaN to 0"
)]
fn whole_ns(ns: f64) -> u64 {
    ns as u64
}
