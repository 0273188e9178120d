//! The course of the lab: rounds of each experiment, in which all points and servers have a turn.
//!
//! ```text
//! experiments -> turns: round, point, server -> measure -> row -> the record's file
//! ```
//!
//! Where: `kvblaster lab run`.
//! Invariant: in a round every server is measured at every point, in an order that alternates from
//! round to round. Each row is on disk before the next measurement begins, so Ctrl-C and a crash
//! lose at most one measurement. A server that cannot run here has a reason in the record.
//! Source: Georges, Buytaert, Eeckhout, "Statistically Rigorous Java Performance Evaluation".

use super::card::Pair;
use super::experiment::{Experiment, Method, Scale, Server};
use super::figures::{self, CAPACITY_AVG, MEMORY_LIMIT};
use super::measure::{self, MeasureError, Site};
use super::points::{At, points};
use super::profile::ProfileError;
use super::record::{Missing, Record, SCHEMA};
use super::resident;
use super::servers::{self, Group, Place, ServerError};
use super::simulated;
use crate::flags::cpu_list;
use crate::result::ResultError;
use crate::result::manifest::Manifest;
use crate::run::compare::order;
use crate::words::clock;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Seconds to start, fill and stop a server, about.
const AROUND_S: f64 = 0.7;
/// Seconds of a simulation, about.
const SIMULATION_S: f64 = 0.5;

/// The settings of a lab.
#[derive(Clone, Debug)]
pub struct Lab {
    /// The folder of the records.
    pub folder: PathBuf,
    /// The scale of all experiments.
    pub scale: Scale,
    /// Number of rounds, if the user has changed that of the scale.
    pub rounds: Option<u32>,
    /// True if measurements that are there already are kept and not repeated.
    pub resumes: bool,
    /// CPUs for the servers.
    pub server_cpus: Vec<usize>,
    /// CPUs for kvblaster.
    pub client_cpus: Vec<usize>,
    /// The pairs of network cards that links use. Without them, links are made of veths.
    pub cards: Vec<Pair>,
    /// True if no progress is shown.
    pub is_quiet: bool,
    /// Further flags of the command that repeats an experiment.
    pub flags: String,
}

/// The outcome of a lab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The number of rows measured.
    pub measured: usize,
    /// The number of failures: measurements that this machine should have allowed.
    pub failures: usize,
    /// True if the user stopped the lab.
    pub is_interrupted: bool,
}

/// The reason why the lab cannot run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A record cannot be read or written.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// The folder has data of an earlier lab.
    #[error("{0}: data are there already; give --resume to continue them, or another folder (-o)")]
    Taken(PathBuf),
    /// The earlier data were measured in another way.
    #[error("{0}: the data are of {1}; continue them with the same, or give another folder (-o)")]
    Differs(PathBuf, String),
}

/// One measurement to make.
struct Turn<'e> {
    round: u32,
    at: &'e At,
    server: &'e Server,
}

/// Runs the experiments.
///
/// # Errors
/// A record cannot be read or written.
pub fn run(experiments: &[Experiment], lab: &Lab) -> Result<Ended, LabError> {
    let mut records = Vec::new();
    for experiment in experiments {
        records.push(lab.record(experiment)?);
    }
    let all = |experiment: &Experiment| points(experiment, lab.scale);
    let points: Vec<Vec<At>> = experiments.iter().map(all).collect();
    let mut turns: Vec<Vec<Turn<'_>>> = Vec::new();
    for ((experiment, record), points) in experiments.iter().zip(&mut records).zip(&points) {
        lab.find_lacks(experiment, record, points);
        record.write(&lab.folder)?;
        turns.push(turns_of(experiment, record, points));
    }
    let seconds = |(experiment, turns): (&Experiment, &Vec<Turn<'_>>)| {
        turns.len() as f64 * turn_s(experiment, lab.scale)
    };
    let mut left_s: f64 = experiments.iter().zip(&turns).map(seconds).sum();
    let count: usize = turns.iter().map(Vec::len).sum();
    lab.tell(&format!(
        "{} experiment(s), {count} measurements, about {}; data go to {}",
        experiments.len(),
        clock(Duration::from_secs_f64(left_s)),
        lab.folder.display()
    ));
    let (mut ended, begin, mut planned_s) = (Ended::default(), Instant::now(), 0.0);
    for ((experiment, record), turns) in experiments.iter().zip(&mut records).zip(&turns) {
        for turn in turns {
            if measure::is_stopped() {
                return Ok(Ended { is_interrupted: true, ..ended });
            }
            let turn_s = turn_s(experiment, lab.scale);
            left_s -= turn_s;
            match lab.take(experiment, record, turn)? {
                Taken::Row => ended.measured += 1,
                Taken::Nothing => continue,
                Taken::Failure => ended.failures += 1,
                Taken::Stopped => return Ok(Ended { is_interrupted: true, ..ended }),
            }
            planned_s += turn_s;
            let pace = begin.elapsed().as_secs_f64() / planned_s;
            let left = clock(Duration::from_secs_f64((left_s * pace).max(0.0)));
            lab.tell(&format!("{}; {left} left", told(experiment, record, turn)));
        }
    }
    Ok(ended)
}

