//! The agent: executes the controller's orders, sends requests to the servers, and reports tallies.
//!
//! Where: in `kvblaster agent`, whose standard input and output lead to the controller.
//! Invariant: the process and its threads end when standard input ends or the controller is silent
//! for too long, so no agent sends requests without a controller.

use super::parts;
use super::talk::{self, AgentFacts, FromAgent, Lines, MESSAGES_MAX, SILENCE_MAX, ToAgent};
use crate::flags::exit::Exit;
use crate::measure::schedule::{Collector, MergedTally};
use crate::measure::watch::{Moment, Usage, Watch};
use crate::result::machine::Machine;
use crate::run::context::RunContext;
use crate::run::prepare::has_cpus;
use crate::run::servers::Servers;
use crate::run::task::{Task, WorkerGroup};
use crate::run::workers::Threads;
use crate::words::values::{cpus, or};
use crate::workload::{Names, SentFiles, Workload};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

const STATE_EVERY: Duration = Duration::from_millis(250);
/// Interval at which the agent checks for connected threads, tallies and ended threads.
const TICK: Duration = Duration::from_millis(5);

/// The flags of `kvblaster agent`: the CPUs of its threads.
#[derive(Debug, clap::Args)]
pub struct HostFlags {
    /// CPUs to which the sending threads are pinned: the first thread to the first CPU of the list,
    /// and so on
    #[arg(long, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    cpus: std::vec::Vec<usize>,
    /// Receive answers on separate threads, pinned to these CPUs
    #[arg(long, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    receive_cpus: std::vec::Vec<usize>,
}

/// Executes a controller's orders until there are no more. Fails if a thread cannot be started, or
/// the controller no longer reads the agent's messages.
pub fn run(flags: &HostFlags) -> Result<(), String> {
    let (to, messages) = mpsc::sync_channel(MESSAGES_MAX);
    let (sender, orders) = mpsc::sync_channel(0);
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let writing = thread("write").spawn(move || talk::write(&messages, io::stdout()));
    let reading = thread("read").spawn(move || {
        let mut lines = Lines::new(io::stdin(), SILENCE_MAX);
        loop {
            match lines.next() {
                Ok(Some(message)) => {
                    // Sending fails only if the agent is already ending.
                    let _ = sender.send(message);
                }
                Ok(None) => std::process::exit(0),
                Err(why) => {
                    let _ = writeln!(
                        io::stderr(),
                        "kvblaster agent: cannot read the messages of the kvblaster that controls \
                         this agent: {why}"
                    );
                    std::process::exit(Exit::Failed as i32);
                }
            }
        }
    });
    writing.and(reading).map_err(|error| error.to_string())?;
    let mut agent = Agent { flags, to, context: None, work: None };
    agent.say(FromAgent::Hello(env!("CARGO_PKG_VERSION").to_owned()))?;
    loop {
        match orders.recv_timeout(if agent.work.is_some() { TICK } else { STATE_EVERY }) {
            Ok(order) => agent.obey(order)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        agent.look()?;
    }
}

struct Agent<'p> {
    flags: &'p HostFlags,
    to: SyncSender<FromAgent>,
    context: Option<(Task, RunContext, Watch)>,
    work: Option<Work>,
}

struct Work {
    threads: Threads,
    is_watched: bool,
    is_ready: bool,
    is_ending: bool,
    collector: Collector,
    epoch: u32,
    moment: Moment,
    /// CPU use and length in seconds of each epoch whose tally was not sent yet.
    usages: BTreeMap<u32, (Usage, f64)>,
    last_state: Instant,
    was_over: bool,
}

impl Work {
    fn move_on(&mut self, epoch: u32, watch: &Watch) {
        let now = watch.moment();
        self.usages.insert(self.epoch, self.taken(&now));
        (self.moment, self.epoch) = (now, epoch);
    }

