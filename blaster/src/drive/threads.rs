//! The loops: both halves on one thread, or each on its own.
//!
//! Where: the main function of a driving thread.
//! Invariant: notes of requests reach the receiving half before the bytes reach the server, so that
//! an answer always finds its request. The locks of the exchange are never held together with
//! another; each is held only to swap or append vectors.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use net::xdp::UNSENT_WAIT;
use net::{Interest, Timeout, Waker};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::inward::{Feedback, Inward, Note, Notes, Options};
use super::outward::Outward;
use super::score::{Books, Score};
use super::{Clock, Drive, DriveError, Pace};
use crate::measure::Tally;

/// The epoll token of the other half's epoll, or of its doorbell.
const ASIDE: u64 = u64::MAX;
/// Longest sleep, which bounds the delay of a stop or a new epoch. A periodic timer ends it, so
/// that the kernel need not start and stop one for each sleep: with one request in flight that
/// would be noticeable.
const SLEEP_MAX: Duration = Duration::from_millis(10);
/// The epoll token of that timer.
const BEAT: u64 = u64::MAX - 1;
/// Most time between two looks for requests that have timed out.
const TICK_MAX_NS: u64 = 10_000_000;
/// Least time between two such looks.
const TICK_MIN_NS: u64 = 100_000;
/// Time before a due request at which the thread stops sleeping: about as long as waking up takes.
const SPIN_NS: u64 = 20_000;

type Sink = mpsc::Sender<(u32, u32, Tally)>;

/// Decides when the thread hands over its tally, and when it ends.
struct Watch<'a> {
    drive: &'a Drive,
    clock: Clock,
    epoch: &'a AtomicU32,
    sink: &'a Sink,
    seen: u32,
    tick_ns: u64,
    next_tick_ns: u64,
    /// Start of the current span in which the thread only looked for work.
    looked_ns: u64,
    /// The time since which nothing more is sent.
    ended_ns: Option<u64>,
}

