//! Agents: processes, often on other machines, that send the requests in place of this process.
//!
//! ```text
//! course -> Workers -> Agents ==stdin/stdout of `ssh HOST kvblaster agent`==> host -> Threads
//! ```
//!
//! Where: `Workers` uses `Agents` in place of `Threads` if `--agent` was given.
//! Invariant: if an agent fails or misbehaves, the run ends, and the error or the report names the
//! agent. An agent exits when its standard input ends, so no agent outlives the controller.
//! Source: the KV-Cache paper, section 5.2: traffic generators and their controller.

pub mod host;
pub(crate) mod parts;
mod talk;
#[cfg(test)]
mod tests;

pub(crate) use parts::{Part, Parts};

use super::error::RunError;
use super::live;
use super::plan::Plan;
use super::servers::Servers;
use super::task::{EpochTally, Task, WorkerGroup};
use crate::drive::live_counts::LiveSnapshot;
use crate::drive::{Mode, Pace};
use crate::launch::exec_text;
use crate::measure::Interval;
use crate::measure::check::{self, Loop};
use crate::result::AgentPart;
use crate::words::ns;
use crate::workload::SentFiles;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};
use talk::{AgentFacts, FromAgent, Lines, ORDERS_MAX, SILENCE_MAX, ToAgent};

/// Time in which an agent's `Hello` must arrive, including ssh's login; else the agent is lost.
const GREETING_MAX: Duration = Duration::from_secs(10);
/// Time after which the user learns which agents have not sent `Hello`.
const NAMED_AFTER: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(100);
/// Longest wait for a process to end before it is killed, and for the last line of its stderr.
const END_MAX: Duration = Duration::from_secs(2);
/// Interval between checks for a process's end.
const END_TICK: Duration = Duration::from_millis(2);
/// Maximum length in bytes of a line of an agent's standard error; a longer line is split.
const WORDS_BYTES_MAX: u64 = 4096;
/// Maximum number of characters shown of a line of standard error, or of an agent's error.
const WORDS_CHARS_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Agents {
    each: RefCell<Vec<Agent>>,
    arrivals: Receiver<Arrival>,
    tallies: RefCell<VecDeque<EpochTally>>,
    epoch: Cell<u32>,
}

/// An agent's index, a time of arrival, and a message or the reason why no more messages come.
type Arrival = (usize, Instant, Result<FromAgent, String>);

#[derive(Debug)]
struct Agent {
    name: String,
    command: String,
    task: Task,
    child: Child,
    /// Messages to the agent; `None` if the agent is lost.
    to: Option<SyncSender<ToAgent>>,
    /// Receives the last line of the agent's standard error, when the agent closes this stream.
    words: Receiver<String>,
    phase: Phase,
    facts: Option<AgentFacts>,
    traffic: TrafficState,
    /// The agent's reply to `Ask`: the servers that do not answer the agent.
    silent: Option<Vec<String>>,
    /// The agent's reply to `Compare`: the servers that went away or were restarted.
    changed: Option<Vec<String>>,
    lost: Option<String>,
    go_sent: Option<Instant>,
    round_trip: Option<Duration>,
}

#[derive(Debug, Default)]
struct TrafficState {
    epochs: BTreeSet<u32>,
    is_unheard: bool,
    is_over: bool,
    snapshot: LiveSnapshot,
    /// The reason why the agent could not do its task, though it still sends messages.
    failed: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Phase {
    Started,
    Greeted,
    /// The agent has found the servers, or cannot do its share.
    Prepared,
    Ready,
    Ended,
}

impl Agents {
    /// Starts the agents, and sends each agent its share of the work and the workload's files. Also
    /// returns the servers that the first agent reports.
    pub(crate) fn gather(plan: &Plan, stop: &AtomicBool) -> Result<(Agents, Servers), RunError> {
        let files = SentFiles::read(&plan.workload).map_err(RunError::failed)?;
        let (sender, arrivals) = arrival_channel();
        let count = u32::try_from(plan.agents.len()).unwrap_or(u32::MAX);
        let agents = Agents {
            each: RefCell::default(),
            arrivals,
            tallies: RefCell::default(),
            epoch: Cell::new(0),
        };
        for (nth, command) in (0..count).zip(&plan.agents) {
            let name = format!("agent {} ({command})", nth + 1);
            let task = Task::whole(plan).share(nth, count);
            let arrivals = (nth as usize, sender.clone());
            let agent = Agent::start((name.clone(), command, plan.quiet), task, arrivals);
            let agent = agent.map_err(|error| RunError::Failed(format!("{name}: {error}")))?;
            agents.each.borrow_mut().push(agent);
        }
        agents.report_silent(plan, stop);
        agents.wait_for_phase(stop, Phase::Greeted)?;
        let workload = plan.workload.to_toml();
        agents.send(|agent| {
            ToAgent::Task(Box::new(agent.task.clone()), workload.clone(), files.clone())
        });
        agents.wait_for_phase(stop, Phase::Prepared)?;
        let servers = agents.each.borrow_mut().iter_mut().find_map(|agent| {
            let AgentFacts { targets, infos, protocol, .. } = agent.facts.as_ref()?;
            Some(Servers::known(targets.clone(), infos.clone(), *protocol))
        });
        let servers = servers.ok_or(RunError::Stopped)?;
        Ok((agents, servers))
    }

