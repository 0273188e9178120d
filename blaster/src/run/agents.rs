//! Several generators: processes that drive in place of this one, wherever a command reaches.
//!
//! ```text
//! course -> Crew -> Agents ==stdin/stdout of `ssh HOST kvblaster agent`==> host -> Threads
//! ```
//!
//! Where: behind `Crew`.
//! Invariant: whatever an agent does or fails to do, the controller goes on or names the agent; no
//! agent outlives the controller, because its standard input ends.
//! Source: the paper's section 5.2: traffic generators and their controller.

mod host;
pub(crate) mod parts;
mod talk;
#[cfg(test)]
mod tests;

pub use host::{Place, run as host};
pub(crate) use parts::{Part, Parts};

use super::crew::{Handed, Hands, Task};
use super::servers::Servers;
use super::{Plan, RunError, live};
use crate::drive::pulse::Sight;
use crate::drive::{Mode, Pace};
use crate::launch::becoming;
use crate::measure::Interval;
use crate::measure::check::{self, Loop};
use crate::result::agent::AgentPart;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};
use talk::{Found, FromAgent, Lines, ORDERS_MAX, SILENCE_MAX, ToAgent};

/// Most agents of one run.
pub const AGENTS_MAX: usize = 256;
/// Time that a command has until its agent greets, for connecting and logging in.
const GREETING_MAX: Duration = Duration::from_secs(10);
/// Silence before the greeting after which the agent is named to the user.
const NAMED_AFTER: Duration = Duration::from_secs(2);
/// Time between two looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(100);
/// Time that a process has to end once it is no longer wanted, and its last words to arrive.
const END_MAX: Duration = Duration::from_secs(2);
/// Time between two looks whether a process has ended.
const END_TICK: Duration = Duration::from_millis(2);
/// Most bytes of a line of an agent's standard error that is passed on whole.
const WORDS_BYTES_MAX: u64 = 4096;
/// Most characters shown of such a line, or of an agent's reason for a failure.
const WORDS_CHARS_MAX: usize = 4096;

/// Checks that each agent has something to do.
///
/// # Errors
/// Options contradict each other.
pub(crate) fn check(plan: &mut Plan) -> Result<(), String> {
    let agents = u32::try_from(plan.agents.len()).unwrap_or(u32::MAX);
    if agents as usize > AGENTS_MAX {
        return Err(format!("--agent: more than {AGENTS_MAX}"));
    }
    if agents > 0 && !(plan.cpus.is_empty() && plan.receive_cpus.is_empty()) {
        let why = "--cpus: of which machine? Give it to the agents: 'kvblaster agent --cpus 0-3'";
        return Err(why.to_owned());
    }
    if plan.agents.iter().any(|command| command.trim().is_empty()) {
        return Err("--agent: which command? For instance 'ssh HOST kvblaster agent'".to_owned());
    }
    if plan.threads < agents {
        if plan.given.iter().any(|given| given.long == "threads") {
            let why = "is the number of all agents' threads together: give one at least to each";
            return Err(format!("--threads {}: {why}", plan.threads));
        }
        plan.threads = agents;
    }
    Ok(())
}

#[derive(Debug)]
pub(crate) struct Agents {
    each: RefCell<Vec<Agent>>,
    mail: Receiver<Mail>,
    handed: RefCell<VecDeque<Handed>>,
    epoch: Cell<u32>,
}

/// The agent, the time of arrival, and the message; or the reason why no more will come.
type Mail = (usize, Instant, Result<FromAgent, String>);

#[derive(Debug)]
struct Agent {
    /// The agent's name in errors.
    name: String,
    command: String,
    task: Task,
    child: Child,
    /// The queue of messages to it; none once it is lost.
    to: Option<SyncSender<ToAgent>>,
    /// The last line of its standard error, sent when that ends.
    words: Receiver<String>,
    phase: Phase,
    found: Option<Found>,
    said: Said,
    /// The servers that do not answer it, once it was asked and has replied.
    silent: Option<Vec<String>>,
    /// The servers that went away or were restarted, likewise.
    changed: Option<Vec<String>>,
    lost: Option<String>,
    /// The time at which `Go` was sent; `round_trip` is the time until `Gone` came.
    went: Option<Instant>,
    round_trip: Option<Duration>,
}

