//! A result: all measurements of a run and the conditions of the run, in one folder.
//!
//! Where: after the measurements. `kvblaster report` reads the folders that this module writes.
//! Invariant: a result that is read back equals the one written. A file with another schema is
//! refused. RESULTS.md describes all fields; a test checks that.
//! Source: the KV-Cache paper (5.2.2, 6.1); HdrHistogram's interval logs; RFC 4180 for CSV.

pub mod agent;
pub mod csv;
pub mod logs;
pub mod machine;
pub mod manifest;
pub(crate) mod remarks;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
pub mod version;

use crate::measure::Interval;
use crate::measure::check::Verdict;
use crate::measure::objective::Judgement;
use crate::search::SearchResult;
use agent::AgentPart;
use manifest::Manifest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Schema of the written files. Raised when a field is removed or changes its meaning.
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
    /// All reports merged, if any.
    pub merged: Option<Interval>,
    /// The reports, in chronological order.
    pub reports: Vec<Interval>,
    /// The part of each agent; empty without agents.
    #[serde(default)]
    pub agents: Vec<AgentPart>,
    /// The capacities, if the run was a search for them.
    pub search: Option<SearchResult>,
    /// A sentence on each server's remaining items; empty if the run filled no server.
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
        "{0}: no result is there; name a folder that `kvblaster run -o`, `capacity -o` or \
         `compare -o` wrote"
    )]
    Nothing(PathBuf),
    /// The folder already contains a result.
    #[error("{0}: a result is there already; name another folder, or remove that one")]
    Taken(PathBuf),
    /// The file's contents are not a result.
    #[error("{0} is not a result of kvblaster: {1}")]
    Contents(PathBuf, #[source] serde_json::Error),
    /// The file has another schema.
    #[error(
        "{0} is in schema {1}, and this kvblaster reads schema {SCHEMA}: use the kvblaster that \
             wrote it, or a newer one"
    )]
    Schema(PathBuf, u64),
    /// A histogram cannot be encoded.
    #[error("a histogram cannot be written: {0}")]
    Histogram(String),
}

/// Bytes written to test whether the folder has room.
const PROBE_BYTES: usize = 64 << 10;

impl RunResult {
    /// Makes the folder, and checks before the measurement that it can store a result.
    ///
    /// # Errors
    /// The folder already has a result, or cannot be written to.
    pub fn prepare(folder: &Path) -> Result<(), ResultError> {
        fs::create_dir_all(folder).map_err(|error| ResultError::File(folder.to_owned(), error))?;
        let path = folder.join(FILE);
        if path.exists() {
            return Err(ResultError::Taken(folder.to_owned()));
        }
        let probe = folder.join(format!("{FILE}.new"));
        let written = fs::write(&probe, vec![b' '; PROBE_BYTES]);
        // Removal fails if the write made no file.
        let _ = fs::remove_file(&probe);
        written.map_err(|error| ResultError::File(folder.to_owned(), error))
    }

    /// Writes `result.json`, `reports.csv`, `cpus.csv`, `curve.csv` (only for a search),
    /// `response.hlog` and `service.hlog` into a folder, which is made if needed.
    ///
    /// # Errors
    /// A file cannot be written.
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
        for (name, times) in
            [("response.hlog", logs::Kind::Response), ("service.hlog", logs::Kind::Service)]
        {
            put(&folder.join(name), &logs::log(self, times)?)?;
        }
        // `result.json` comes last, so a folder that has it also has the other files.
        put(&path, json.as_bytes())
    }

    /// Reads a result. `path` is its folder or its `result.json`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a result.
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
        return Err(failed(io::Error::other("it is longer than 256 MiB")));
    }
    let wrong = |error| ResultError::Contents(path.to_owned(), error);
    // Another schema may lack fields, so the schema is checked first.
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
