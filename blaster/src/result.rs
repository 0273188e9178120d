//! A result: all measurements of a run and the conditions of the run, in one folder.
//!
//! Where: after the measurements. `kvblaster report` reads the folders that this module writes.
//! Invariant: a result that is read back equals the written result. A file with another schema is
//! refused. RESULTS.md describes all fields, and a test checks that none is missing.
//! Source: the KV-Cache paper (5.2.2, 6.1); HdrHistogram's interval logs; RFC 4180 for CSV.

pub(crate) mod csv;
pub(crate) mod logs;
pub mod machine;
pub mod manifest;
pub(crate) mod remarks;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use crate::measure::Interval;
use crate::measure::objective::Judgement;
use crate::measure::verdict::Verdict;
use crate::search::SearchResult;
use machine::Machine;
use manifest::Manifest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Number of the written files' format. It rises when a field is removed or changes its meaning.
pub const SCHEMA: u32 = 1;
const RESULT_BYTES_MAX: u64 = 256 << 20;
/// The name of the result's file in its folder.
pub const FILE: &str = "result.json";

/// A result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The schema of the file: `SCHEMA`.
    pub schema: u32,
    /// The conditions of the run.
    pub manifest: Manifest,
    /// True if the run ended before the end of its schedule.
    pub is_interrupted: bool,
    /// The self-check of the whole run.
    pub verdict: Verdict,
    /// The judgement of each `--assert`.
    pub judgements: Vec<Judgement>,
    /// All reports merged into one; `None` without reports.
    pub merged: Option<Interval>,
    /// The reports, in chronological order.
    pub reports: Vec<Interval>,
    /// The measurements of each agent; empty if the run had no agents.
    #[serde(default)]
    pub agents: Vec<AgentPart>,
    /// The capacities that were found, if the run was a search.
    pub search: Option<SearchResult>,
    /// For each server, a sentence on the items left there; empty if the run filled no server.
    #[serde(default)]
    pub left_behind: Vec<String>,
}

/// The reason why a result cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// A file or folder cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, #[source] io::Error),
    /// The folder contains no result.
    #[error(
        "{0} holds no result: name a folder that `kvblaster run -o`, `capacity -o` or `compare -o` \
         wrote"
    )]
    Nothing(PathBuf),
    /// The folder already contains a result.
    #[error("{0} already holds a result: name another folder, or remove this one")]
    Taken(PathBuf),
    /// The file's contents are not a result.
    #[error("{0} is not a result of kvblaster: {1}")]
    Contents(PathBuf, #[source] serde_json::Error),
    /// The file has another schema.
    #[error(
        "{0} has schema {1}, but this kvblaster reads schema {SCHEMA}: use the version of \
         kvblaster that wrote the file, or a newer version"
    )]
    Schema(PathBuf, u64),
    /// A histogram cannot be encoded.
    #[error("a histogram cannot be written: {0}")]
    Histogram(String),
}

/// Number of bytes that are written to test whether the folder has room.
const PROBE_BYTES: usize = 64 << 10;

/// The part of a result that one of several agents measured. The sum of all agents' counts and
/// histograms equals the whole run's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentPart {
    /// The command that starts the agent.
    pub name: String,
    /// The machine on which the agent ran.
    pub machine: Machine,
    /// Number of the agent's threads.
    pub threads: u32,
    /// Number of the agent's connections to each server.
    pub connections: u32,
    /// The time from the controller's `Go` to the agent's reply; the agent began in this time.
    pub round_trip_ns: Option<u64>,
    /// The reason why the agent was lost, if it was.
    pub lost: Option<String>,
    /// The self-check of the agent's part; empty in a search.
    pub verdict: Verdict,
    /// All reports of the agent, merged; in a search, all trials of the agent.
    pub merged: Option<Interval>,
}

impl RunResult {
    /// Makes `folder` before the measurement, and checks that a result can be stored there. Fails
    /// if the folder already has a result, or cannot be written to.
    pub fn prepare(folder: &Path) -> Result<(), ResultError> {
        fs::create_dir_all(folder).map_err(|error| ResultError::File(folder.to_owned(), error))?;
        let path = folder.join(FILE);
        if path.exists() {
            return Err(ResultError::Taken(folder.to_owned()));
        }
        let probe = folder.join(format!("{FILE}.new"));
        let written = fs::write(&probe, vec![b' '; PROBE_BYTES]);
        // The removal fails if writing did not create the file, which is no error.
        let _ = fs::remove_file(&probe);
        written.map_err(|error| ResultError::File(folder.to_owned(), error))
    }

    /// Writes `result.json`, `reports.csv`, `cpus.csv`, `curve.csv` (only for a search),
    /// `response.hlog` and `service.hlog` into a folder, which is made if needed. Fails if a file
    /// cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ResultError> {
        fs::create_dir_all(folder).map_err(|error| ResultError::File(folder.to_owned(), error))?;
        let path = folder.join(FILE);
        let mut json = serde_json::to_string_pretty(self)
            .map_err(|error| ResultError::Contents(path.clone(), error))?;
        json.push('\n');
        put(&folder.join("reports.csv"), csv::reports(&self.reports).as_bytes())?;
        put(&folder.join("cpus.csv"), csv::cpus(&self.reports).as_bytes())?;
        if let Some(search) = &self.search {
            put(&folder.join("curve.csv"), csv::curve(&search.curve).as_bytes())?;
        }
        for log in logs::LOGS {
            put(&folder.join(log.0), &logs::log(self, log)?)?;
        }
        // `result.json` comes last, so a folder that has it also has the other files.
        put(&path, json.as_bytes())
    }

    /// Reads a result. `path` is the result's folder or its `result.json`. Fails if the file cannot
    /// be read, or is not a result.
    pub fn read(path: &Path) -> Result<RunResult, ResultError> {
        let path = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        read(&path)
    }
}

/// Reads a JSON file of schema `SCHEMA`.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ResultError> {
    let failed = |error| ResultError::File(path.to_owned(), error);
    let opened = fs::File::open(path);
    let is_nothing = opened.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    if is_nothing {
        return Err(ResultError::Nothing(path.to_owned()));
    }
    let file = opened.map_err(failed)?;
    let mut text = String::new();
    file.take(RESULT_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > RESULT_BYTES_MAX {
        return Err(failed(io::Error::other("the file is longer than 256 MiB")));
    }
    let wrong = |error| ResultError::Contents(path.to_owned(), error);
    // A file of another schema may lack fields, so the schema is checked before any other field.
    let any: AnySchema = serde_json::from_str(&text).map_err(wrong)?;
    if any.schema != u64::from(SCHEMA) {
        return Err(ResultError::Schema(path.to_owned(), any.schema));
    }
    serde_json::from_str(&text).map_err(wrong)
}

/// The field that files of all schemas have.
#[derive(Deserialize)]
struct AnySchema {
    schema: u64,
}

/// Writes a file completely or not at all.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> Result<(), ResultError> {
    let failed = |error| ResultError::File(path.to_owned(), error);
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    fs::write(&new, bytes).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}
