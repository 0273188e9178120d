//! The progress of a run on stderr. On a terminal, a few lines are redrawn in place. Otherwise a
//! line is written for each report, and every few seconds between reports.
//!
//! ```text
//! drive: counts -> course: tick -> live: the last second -> view: lines -> indicatif: the terminal
//! ```
//!
//! Where: `course` calls `tick` in each iteration of its loop.
//! Invariant: nothing is written to stdout. With `--quiet`, nothing is written at all. If stderr is
//! no terminal, no control characters are written.

mod view;

use super::plan::Plan;
use crate::drive::live_counts::{Count, LiveSnapshot};
use crate::measure::Tally;
use crate::measure::schedule::Schedule;
use crate::measure::watch::{Moment, Usage, Watch};
use crate::words::{clock, whole};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};
use view::{CURVE_MAX, View};

/// Time between two updates of the lines on a terminal.
const REDRAWN: Duration = Duration::from_millis(250);
/// Time between two lines of progress if stderr is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(3);
/// Number of updates per second on a terminal.
const DRAWINGS_A_SECOND: usize = 4;
/// The format of the display: a line with a bar that fills the width, and `msg`, the other lines.
const TEMPLATE: &str = "{prefix:.bold} [{wide_bar}] {percent} % {msg}";
const STEPS: u32 = 10_000;
/// The width that is assumed if the terminal does not report its width, in columns.
const COLUMNS: u16 = 80;

#[derive(Debug)]
pub(crate) struct Live {
    schedule: Schedule,
    requests: Option<u64>,
    is_open: bool,
    /// True for a search, which displays its trials itself.
    is_search: bool,
    /// The limit of the wait for a steady hit ratio. `None` if the run is not in this wait.
    warm: Cell<Option<Duration>>,
    is_quiet: bool,
    state: RefCell<State>,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Populate(u64),
    Clear(u64),
    /// In a search, the traffic has the trial's name.
    Traffic(Option<String>),
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The bar is hidden if stderr is no terminal that can move its cursor.
    bar: ProgressBar,
    drawn: Option<Instant>,
    /// The time of the last line; before the first line, the start of the phase.
    last_line: Instant,
    /// The counts at each update in the last second, the oldest first.
    seen: VecDeque<(Instant, LiveSnapshot)>,
    drawings: usize,
    moment: Option<Moment>,
    /// The CPU use in the second before `moment`.
    usage: Usage,
    /// The rate of answers and the 99th percentile of response times, one value per second.
    rates: VecDeque<f64>,
    p99s: VecDeque<f64>,
}

impl State {
    fn new(phase: Phase, is_quiet: bool) -> State {
        State {
            phase,
            bar: bar(is_quiet),
            drawn: None,
            last_line: Instant::now(),
            seen: VecDeque::new(),
            drawings: 0,
            moment: None,
            usage: Usage::default(),
            rates: VecDeque::new(),
            p99s: VecDeque::new(),
        }
    }
}

impl Live {
    pub(crate) fn new(plan: &Plan) -> Live {
        Live {
            schedule: plan.schedule,
            requests: plan.requests,
            is_open: plan.is_open(),
            is_search: plan.capacity.is_some(),
            warm: Cell::new(None),
            is_quiet: plan.quiet,
            state: RefCell::new(State::new(Phase::Traffic(None), plan.quiet)),
        }
    }

    /// True if the threads have to publish live counts. If stderr is no terminal, only filling and
    /// clearing need live counts, because for traffic only the reports are displayed.
    pub(crate) fn is_watched(&self) -> bool {
        let phase = &self.state.borrow().phase;
        let is_filling = matches!(phase, Phase::Populate(_) | Phase::Clear(_));
        !self.is_quiet && (self.is_terminal() || is_filling)
    }

    fn is_terminal(&self) -> bool {
        !self.state.borrow().bar.is_hidden()
    }

    pub(crate) fn populating(&self, keys: u64) {
        self.state.replace(State::new(Phase::Populate(keys), self.is_quiet));
    }

    pub(crate) fn clearing(&self, keys: u64) {
        self.state.replace(State::new(Phase::Clear(keys), self.is_quiet));
    }

    pub(crate) fn populated(&self, keys: u64, took: Duration) {
        if !self.is_terminal() && !self.is_search {
            self.note(&format!("populated {keys} keys in {:.1} s", took.as_secs_f64()));
        }
    }

