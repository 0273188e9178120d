//! The data of one experiment: a row for each measured run, and the reasons for missing rows.
//!
//! ```text
//! DIR/NAME.json: experiment, scale, machine, versions | rows: round, point, server, figures
//! ```
//!
//! Where: written after each run, so that an interrupted lab can be resumed, and for the report.
//! Invariant: only a finished run has a row. The file is replaced as a whole, so a crash leaves the
//! old file. A server or point that cannot be measured here has a reason and no row.
//! Source: none.

use super::experiment::{Experiment, Scale};
use super::points::labels;
pub use crate::result::SCHEMA;
use crate::result::machine::Machine;
use crate::result::{self, ResultError};
use crate::words::values::cpu_list;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The data of one experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The version of the file's format: `SCHEMA`.
    pub schema: u32,
    /// The name of the experiment.
    pub name: String,
    /// The scale of the measurements.
    pub scale: Scale,
    /// The number of rounds that are planned for each point and server.
    pub rounds: u32,
    /// The version of kvblaster.
    pub kvblaster: String,
    /// A hash of all settings of the experiment that affect its rows at this scale.
    #[serde(default)]
    pub plan: String,
    /// The time at which the measurements began, in UTC, in the format of RFC 3339.
    pub started: String,
    /// The command that repeats the experiment.
    pub command: String,
    /// The machine on which the lab ran.
    pub machine: Machine,
    /// The CPUs reserved for the servers.
    pub server_cpus: Vec<usize>,
    /// The CPUs of kvblaster.
    pub client_cpus: Vec<usize>,
    /// The versions and command lines of each server, from the server's first measurement.
    pub servers: Vec<Started>,
    /// The runs in the order in which the lab measured them.
    pub rows: Vec<Row>,
    /// The servers and points that could not be measured.
    pub missing: Vec<Missing>,
}

/// The version and the command lines with which a server was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// The server's name in the experiment.
    pub server: String,
    /// The program's name and version: `memcached 1.6.45`.
    pub version: String,
    /// The processes' command lines without repetitions, then commands for the link's settings.
    pub commands: Vec<String>,
    /// The command line of kvblaster that measured the server.
    pub driven_by: String,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The round, counted from 0. In each round, every server is measured once at every point.
    pub round: u32,
    /// The labels of the point, one for each axis.
    pub at: Vec<String>,
    /// The server's name in the experiment.
    pub server: String,
    /// The measured figures by name (`figures::FIGURES`), each in the unit of the figure.
    pub figures: BTreeMap<String, f64>,
    /// The reason why kvblaster was the limit of this run. `None` if kvblaster was not the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// All other remarks of kvblaster's self-check, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A server, or a server at a point, that could not be measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The server's name; empty if no server of the experiment can be measured.
    pub server: String,
    /// The labels of the point; empty if no point can be measured.
    pub at: Vec<String>,
    /// The reason, as a sentence without a full stop.
    pub why: String,
    /// True if the measurement failed although the machine has all that the measurement needs.
    #[serde(default)]
    pub is_failure: bool,
}

impl Record {
    /// Returns the path of an experiment's data in a folder.
    pub fn path(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.json"))
    }

    /// Reads the data of an experiment. `None` if there are no data. Fails if the file cannot be
    /// read, or is not in this kvblaster's schema.
    pub fn read(folder: &Path, name: &str) -> Result<Option<Record>, ResultError> {
        let path = Record::path(folder, name);
        if !path.exists() {
            return Ok(None);
        }
        result::read(&path).map(Some)
    }

    /// Writes the data, replacing the file as a whole. Fails if the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ResultError> {
        let path = Record::path(folder, &self.name);
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| ResultError::Contents(path.clone(), error))?;
        fs::create_dir_all(folder).map_err(|error| ResultError::File(folder.to_owned(), error))?;
        result::put(&path, (json + "\n").as_bytes())
    }

    /// Returns the first condition of this record that differs in `other`: `the scale full`.
    pub(crate) fn difference(&self, other: &Record) -> Option<String> {
        let machine = |one: &Record| {
            (one.machine.kernel.clone(), one.machine.cpu_model.clone(), one.machine.cpus)
        };
        let [server, client] = [&self.server_cpus, &self.client_cpus].map(|cpus| cpu_list(cpus));
        let kernel = &self.machine.kernel;
        let conditions = [
            (self.scale == other.scale, format!("the scale {:?}", self.scale).to_lowercase()),
            (self.kvblaster == other.kvblaster, format!("kvblaster {}", self.kvblaster)),
            (self.server_cpus == other.server_cpus, format!("--server-cpus {server}")),
            (self.client_cpus == other.client_cpus, format!("--client-cpus {client}")),
            (machine(self) == machine(other), format!("another machine or kernel ({kernel})")),
        ];
        conditions.into_iter().find(|(is_same, _)| !is_same).map(|(_, condition)| condition)
    }

    /// True if the run of this round, point and server is recorded.
    pub(crate) fn has(&self, round: u32, at: &[String], server: &str) -> bool {
        self.rows.iter().any(|row| row.round == round && row.at == at && row.server == server)
    }

    /// True if the record says that this server or point cannot be measured here.
    pub fn lacks(&self, at: &[String], server: &str) -> bool {
        let is_it = |missing: &Missing| {
            (missing.server.is_empty() || missing.server == server)
                && (missing.at.is_empty() || missing.at == at)
        };
        self.missing.iter().any(is_it)
    }

    /// Returns the values of a server's figure at a point, by round.
    pub(crate) fn values(&self, server: &str, at: &[String], figure: &str) -> BTreeMap<u32, f64> {
        let rows = self.rows.iter().filter(|row| row.server == server && row.at == at);
        rows.filter_map(|row| Some((row.round, *row.figures.get(figure)?))).collect()
    }

    /// The labels of all measured points, in the order of the experiment's axes.
    pub(crate) fn points(&self, experiment: &Experiment) -> Vec<Vec<String>> {
        let is_measured = |at: &Vec<String>| self.rows.iter().any(|row| row.at == *at);
        labels(experiment, Scale::Full).into_iter().filter(is_measured).collect()
    }
}