impl<'a> Watch<'a> {
    fn new(drive: &'a Drive, clock: Clock, epoch: &'a AtomicU32, sink: &'a Sink) -> Watch<'a> {
        let timeout_ns = u64::try_from(drive.timeout.as_nanos()).unwrap_or(u64::MAX);
        Watch {
            drive,
            clock,
            epoch,
            sink,
            // Acquire: pairs with the release that opened the epoch, so that everything set up
            // before it is visible.
            seen: epoch.load(Ordering::Acquire),
            tick_ns: (timeout_ns / 16).clamp(TICK_MIN_NS, TICK_MAX_NS),
            next_tick_ns: 0,
            looked_ns: clock.now_ns(),
            ended_ns: None,
        }
    }

    /// Hands the tally over if the epoch has moved on.
    #[inline]
    fn report(&mut self, books: &mut Books) {
        // Acquire: like in `new`.
        let epoch = self.epoch.load(Ordering::Acquire);
        if epoch != self.seen {
            self.hand_over(books);
            self.seen = epoch;
        }
    }

    fn hand_over(&self, books: &mut Books) {
        let tally = books.score.take(self.clock.now_ns());
        // Without a receiver, nobody wants the tally.
        let _ = self.sink.send((self.drive.thread, self.seen, tally));
    }

    /// True if it is time for the periodic work.
    #[inline]
    fn is_tick(&mut self, now_ns: u64) -> bool {
        let is_tick = now_ns >= self.next_tick_ns;
        if is_tick {
            self.next_tick_ns = now_ns + self.tick_ns;
        }
        is_tick
    }

    /// True if the thread was told to stop or its deadline has passed.
    fn is_over(&self) -> bool {
        // Relaxed: nothing is handed over with the flag.
        self.drive.until.stop.load(Ordering::Relaxed)
            || self.drive.until.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Gives up requests that have been due for too long; at the end, all due requests.
    fn give_up(&self, outward: &mut Outward, now_ns: u64, books: &mut Books) {
        let is_over = self.is_over();
        let timeout_ns = u64::try_from(self.drive.timeout.as_nanos()).unwrap_or(u64::MAX);
        outward.give_up(now_ns, if is_over { 0 } else { timeout_ns }, books);
        outward.is_ended |= is_over;
    }

    /// The time to sleep before the next request is due.
    fn limit(&self, outward: &Outward) -> Timeout {
        if self.drive.spin {
            return Timeout::Zero;
        }
        let unsent = if outward.is_unsent { UNSENT_WAIT } else { SLEEP_MAX };
        let Some(due_ns) = outward.due_ns() else {
            let is_stuck = outward.is_stuck || outward.is_unsent;
            return if is_stuck {
                Timeout::Within(unsent.min(SLEEP_MAX / 10))
            } else {
                Timeout::Never
            };
        };
        let ahead_ns = due_ns.saturating_sub(self.clock.now_ns());
        if ahead_ns <= SPIN_NS {
            return Timeout::Zero;
        }
        Timeout::Exactly(Duration::from_nanos(ahead_ns - SPIN_NS).min(unsent))
    }
}

pub(super) fn run(
    drive: &Drive,
    clock: Clock,
    epoch: &AtomicU32,
    sink: &Sink,
) -> Result<(), DriveError> {
    pin(drive.cpu)?;
    let mut watch = Watch::new(drive, clock, epoch, sink);
    let bell = Arc::new(Waker::new().map_err(DriveError::System)?);
    let outward = Outward::new(drive, Arc::clone(&bell), clock.now_ns());
    let mut outward = outward.map_err(DriveError::System)?;
    let options = Options {
        speech: drive.speech,
        timeout_ns: u64::try_from(drive.timeout.as_nanos()).unwrap_or(u64::MAX),
        verify: drive.verify,
        fill: drive.fill_on_miss,
        has_order: !drive.steering.parts_connections(),
    };
    let lines = outward.lines();
    let inward = Inward::new(options, drive.names.clone(), lines).map_err(DriveError::System)?;
    let (mut books, mut notes) = (books(drive, clock, 0), Notes::default());
    outward.open_all(clock.now_ns(), &mut books, &mut notes)?;
    outward.establish(&clock, &mut books, &mut notes)?;
    // Relaxed: a count by itself.
    drive.signs.ready.fetch_add(1, Ordering::Relaxed);
    drive.signs.await_word();
    outward.begin(clock.now_ns());
    match drive.receive_apart {
        None => together(&mut watch, outward, inward, books, notes),
        Some(cpu) => apart(&mut watch, outward, inward, (books, notes), bell, cpu),
    }
}

/// Makes a timer that is due every `SLEEP_MAX`, and stays readable until it is read.
fn beat() -> Result<OwnedFd, DriveError> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let system = |error: rustix::io::Errno| DriveError::System(error.into());
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(system)?;
    let every = Timespec { tv_sec: 0, tv_nsec: i64::from(SLEEP_MAX.subsec_nanos()) };
    let periodic = Itimerspec { it_interval: every, it_value: every };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &periodic).map_err(system)?;
    Ok(timer)
}

/// Reads the timer, so that it is quiet until its next time.
fn hush(timer: &OwnedFd) {
    // An error means that it was not due.
    let _ = rustix::io::read(timer, &mut [0; 8]);
}

/// Makes the books of the thread, or (1) of the one that receives apart.
fn books(drive: &Drive, clock: Clock, half: usize) -> Books {
    let late_ns = u64::try_from(drive.late_limit.as_nanos()).unwrap_or(u64::MAX);
    let pulse = drive.pulses.as_ref().map(|pulses| Arc::clone(&pulses[half]));
    let is_closed = matches!(drive.pace, Pace::Closed { .. });
    let score = Score::new(late_ns, is_closed, clock.now_ns(), pulse);
    Books { score, back: Feedback::default() }
}

fn pin(cpu: Option<usize>) -> Result<(), DriveError> {
    // Timers may be 50 us late by default. If this is refused, they stay so.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    cpu.map_or(Ok(()), |cpu| net::pin_thread(cpu).map_err(|error| DriveError::Pin(cpu, error)))
}