    /// Begins the traffic phase. In a search, `which` names the trial.
    pub(crate) fn driving(&self, which: Option<String>) {
        self.state.replace(State::new(Phase::Traffic(which), self.is_quiet));
    }

    /// Displays from now on a wait of at most `limit` for a steady hit ratio. `None` ends the wait.
    pub(crate) fn warming(&self, limit: Option<Duration>) {
        self.warm.set(limit);
    }

    /// Writes a line for a complete report if stderr is no terminal.
    pub(crate) fn reported(&self, epoch: u32, tally: &Tally) {
        let is_told = self.schedule.is_reported(epoch) && !self.is_search;
        if !self.is_terminal() && is_told {
            self.note(&view::report(epoch, &self.schedule, tally));
        }
    }

    /// Updates the display, and uses `snapshot` and `watch`, only if an update is due.
    pub(crate) fn tick(
        &self,
        elapsed: Duration,
        epoch: u32,
        snapshot: impl FnOnce() -> LiveSnapshot,
        watch: Option<&Watch>,
    ) {
        if self.is_quiet {
            return;
        }
        if !self.is_terminal() {
            return self.line((elapsed, epoch), snapshot);
        }
        let mut state = self.state.borrow_mut();
        let now = Instant::now();
        if state.drawn.is_some_and(|drawn| now.duration_since(drawn) < REDRAWN) {
            return;
        }
        state.drawn = Some(now);
        if let Some(watch) = watch.filter(|_| state.drawings.is_multiple_of(DRAWINGS_A_SECOND)) {
            let moment = watch.brief_moment();
            if let Some(before) = state.moment.replace(moment.clone()) {
                state.usage = moment.since(&before);
            }
        }
        let view = self.view(&mut state, (elapsed, epoch), (now, snapshot()));
        draw(&state.bar, &view);
    }

    /// Writes the progress as a line, if the last line is at least `LINE_EVERY` old.
    fn line(&self, at: (Duration, u32), snapshot: impl FnOnce() -> LiveSnapshot) {
        let phase = {
            let state = self.state.borrow();
            if state.last_line.elapsed() < LINE_EVERY {
                return;
            }
            state.phase.clone()
        };
        let snapshot = snapshot();
        // `Count::Over` includes failed requests, which are no progress.
        let over = snapshot.count(Count::Over).saturating_sub(snapshot.count(Count::Failed));
        let (name, part, left) = self.progress(&phase, at, over);
        let left = left.map_or(String::new(), |left| format!(", {} left", clock(left)));
        let failed = match snapshot.count(Count::Failed) {
            0 => String::new(),
            failed => format!(", failed {failed}"),
        };
        self.note(&format!("{name}: {:.0} %{left}{failed}", part * 100.0));
    }

    fn view(
        &self,
        state: &mut State,
        (elapsed, epoch): (Duration, u32),
        (now, snapshot): (Instant, LiveSnapshot),
    ) -> View {
        let (then, before) = match state.seen.front() {
            Some((then, before)) => (*then, before.clone()),
            None => (now.checked_sub(elapsed).unwrap_or(now), LiveSnapshot::default()),
        };
        let mut since = snapshot.since(&before);
        let longest = state.seen.iter().skip(1).map(|(_, snapshot)| snapshot.longest_ns).max();
        since.longest_ns = since.longest_ns.max(longest.unwrap_or(0));
        let seconds = now.duration_since(then).as_secs_f64().max(1e-3);
        let answered_per_s = since.answered() as f64 / seconds;
        state.drawings += 1;
        if state.drawings.is_multiple_of(DRAWINGS_A_SECOND) {
            keep(&mut state.rates, answered_per_s);
            keep(&mut state.p99s, since.quantile_ns(0.99).unwrap_or(0) as f64);
        }
        let over = snapshot.count(Count::Over);
        let (name, part, left) = self.progress(&state.phase, (elapsed, epoch), over);
        let (hits, misses) = (since.count(Count::Hits), since.count(Count::Misses));
        let is_traffic = matches!(state.phase, Phase::Traffic(_));
        let view = View {
            name,
            part,
            left,
            offered_per_s: (self.is_open && is_traffic)
                .then(|| since.count(Count::Offered) as f64 / seconds),
            sent_per_s: since.count(Count::Sent) as f64 / seconds,
            answered_per_s,
            p50_ns: since.quantile_ns(0.5),
            p99_ns: since.quantile_ns(0.99),
            max_ns: Some(since.longest_ns).filter(|ns| *ns > 0),
            hit_ratio: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
            failed: snapshot.count(Count::Failed),
            late: is_traffic.then_some(snapshot.late),
            under_way: snapshot.under_way(),
            server_cpus: state.usage.server.map(|used| used.cpus()),
            own_cpus: state.usage.client.map(|used| used.cpus()),
            idle: state.usage.machine.as_ref().map(|machine| machine.total.idle),
            rates: state.rates.iter().copied().collect(),
            p99s: state.p99s.iter().copied().collect(),
        };
        state.seen.push_back((now, snapshot));
        if state.seen.len() > DRAWINGS_A_SECOND {
            state.seen.pop_front();
        }
        view
    }

