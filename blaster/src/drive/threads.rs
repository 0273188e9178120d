//! The loops of a drive: both halves on one thread, or each half on a thread of its own.
//!
//! Where: the main function of a driving thread.
//! Invariant: the message about a request reaches the receiving half before the request's bytes
//! reach the server, so that an answer always finds its request. A thread never holds two locks of
//! the exchange at once, and holds a lock only while it swaps or appends vectors.

use std::io;
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

use super::clock::Clock;
use super::inward::{Inward, Options};
use super::messages::{Feedback, Message, Messages};
use super::outward::Outward;
use super::plan::{Drive, DriveError, Pace};
use super::score::{DriveState, Score};
use crate::measure::{Connections, Tally};
use crate::words::ns;

/// The token of the sending half's epoll or, if there are two threads, of `Exchange::waker`.
const OTHER_HALF: u64 = u64::MAX;
/// Longest sleep of a thread. A thread that sleeps longer would notice too late that the run stops
/// or that its counts are wanted (a new epoch). A periodic timer ends the sleeps, because a timeout
/// per sleep would make the kernel start and stop a timer each time.
const SLEEP_MAX: Duration = Duration::from_millis(10);
const TIMER: u64 = u64::MAX - 1;
/// Longest time between two checks for timed-out requests.
const TICK_MAX_NS: u64 = 10_000_000;
const TICK_MIN_NS: u64 = 100_000;
/// A sleep ends this time before a request is due, because waking takes about this time.
const SPIN_NS: u64 = 20_000;

type Sink = mpsc::Sender<(u32, u32, Tally)>;

struct Watch<'a> {
    drive: &'a Drive,
    clock: Clock,
    epoch: &'a AtomicU32,
    sink: &'a Sink,
    seen: u32,
    tick_ns: u64,
    next_tick_ns: u64,
    /// The time at which a spinning thread last sent or polled.
    looked_ns: u64,
    /// The time at which sending ended. `None` while the thread still sends.
    ended_ns: Option<u64>,
}

impl<'a> Watch<'a> {
    fn new(drive: &'a Drive, clock: Clock, epoch: &'a AtomicU32, sink: &'a Sink) -> Watch<'a> {
        let timeout_ns = ns(drive.timeout);
        Watch {
            drive,
            clock,
            epoch,
            sink,
            // Acquire: pairs with the release store that began the epoch, so the setup is visible.
            seen: epoch.load(Ordering::Acquire),
            tick_ns: (timeout_ns / 16).clamp(TICK_MIN_NS, TICK_MAX_NS),
            next_tick_ns: 0,
            looked_ns: clock.now_ns(),
            ended_ns: None,
        }
    }

    #[inline]
    fn report(&mut self, state: &mut DriveState) {
        // Acquire: pairs with the release store that began the epoch.
        let epoch = self.epoch.load(Ordering::Acquire);
        if epoch != self.seen {
            self.hand_over(state);
            self.seen = epoch;
        }
    }

    fn hand_over(&self, state: &mut DriveState) {
        let tally = state.score.take(self.clock.now_ns());
        // An error means that nobody receives tallies any more.
        let _ = self.sink.send((self.drive.thread, self.seen, tally));
    }

    /// True if it is time to check timeouts and to open broken lines again.
    #[inline]
    fn is_tick(&mut self, now_ns: u64) -> bool {
        let is_tick = now_ns >= self.next_tick_ns;
        if is_tick {
            self.next_tick_ns = now_ns + self.tick_ns;
        }
        is_tick
    }

    fn is_over(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.drive.end.stop.load(Ordering::Relaxed)
            || self.drive.end.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Gives up requests that have been due for longer than the timeout. At the end of the run,
    /// gives up all due requests.
    fn give_up(&self, outward: &mut Outward, now_ns: u64, state: &mut DriveState) {
        let is_over = self.is_over();
        let timeout_ns = ns(self.drive.timeout);
        outward.give_up(now_ns, if is_over { 0 } else { timeout_ns }, state);
        outward.is_ended |= is_over;
    }

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
    let waker = Arc::new(Waker::new()?);
    let mut outward = Outward::new(drive, Arc::clone(&waker), clock.now_ns())?;
    let options = Options {
        protocol: drive.protocol,
        timeout_ns: ns(drive.timeout),
        verify: drive.verify,
        fill: drive.fill_on_miss,
        has_order: !drive.steering.splits_connections(),
    };
    let inward = Inward::new(options, drive.names.clone(), outward.lines())?;
    let (mut state, mut messages) = (drive_state(drive, clock, 0), Messages::default());
    outward.open_all(clock.now_ns(), &mut state, &mut messages)?;
    outward.establish(&clock, &mut state, &mut messages)?;
    // Relaxed: the count publishes no other data.
    drive.signals.ready.fetch_add(1, Ordering::Relaxed);
    drive.signals.await_release();
    outward.begin(clock.now_ns());
    match drive.receive_cpu {
        None => on_one_thread(&mut watch, outward, inward, state, messages),
        Some(cpu) => on_two_threads(&mut watch, outward, inward, (state, messages), waker, cpu),
    }
}

/// Makes a timer that expires every `SLEEP_MAX`, and stays readable until it is read.
fn start_timer() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let every = Timespec { tv_sec: 0, tv_nsec: i64::from(SLEEP_MAX.subsec_nanos()) };
    let periodic = Itimerspec { it_interval: every, it_value: every };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &periodic)?;
    Ok(timer)
}

