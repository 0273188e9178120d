//! Runs tests under random schedules: the scheduler picks a thread at each access to shared memory.
//!
//! Where: in `make explore`, which builds the tests with `--cfg shuttle`.
//! Invariant: a schedule depends only on its seed, and so do the test's random numbers. The report
//! of a failure names the seed. (In shuttle's own PCT scheduler, earlier schedules matter too.)
//! Source: shuttle (github.com/awslabs/shuttle); "A Randomized Scheduler with Probabilistic
//! Guarantees of Finding Bugs" (Burckhardt et al., ASPLOS 2010).
//!
//! Environment: `EXPLORE_SCHEDULES` limits the number of each test's schedules, and
//! `EXPLORE_SECONDS` limits each test's time. `EXPLORE_FROM` is the seed of the first schedule. If
//! `EXPLORE_SEED` is set, only the schedule of that seed runs.

#![allow(clippy::panic, clippy::print_stdout, reason = "a test fails by panicking, and prints")]

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Random;

/// Number of priorities. Threads with equal numbers modulo `TASKS_MAX` share a priority.
const TASKS_MAX: usize = 16;
const STACK_BYTES: usize = 512 << 10;
/// Maximum number of accesses in one schedule. A test with more accesses fails.
const STEPS_MAX: usize = 20_000_000;

/// A summary of the explored schedules.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    /// Number of schedules.
    pub schedules: usize,
    /// The seed of the first schedule.
    pub first: u64,
    /// Number of seconds that the schedules took in total.
    pub seconds: u64,
}

fn given(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Runs `test` under random schedules for `seconds`, unless the environment sets another limit.
/// Each schedule is drawn from a seed, which is also passed to `test`. If `test` panics or returns
/// false, calls `show` with the seed, to print the test's actions, and panics.
///
/// # Panics
/// The test failed.
pub fn explore(
    seconds: u64,
    test: impl Fn(u64) -> bool + Send + Sync + 'static,
    show: impl FnOnce(u64),
) -> Explored {
    let begun = Instant::now();
    let schedules = given("EXPLORE_SCHEDULES");
    let seconds = given("EXPLORE_SECONDS").or(schedules.is_none().then_some(seconds));
    let one = given("EXPLORE_SEED");
    let budget = Budget {
        schedules: one.map_or(schedules.unwrap_or(u64::MAX), |_| 1),
        until: seconds.filter(|_| one.is_none()).map(|more| begun + Duration::from_secs(more)),
    };
    let current = Arc::new(AtomicU64::new(0));
    let first = one.or_else(|| given("EXPLORE_FROM")).unwrap_or(1);
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    let found = Arc::new(AtomicBool::new(false));
    let scheduler = Seeded::new(first, budget, (Arc::clone(&current), Arc::clone(&found)));
    let runner = Runner::new(scheduler, config);
    let run = {
        let (current, found) = (Arc::clone(&current), Arc::clone(&found));
        move || {
            if !test(current.load(Ordering::SeqCst)) {
                found.store(true, Ordering::SeqCst);
            }
        }
    };
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(run)));
    let (seed, seconds) = (current.load(Ordering::SeqCst), begun.elapsed().as_secs());
    if let (Ok(schedules), false) = (ran, found.load(Ordering::SeqCst)) {
        return Explored { schedules, first, seconds };
    }
    show(seed);
    let (count, thread) = (seed.wrapping_sub(first) + 1, std::thread::current());
    let test = thread.name().unwrap_or_default();
    panic!("schedule {count} failed; again: make explore SEED={seed} KIND={test}");
}

/// Like `explore`, but passes `test` random numbers instead of a seed, and prints a summary.
///
/// # Panics
/// The test failed.
pub fn explore_drawn(seconds: u64, test: impl Fn(&mut Random) + Send + Sync + 'static) {
    let drawn = move |seed| {
        test(&mut Random::new(seed));
        true
    };
    let Explored { schedules, first, seconds } = explore(seconds, drawn, |_| {});
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    println!("{schedules} schedules of {name} from seed {first} on in {seconds} s");
}

#[derive(Clone, Copy, Debug)]
struct Budget {
    schedules: u64,
    until: Option<Instant>,
}

#[derive(Debug)]
enum Strategy {
    /// A random thread runs next at one in `one_in` accesses. Otherwise the running thread goes on.
    Random { one_in: u64 },
    /// The thread with the highest priority runs. At the accesses in `changes`, the running thread
    /// gets the lowest priority.
    Pct { priorities: [u64; TASKS_MAX], lowest: u64, changes: Vec<u64> },
}

#[derive(Debug)]
struct Seeded {
    next: u64,
    budget: Budget,
    current: Arc<AtomicU64>,
    /// True after the test has returned false. Then no more schedules are drawn.
    found: Arc<AtomicBool>,
    random: Random,
    strategy: Strategy,
    steps: u64,
}

impl Seeded {
    fn new(
        first: u64,
        budget: Budget,
        (current, found): (Arc<AtomicU64>, Arc<AtomicBool>),
    ) -> Self {
        let strategy = Strategy::Random { one_in: 1 };
        Self { next: first, budget, current, found, random: Random::new(0), strategy, steps: 0 }
    }
}

fn draw(random: &mut Random) -> Strategy {
    if random.below(2) == 0 {
        return Strategy::Random { one_in: 1 << random.below(9) };
    }
    let depth = random.below(6);
    let steps = 1 << (8 + random.below(7));
    // Drawn priorities are at least 2^32, so that a number below 2^32 is a lower priority than the
    // priorities of all other threads.
    let priorities = std::array::from_fn(|_| (1 << 32) + random.below(1 << 32));
    let changes = (0..depth).map(|_| random.below(steps)).collect();
    Strategy::Pct { priorities, lowest: 1 << 32, changes }
}

impl Scheduler for Seeded {
    fn new_execution(&mut self) -> Option<Schedule> {
        let Budget { schedules, until } = self.budget;
        if schedules == 0
            || self.found.load(Ordering::Relaxed)
            || until.is_some_and(|until| Instant::now() > until)
        {
            return None;
        }
        self.budget.schedules -= 1;
        let seed = self.next;
        self.next = self.next.wrapping_add(1);
        self.current.store(seed, Ordering::Relaxed);
        self.random = Random::new(seed ^ 0x5c4e_d01e);
        self.strategy = draw(&mut self.random);
        self.steps = 0;
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        if let [only] = runnable {
            return Some(only.id());
        }
        self.steps += 1;
        let random = &mut self.random;
        let of = |task: TaskId| usize::from(task) % TASKS_MAX;
        match &mut self.strategy {
            Strategy::Random { one_in } => {
                let stays = !is_yielding && random.below(*one_in) != 0;
                let same = runnable.iter().find(|task| stays && Some(task.id()) == current);
                let any = || runnable.get(random.index(runnable.len()));
                same.or_else(any).map(|task| task.id())
            }
            Strategy::Pct { priorities, lowest, changes } => {
                if let Some(current) = current
                    && (is_yielding || changes.contains(&self.steps))
                {
                    *lowest -= 1;
                    priorities[of(current)] = *lowest;
                }
                runnable.iter().map(|task| task.id()).max_by_key(|task| priorities[of(*task)])
            }
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next()
    }
}
/// Returns how often a waker (an eventfd) was woken since the last call of this function.
#[must_use]
pub fn wakes(waker: impl std::os::fd::AsFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(waker, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}
