//! Runs experiments in rounds: in each round, every server is measured once at every point.
//!
//! ```text
//! experiments -> turns: round, point, server -> measure -> row -> the record's file
//! ```
//!
//! Where: `kvblaster lab run`.
//! Invariant: the order of points and servers alternates from round to round. Each row is on disk
//! before the next measurement begins, so Ctrl-C and a crash lose at most one measurement. If a
//! server cannot run here, the record has the reason.
//! Source: Georges, Buytaert, Eeckhout, "Statistically Rigorous Java Performance Evaluation".

use super::card::Pair;
use super::experiment::{Experiment, Method, Scale, Server};
use super::figures::{self, CAPACITY_AVG, MEMORY_LIMIT};
use super::installed::MeasureError;
use super::measure::{self, Site};
use super::points::{At, points};
use super::record::{Missing, Record, SCHEMA};
use super::resident;
use super::servers::{self, Group, Place};
use super::simulated;
use crate::result::manifest::Manifest;
use crate::run::compare::order;
use crate::words::Failure;
use crate::words::{clock, hex};
use md5::{Digest, Md5};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Approximate seconds in which a server is started, filled and stopped.
const AROUND_S: f64 = 0.5;
/// Approximate seconds that a simulation takes.
const SIMULATION_S: f64 = 0.2;

/// The settings of a lab.
#[derive(Clone, Debug)]
pub(crate) struct Lab {
    /// The folder of the records.
    pub folder: PathBuf,
    /// The scale of all experiments.
    pub scale: Scale,
    /// Number of rounds that the user gave. `None` if the scale determines the number.
    pub rounds: Option<u32>,
    /// True if the measurements of an earlier lab are kept and not repeated.
    pub resumes: bool,
    /// CPUs for the servers.
    pub server_cpus: Vec<usize>,
    /// CPUs for kvblaster.
    pub client_cpus: Vec<usize>,
    /// The pairs of network cards that links use. If there are none, links use veth pairs.
    pub cards: Vec<Pair>,
    /// True if no progress is shown.
    pub is_quiet: bool,
    /// Further flags of the command that repeats an experiment.
    pub flags: String,
}

/// The outcome of a lab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The number of rows measured.
    pub measured: usize,
    /// The number of measurements that failed although the machine has all that they need.
    pub failures: usize,
    /// True if the user stopped the lab.
    pub is_interrupted: bool,
}

struct Turn<'e> {
    round: u32,
    at: &'e At,
    server: &'e Server,
}