fn clear_timer(timer: &OwnedFd) {
    // An error means that the timer has not expired.
    let _ = rustix::io::read(timer, &mut [0; 8]);
}

/// Makes a thread's state. `half` is 1 for a separate receiving thread, and 0 for other threads.
fn drive_state(drive: &Drive, clock: Clock, half: usize) -> DriveState {
    let late_ns = ns(drive.late_limit);
    let counts = drive.live_counts.as_ref().map(|live_counts| Arc::clone(&live_counts[half]));
    let is_closed = matches!(drive.pace, Pace::Closed { .. });
    // Only the receiving half counts answers on connections.
    let is_receiving = half == 1 || drive.receive_cpu.is_none();
    let connections = if is_receiving { drive.kept_connections() } else { Connections::default() };
    let score = Score::new(late_ns, is_closed, clock.now_ns(), counts, connections);
    DriveState { score, feedback: Feedback::default() }
}

fn pin(cpu: Option<usize>) -> Result<(), DriveError> {
    // An error is ignored, because it only means that sleeps may end 50 us late.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    cpu.map_or(Ok(()), |cpu| net::pin_thread(cpu).map_err(|error| DriveError::Pin(cpu, error)))
}

fn on_one_thread(
    watch: &mut Watch<'_>,
    mut outward: Outward,
    mut inward: Inward,
    mut state: DriveState,
    mut messages: Messages,
) -> Result<(), DriveError> {
    let clock = watch.clock;
    inward.epoll.add(&outward.epoll, OTHER_HALF, Interest::Accept, &inward.calls)?;
    let timer = start_timer()?;
    inward.epoll.add(&timer, TIMER, Interest::Wake, &inward.calls)?;
    inward.apply(&mut messages, &mut state);
    loop {
        outward.act_on_feedback(&clock, &mut state, &mut inward);
        outward.send(&clock, &mut state, &mut inward)?;
        if outward.flush(&mut state, &mut inward)? && watch.drive.spin {
            watch.looked_ns = clock.now_ns();
        }
        let limit = watch.limit(&outward);
        let is_found = inward.poll_queues(limit, &clock, &mut state);
        let is_other_half = !is_found && inward.wait(limit, OTHER_HALF)?;
        let read_ns = inward.read_all(&clock, &mut state);
        if is_other_half {
            clear_timer(&timer);
            outward.handle_events(Timeout::Zero, &clock, &mut state, &mut inward)?;
        }
        watch.report(&mut state);
        let now_ns = read_ns.unwrap_or_else(|| clock.now_ns());
        if watch.drive.spin {
            // A poll that found nothing is idle time: without `spin` the thread would have slept.
            let idle_ns =
                if read_ns.is_none() { now_ns.saturating_sub(watch.looked_ns) } else { 0 };
            state.score.idle_ns += idle_ns;
            watch.looked_ns = now_ns;
        }
        if watch.is_tick(now_ns) {
            inward.expire(now_ns, &mut state);
            state.score.signal(&watch.drive.signals);
            outward.tick(now_ns, &mut state, &mut inward);
            watch.give_up(&mut outward, now_ns, &mut state);
        }
        if outward.is_ended && is_done(watch, &inward, &state, now_ns) {
            inward.finish(&mut state);
            watch.hand_over(&mut state);
            return Ok(());
        }
    }
}