    fn taken(&self, now: &Moment) -> (Usage, f64) {
        (now.since(&self.moment), now.seconds_since(&self.moment))
    }

    fn handed(&mut self, (epoch, all): (u32, MergedTally), watch: &Watch) -> FromAgent {
        // If all threads finish before the epoch ends, their tallies arrive when `usages` has no
        // entry for the epoch yet.
        let taken = self.usages.remove(&epoch);
        let (usage, seconds) = taken.unwrap_or_else(|| self.taken(&watch.moment()));
        let usage = Box::new(usage);
        FromAgent::Epoch { epoch, tally: Box::new(all.tally), busiest: all.busiest, usage, seconds }
    }
}

impl Agent<'_> {
    /// Fails if the controller is gone; this error ends the agent.
    fn say(&self, message: FromAgent) -> Result<(), String> {
        let why = "the kvblaster that controls this agent no longer reads the agent's messages";
        self.to.send(message).map_err(|_| why.to_owned())
    }

    fn obey(&mut self, order: ToAgent) -> Result<(), String> {
        match (order, &self.context, &mut self.work) {
            (ToAgent::Task(task, workload, files), ..) => {
                match self.prepare(*task, &workload, &files) {
                    Ok(found) => self.say(FromAgent::Found(Box::new(found))),
                    Err(why) => self.say(FromAgent::Refused(why)),
                }
            }
            (ToAgent::Start { mode, pace, is_watched }, Some((task, context, watch)), None) => {
                let started = Threads::start(task, context, (mode, pace), is_watched);
                let threads = match started {
                    Ok(threads) => threads,
                    Err(error) => {
                        let why = format!("cannot start a thread: {error}");
                        return self.say(FromAgent::Ended(Some(why)));
                    }
                };
                self.work = Some(Work {
                    collector: Collector::new(threads.reporters()),
                    threads,
                    is_watched,
                    is_ready: false,
                    is_ending: false,
                    epoch: 0,
                    moment: watch.moment(),
                    usages: BTreeMap::new(),
                    last_state: Instant::now(),
                    was_over: false,
                });
                Ok(())
            }
            (ToAgent::Go, Some((_, _, watch)), Some(work)) => {
                work.threads.go();
                work.moment = watch.moment();
                self.say(FromAgent::Gone)
            }
            (ToAgent::Epoch(epoch), Some((_, _, watch)), Some(work)) => {
                work.threads.move_on(epoch);
                work.move_on(epoch, watch);
                Ok(())
            }
            (ToAgent::End, _, Some(work)) => {
                work.threads.stop();
                work.is_ending = true;
                Ok(())
            }
            (ToAgent::Ask, Some((_, context, _)), _) => {
                self.say(FromAgent::Silent(context.servers.silent()))
            }
            (ToAgent::Compare, Some((_, context, _)), _) => {
                self.say(FromAgent::Changed(context.servers.changed()))
            }
            // Ignores orders for work that did not begin or has ended: the controller was told.
            _ => Ok(()),
        }
    }

    fn prepare(&mut self, task: Task, toml: &str, files: &SentFiles) -> Result<AgentFacts, String> {
        let task = Task {
            cpus: self.flags.cpus.clone(),
            receive_cpus: self.flags.receive_cpus.clone(),
            ..task
        };
        if task.spin && !task.receive_cpus.is_empty() {
            return Err("--spin: not possible for an agent with --receive-cpus".to_owned());
        }
        let cpus: [(_, &[usize]); 2] = [("cpus", &task.cpus), ("receive-cpus", &task.receive_cpus)];
        has_cpus(&cpus).map_err(|error| error.to_string())?;
        let workload = sent_workload(toml, files)?;
        let servers = Servers::find(&task.targets, task.family, task.protocol, task.steered);
        let servers = servers.map_err(|error| error.to_string())?;
        let found = AgentFacts {
            targets: servers.targets.to_vec(),
            infos: servers.infos.clone(),
            protocol: servers.protocol,
            machine: Machine::here(),
            host: parts::this_host(),
        };
        let watch = Watch::new(servers.targets.iter().map(|target| &target.place), &[]);
        let workload = Arc::new(workload);
        let names = Names::new(&workload);
        let (stop, report_requested) = (Arc::default(), Arc::default());
        let (agents, stored) = (None, Cell::new(0));
        let context =
            RunContext { servers, workload, names, agents, stop, report_requested, stored };
        self.context = Some((task, context, watch));
        Ok(found)
    }

    /// Sends the controller all changes since the last call.
    fn look(&mut self) -> Result<(), String> {
        let (Some(work), Some((_, _, watch))) = (&mut self.work, &self.context) else {
            return Ok(());
        };
        let is_new = !work.is_ready && work.threads.is_ready();
        work.is_ready |= is_new;
        let mut say = vec![];
        say.extend(is_new.then_some(FromAgent::Ready));
        // `is_over` is read first, so that the loop receives all tallies if all threads have ended.
        let is_over = work.threads.is_over();
        while let Some(one) = work.threads.next(Duration::ZERO) {
            if let Some(whole) = work.collector.take(one.epoch, &one.tally) {
                say.push(work.handed(whole, watch));
            }
        }
        if work.last_state.elapsed() >= STATE_EVERY || is_over != work.was_over {
            (work.last_state, work.was_over) = (Instant::now(), is_over);
            let snapshot = work.is_watched.then(|| work.threads.snapshot());
            let is_unheard = work.threads.is_unheard();
            say.push(FromAgent::State { snapshot, is_unheard, is_over });
        }
        let is_finished = is_over && (work.is_ending || work.threads.has_failed());
        say.into_iter().try_for_each(|message| self.say(message))?;
        if is_finished { self.finish() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), String> {
        let (Some(mut work), Some((_, _, watch))) = (self.work.take(), &self.context) else {
            return Ok(());
        };
        work.move_on(work.epoch + 1, watch);
        let (rest, failed) = work.threads.end();
        let collector = &mut work.collector;
        let last: Vec<_> =
            rest.into_iter().filter_map(|one| collector.take(one.epoch, &one.tally)).collect();
        let collector = std::mem::replace(collector, Collector::new(0));
        for whole in last.into_iter().chain(collector.rest()) {
            self.say(work.handed(whole, watch))?;
        }
        self.say(FromAgent::Ended(failed.map(|error| error.to_string())))
    }
}