enum Taken {
    Row,
    /// This machine cannot measure the server at the point.
    Nothing,
    Failure,
    Stopped,
}

impl Lab {
    fn tell(&self, text: &str) {
        if !self.is_quiet {
            // An error is ignored, because it could not be displayed.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// Returns the record to which rows are added.
    fn record(&self, experiment: &Experiment) -> Result<Record, LabError> {
        let path = Record::path(&self.folder, &experiment.name);
        let scaled = || match simulated::is_exact(experiment) {
            true => 1,
            false => self.rounds.unwrap_or(self.scale.times().rounds),
        };
        let manifest = Manifest::here();
        // A record without rows has only reasons, which the lab finds again.
        let found = Record::read(&self.folder, &experiment.name)?;
        match found.filter(|found| !found.rows.is_empty()) {
            Some(_) if !self.resumes => Err(LabError::Taken(path)),
            Some(mut found) => {
                if let Some(other) = self.difference(&found, &manifest) {
                    return Err(LabError::Differs(path, other));
                }
                // Failures are tried again.
                found.missing.clear();
                found.rounds = scaled().max(found.rounds);
                Ok(found)
            }
            None => Ok(Record {
                schema: SCHEMA,
                name: experiment.name.clone(),
                scale: self.scale,
                rounds: scaled(),
                kvblaster: manifest.kvblaster,
                started: manifest.started,
                command: format!("kvblaster lab run {}{}", experiment.name, self.flags),
                machine: manifest.machine,
                server_cpus: self.server_cpus.clone(),
                client_cpus: self.client_cpus.clone(),
                ..Record::default()
            }),
        }
    }

    /// Describes how earlier data were measured, if rows of this lab cannot be compared with them.
    fn difference(&self, found: &Record, here: &Manifest) -> Option<String> {
        let (then, now) = (&found.machine, &here.machine);
        match () {
            () if found.scale != self.scale => Some(format!("scale {:?}", found.scale)),
            () if found.kvblaster != here.kvblaster => {
                Some(format!("kvblaster {}", found.kvblaster))
            }
            () if found.server_cpus != self.server_cpus => {
                Some(format!("--server-cpus {}", cpu_list(&found.server_cpus)))
            }
            () if found.client_cpus != self.client_cpus => {
                Some(format!("--client-cpus {}", cpu_list(&found.client_cpus)))
            }
            () if (&then.kernel, &then.cpu_model) != (&now.kernel, &now.cpu_model) => {
                Some(format!("another machine or kernel, {}", then.kernel))
            }
            () => None,
        }
    }

    /// Records which servers and points this machine cannot measure, as far as is known beforehand.
    fn find_lacks(&self, experiment: &Experiment, record: &mut Record, points: &[At]) {
        let mut lack = |server: &str, at: &[String], why: String| {
            let (server, at) = (server.to_owned(), at.to_vec());
            record.missing.push(Missing { server, at, why, is_failure: false });
        };
        for error in
            experiment.needs.iter().filter_map(|need| servers::check(*need, &self.cards).err())
        {
            lack("", &[], error.to_string());
        }
        for server in &experiment.servers {
            let needs =
                server.needs.iter().filter_map(|need| servers::check(*need, &self.cards).err());
            let lacking = needs.chain(server.program.path().err()).next();
            if let Some(error) = lacking {
                lack(&server.name, &[], error.to_string());
            }
        }
        let own = self.server_cpus.len();
        for at in points.iter().filter(|at| at.server_cpus > own) {
            let needs = at.server_cpus;
            let why = format!("it needs {needs} CPUs for servers, and here are {own}");
            lack("", &at.labels, why);
        }
    }

    fn take(
        &self,
        experiment: &Experiment,
        record: &mut Record,
        turn: &Turn<'_>,
    ) -> Result<Taken, LabError> {
        let Turn { round, at, server } = *turn;
        if record.lacks(&at.labels, &server.name) {
            return Ok(Taken::Nothing);
        }
        let known = [CAPACITY_AVG, MEMORY_LIMIT]
            .map(|figure| record.values(&server.name, &at.labels, figure).into_values().next());
        let link = Group::link(server, at, Place { cpus: &self.server_cpus, cards: &self.cards });
        let measured = link.map_err(MeasureError::from).and_then(|link| {
            let (server_cpus, client_cpus) = (&self.server_cpus[..], &self.client_cpus[..]);
            let site = Site { server_cpus, client_cpus, cards: &self.cards, link: link.as_ref() };
            resident::measure((server, &experiment.drive), at, &site, (self.scale, round, known))
        });
        let (why, is_failure) = match measured {
            Err(MeasureError::Stopped) => return Ok(Taken::Stopped),
            // Ctrl-C may also make the start of a server or of a link fail.
            Err(_) if measure::is_stopped() => return Ok(Taken::Stopped),
            Ok((row, started)) => {
                if !record.servers.iter().any(|one| one.server == started.server) {
                    record.servers.push(started);
                }
                record.rows.push(row);
                record.write(&self.folder)?;
                return Ok(Taken::Row);
            }
            Err(MeasureError::Server(ServerError::Lacking(why))) => (why, false),
            // On a busy machine, perf may sample nothing in a short measurement.
            Err(MeasureError::Profile(error @ ProfileError::Empty)) => (error.to_string(), false),
            Err(error) => (error.to_string(), true),
        };
        self.tell(&format!("{}: {}: {why}", experiment.name, server.name));
        let (server, at) = (server.name.clone(), at.labels.clone());
        record.missing.push(Missing { server, at, why, is_failure });
        record.write(&self.folder)?;
        Ok(if is_failure { Taken::Failure } else { Taken::Nothing })
    }
}

/// The measurements that a record lacks, round by round.
fn turns_of<'e>(experiment: &'e Experiment, record: &Record, points: &'e [At]) -> Vec<Turn<'e>> {
    let mut turns = Vec::new();
    for round in 0..record.rounds {
        let mut nths: Vec<usize> = (0..points.len()).collect();
        if round % 2 == 1 {
            nths.reverse();
        }
        for nth in nths {
            let at = &points[nth];
            for server in order(round as usize + nth, experiment.servers.len()) {
                let server = &experiment.servers[server];
                let is_done = record.has(round, &at.labels, &server.name);
                if !is_done && !record.lacks(&at.labels, &server.name) {
                    turns.push(Turn { round, at, server });
                }
            }
        }
    }
    turns
}

/// Seconds that one measurement takes, about.
fn turn_s(experiment: &Experiment, scale: Scale) -> f64 {
    let times = scale.times();
    AROUND_S
        + match experiment.drive.method {
            Method::Run => times.run_s,
            Method::Simulate => SIMULATION_S,
            Method::Capacity => times.search_s,
            // The search is made in the first round only.
            Method::BelowCapacity => times.run_s + times.search_s / f64::from(times.rounds),
        }
}

/// A line of progress: the last measurement and its first figure.
fn told(experiment: &Experiment, record: &Record, turn: &Turn<'_>) -> String {
    let point = match turn.at.labels.join(", ") {
        empty if empty.is_empty() => String::new(),
        labels => format!(", {} {labels}", experiment.x_name()),
    };
    let value = experiment.figures.first().and_then(|figure| {
        let values = record.values(&turn.server.name, &turn.at.labels, &figure.y);
        let unit = figures::named(&figure.y)?.unit;
        Some(format!(": {} {}", figure.y, unit.format(*values.get(&turn.round)?)))
    });
    format!(
        "{}, round {} of {}{point}, {}{}",
        experiment.name,
        turn.round + 1,
        record.rounds,
        turn.server.name,
        value.unwrap_or_default()
    )
}