/// Runs both halves on this thread.
fn together(
    watch: &mut Watch<'_>,
    mut outward: Outward,
    mut inward: Inward,
    mut books: Books,
    mut notes: Notes,
) -> Result<(), DriveError> {
    let clock = watch.clock;
    let nested = inward.epoll.add(&outward.epoll, ASIDE, Interest::Accept, &inward.calls);
    nested.map_err(DriveError::System)?;
    let beat = beat()?;
    let beats = inward.epoll.add(&beat, BEAT, Interest::Wake, &inward.calls);
    beats.map_err(DriveError::System)?;
    inward.take(&mut notes, &mut books);
    loop {
        outward.heed(&clock, &mut books, &mut inward);
        outward.send(&clock, &mut books, &mut inward)?;
        if outward.flush(&mut books, &mut inward)? && watch.drive.spin {
            watch.looked_ns = clock.now_ns();
        }
        let limit = watch.limit(&outward);
        let is_found = inward.look(limit, &clock, &mut books);
        let is_aside = !is_found && inward.wait(limit, ASIDE).map_err(DriveError::System)?;
        let read_ns = inward.read_all(&clock, &mut books);
        if is_aside {
            hush(&beat);
            outward.hear(Timeout::Zero, &clock, &mut books, &mut inward)?;
        }
        watch.report(&mut books);
        let now_ns = read_ns.unwrap_or_else(|| clock.now_ns());
        if watch.drive.spin {
            // Clock time of a look that found nothing: without spinning it would be sleep.
            let idle_ns =
                if read_ns.is_none() { now_ns.saturating_sub(watch.looked_ns) } else { 0 };
            books.score.idle_ns += idle_ns;
            watch.looked_ns = now_ns;
        }
        if watch.is_tick(now_ns) {
            inward.expire(now_ns, &mut books);
            books.score.sign(&watch.drive.signs);
            outward.tick(now_ns, &mut books, &mut inward);
            watch.give_up(&mut outward, now_ns, &mut books);
        }
        if outward.is_ended && is_done(watch, &inward, &books, now_ns) {
            inward.finish(&mut books);
            watch.hand_over(&mut books);
            return Ok(());
        }
    }
}

/// True if no request is under way any more, or the time for the rest is up.
fn is_done(watch: &mut Watch<'_>, inward: &Inward, books: &Books, now_ns: u64) -> bool {
    let since_ns = *watch.ended_ns.get_or_insert(now_ns);
    let timeout_ns = u64::try_from(watch.drive.timeout.as_nanos()).unwrap_or(u64::MAX);
    let is_idle = inward.waiting == 0 && books.back.fills.is_empty();
    is_idle || now_ns.saturating_sub(since_ns) > timeout_ns.saturating_add(watch.tick_ns)
}

/// The state that the two threads share.
struct Exchange {
    /// From the sending half, in their order.
    notes: Arc<Mutex<Notes>>,
    /// From the receiving half.
    back: Mutex<Feedback>,
    /// Rung when the receiving half is to look at its notes.
    bell: Waker,
    /// True if the sending half has nothing more to send.
    is_ended: AtomicBool,
    /// True if the receiving half has nothing more to receive, or either has failed.
    is_done: AtomicBool,
    /// True if the sending half waits for any answer.
    is_stuck: AtomicBool,
}

/// Runs the sending half on this thread, the receiving half on another.
fn apart(
    watch: &mut Watch<'_>,
    mut outward: Outward,
    inward: Inward,
    (mut books, mut notes): (Books, Notes),
    sender_bell: Arc<Waker>,
    cpu: usize,
) -> Result<(), DriveError> {
    let exchange = Exchange {
        notes: Arc::default(),
        back: Mutex::default(),
        bell: Waker::new().map_err(DriveError::System)?,
        is_ended: AtomicBool::new(false),
        is_done: AtomicBool::new(false),
        is_stuck: AtomicBool::new(false),
    };
    let (exchange, drive) = (&exchange, watch.drive);
    let other = Watch::new(drive, watch.clock, watch.epoch, watch.sink);
    std::thread::scope(|scope| {
        let receiving =
            std::thread::Builder::new().name("receive".to_owned()).spawn_scoped(scope, move || {
                let outcome = receive(other, inward, exchange, &sender_bell, cpu);
                // Release: pairs with the acquire in `transmit`.
                exchange.is_done.store(true, Ordering::Release);
                sender_bell.wake();
                outcome
            });
        let receiving = receiving.map_err(DriveError::System)?;
        let sent = transmit(watch, &mut outward, exchange, &mut books, &mut notes);
        // Release: pairs with the acquire in `receive`.
        exchange.is_ended.store(true, Ordering::Release);
        if sent.is_err() {
            exchange.is_done.store(true, Ordering::Release);
        }
        exchange.bell.wake();
        watch.hand_over(&mut books);
        let received = receiving.join().unwrap_or(Err(DriveError::Plan("a thread has died")));
        sent.and(received)
    })
}