/// Runs the experiments. Fails if a record cannot be read or written.
pub(crate) fn run(experiments: &[Experiment], lab: &Lab) -> Result<Ended, Failure> {
    let all = |experiment: &Experiment| points(experiment, lab.scale);
    let points: Vec<Vec<At>> = experiments.iter().map(all).collect();
    let records = experiments.iter().zip(&points);
    let records = records.map(|(experiment, points)| lab.record(experiment, points));
    let mut records: Vec<Record> = records.collect::<Result<_, _>>()?;
    let mut turns: Vec<Vec<Turn<'_>>> = Vec::new();
    for ((experiment, record), points) in experiments.iter().zip(&mut records).zip(&points) {
        lab.find_lacks(experiment, record, points);
        record.write(&lab.folder)?;
        turns.push(turns_of(experiment, record, points));
        if record.rows.is_empty() && turns.last().is_some_and(Vec::is_empty) {
            let whys: BTreeSet<&str> = record.missing.iter().map(|one| one.why.as_str()).collect();
            let whys: Vec<&str> = whys.into_iter().collect();
            lab.tell(&format!("{}: not measured here: {}", experiment.name, whys.join("; ")));
        }
    }
    let seconds = |(experiment, turns): (&Experiment, &Vec<Turn<'_>>)| {
        turns.len() as f64 * turn_s(experiment, lab.scale)
    };
    let mut left_s: f64 = experiments.iter().zip(&turns).map(seconds).sum();
    let count: usize = turns.iter().map(Vec::len).sum();
    lab.tell(&format!(
        "{} experiment(s), {count} measurements, which take about {}; the data are written to {}",
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
            // An error is ignored, because there is no other way to display the text.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// Returns the record to which the lab adds rows: a new record, or that of an earlier lab.
    fn record(&self, experiment: &Experiment, points: &[At]) -> Result<Record, Failure> {
        let manifest = Manifest::here();
        let rounds = match simulated::is_exact(experiment) {
            true => 1,
            false => self.rounds.unwrap_or(self.scale.times().rounds),
        };
        let fresh = Record {
            schema: SCHEMA,
            name: experiment.name.clone(),
            scale: self.scale,
            rounds,
            kvblaster: manifest.kvblaster,
            plan: plan(experiment, points, self.scale),
            started: manifest.started,
            command: format!("kvblaster lab run {}{}", experiment.name, self.flags),
            machine: manifest.machine,
            server_cpus: self.server_cpus.clone(),
            client_cpus: self.client_cpus.clone(),
            ..Record::default()
        };
        // A record without rows is not kept, because the lab finds the reasons in it again.
        let found = Record::read(&self.folder, &experiment.name)?;
        let Some(mut found) = found.filter(|found| !found.rows.is_empty()) else {
            return Ok(fresh);
        };
        let path = Record::path(&self.folder, &experiment.name);
        if !self.resumes {
            return Err(format!(
                "{}: this file has data already; give --resume to add to the data, or name \
                 another folder (-o)",
                path.display()
            )
            .into());
        }
        if let Some(other) = found.difference(&fresh) {
            return Err(format!(
                "{}: these data were measured with {other}; add only measurements that are made \
                 in the same way, or name another folder (-o)",
                path.display()
            )
            .into());
        }
        if found.plan != fresh.plan {
            self.tell(&format!(
                "{}: the experiment has changed since it was measured, so kvblaster measures it \
                 again",
                experiment.name
            ));
            return Ok(fresh);
        }
        // The lab tries again to measure servers and points that could not be measured.
        found.missing.clear();
        found.rounds = rounds.max(found.rounds);
        Ok(found)
    }

    /// Records the servers and points that this machine certainly cannot measure.
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
            let why =
                format!("the point needs {needs} CPUs for servers, but --server-cpus gives {own}");
            lack("", &at.labels, why);
        }
    }

    fn take(
        &self,
        experiment: &Experiment,
        record: &mut Record,
        turn: &Turn<'_>,
    ) -> Result<Taken, Failure> {
        let Turn { round, at, server } = *turn;
        if record.lacks(&at.labels, &server.name) {
            return Ok(Taken::Nothing);
        }
        let known = [CAPACITY_AVG, MEMORY_LIMIT].map(|figure| known(record, server, at, figure));
        let link = Group::link(server, at, Place { cpus: &self.server_cpus, cards: &self.cards });
        let measured = link.and_then(|link| {
            let (server_cpus, client_cpus) = (&self.server_cpus[..], &self.client_cpus[..]);
            let site = Site { server_cpus, client_cpus, link: link.as_ref() };
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
            Err(MeasureError::Lacking(why)) => (why, false),
            Err(MeasureError::Failed(why)) => (why, true),
        };
        self.tell(&format!("{}: {}: {why}", experiment.name, server.name));
        let (server, at) = (server.name.clone(), at.labels.clone());
        record.missing.push(Missing { server, at, why, is_failure });
        record.write(&self.folder)?;
        Ok(if is_failure { Taken::Failure } else { Taken::Nothing })
    }
}

/// Returns the value that an earlier round found at a point. A capacity of 0 means that none was
/// found.
fn known(record: &Record, server: &Server, at: &At, figure: &str) -> Option<f64> {
    let values = record.values(&server.name, &at.labels, figure);
    values.into_values().find(|value| *value > 0.0)
}

/// Returns a hash of all settings of an experiment that affect its rows at a scale.
fn plan(experiment: &Experiment, points: &[At], scale: Scale) -> String {
    let Experiment { servers, drive, .. } = experiment;
    let times = scale.times();
    let times = match drive.method {
        Method::Run => [times.run, ""],
        Method::Capacity => ["", times.search],
        Method::BelowCapacity => [times.run, times.search],
        Method::Simulate => ["", ""],
    };
    hex(&Md5::digest(format!("{:?}", (points, servers, drive, times))))
}

/// Returns the measurements that are still to be made, round by round.
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

/// Returns the approximate seconds that one measurement takes.
fn turn_s(experiment: &Experiment, scale: Scale) -> f64 {
    let times = scale.times();
    match experiment.drive.method {
        Method::Simulate => SIMULATION_S,
        Method::Run => AROUND_S + times.run_s,
        Method::Capacity => AROUND_S + times.search_s,
        // Only the first round searches, so each round has a part of the search's time.
        Method::BelowCapacity => AROUND_S + times.run_s + times.search_s / f64::from(times.rounds),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::library;
    use crate::lab::record::Row;

    #[test]
    fn a_round_that_found_no_capacity_is_no_start_for_the_next() {
        let experiment =
            library::named(&["kvcache-fig7-mix-a".to_owned()], None).unwrap().remove(0);
        let (server, at) = (&experiment.servers[0], &points(&experiment, Scale::Quick)[0]);
        let row = |(round, capacity): (u32, f64)| Row {
            round,
            at: at.labels.clone(),
            server: server.name.clone(),
            figures: [(CAPACITY_AVG.to_owned(), capacity)].into(),
            ..Row::default()
        };
        let found = |all: &[(u32, f64)]| {
            let rows = all.iter().copied().map(row).collect();
            known(&Record { rows, ..Record::default() }, server, at, CAPACITY_AVG)
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(0, 0.0)]), None);
        assert_eq!(found(&[(0, 0.0), (1, 5e4)]), Some(5e4));
    }

    #[test]
    fn data_of_a_changed_experiment_are_measured_again() {
        let folder = std::env::temp_dir().join(format!("kvblaster-rounds-{}", std::process::id()));
        let lab = Lab {
            folder: folder.clone(),
            scale: Scale::Quick,
            rounds: None,
            resumes: true,
            server_cpus: vec![0],
            client_cpus: vec![1],
            cards: Vec::new(),
            is_quiet: true,
            flags: String::new(),
        };
        let mut experiment = library::named(&["own-noise".to_owned()], None).unwrap().remove(0);
        let record = |experiment: &Experiment, lab: &Lab| {
            lab.record(experiment, &points(experiment, lab.scale))
        };
        let mut measured = record(&experiment, &lab).unwrap();
        measured.rows.push(Row::default());
        measured.write(&folder).unwrap();
        "other words".clone_into(&mut experiment.title);
        assert_eq!(record(&experiment, &lab).unwrap().rows.len(), 1);
        let full = Lab { scale: Scale::Full, ..lab.clone() };
        let refused = record(&experiment, &full).unwrap_err().to_string();
        assert!(refused.contains("these data were measured with"), "{refused}");
        experiment.drive.flags += " -d 2";
        assert!(record(&experiment, &lab).unwrap().rows.is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
