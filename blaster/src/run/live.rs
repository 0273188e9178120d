//! What is seen while a run goes on: one line on the terminal.
//!
//! Where: fed by `course`. Invariant: nothing is written to stdout, and nothing at all where stderr
//! is no terminal or quiet was asked for.

use crate::measure::Tally;
use crate::measure::schedule::Schedule;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::RefCell;
use std::io::IsTerminal;
use std::time::Duration;

/// The line.
#[derive(Debug)]
pub(crate) struct Live {
    bar: ProgressBar,
    schedule: Schedule,
    seen: RefCell<Seen>,
}

/// What was handed over of the newest epoch.
#[derive(Debug, Default)]
struct Seen {
    epoch: u32,
    tally: Tally,
}

impl Live {
    pub(crate) fn new(quiet: bool, schedule: Schedule) -> Live {
        let shown = !quiet && std::io::stderr().is_terminal();
        let target =
            if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        Live { bar, schedule, seen: RefCell::default() }
    }

    /// Populating begins: `keys` are to be stored.
    pub(crate) fn populating(&self, keys: u64) {
        self.style("populating {bar:30} {pos}/{len} keys, {eta} left");
        self.bar.set_length(keys);
        self.bar.set_position(0);
    }

    pub(crate) fn populated(&self, keys: u64) {
        self.bar.set_position(keys);
    }

    pub(crate) fn is_populated(&self) {
        self.bar.set_message("");
    }

    /// Traffic begins. `what` says which.
    pub(crate) fn driving(&self, what: &str) {
        self.style("{prefix} {bar:30} {msg}");
        self.bar.set_prefix(what.to_owned());
        let total = self.schedule.total().as_millis();
        self.bar.set_length(u64::try_from(total).unwrap_or(u64::MAX));
        self.bar.set_position(0);
        *self.seen.borrow_mut() = Seen::default();
    }

    /// A thread handed an epoch over.
    pub(crate) fn saw(&self, epoch: u32, tally: &Tally) {
        let mut seen = self.seen.borrow_mut();
        if epoch != seen.epoch {
            *seen = Seen { epoch, tally: Tally::default() };
        }
        seen.tally.merge(tally);
    }

    pub(crate) fn tick(&self, elapsed: Duration, epoch: u32) {
        self.bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        let left = self.schedule.total().saturating_sub(elapsed).as_secs();
        let seen = self.seen.borrow();
        let total = seen.tally.total();
        let wall_s = seen.tally.wall_ns as f64 / 1e9;
        let last = match total.answered {
            0 => String::new(),
            answered => format!(
                "{} requests in {wall_s:.0} thread-seconds, p99 {:.0} us, ",
                answered,
                total.response_ns.quantile_ns(0.99).unwrap_or(0) as f64 / 1e3,
            ),
        };
        let what = if epoch == 0 { "settling, ".to_owned() } else { last };
        self.bar.set_message(format!("{what}{left} s left"));
    }

    /// A line that stays above.
    pub(crate) fn note(&self, text: &str) {
        self.bar.println(text);
    }

    /// The line goes.
    pub(crate) fn done(&self) {
        self.bar.finish_and_clear();
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }
}