    /// After `NAMED_AFTER`, tells the user which agents have not sent `Hello`.
    fn report_silent(&self, plan: &Plan, stop: &AtomicBool) {
        let ends = Instant::now() + NAMED_AFTER;
        let is_silent = |agent: &Agent| agent.to.is_some() && agent.phase < Phase::Greeted;
        self.wait(stop, |agent| is_silent(agent) && Instant::now() < ends);
        for agent in self.each.borrow().iter().filter(|agent| is_silent(agent)) {
            let text = format!(
                "{} has sent nothing for {} s; kvblaster waits for at most {} s",
                agent.name,
                NAMED_AFTER.as_secs(),
                GREETING_MAX.as_secs()
            );
            live::tell(plan, &text);
        }
    }

    fn wait_for_phase(&self, stop: &AtomicBool, phase: Phase) -> Result<(), RunError> {
        self.wait_for(stop, phase);
        if let Some(failed) = self.failed() {
            return Err(failed);
        }
        // Relaxed: the flag guards no other data.
        if stop.load(Ordering::Relaxed) { Err(RunError::Stopped) } else { Ok(()) }
    }

    /// Returns the error of the first agent that is lost or could not do its task.
    fn failed(&self) -> Option<RunError> {
        self.each.borrow().iter().find_map(|agent| {
            let why = agent.lost.as_ref().or(agent.traffic.failed.as_ref())?;
            Some(RunError::Failed(format!("{}: {why}", agent.name)))
        })
    }

    /// Makes all agents connect, and then start to send. `pace` is that of all agents together.
    pub(crate) fn start(&self, (mode, pace): (Mode, Pace), is_watched: bool, stop: &AtomicBool) {
        for agent in self.each.borrow_mut().iter_mut() {
            (agent.phase, agent.traffic) = (Phase::Prepared, TrafficState::default());
        }
        self.epoch.set(0);
        self.send(|_| ToAgent::Start { mode, pace, is_watched });
        self.wait_for(stop, Phase::Ready);
        for agent in self.each.borrow_mut().iter_mut() {
            agent.go_sent = Some(Instant::now());
            agent.send(ToAgent::Go);
        }
    }

    pub(crate) fn hosts(&self) -> Vec<String> {
        let host = |agent: &Agent| agent.facts.as_ref().map(|facts| facts.host.clone());
        self.each.borrow().iter().map(|agent| host(agent).unwrap_or_default()).collect()
    }

    pub(crate) fn is_one_lost(&self) -> bool {
        self.each.borrow().iter().any(|agent| agent.lost.is_some())
    }

    /// Returns each agent's number, and the servers that do not answer the agent. If an agent names
    /// no server but never had an answer, these are all servers.
    pub(crate) fn silent(&self, servers: &Servers, stop: &AtomicBool) -> Vec<(u32, Vec<String>)> {
        self.send(|_| ToAgent::Ask);
        let ends = Instant::now() + SILENCE_MAX;
        self.wait(stop, |agent| agent.silent.is_none() && Instant::now() < ends);
        let silent = |(number, agent): (u32, &mut Agent)| {
            let silent = agent.silent.take()?;
            let is_deaf = silent.is_empty() && agent.traffic.is_unheard;
            Some((number, if is_deaf { servers.names() } else { silent }))
        };
        (1..).zip(self.each.borrow_mut().iter_mut()).filter_map(silent).collect()
    }