/// True if no request is in flight, or if the last requests have waited longer than the timeout.
fn is_done(watch: &mut Watch<'_>, inward: &Inward, state: &DriveState, now_ns: u64) -> bool {
    let since_ns = *watch.ended_ns.get_or_insert(now_ns);
    let timeout_ns = ns(watch.drive.timeout);
    let is_idle = inward.waiting == 0 && state.feedback.fills.is_empty();
    is_idle || now_ns.saturating_sub(since_ns) > timeout_ns.saturating_add(watch.tick_ns)
}

struct Exchange {
    messages: Arc<Mutex<Messages>>,
    feedback: Mutex<Feedback>,
    waker: Waker,
    is_ended: AtomicBool,
    /// True if the receiving half has finished, or if either half has failed.
    is_done: AtomicBool,
    /// True if the sending half cannot send now, so that each answer has to wake the sending half.
    is_stuck: AtomicBool,
}

fn on_two_threads(
    watch: &mut Watch<'_>,
    mut outward: Outward,
    inward: Inward,
    (mut state, mut messages): (DriveState, Messages),
    sender_waker: Arc<Waker>,
    cpu: usize,
) -> Result<(), DriveError> {
    let exchange = Exchange {
        messages: Arc::default(),
        feedback: Mutex::default(),
        waker: Waker::new()?,
        is_ended: AtomicBool::new(false),
        is_done: AtomicBool::new(false),
        is_stuck: AtomicBool::new(false),
    };
    let (exchange, drive) = (&exchange, watch.drive);
    let other = Watch::new(drive, watch.clock, watch.epoch, watch.sink);
    std::thread::scope(|scope| {
        let receiving = std::thread::Builder::new().name("receive".to_owned()).spawn_scoped(
            scope,
            move || {
                let outcome = receive(other, inward, exchange, &sender_waker, cpu);
                // Release: pairs with the acquire in `transmit`.
                exchange.is_done.store(true, Ordering::Release);
                sender_waker.wake();
                outcome
            },
        )?;
        let sent = transmit(watch, &mut outward, exchange, &mut state, &mut messages);
        // Release: pairs with the acquire in `receive`.
        exchange.is_ended.store(true, Ordering::Release);
        if sent.is_err() {
            exchange.is_done.store(true, Ordering::Release);
        }
        exchange.waker.wake();
        watch.hand_over(&mut state);
        let panicked = DriveError::Plan("the thread that receives answers panicked");
        let received = receiving.join().unwrap_or(Err(panicked));
        sent.and(received)
    })
}