/// An agent's messages about the traffic under way.
#[derive(Debug, Default)]
struct Said {
    epochs: BTreeSet<u32>,
    is_unheard: bool,
    is_over: bool,
    sight: Sight,
    /// The reason why it did not do its task, though it still speaks.
    failed: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Phase {
    Started,
    Greeted,
    /// It has found the servers, or cannot do its share.
    Prepared,
    /// Its threads have connected.
    Ready,
    Ended,
}

impl Agents {
    /// Starts the plan's agents and gives each its share; the servers are those that the first
    /// sees.
    ///
    /// # Errors
    /// One does not start, is another version, or cannot do its share; or Ctrl-C.
    pub(crate) fn gather(plan: &Plan, stop: &AtomicBool) -> Result<(Agents, Servers), RunError> {
        let (sender, mail) = mailbox();
        let count = u32::try_from(plan.agents.len()).unwrap_or(u32::MAX);
        let agents = Agents {
            each: RefCell::default(),
            mail,
            handed: RefCell::default(),
            epoch: Cell::new(0),
        };
        for (nth, command) in (0..count).zip(&plan.agents) {
            let name = format!("agent {} ({command})", nth + 1);
            let task = Task::of(plan).share(nth, count);
            let mail = (nth as usize, sender.clone());
            let agent = Agent::start((name.clone(), command, plan.quiet), task, mail);
            let agent = agent.map_err(|error| RunError::Agent(name, error.to_string()))?;
            agents.each.borrow_mut().push(agent);
        }
        agents.name_silent(plan, stop);
        agents.begun(stop, Phase::Greeted)?;
        let workload = plan.workload.to_toml();
        agents.send(|agent| ToAgent::Task(Box::new(agent.task.clone()), workload.clone()));
        agents.begun(stop, Phase::Prepared)?;
        let servers = agents.each.borrow_mut().iter_mut().find_map(|agent| {
            let Found { targets, said, speech, .. } = agent.found.as_ref()?;
            Some(Servers::known(targets.clone(), said.clone(), *speech))
        });
        let servers = servers.ok_or(RunError::Stopped)?;
        Ok((agents, servers))
    }

    /// Waits a while for greetings, and then names the agents whose greeting has not come.
    fn name_silent(&self, plan: &Plan, stop: &AtomicBool) {
        let ends = Instant::now() + NAMED_AFTER;
        let is_silent = |agent: &Agent| agent.to.is_some() && agent.phase < Phase::Greeted;
        self.wait(stop, |agent| is_silent(agent) && Instant::now() < ends);
        for agent in self.each.borrow().iter().filter(|agent| is_silent(agent)) {
            let told = format!(
                "{} has said nothing for {} s; it is waited for {} s in all",
                agent.name,
                NAMED_AFTER.as_secs(),
                GREETING_MAX.as_secs()
            );
            live::tell(plan, &told);
        }
    }

    /// Waits until all agents have reached `phase`; fails if one cannot do its share.
    fn begun(&self, stop: &AtomicBool, phase: Phase) -> Result<(), RunError> {
        self.until(stop, phase);
        if let Some(failed) = self.failed() {
            return Err(failed);
        }
        // Relaxed: a flag by itself.
        if stop.load(Ordering::Relaxed) { Err(RunError::Stopped) } else { Ok(()) }
    }

    /// The first agent that is lost or could not do its task, and why.
    fn failed(&self) -> Option<RunError> {
        self.each.borrow().iter().find_map(|agent| {
            let why = agent.lost.as_ref().or(agent.said.failed.as_ref())?;
            Some(RunError::Agent(agent.name.clone(), why.clone()))
        })
    }

    /// Has all agents connect for `pace`, and lets them begin together.
    pub(crate) fn start(&self, (mode, pace): (Mode, Pace), is_watched: bool, stop: &AtomicBool) {
        for agent in self.each.borrow_mut().iter_mut() {
            (agent.phase, agent.said) = (Phase::Prepared, Said::default());
        }
        self.epoch.set(0);
        self.send(|_| ToAgent::Start { mode, pace, is_watched });
        self.until(stop, Phase::Ready);
        for agent in self.each.borrow_mut().iter_mut() {
            agent.went = Some(Instant::now());
            agent.send(ToAgent::Go);
        }
    }