    /// Describes the servers that any agent saw go away or restart.
    pub(crate) fn changed(&self) -> Vec<String> {
        self.send(|_| ToAgent::Compare);
        let ends = Instant::now() + SILENCE_MAX;
        // Ctrl-C may be the reason for this call, so Ctrl-C is ignored here.
        let stop = AtomicBool::new(false);
        self.wait(&stop, |agent| agent.changed.is_none() && Instant::now() < ends);
        let mut changes: Vec<String> = Vec::new();
        for agent in self.each.borrow_mut().iter_mut() {
            let new = agent.changed.take().unwrap_or_default();
            changes
                .extend(new.into_iter().filter(|one| !changes.contains(one)).collect::<Vec<_>>());
        }
        changes
    }

    /// Returns each agent's part of the result. `rate` is the sum of all agents' rates.
    pub(crate) fn parts(&self, merged: Parts, plan: &Plan, rate: Option<f64>) -> Vec<AgentPart> {
        let driven = if plan.is_open() { Loop::Open } else { Loop::Closed };
        let part = |(agent, merged): (&Agent, Option<Interval>)| {
            let task = &agent.task;
            let threads = task.first..task.first + task.count;
            let share = f64::from(task.count) / f64::from(task.threads);
            let asked_per_s = rate.map(|rate| rate * share);
            let merged = merged.map(|one| Interval { asked_per_s, ..one });
            AgentPart {
                name: agent.command.clone(),
                machine: agent.facts.as_ref().map(|one| one.machine.clone()).unwrap_or_default(),
                threads: task.count,
                connections: threads.map(|thread| task.part(thread, plan.connections)).sum(),
                round_trip_ns: agent.round_trip.map(ns),
                lost: agent.lost.clone(),
                verdict: merged.as_ref().map(|one| check::check(one, driven)).unwrap_or_default(),
                merged,
            }
        };
        self.each.borrow().iter().zip(merged.merged).map(part).collect()
    }

    fn send(&self, message: impl Fn(&Agent) -> ToAgent) {
        for agent in self.each.borrow_mut().iter_mut() {
            let message = message(agent);
            agent.send(message);
        }
    }

    /// Receives messages until all agents that are not lost have reached `phase`, or until Ctrl-C.
    /// If `phase` is before `Ended`, a failed agent ends the wait: the run needs every agent.
    fn wait_for(&self, stop: &AtomicBool, phase: Phase) {
        let is_vain = || phase < Phase::Ended && self.failed().is_some();
        self.wait(stop, |agent| agent.phase < phase && !is_vain());
    }

    /// Receives messages until `is_waiting` is false for all agents that are not lost, or until
    /// Ctrl-C.
    fn wait(&self, stop: &AtomicBool, is_waiting: impl Fn(&Agent) -> bool) {
        let is_any = || {
            let each = self.each.borrow();
            each.iter().any(|agent| agent.to.is_some() && is_waiting(agent))
        };
        // Relaxed: the flag guards no other data.
        while is_any() && !stop.load(Ordering::Relaxed) {
            self.take(TICK);
        }
    }

    /// Receives one message. Returns false if no message arrives within `patience`.
    fn take(&self, patience: Duration) -> bool {
        let Ok((nth, at, message)) = self.arrivals.recv_timeout(patience) else { return false };
        let mut each = self.each.borrow_mut();
        let Some(agent) = each.get_mut(nth) else { return true };
        match message {
            Ok(FromAgent::Epoch { epoch, .. }) if epoch > self.epoch.get() => {
                let why = format!("the agent sent counts of interval {epoch}, which has not begun");
                agent.lose(&why);
            }
            Ok(FromAgent::Epoch { epoch, .. }) if !agent.traffic.epochs.insert(epoch) => {
                agent.lose(&format!("the agent sent the counts of interval {epoch} twice"));
            }
            Ok(FromAgent::Epoch { epoch, tally, busiest, usage, seconds }) => {
                let part = Some(Part { agent: nth, busiest, usage: *usage, seconds });
                self.tallies.borrow_mut().push_back(EpochTally { epoch, tally: *tally, part });
            }
            Ok(message) => agent.receive(message, at),
            Err(why) => agent.lose(&why),
        }
        true
    }
}

impl WorkerGroup for &Agents {
    fn reporters(&self) -> u32 {
        u32::try_from(self.each.borrow().len()).unwrap_or(u32::MAX)
    }

