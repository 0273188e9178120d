//! Which column goes on at each access to shared memory: drawn from one number, which draws the
//! whole schedule again.
//!
//! Where: shuttle asks here at each scheduling point.
//! Invariant: a schedule follows from its seed alone. (Shuttle's own PCT scheduler estimates from
//! the schedules before.)
//! Source: "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs" (Burckhardt et
//! al., ASPLOS 2010).

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use testing::Random;

/// Threads with a priority.
const TASKS_MAX: usize = 16;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) schedules: u64,
    pub(crate) until: Option<Instant>,
}

/// How the next thread is chosen.
#[derive(Debug)]
enum Way {
    /// Any, at one point in so many, and else the same.
    Random { one_in: u64 },
    /// The one of highest priority, which is lost at a few points.
    Pct { priorities: [u64; TASKS_MAX], lowest: u64, changes: Vec<u64> },
}

/// Schedules from a first seed on.
#[derive(Debug)]
pub(crate) struct Seeded {
    next: u64,
    budget: Budget,
    /// The seed of the schedule under way, for the test.
    current: Arc<AtomicU64>,
    /// Something is wrong: no more.
    found: Arc<AtomicBool>,
    random: Random,
    way: Way,
    steps: u64,
}

impl Seeded {
    pub(crate) fn new(
        first: u64,
        budget: Budget,
        (current, found): (Arc<AtomicU64>, Arc<AtomicBool>),
    ) -> Self {
        let way = Way::Random { one_in: 1 };
        Self { next: first, budget, current, found, random: Random::new(0), way, steps: 0 }
    }
}

fn draw(random: &mut Random) -> Way {
    if random.below(2) == 0 {
        return Way::Random { one_in: 1 << random.below(9) };
    }
    let depth = random.below(6);
    let steps = 1 << (8 + random.below(7));
    // From 2^32 up, so that whoever loses his is below all others.
    let priorities = std::array::from_fn(|_| (1 << 32) + random.below(1 << 32));
    let changes = (0..depth).map(|_| random.below(steps)).collect();
    Way::Pct { priorities, lowest: 1 << 32, changes }
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
        self.way = draw(&mut self.random);
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
        match &mut self.way {
            Way::Random { one_in } => {
                let stays = !is_yielding && random.below(*one_in) != 0;
                let same = runnable.iter().find(|task| stays && Some(task.id()) == current);
                let any = || runnable.get(random.index(runnable.len()));
                same.or_else(any).map(|task| task.id())
            }
            Way::Pct { priorities, lowest, changes } => {
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