    fn hosts(&self) -> Vec<String> {
        let host = |agent: &Agent| agent.found.as_ref().map(|found| found.host.clone());
        self.each.borrow().iter().map(|agent| host(agent).unwrap_or_default()).collect()
    }

    pub(crate) fn is_one_lost(&self) -> bool {
        self.each.borrow().iter().any(|agent| agent.lost.is_some())
    }

    /// The servers that do not answer each agent, by its number; all of them for an agent that has
    /// heard nothing.
    pub(crate) fn silent(&self, servers: &Servers, stop: &AtomicBool) -> Vec<(u32, Vec<String>)> {
        self.send(|_| ToAgent::Ask);
        let ends = Instant::now() + SILENCE_MAX;
        self.wait(stop, |agent| agent.silent.is_none() && Instant::now() < ends);
        let silent = |(number, agent): (u32, &mut Agent)| {
            let silent = agent.silent.take()?;
            let is_deaf = silent.is_empty() && agent.said.is_unheard;
            Some((number, if is_deaf { servers.names() } else { silent }))
        };
        (1..).zip(self.each.borrow_mut().iter_mut()).filter_map(silent).collect()
    }

    /// Describes each server that an agent saw go away or be restarted.
    pub(crate) fn changed(&self) -> Vec<String> {
        self.send(|_| ToAgent::Compare);
        let ends = Instant::now() + SILENCE_MAX;
        // Ctrl-C may be the reason for this call, so it is not obeyed here.
        let stop = AtomicBool::new(false);
        self.wait(&stop, |agent| agent.changed.is_none() && Instant::now() < ends);
        let mut told: Vec<String> = Vec::new();
        for agent in self.each.borrow_mut().iter_mut() {
            let new = agent.changed.take().unwrap_or_default();
            told.extend(new.into_iter().filter(|one| !told.contains(one)).collect::<Vec<_>>());
        }
        told
    }