    fn move_on(&self, epoch: u32) {
        self.epoch.set(epoch);
        self.send(|_| ToAgent::Epoch(epoch));
    }

    fn next(&self, patience: Duration) -> Option<EpochTally> {
        let ends = Instant::now() + patience;
        loop {
            // There is no wait if all agents have finished: `end` receives the remaining tallies.
            let handed = self.tallies.borrow_mut().pop_front();
            let left = ends.saturating_duration_since(Instant::now());
            if handed.is_some() || WorkerGroup::is_over(self) || !self.take(left) {
                return handed;
            }
        }
    }

    fn snapshot(&self) -> LiveSnapshot {
        let mut sum = LiveSnapshot::default();
        for agent in self.each.borrow_mut().iter_mut() {
            sum.add(&agent.traffic.snapshot);
            agent.traffic.snapshot.longest_ns = 0;
        }
        sum
    }

    fn is_unheard(&self) -> bool {
        self.each.borrow().iter().any(|agent| agent.traffic.is_unheard)
    }

    fn is_over(&self) -> bool {
        self.failed().is_some() || self.each.borrow().iter().all(|agent| agent.traffic.is_over)
    }

    fn end(&mut self) -> (Vec<EpochTally>, Option<RunError>) {
        self.send(|_| ToAgent::End);
        // Ctrl-C may be the reason for this call, so Ctrl-C is ignored here.
        self.wait_for(&AtomicBool::new(false), Phase::Ended);
        (self.tallies.borrow_mut().drain(..).collect(), self.failed())
    }
}

impl Agent {
    fn start(
        (name, command, is_quiet): (String, &str, bool),
        task: Task,
        (nth, arrivals): (usize, SyncSender<Arrival>),
    ) -> io::Result<Agent> {
        // The agent ignores Ctrl-C, because the controller still needs the agent's counts.
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("trap '' INT; {}", exec_text(command)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (to, messages) = mpsc::sync_channel(ORDERS_MAX);
        let (last, words) = mpsc::sync_channel(1);
        let piped = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = piped else {
            return Err(io::Error::other("cannot open pipes to the agent"));
        };
        let thread = || std::thread::Builder::new().name(format!("agent {}", nth + 1));
        thread().spawn(move || talk::write(&messages, stdin))?;
        let number = (!is_quiet).then_some(nth + 1);
        thread().spawn(move || pass_on(stderr, number, &last))?;
        thread().spawn(move || listen(Lines::new(stdout, GREETING_MAX), nth, &arrivals))?;
        Ok(Agent {
            name,
            command: command.to_owned(),
            task,
            child,
            to: Some(to),
            words,
            phase: Phase::Started,
            facts: None,
            traffic: TrafficState::default(),
            silent: None,
            changed: None,
            lost: None,
            go_sent: None,
            round_trip: None,
        })
    }

    /// If the queue is full, the agent does not read its messages, so the agent counts as lost.
    fn send(&mut self, message: ToAgent) {
        let sent = self.to.as_ref().map_or(Ok(()), |to| to.try_send(message));
        if let Err(TrySendError::Full(_)) = sent {
            self.lose("the agent does not read its standard input");
        }
    }

    fn receive(&mut self, message: FromAgent, at: Instant) {
        match message {
            FromAgent::Hello(version) if version != env!("CARGO_PKG_VERSION") => {
                let ours = env!("CARGO_PKG_VERSION");
                let theirs = talk::harmless(&version, 20);
                self.lose(&format!(
                    "the agent's version is {theirs}, but the version of this kvblaster is {ours}"
                ));
            }
            FromAgent::Hello(_) => self.phase = Phase::Greeted,
            FromAgent::Found(found) => {
                self.phase = Phase::Prepared;
                self.facts = Some(*found);
            }
            FromAgent::Refused(why) => {
                self.phase = Phase::Prepared;
                self.traffic.failed = Some(talk::harmless(&why, WORDS_CHARS_MAX));
            }
            FromAgent::Ready => self.phase = Phase::Ready,
            FromAgent::Gone => {
                self.round_trip = self.go_sent.map(|go_sent| at.duration_since(go_sent))
            }
            FromAgent::State { snapshot, is_unheard, is_over } => {
                if let Some(mut snapshot) = snapshot {
                    snapshot.longest_ns = snapshot.longest_ns.max(self.traffic.snapshot.longest_ns);
                    self.traffic.snapshot = snapshot;
                }
                (self.traffic.is_unheard, self.traffic.is_over) = (is_unheard, is_over);
            }
            FromAgent::Ended(why) => {
                (self.phase, self.traffic.is_over) = (Phase::Ended, true);
                let why = why.map(|why| talk::harmless(&why, WORDS_CHARS_MAX));
                self.traffic.failed = self.traffic.failed.take().or(why);
            }
            FromAgent::Silent(names) => self.silent = Some(all_harmless(&names)),
            FromAgent::Changed(changes) => self.changed = Some(all_harmless(&changes)),
            FromAgent::Epoch { .. } => {}
        }
    }

    /// Marks the agent as lost; an empty `why` means that the agent's output ended.
    fn lose(&mut self, why: &str) {
        if self.to.take().is_none() {
            return;
        }
        let status = if why.is_empty() { self.reap(END_MAX) } else { self.reap(Duration::ZERO) };
        let words = self.words.recv_timeout(END_MAX).unwrap_or_default();
        let why = match (why, status) {
            ("", Some(status)) => format!("the agent ended, {status}"),
            ("", None) => "the agent has closed its standard output".to_owned(),
            (why, _) => why.to_owned(),
        };
        let words = if words.is_empty() { words } else { format!("; its last output: {words}") };
        self.lost = Some(why + &words);
    }

    /// Waits for the process to end; after `patience`, kills the process and returns `None`.
    fn reap(&mut self, patience: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < patience {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(END_TICK);
        }
        // Errors are ignored, because the process may have ended meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

impl Drop for Agents {
    /// Ends the agents by closing their standard input.
    fn drop(&mut self) {
        let mut each = self.each.borrow_mut();
        each.iter_mut().for_each(|agent| drop(agent.to.take()));
        each.iter_mut().filter(|agent| agent.lost.is_none()).for_each(|agent| {
            agent.reap(END_MAX);
        });
    }
}

fn all_harmless(words: &[String]) -> Vec<String> {
    words.iter().map(|word| talk::harmless(word, WORDS_CHARS_MAX)).collect()
}

/// A channel without a queue, so that at most one message per agent is in memory.
fn arrival_channel() -> (SyncSender<Arrival>, Receiver<Arrival>) {
    mpsc::sync_channel(0)
}

/// Forwards an agent's messages, and finally the reason why no more messages come.
fn listen<F: AsFd>(mut lines: Lines<F>, nth: usize, arrivals: &SyncSender<Arrival>) {
    loop {
        let message = lines.next().and_then(|message| message.ok_or(String::new()));
        let is_last = message.is_err();
        if arrivals.send((nth, Instant::now(), message)).is_err() || is_last {
            return;
        }
    }
}

/// Copies an agent's standard error to that of this process, with the agent's `number` before each
/// line. If `number` is `None`, copies nothing. At the end, sends the last line to `last`.
fn pass_on(stderr: ChildStderr, number: Option<usize>, last: &SyncSender<String>) {
    let _ = last.send(copy_words(stderr, number, &mut io::stderr()));
}

/// Copies the lines of `stderr` to `to`, if `number` is given. Returns the last line.
fn copy_words(stderr: impl Read, number: Option<usize>, to: &mut impl Write) -> String {
    let (mut from, mut kept) = (BufReader::new(stderr), String::new());
    let mut line = Vec::new();
    while let Ok(1..) = from.by_ref().take(WORDS_BYTES_MAX).read_until(b'\n', &mut line) {
        let text = talk::harmless(&String::from_utf8_lossy(&line), WORDS_CHARS_MAX);
        if !text.is_empty() {
            let _ = number.map(|number| writeln!(to, "agent {number}: {text}"));
            kept = talk::excerpt(&line);
        }
        line.clear();
    }
    kept
}
