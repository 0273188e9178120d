//! The sending half: draws requests, routes them, writes them, and keeps the connections up.
//!
//! Where: before the sockets.
//! Invariant: a drawn request is sent before the next one is drawn, however long that takes: a late
//! send is late in the figures too. A line that breaks is opened again after a pause that grows up
//! to `PAUSE_MAX`.

mod bursts;
mod lines;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use net::{Calls, Epoll, Event, Interest, Outbox, Waker};

use super::departures::Departures;
use super::inward::Listen;
use super::pending::Cause;
use super::score::Books;
use super::{Clock, Drive, DriveError, EVENTS_MAX, Mode, Pace};
use crate::bag::Bag;
use crate::packets::{Queues, Wanted};
use crate::steer::{Flows, Steering};
use crate::target::{Ring, Target};
use crate::wire::{Part, Writer};
use crate::workload::{Ask, Names, Stream, Verb};
use bursts::Picks;
use lines::OutLine;

/// Requests drawn between two looks at the clock.
const BURST_MAX: usize = 32;
/// Requests drawn between two looks at the answers.
const TURN_MAX: usize = 256;
/// The token of the doorbell in the sending half's epoll.
const BELL: u64 = u64::MAX;

/// The source of requests.
#[derive(Debug)]
enum Source {
    Stream(Box<Stream>),
    /// One request for each key: a set, or a delete.
    Each(Verb, Range<u64>, Names),
}

/// The state of `ask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawn {
    No,
    /// It is drawn, but not yet due or not yet counted as due.
    Yes,
    /// It is counted as due, and waits to be sent.
    Due,
}

#[derive(Debug)]
pub(super) struct Outward {
    pub(super) epoll: Epoll,
    pub(super) calls: Calls,
    bell: Arc<Waker>,
    targets: Arc<[Target]>,
    ring: Arc<Ring>,
    writer: Writer,
    names: Names,
    source: Source,
    /// The outbox through which all lines' datagrams are sent.
    outbox: Outbox,
    gso: bool,
    /// This process's needs at AF_XDP interfaces; below, this thread's number in the process.
    wanted: Vec<Wanted>,
    here: usize,
    /// The AF_XDP queues through which this thread's lines send.
    queues: Vec<Arc<Queues>>,
    /// True if datagrams wait for room in those queues, of which no event tells.
    pub(super) is_unsent: bool,
    steering: Steering,
    flows: Flows,
    /// The number of the first line to each target among those of all threads.
    first_connection: u32,
    churn_requests: Option<u64>,
    lines: Vec<OutLine>,
    /// Number of lines per target.
    lines_each: usize,
    /// For each target, the line whose turn it is.
    turns: Vec<usize>,
    ask: Ask,
    picks: Picks,
    drawn: Drawn,
    /// True if each connection has keys of its own: then the keys of `ask` are drawn only when it
    /// can be sent, so that a connection that is down does not hold up the others.
    has_own: bool,
    departures: Departures,
    is_open: bool,
    /// Lines with unused tokens, and their number.
    tokens: Vec<(u32, u32)>,
    /// The emptied list of the turn before, kept for its memory.
    spent: Vec<(u32, u32)>,
    outstanding_max: u64,
    pub(super) outstanding: u64,
    requests_left: u64,
    pub(super) is_ended: bool,
    /// Lines with bytes to be flushed.
    dirty: Vec<u32>,
    /// Lines whose socket had no room.
    later: Vec<u32>,
    key: Vec<u8>,
    /// For each target, its keys of a multiget.
    split: Vec<Vec<u64>>,
    /// For each target, the line that takes its keys.
    chosen: Vec<Option<u32>>,
    /// True if nothing could be sent at the last try.
    pub(super) is_stuck: bool,
    /// True if it was stuck and has not yet sent all that was due.
    is_behind: bool,
    /// The error of the last line that could not be opened.
    pub(super) trouble: Option<io::Error>,
    events: Vec<Event>,
}