fn transmit(
    watch: &mut Watch<'_>,
    outward: &mut Outward,
    exchange: &Exchange,
    books: &mut Books,
    notes: &mut Notes,
) -> Result<(), DriveError> {
    let clock = watch.clock;
    // Acquire: pairs with the release when the receiving half is done.
    while !exchange.is_done.load(Ordering::Acquire) {
        {
            let mut back = exchange.back.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *back, &mut books.back);
        }
        outward.heed(&clock, books, notes);
        outward.send(&clock, books, notes)?;
        hand_notes(exchange, notes);
        outward.flush(books, notes)?;
        hand_notes(exchange, notes);
        // Relaxed: a hint; a thread that misses it sleeps for at most `SLEEP_MAX`.
        exchange.is_stuck.store(outward.is_stuck, Ordering::Relaxed);
        let limit = match watch.limit(outward) {
            Timeout::Never => Timeout::Within(SLEEP_MAX),
            limit => limit,
        };
        outward.hear(limit, &clock, books, notes)?;
        watch.report(books);
        let now_ns = clock.now_ns();
        if watch.is_tick(now_ns) {
            outward.tick(now_ns, books, notes);
            watch.give_up(outward, now_ns, books);
        }
        if outward.is_ended && notes.notes.is_empty() {
            // Release: pairs with the acquire in `receive`; all notes are in the exchange.
            exchange.is_ended.store(true, Ordering::Release);
        }
    }
    Ok(())
}

/// Appends notes to those that wait. Rings for anything but a request: a new socket has to be
/// watched at once, whereas requests are only looked up when their answers come.
fn hand_notes(exchange: &Exchange, notes: &mut Notes) {
    if notes.notes.is_empty() {
        return;
    }
    let is_urgent = notes.notes.iter().any(|note| !matches!(note, Note::Sent(..)));
    {
        let mut waiting = exchange.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.notes.is_empty() {
            std::mem::swap(&mut *waiting, notes);
        } else {
            waiting.notes.append(&mut notes.notes);
            waiting.keys.append(&mut notes.keys);
        }
    }
    if is_urgent {
        exchange.bell.wake();
    }
}

fn receive(
    mut watch: Watch<'_>,
    mut inward: Inward,
    exchange: &Exchange,
    sender_bell: &Waker,
    cpu: usize,
) -> Result<(), DriveError> {
    pin(Some(cpu))?;
    let clock = watch.clock;
    let mut books = books(watch.drive, clock, 1);
    inward.expect_mail(Arc::clone(&exchange.notes));
    let rung = inward.epoll.add(&exchange.bell, ASIDE, Interest::Wake, &inward.calls);
    rung.map_err(DriveError::System)?;
    loop {
        // Acquire: pairs with the release in `transmit`: once the flag is seen, the notes taken
        // below are the last.
        let is_ended = exchange.is_ended.load(Ordering::Acquire);
        let limit = Timeout::Within(SLEEP_MAX);
        let is_found = inward.look(limit, &clock, &mut books);
        let is_aside = !is_found && inward.wait(limit, ASIDE).map_err(DriveError::System)?;
        if is_aside {
            exchange.bell.clear();
        }
        inward.open_mail(&mut books);
        inward.read_all(&clock, &mut books);
        watch.report(&mut books);
        let now_ns = clock.now_ns();
        if watch.is_tick(now_ns) {
            inward.expire(now_ns, &mut books);
            books.score.sign(&watch.drive.signs);
        }
        if is_ended {
            books.back.fills.clear();
        }
        let is_urgent = books.back.is_urgent();
        if is_urgent || books.back.over > 0 {
            let mut back = exchange.back.lock().unwrap_or_else(PoisonError::into_inner);
            back.add(&mut books.back);
        }
        // Relaxed: like where it is stored.
        if is_urgent || exchange.is_stuck.load(Ordering::Relaxed) {
            sender_bell.wake();
        }
        // Acquire: pairs with the release of a sending half that has failed.
        let has_failed = exchange.is_done.load(Ordering::Acquire);
        if has_failed || (is_ended && is_done(&mut watch, &inward, &books, now_ns)) {
            inward.finish(&mut books);
            watch.hand_over(&mut books);
            return Ok(());
        }
    }
}