    /// The part of each agent; `rate` was asked of all together.
    pub(crate) fn told(&self, merged: Parts, plan: &Plan, rate: Option<f64>) -> Vec<AgentPart> {
        let driven = if plan.is_open() { Loop::Open } else { Loop::Closed };
        let part = |(agent, merged): (&Agent, Option<Interval>)| {
            let task = &agent.task;
            let threads = task.first..task.first + task.count;
            let share = f64::from(task.count) / f64::from(task.threads);
            let asked_per_s = rate.map(|rate| rate * share);
            let merged = merged.map(|one| Interval { asked_per_s, ..one });
            let ns = |span: Duration| u64::try_from(span.as_nanos()).ok();
            AgentPart {
                name: agent.command.clone(),
                machine: agent.found.as_ref().map(|one| one.machine.clone()).unwrap_or_default(),
                threads: task.count,
                connections: threads.map(|thread| task.part(thread, plan.connections)).sum(),
                round_trip_ns: agent.round_trip.and_then(ns),
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

    /// Takes mail until all agents that are not lost have reached `phase`, or Ctrl-C. For a phase
    /// before the end, one failed agent ends the waiting: nothing begins without it.
    fn until(&self, stop: &AtomicBool, phase: Phase) {
        let is_vain = || phase < Phase::Ended && self.failed().is_some();
        self.wait(stop, |agent| agent.phase < phase && !is_vain());
    }

    /// Takes mail while any agent that is not lost `is_waiting`, or until Ctrl-C.
    fn wait(&self, stop: &AtomicBool, is_waiting: impl Fn(&Agent) -> bool) {
        let is_any = || {
            let each = self.each.borrow();
            each.iter().any(|agent| agent.to.is_some() && is_waiting(agent))
        };
        // Relaxed: a flag by itself.
        while is_any() && !stop.load(Ordering::Relaxed) {
            self.take(TICK);
        }
    }

    /// Takes one message that comes within `patience`; false if none does.
    fn take(&self, patience: Duration) -> bool {
        let Ok((nth, at, message)) = self.mail.recv_timeout(patience) else { return false };
        let mut each = self.each.borrow_mut();
        let Some(agent) = each.get_mut(nth) else { return true };
        match message {
            Ok(FromAgent::Epoch { epoch, .. }) if epoch > self.epoch.get() => {
                agent.lose(&format!("it tells of epoch {epoch}, which is yet to come"));
            }
            Ok(FromAgent::Epoch { epoch, .. }) if !agent.said.epochs.insert(epoch) => {
                agent.lose(&format!("it tells of epoch {epoch} twice"));
            }
            Ok(FromAgent::Epoch { epoch, tally, busiest, usage, seconds }) => {
                let part = Some(Part { agent: nth, busiest, usage: *usage, seconds });
                self.handed.borrow_mut().push_back(Handed { epoch, tally: *tally, part });
            }
            Ok(message) => agent.hear(message, at),
            Err(why) => agent.lose(&why),
        }
        true
    }
}

impl Hands for &Agents {
    fn reporters(&self) -> u32 {
        u32::try_from(self.each.borrow().len()).unwrap_or(u32::MAX)
    }

    fn move_on(&self, epoch: u32) {
        self.epoch.set(epoch);
        self.send(|_| ToAgent::Epoch(epoch));
    }

    fn next(&self, patience: Duration) -> Option<Handed> {
        let ends = Instant::now() + patience;
        loop {
            // Agents that are over are not waited for: `end` takes the rest.
            let handed = self.handed.borrow_mut().pop_front();
            let left = ends.saturating_duration_since(Instant::now());
            if handed.is_some() || Hands::is_over(self) || !self.take(left) {
                return handed;
            }
        }
    }

    fn sight(&self) -> Sight {
        let mut sum = Sight::default();
        for agent in self.each.borrow_mut().iter_mut() {
            sum.add(&agent.said.sight);
            agent.said.sight.longest_ns = 0;
        }
        sum
    }

    fn is_unheard(&self) -> bool {
        self.each.borrow().iter().any(|agent| agent.said.is_unheard)
    }

    fn is_over(&self) -> bool {
        self.failed().is_some() || self.each.borrow().iter().all(|agent| agent.said.is_over)
    }

    fn end(&mut self) -> (Vec<Handed>, Option<RunError>) {
        self.send(|_| ToAgent::End);
        // Ctrl-C may be the reason for this call, so it is not obeyed here.
        self.until(&AtomicBool::new(false), Phase::Ended);
        (self.handed.borrow_mut().drain(..).collect(), self.failed())
    }
}

impl Agent {
    fn start(
        (name, command, is_quiet): (String, &str, bool),
        task: Task,
        (nth, mail): (usize, SyncSender<Mail>),
    ) -> io::Result<Agent> {
        // The agent ignores Ctrl-C: the controller still wants its counts.
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("trap '' INT; {}", becoming(command)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (to, messages) = mpsc::sync_channel(ORDERS_MAX);
        let (last, words) = mpsc::sync_channel(1);
        let piped = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = piped else {
            return Err(io::Error::other("no pipes"));
        };
        let thread = || std::thread::Builder::new().name(format!("agent {}", nth + 1));
        thread().spawn(move || talk::write(&messages, stdin))?;
        let number = (!is_quiet).then_some(nth + 1);
        thread().spawn(move || pass_on(stderr, number, &last))?;
        thread().spawn(move || listen(Lines::new(stdout, GREETING_MAX), nth, &mail))?;
        Ok(Agent {
            name,
            command: command.to_owned(),
            task,
            child,
            to: Some(to),
            words,
            phase: Phase::Started,
            found: None,
            said: Said::default(),
            silent: None,
            changed: None,
            lost: None,
            went: None,
            round_trip: None,
        })
    }

    /// Sends a message. An agent whose queue is full does not read, so it is lost.
    fn send(&mut self, message: ToAgent) {
        let sent = self.to.as_ref().map_or(Ok(()), |to| to.try_send(message));
        if let Err(TrySendError::Full(_)) = sent {
            self.lose("it does not read what it is told");
        }
    }

    fn hear(&mut self, message: FromAgent, at: Instant) {
        match message {
            FromAgent::Hello(version) if version != env!("CARGO_PKG_VERSION") => {
                let ours = env!("CARGO_PKG_VERSION");
                let theirs = talk::harmless(&version, 20);
                self.lose(&format!("it is kvblaster {theirs}, and this is {ours}"));
            }
            FromAgent::Hello(_) => self.phase = Phase::Greeted,
            FromAgent::Found(found) => {
                self.phase = Phase::Prepared;
                self.found = Some(*found);
            }
            FromAgent::Refused(why) => {
                self.phase = Phase::Prepared;
                self.said.failed = Some(talk::harmless(&why, WORDS_CHARS_MAX));
            }
            FromAgent::Ready => self.phase = Phase::Ready,
            FromAgent::Gone => self.round_trip = self.went.map(|went| at.duration_since(went)),
            FromAgent::State { sight, is_unheard, is_over } => {
                if let Some(mut sight) = sight {
                    sight.longest_ns = sight.longest_ns.max(self.said.sight.longest_ns);
                    self.said.sight = sight;
                }
                (self.said.is_unheard, self.said.is_over) = (is_unheard, is_over);
            }
            FromAgent::Ended(why) => {
                (self.phase, self.said.is_over) = (Phase::Ended, true);
                let why = why.map(|why| talk::harmless(&why, WORDS_CHARS_MAX));
                self.said.failed = self.said.failed.take().or(why);
            }
            FromAgent::Silent(names) => self.silent = Some(all_harmless(&names)),
            FromAgent::Changed(told) => self.changed = Some(all_harmless(&told)),
            FromAgent::Epoch { .. } => {}
        }
    }

    /// Gives the agent up because of `why`, or because its output ended if that is empty.
    fn lose(&mut self, why: &str) {
        if self.to.take().is_none() {
            return;
        }
        // An agent that misbehaves is not waited for.
        let status = if why.is_empty() { self.reap(END_MAX) } else { self.reap(Duration::ZERO) };
        let words = self.words.recv_timeout(END_MAX).unwrap_or_default();
        let why = match (why, status) {
            ("", Some(status)) => format!("it ended, {status}"),
            ("", None) => "it has closed its standard output".to_owned(),
            (why, _) => why.to_owned(),
        };
        let words = if words.is_empty() { words } else { format!("; its last words: {words}") };
        self.lost = Some(why + &words);
    }

    /// Waits for the process to end, and kills it after `patience`; its status if it ended itself.
    fn reap(&mut self, patience: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < patience {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(END_TICK);
        }
        // It may have ended meanwhile, so errors are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

impl Drop for Agents {
    /// Ends the agents by ending their standard input.
    fn drop(&mut self) {
        let mut each = self.each.borrow_mut();
        each.iter_mut().for_each(|agent| drop(agent.to.take()));
        each.iter_mut().filter(|agent| agent.lost.is_none()).for_each(|agent| {
            agent.reap(END_MAX);
        });
    }
}

/// Escapes an agent's words for display.
fn all_harmless(words: &[String]) -> Vec<String> {
    words.iter().map(|word| talk::harmless(word, WORDS_CHARS_MAX)).collect()
}

/// Makes the channel for agents' messages. It has no queue: one message of each agent waits, of
/// `LINE_BYTES_MAX` at most, and the agent behind it.
fn mailbox() -> (SyncSender<Mail>, Receiver<Mail>) {
    mpsc::sync_channel(0)
}

/// Forwards an agent's messages, and at last the reason why there are no more.
fn listen<F: AsFd>(mut lines: Lines<F>, nth: usize, mail: &SyncSender<Mail>) {
    loop {
        let message = lines.next().and_then(|message| message.ok_or(String::new()));
        let is_last = message.is_err();
        // The receiver is gone: nobody wants the message.
        if mail.send((nth, Instant::now(), message)).is_err() || is_last {
            return;
        }
    }
}

/// Passes standard error on line by line, marked with the agent's `number` unless none, and sends
/// the last line to `last`.
fn pass_on(stderr: ChildStderr, number: Option<usize>, last: &SyncSender<String>) {
    let _ = last.send(copy_words(stderr, number, &mut io::stderr()));
}

/// Like `pass_on`, but to any writer; returns the last line.
fn copy_words(stderr: impl Read, number: Option<usize>, to: &mut impl Write) -> String {
    let (mut from, mut kept) = (BufReader::new(stderr), String::new());
    let mut line = Vec::new();
    while let Ok(1..) = from.by_ref().take(WORDS_BYTES_MAX).read_until(b'\n', &mut line) {
        let text = talk::harmless(&String::from_utf8_lossy(&line), WORDS_CHARS_MAX);
        if !text.is_empty() {
            let _ = number.map(|number| writeln!(to, "agent {number}: {text}"));
            kept = talk::told(&line);
        }
        line.clear();
    }
    kept
}