impl Outward {
    pub(super) fn new(drive: &Drive, bell: Arc<Waker>, now_ns: u64) -> io::Result<Outward> {
        let (mean_ns, depth, outstanding_max) = match drive.pace {
            Pace::Open { rate_per_s, outstanding_max, .. } => {
                (1e9 / rate_per_s, 0, outstanding_max)
            }
            Pace::Closed { depth, .. } => (f64::NAN, depth, u32::MAX),
        };
        let (seats, all) = drive.seats();
        let lines_each = seats.len().max(1);
        let source = match drive.mode {
            Mode::Traffic => Source::Stream(Box::new(
                Stream::new(&drive.workload, drive.seed, drive.thread, drive.threads)
                    .over(seats, all),
            )),
            Mode::Populate => Source::Each(Verb::Set, drive.share(), drive.names.clone()),
            Mode::Clear => Source::Each(Verb::Delete, drive.share(), drive.names.clone()),
        };
        let epoll = Epoll::new(EVENTS_MAX)?;
        let calls = Calls::default();
        epoll.add(&*bell, BELL, Interest::Wake, &calls)?;
        let of_target = |target| (0..lines_each).map(move |_| OutLine::new(target));
        let lines: Vec<OutLine> = (0..drive.targets.len()).flat_map(of_target).collect();
        // Depth is per connection; with several targets, the ring decides each one's requests.
        let tokens = (0..lines.len()).map(|line| (u32::try_from(line).unwrap_or(0), depth));
        let tokens = tokens.filter(|(_, depth)| *depth > 0);
        Ok(Outward {
            epoll,
            calls,
            bell,
            tokens: tokens.collect(),
            spent: Vec::new(),
            lines,
            lines_each,
            turns: vec![0; drive.targets.len()],
            split: vec![Vec::new(); drive.targets.len()],
            targets: Arc::clone(&drive.targets),
            ring: Arc::clone(&drive.ring),
            writer: Writer::new(drive.speech, drive.names.clone()),
            names: drive.names.clone(),
            source,
            outbox: Bag::outbox(drive.gso),
            gso: drive.gso,
            wanted: drive.past_the_kernel(),
            here: drive.here.0 as usize,
            queues: Vec::new(),
            is_unsent: false,
            steering: drive.steering.clone(),
            flows: Flows::new(&drive.steering, drive.thread),
            first_connection: drive.first_connection.0,
            churn_requests: drive.churn_requests,
            ask: Ask::new(),
            picks: Picks::new(),
            drawn: Drawn::No,
            has_own: drive.mode == Mode::Traffic && drive.workload.per_connection(),
            departures: Departures::new(mean_ns, now_ns),
            is_open: depth == 0,
            outstanding_max: outstanding_max.max(1).into(),
            outstanding: 0,
            requests_left: drive.until.requests.unwrap_or(u64::MAX),
            is_ended: false,
            dirty: Vec::new(),
            later: Vec::new(),
            key: Vec::new(),
            chosen: Vec::new(),
            is_stuck: false,
            is_behind: false,
            trouble: None,
            events: Vec::new(),
        })
    }

    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Begins the schedule now, after the time that connecting took.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.departures.begin(now_ns);
    }

    /// Acts on the feedback of the receiving half.
    #[inline]
    pub(super) fn heed(&mut self, clock: &Clock, books: &mut Books, hears: &mut impl Listen) {
        self.outstanding -= books.back.over;
        books.back.over = 0;
        self.tokens.append(&mut books.back.tokens);
        if books.back.fills.is_empty() && books.back.broken.is_empty() && books.back.left.is_empty()
        {
            return;
        }
        for line in std::mem::take(&mut books.back.left) {
            books.score.disconnected();
            self.reopen(line, clock.now_ns(), books, hears);
        }
        for line in std::mem::take(&mut books.back.broken) {
            books.score.disconnected();
            self.lines[line as usize].fall(clock.now_ns());
        }
        let mut fills = std::mem::take(&mut books.back.fills);
        let now_ns = if fills.is_empty() { 0 } else { clock.now_ns() };
        for (line, key, token) in fills.drain(..) {
            self.fill(line, key, token, now_ns, books, hears);
        }
        books.back.fills = fills;
    }

    /// Sends the set that follows a miss, on the connection that missed.
    fn fill(
        &mut self,
        line: u32,
        key: u64,
        token: bool,
        now_ns: u64,
        books: &mut Books,
        hears: &mut impl Listen,
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
        let part = Part { verb: Verb::Set, keys: &[key], value_bytes, exptime_s, number: 0 };
        let times = (now_ns, now_ns);
        let own = &mut self.lines[line as usize];
        let flow = self.flows.next(own.target, key, &self.names, &mut self.key);
        let Some((sent, bytes)) = own.send(part, flow, cause, 1, times, &mut self.writer) else {
            if token {
                self.tokens.push((line, 1));
            }
            return;
        };
        books.score.sent(Verb::Set, 1, now_ns, now_ns);
        books.score.sent_bytes(bytes);
        hears.sent(line, &sent, &[], books);
        self.soil(line);
    }

    /// Sends requests that are due, or for which there are tokens.
    ///
    /// # Errors
    /// A request can never be sent.
    #[inline]
    pub(super) fn send(
        &mut self,
        clock: &Clock,
        books: &mut Books,
        hears: &mut impl Listen,
    ) -> Result<(), DriveError> {
        if self.is_open {
            self.send_due(clock, books, hears)
        } else {
            self.spend(clock, books, hears)
        }
    }

    /// Open loop: sends all requests that are due.
    fn send_due(
        &mut self,
        clock: &Clock,
        books: &mut Books,
        hears: &mut impl Listen,
    ) -> Result<(), DriveError> {
        for _ in 0..TURN_MAX / BURST_MAX {
            let now_ns = clock.now_ns();
            for _ in 0..BURST_MAX {
                if self.drawn == Drawn::No && !self.draw() {
                    return Ok(());
                }
                let due_ns = self.departures.due_ns();
                if due_ns > now_ns {
                    self.is_behind = false;
                    return Ok(());
                }
                if self.drawn == Drawn::Yes {
                    books.score.offered();
                    self.drawn = Drawn::Due;
                }
                let has_room = self.outstanding < self.outstanding_max;
                if !has_room || !self.try_to_send(None, due_ns, now_ns, books, hears)? {
                    (self.is_stuck, self.is_behind) = (true, true);
                    return Ok(());
                }
                self.is_stuck = false;
                if self.is_behind {
                    books.score.held_back();
                }
            }
        }
        Ok(())
    }

    /// Closed loop: sends one request for each token, and reads the clock once per `BURST_MAX`.
    fn spend(
        &mut self,
        clock: &Clock,
        books: &mut Books,
        hears: &mut impl Listen,
    ) -> Result<(), DriveError> {
        if self.tokens.is_empty() {
            return Ok(());
        }
        let mut tokens = std::mem::take(&mut self.spent);
        std::mem::swap(&mut self.tokens, &mut tokens);
        let (mut now_ns, mut burst) = (clock.now_ns(), 0);
        for (line, count) in tokens.drain(..) {
            let mut left = count;
            while left > 0 {
                if burst >= BURST_MAX {
                    (now_ns, burst) = (clock.now_ns(), 0);
                }
                let made = self.burst(line, left, now_ns, books, hears)?;
                if made > 0 {
                    left -= u32::try_from(made).unwrap_or(left).min(left);
                    burst += made;
                    continue;
                }
                if self.drawn == Drawn::No && !self.draw() {
                    left = 0;
                    break;
                }
                if self.drawn == Drawn::Yes {
                    books.score.offered();
                    self.drawn = Drawn::Due;
                }
                if !self.try_to_send(Some(line), now_ns, now_ns, books, hears)? {
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
        self.spent = tokens;
        Ok(())
    }

    /// Draws the next request; fills in `ask` unless its keys depend on the connection.
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
        self.drawn = Drawn::Yes;
        true
    }

    /// Draws the contents of the request for a connection; false if there are no more.
    #[inline]
    fn fill_in(&mut self, connection: usize) -> bool {
        let is_there = match &mut self.source {
            Source::Stream(stream) => stream.next_on(connection, &mut self.ask),
            Source::Each(verb, keys, names) => keys.next().is_some_and(|key| {
                self.ask.keys.clear();
                self.ask.keys.push(key);
                self.ask.verb = *verb;
                self.ask.value_bytes = names.value_bytes(key);
                self.ask.exptime_s = names.exptime_s(key);
                true
            }),
        };
        is_there && !self.ask.keys.is_empty()
    }

    /// Sends the drawn request, if there is a line for each part of it.
    #[inline]
    fn try_to_send(
        &mut self,
        hint: Option<u32>,
        intended_ns: u64,
        now_ns: u64,
        books: &mut Books,
        hears: &mut impl Listen,
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
        let verb = self.ask.verb;
        let keys = self.ask.keys.len();
        if self.targets.len() > 1 && keys > 1 {
            if !self.spread(hint, cause, times, books, hears)? {
                return Ok(false);
            }
        } else {
            let first = self.ask.keys.first().copied().unwrap_or(0);
            let target = self.place(first);
            let Some(line) = self.choose(target, hint) else { return Ok(false) };
            let part = Part {
                verb,
                keys: &self.ask.keys,
                value_bytes: self.ask.value_bytes,
                exptime_s: self.ask.exptime_s,
                number: 0,
            };
            let at = &mut self.lines[line as usize];
            let flow = self.flows.next(target, first, &self.names, &mut self.key);
            let sent = at.send(part, flow, cause, 1, times, &mut self.writer);
            let Some((sent, bytes)) = sent else { return Err(self.too_large()) };
            books.score.sent_bytes(bytes);
            hears.sent(line, &sent, &self.ask.keys, books);
            self.soil(line);
            self.churn(line, books, hears);
        }
        books.score.sent(verb, keys, intended_ns, now_ns);
        self.outstanding += 1;
        self.drawn = Drawn::No;
        Ok(true)
    }

    /// Sends a multiget in one part for each target that has some of its keys.
    fn spread(
        &mut self,
        hint: Option<u32>,
        cause: Cause,
        times: (u64, u64),
        books: &mut Books,
        hears: &mut impl Listen,
    ) -> Result<bool, DriveError> {
        let mut split = std::mem::take(&mut self.split);
        split.iter_mut().for_each(Vec::clear);
        for at in 0..self.ask.keys.len() {
            let key = self.ask.keys[at];
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
            let (verb, value_bytes) = (self.ask.verb, self.ask.value_bytes);
            let part = Part { verb, keys, value_bytes, exptime_s: self.ask.exptime_s, number: 0 };
            let count = std::mem::replace(&mut parts, Ok(0)).unwrap_or(u16::MAX);
            let at = &mut self.lines[line as usize];
            let flow = self.flows.next(target, *first, &self.names, &mut self.key);
            let sent = at.send(part, flow, cause, count, times, &mut self.writer);
            let Some((sent, bytes)) = sent else { return Err(self.too_large()) };
            books.score.sent_bytes(bytes);
            hears.sent(line, &sent, keys, books);
            self.soil(line);
            self.churn(line, books, hears);
        }
        self.chosen = lines;
        self.split = split;
        Ok(has_all)
    }

    /// The target that has a key.
    #[inline]
    fn place(&mut self, key: u64) -> usize {
        if self.targets.len() == 1 {
            return 0;
        }
        self.key.clear();
        self.names.key(key, &mut self.key);
        self.ring.place(&self.key)
    }

    /// Returns a line of a target that takes a request now. A token stays with its line or, if the
    /// ring decides on the target, with the target's line of the same place.
    #[inline]
    fn choose(&mut self, target: usize, hint: Option<u32>) -> Option<u32> {
        let first = target * self.lines_each;
        if let Some(hint) = hint {
            let hint = hint as usize;
            let line = if self.targets.len() == 1 { hint } else { first + hint % self.lines_each };
            let takes = self.lines[line].takes();
            return takes.then(|| u32::try_from(line).ok()).flatten();
        }
        let turn = &mut self.turns[target];
        for _ in 0..self.lines_each {
            *turn = if *turn + 1 < self.lines_each { *turn + 1 } else { 0 };
            if self.lines[first + *turn].takes() {
                return u32::try_from(first + *turn).ok();
            }
        }
        None
    }

    /// Returns a place whose connections, to all targets, take a request now: the token's, or the
    /// next in turn.
    fn own_place(&mut self, hint: Option<u32>) -> Option<usize> {
        let each = self.lines_each;
        let takes = |place: &usize| self.lines[*place..].iter().step_by(each).all(OutLine::takes);
        if let Some(hint) = hint {
            return Some(hint as usize % each).filter(takes);
        }
        let first = self.turns[0] + 1;
        let place = (first..first + each).map(|place| place % each).find(takes)?;
        self.turns[0] = place;
        Some(place)
    }

    /// The time at which the next request is due; none if answers or lines decide.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let is_waiting = self.is_open && !self.is_stuck && !self.is_ended;
        is_waiting.then(|| match self.drawn {
            // More requests may be due than one turn sends.
            Drawn::No => 0,
            Drawn::Yes | Drawn::Due => self.departures.due_ns(),
        })
    }

    fn too_large(&self) -> DriveError {
        DriveError::TooLarge { value_bytes: self.ask.value_bytes, keys: self.ask.keys.len() }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and takes NaN for 0"
)]
fn whole_ns(ns: f64) -> u64 {
    ns as u64
}
