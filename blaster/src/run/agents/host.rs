//! The agent: does its share at the controller's order, and reports the result.
//!
//! Where: `kvblaster agent`, at the other end of the pipe.
//! Invariant: it ends with all its threads as soon as its standard input ends or the controller
//! falls silent, so no agent goes on driving a server unsupervised.

use super::parts;
use super::talk::{self, Found, FromAgent, Lines, SILENCE_MAX, TOLD_MAX, ToAgent};
use crate::exit::Exit;
use crate::flags::{cpus, or};
use crate::measure::schedule::{Collector, Merged};
use crate::measure::watch::{Moment, Usage, Watch};
use crate::result::machine::Machine;
use crate::run::crew::{Ground, Hands, Task, Threads};
use crate::run::servers::Servers;
use crate::workload::{Names, Workload, WorkloadError};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// Time between two reports of progress.
const STATE_EVERY: Duration = Duration::from_millis(250);
/// Time between two looks whether threads have connected, handed over or ended.
const TICK: Duration = Duration::from_millis(5);

/// Where an agent runs.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// CPUs the threads are pinned to, in turn
    #[arg(long, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    cpus: std::vec::Vec<usize>,
    /// Receive on threads of their own, pinned to these CPUs
    #[arg(long, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    receive_cpus: std::vec::Vec<usize>,
}

/// Serves a controller until it has no more orders.
///
/// # Errors
/// A message is not a controller's, or none comes.
pub fn run(place: &Place) -> Result<(), String> {
    let (to, messages) = mpsc::sync_channel(TOLD_MAX);
    let (sender, orders) = mpsc::sync_channel(0);
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let writing = thread("write").spawn(move || talk::write(&messages, io::stdout()));
    let reading = thread("read").spawn(move || {
        let mut lines = Lines::new(io::stdin(), SILENCE_MAX);
        loop {
            match lines.next() {
                Ok(Some(message)) => {
                    // If the receiver is gone, the agent is ending anyway.
                    let _ = sender.send(message);
                }
                Ok(None) => std::process::exit(0),
                Err(why) => {
                    let _ = writeln!(io::stderr(), "kvblaster agent: the controller: {why}");
                    std::process::exit(Exit::CouldNot as i32);
                }
            }
        }
    });
    writing.and(reading).map_err(|error| error.to_string())?;
    let mut agent = Agent { place, to, ground: None, work: None };
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
    place: &'p Place,
    to: SyncSender<FromAgent>,
    ground: Option<(Task, Ground, Watch)>,
    work: Option<Work>,
}

struct Work {
    threads: Threads,
    is_watched: bool,
    is_ready: bool,
    is_ending: bool,
    mail: Collector,
    epoch: u32,
    /// The start of the epoch; below, the usage of epochs that are not handed over yet.
    moment: Moment,
    usages: BTreeMap<u32, (Usage, f64)>,
    told: Instant,
    was_over: bool,
}

impl Work {
    fn move_on(&mut self, epoch: u32, watch: &Watch) {
        let now = watch.moment();
        self.usages.insert(self.epoch, self.taken(&now));
        (self.moment, self.epoch) = (now, epoch);
    }

    /// The usage since the epoch began, and its length in seconds.
    fn taken(&self, now: &Moment) -> (Usage, f64) {
        (now.since(&self.moment), now.seconds_since(&self.moment))
    }

    fn handed(&mut self, (epoch, all): (u32, Merged), watch: &Watch) -> FromAgent {
        // Threads that are done hand over before the epoch ends.
        let taken = self.usages.remove(&epoch);
        let (usage, seconds) = taken.unwrap_or_else(|| self.taken(&watch.moment()));
        let usage = Box::new(usage);
        FromAgent::Epoch { epoch, tally: Box::new(all.tally), busiest: all.busiest, usage, seconds }
    }
}