/// Reads the workload and the files that the controller sent. Fails if a file changed after the
/// controller had computed the checksum in the workload's text.
fn sent_workload(toml: &str, files: &SentFiles) -> Result<Workload, String> {
    let workload = Workload::from_sent(toml, files).map_err(|error| error.to_string())?;
    let (theirs, ours) = (toml.lines(), workload.to_toml());
    match theirs.zip(ours.lines()).find(|(theirs, ours)| theirs != ours) {
        None => Ok(workload),
        Some((theirs, _)) => Err(format!(
            "the workload that the agent received does not match the files that it received: did \
             a file change while kvblaster started? The first difference: {}",
            theirs.trim_start_matches("# ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_changed_after_it_was_read_is_named() {
        let name = format!("kvblaster-changed-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "10 1\n").unwrap();
        let mut workload = Workload::default();
        workload.set("value-size", &format!("file:{}", path.display())).unwrap();
        let toml = workload.to_toml();
        let ours = SentFiles::read(&workload).unwrap();
        fs::write(&path, "20 1\n").unwrap();
        let changed = SentFiles::read(&workload).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(sent_workload(&toml, &ours).unwrap().to_toml(), toml);
        let why = sent_workload(&toml, &changed).unwrap_err();
        assert!(
            why.contains("did a file change") && why.contains(": md5 of value-size's"),
            "{why}"
        );
    }
}