fn transmit(
    watch: &mut Watch<'_>,
    outward: &mut Outward,
    exchange: &Exchange,
    state: &mut DriveState,
    messages: &mut Messages,
) -> Result<(), DriveError> {
    let clock = watch.clock;
    // Acquire: pairs with the release store at the end of the receiving half.
    while !exchange.is_done.load(Ordering::Acquire) {
        {
            let mut feedback = exchange.feedback.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *feedback, &mut state.feedback);
        }
        outward.act_on_feedback(&clock, state, messages);
        outward.send(&clock, state, messages)?;
        hand_over_messages(exchange, messages);
        outward.flush(state, messages)?;
        hand_over_messages(exchange, messages);
        // Relaxed: a hint. If it is seen late, this thread sleeps for at most `SLEEP_MAX`.
        exchange.is_stuck.store(outward.is_stuck, Ordering::Relaxed);
        let limit = match watch.limit(outward) {
            Timeout::Never => Timeout::Within(SLEEP_MAX),
            limit => limit,
        };
        outward.handle_events(limit, &clock, state, messages)?;
        watch.report(state);
        let now_ns = clock.now_ns();
        if watch.is_tick(now_ns) {
            outward.tick(now_ns, state, messages);
            watch.give_up(outward, now_ns, state);
        }
        if outward.is_ended && messages.queue.is_empty() {
            // Release: pairs with the acquire in `receive`; all messages are in the exchange.
            exchange.is_ended.store(true, Ordering::Release);
        }
    }
    Ok(())
}

/// Appends messages to the exchange. Wakes the receiving half if a message is not about a request,
/// because a new socket has to be watched at once, whereas a request is not needed until its answer
/// arrives.
fn hand_over_messages(exchange: &Exchange, messages: &mut Messages) {
    if messages.queue.is_empty() {
        return;
    }
    let is_urgent = messages.queue.iter().any(|message| !matches!(message, Message::Sent(..)));
    {
        let mut waiting = exchange.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.queue.is_empty() {
            std::mem::swap(&mut *waiting, messages);
        } else {
            waiting.queue.append(&mut messages.queue);
            waiting.keys.append(&mut messages.keys);
        }
    }
    if is_urgent {
        exchange.waker.wake();
    }
}

fn receive(
    mut watch: Watch<'_>,
    mut inward: Inward,
    exchange: &Exchange,
    sender_waker: &Waker,
    cpu: usize,
) -> Result<(), DriveError> {
    pin(Some(cpu))?;
    let clock = watch.clock;
    let mut state = drive_state(watch.drive, clock, 1);
    inward.set_mailbox(Arc::clone(&exchange.messages));
    inward.epoll.add(&exchange.waker, OTHER_HALF, Interest::Wake, &inward.calls)?;
    loop {
        // Acquire: pairs with the release in `transmit`. If the flag is set, the exchange has the
        // last messages, and `take_messages` takes them.
        let is_ended = exchange.is_ended.load(Ordering::Acquire);
        let limit = Timeout::Within(SLEEP_MAX);
        let is_found = inward.poll_queues(limit, &clock, &mut state);
        let is_other_half = !is_found && inward.wait(limit, OTHER_HALF)?;
        if is_other_half {
            exchange.waker.clear();
        }
        inward.take_messages(&mut state);
        inward.read_all(&clock, &mut state);
        watch.report(&mut state);
        let now_ns = clock.now_ns();
        if watch.is_tick(now_ns) {
            inward.expire(now_ns, &mut state);
            state.score.signal(&watch.drive.signals);
        }
        if is_ended {
            state.feedback.fills.clear();
        }
        let is_urgent = state.feedback.is_urgent();
        if is_urgent || state.feedback.over > 0 {
            let mut feedback = exchange.feedback.lock().unwrap_or_else(PoisonError::into_inner);
            feedback.add(&mut state.feedback);
        }
        // Relaxed: the flag is a hint. If it is seen late, the sending half wakes up later.
        if is_urgent || exchange.is_stuck.load(Ordering::Relaxed) {
            sender_waker.wake();
        }
        // Acquire: pairs with the release store after a failure of the sending half.
        let has_failed = exchange.is_done.load(Ordering::Acquire);
        if has_failed || (is_ended && is_done(&mut watch, &inward, &state, now_ns)) {
            inward.finish(&mut state);
            watch.hand_over(&mut state);
            return Ok(());
        }
    }
}