    /// Returns the phase's name, the fraction of the phase that is done, and the time left.
    fn progress(
        &self,
        phase: &Phase,
        (elapsed, epoch): (Duration, u32),
        over: u64,
    ) -> (String, f64, Option<Duration>) {
        let of = |done: u64, all: u64| (done as f64 / all.max(1) as f64).min(1.0);
        let rest = |part: f64| {
            let seconds = elapsed.as_secs_f64() * (1.0 - part) / part;
            Duration::try_from_secs_f64(seconds).ok().filter(|_| part > 0.0)
        };
        if let Phase::Populate(keys) | Phase::Clear(keys) = phase {
            let part = of(over, *keys);
            let verb = if matches!(phase, Phase::Clear(_)) { "delete" } else { "populate" };
            return (format!("{verb} {over} of {keys} keys"), part, rest(part));
        }
        if let Some(limit) = self.warm.get() {
            let part = elapsed.as_secs_f64() / limit.as_secs_f64().max(1e-9);
            let name = "wait for a steady hit ratio (limit: --warm)".to_owned();
            return (name, part.min(1.0), Some(limit.saturating_sub(elapsed)));
        }
        let total = self.schedule.total();
        let part = elapsed.as_secs_f64() / total.as_secs_f64().max(1e-9);
        let left = total.saturating_sub(elapsed);
        let stage = match epoch {
            0 => "not measured yet".to_owned(),
            epoch => {
                format!("report {} of {}", epoch.min(self.schedule.reports), self.schedule.reports)
            }
        };
        let name = match phase {
            Phase::Traffic(Some(which)) => format!("{which}, {stage}"),
            _ => stage,
        };
        match self.requests.map(|requests| of(over, requests)) {
            Some(by_count) if by_count > part => (name, by_count, rest(by_count)),
            _ => (name, part.min(1.0), Some(left)),
        }
    }

    /// Writes a line that later updates do not overwrite.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_quiet {
            let mut state = self.state.borrow_mut();
            state.last_line = Instant::now();
            state.bar.suspend(|| write(text));
        }
    }

    pub(crate) fn done(&self) {
        self.state.borrow().bar.finish_and_clear();
    }
}

fn bar(is_quiet: bool) -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("#-");
    let target = if is_quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    ProgressBar::with_draw_target(Some(STEPS.into()), target).with_style(style)
}

fn draw(bar: &ProgressBar, view: &View) {
    let columns = tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
    let columns = if columns > 0 { columns } else { COLUMNS };
    let lines = view.lines(columns.into(), console::colors_enabled_stderr());
    let left = view.left.map_or(String::new(), |left| format!("{} left", clock(left)));
    bar.update(|state| state.set_pos(whole(view.part * f64::from(STEPS))));
    bar.set_prefix(view.name.clone());
    bar.set_message(format!("{left}\n{}", lines.join("\n")));
}

/// Writes a line to stderr, unless `--quiet` is given; for callers that have no `Live`.
pub(crate) fn tell(plan: &Plan, text: &str) {
    if !plan.quiet {
        write(text);
    }
}

/// Errors are ignored, because they could not be displayed.
fn write(text: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

fn keep(values: &mut VecDeque<f64>, value: f64) {
    if values.len() == CURVE_MAX {
        values.pop_front();
    }
    values.push_back(value);
}