impl Agent<'_> {
    /// Sends a message. Without a listener the agent has no more to do.
    fn say(&self, message: FromAgent) -> Result<(), String> {
        self.to.send(message).map_err(|_| "the controller does not listen".to_owned())
    }

    fn obey(&mut self, order: ToAgent) -> Result<(), String> {
        match (order, &self.ground, &mut self.work) {
            (ToAgent::Task(task, workload), ..) => match self.prepare(*task, &workload) {
                Ok(found) => self.say(FromAgent::Found(Box::new(found))),
                Err(why) => self.say(FromAgent::Refused(why)),
            },
            (ToAgent::Start { mode, pace, is_watched }, Some((task, ground, watch)), None) => {
                let started = Threads::start(task, ground, (mode, pace), is_watched);
                let threads = match started {
                    Ok(threads) => threads,
                    Err(error) => {
                        return self.say(FromAgent::Ended(Some(format!("no thread: {error}"))));
                    }
                };
                self.work = Some(Work {
                    mail: Collector::new(threads.reporters()),
                    threads,
                    is_watched,
                    is_ready: false,
                    is_ending: false,
                    epoch: 0,
                    moment: watch.moment(),
                    usages: BTreeMap::new(),
                    told: Instant::now(),
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
            (ToAgent::Ask, Some((_, ground, _)), _) => {
                self.say(FromAgent::Silent(ground.servers.silent()))
            }
            (ToAgent::Compare, Some((_, ground, _)), _) => {
                self.say(FromAgent::Changed(ground.servers.changed()))
            }
            // The work could not begin, or is over already, which was reported.
            _ => Ok(()),
        }
    }

    /// Finds the servers, and reads the workload.
    fn prepare(&mut self, task: Task, toml: &str) -> Result<Found, String> {
        let task = Task {
            cpus: self.place.cpus.clone(),
            receive_cpus: self.place.receive_cpus.clone(),
            ..task
        };
        if task.spin && !task.receive_cpus.is_empty() {
            return Err("--spin: not of an agent with --receive-cpus of its own".to_owned());
        }
        let cpus: [(_, &[usize]); 2] = [("cpus", &task.cpus), ("receive-cpus", &task.receive_cpus)];
        crate::run::has_cpus(&cpus).map_err(|error| error.to_string())?;
        let workload = Workload::of_toml(toml).map_err(|WorkloadError(why)| {
            format!("{why} (what files a workload names, agents need too, at the same path)")
        })?;
        let (theirs, ours) = (toml.lines(), workload.to_toml());
        if let Some((theirs, _)) = theirs.zip(ours.lines()).find(|(theirs, ours)| theirs != ours) {
            return Err(format!("not the controller's file: {}", theirs.trim_start_matches("# ")));
        }
        let servers = Servers::find(&task.targets, task.family, task.speech, task.steered);
        let servers = servers.map_err(|error| error.to_string())?;
        let found = Found {
            targets: servers.targets.to_vec(),
            said: servers.said.clone(),
            speech: servers.speech,
            machine: Machine::here(),
            host: parts::this_host(),
        };
        let watch = Watch::new(servers.targets.iter().map(crate::run::served), &[]);
        let workload = Arc::new(workload);
        let names = Names::new(&workload);
        let (stop, asked) = (Arc::default(), Arc::default());
        let (agents, stored) = (None, Cell::new(0));
        let ground = Ground { servers, workload, names, agents, stop, asked, stored };
        self.ground = Some((task, ground, watch));
        Ok(found)
    }

    /// Reports everything that is new.
    fn look(&mut self) -> Result<(), String> {
        let (Some(work), Some((_, _, watch))) = (&mut self.work, &self.ground) else {
            return Ok(());
        };
        let is_new = !work.is_ready && work.threads.is_ready();
        work.is_ready |= is_new;
        let mut say = vec![];
        say.extend(is_new.then_some(FromAgent::Ready));
        // Read before the tallies are taken: a tally taken later may be the last.
        let is_over = work.threads.is_over();
        while let Some(one) = work.threads.next(Duration::ZERO) {
            if let Some(whole) = work.mail.take(one.epoch, &one.tally) {
                say.push(work.handed(whole, watch));
            }
        }
        if work.told.elapsed() >= STATE_EVERY || is_over != work.was_over {
            (work.told, work.was_over) = (Instant::now(), is_over);
            let sight = work.is_watched.then(|| work.threads.sight());
            let is_unheard = work.threads.is_unheard();
            say.push(FromAgent::State { sight, is_unheard, is_over });
        }
        let is_finished = is_over && (work.is_ending || work.threads.has_failed());
        say.into_iter().try_for_each(|message| self.say(message))?;
        if is_finished { self.finish() } else { Ok(()) }
    }

    /// Hands over the rest.
    fn finish(&mut self) -> Result<(), String> {
        let (Some(mut work), Some((_, _, watch))) = (self.work.take(), &self.ground) else {
            return Ok(());
        };
        work.move_on(work.epoch + 1, watch);
        let (rest, failed) = work.threads.end();
        let mail = &mut work.mail;
        let last: Vec<_> =
            rest.into_iter().filter_map(|one| mail.take(one.epoch, &one.tally)).collect();
        let mail = std::mem::replace(mail, Collector::new(0));
        for whole in last.into_iter().chain(mail.rest()) {
            self.say(work.handed(whole, watch))?;
        }
        self.say(FromAgent::Ended(failed.map(|error| error.to_string())))
    }
}
