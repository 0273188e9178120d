//! What is asked of a cache, of which sizes, and when: all of the traffic but its rate and target.
//!
//! Where: first; the driving threads draw their requests from it.
//! Invariant: what could make a later step fail or run away is refused here, by name.
//! Source: the paper, section 5.2.2 and table 2.

pub mod names;
pub mod stream;

pub use names::Names;
pub use stream::Stream;

use std::path::Path;

/// Most keys of a workload.
pub const KEYS_MAX: u64 = 1 << 40;
/// Most keys of one multiget.
pub const BATCH_MAX: u32 = 1024;
/// Longest value.
pub const VALUE_BYTES_MAX: u32 = 1 << 27;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one value, or several at once.
    Get,
    /// Writes a value.
    Set,
    /// Removes an item.
    Delete,
    /// Writes behind what an item holds.
    Append,
}

/// All verbs, in the order of their numbers (`verb as usize`).
pub const VERBS: [Verb; 4] = [Verb::Get, Verb::Set, Verb::Delete, Verb::Append];

impl Verb {
    /// As it is called in workload files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Set => "set",
            Verb::Delete => "delete",
            Verb::Append => "append",
        }
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What is to be done.
    pub verb: Verb,
    /// The numbers of the keys: one, or several for a multiget.
    pub keys: Vec<u64>,
    /// Bytes of the value that is written; 0 where none is.
    pub value_bytes: u32,
    /// Seconds that what is written lives; 0: for ever.
    pub exptime_s: u32,
}

impl Ask {
    /// Room for a request.
    #[must_use]
    pub fn new() -> Ask {
        Ask { verb: Verb::Get, keys: Vec::new(), value_bytes: 0, exptime_s: 0 }
    }
}

impl Default for Ask {
    fn default() -> Ask {
        Ask::new()
    }
}

/// Why a workload cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(pub String);

/// All that defines the traffic but its rate and its targets.
#[derive(Clone, Debug)]
pub struct Workload {
    keys: u64,
    value_bytes: u32,
    cache_aside: bool,
}

impl Workload {
    /// A workload by its name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Workload> {
        let plain = Workload { keys: 1_000_000, value_bytes: 64, cache_aside: false };
        (name == "uniform").then_some(plain)
    }

    /// Reads a TOML file. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// It cannot be read, or something in it is unknown or wrong.
    pub fn read(path: &Path) -> Result<Workload, WorkloadError> {
        Err(WorkloadError(format!("{}: not a workload", path.display())))
    }

    /// Changes one setting, as a flag `--name value` does.
    ///
    /// # Errors
    /// There is no such setting, or it cannot have that value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), WorkloadError> {
        let wrong = || WorkloadError(format!("{name}: {value} is out of range"));
        match name {
            "keys" => self.keys = value.parse().map_err(|_| wrong())?,
            "value-size" => self.value_bytes = value.parse().map_err(|_| wrong())?,
            _ => return Err(WorkloadError(format!("{name}: no such setting"))),
        }
        Ok(())
    }

    /// How many keys there are, numbered from 0.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Is a miss followed by a SET of what was missed?
    #[must_use]
    pub fn cache_aside(&self) -> bool {
        self.cache_aside
    }

    /// The mean gap between one thread's requests where the workload itself fixes it, in ns.
    #[must_use]
    pub fn own_gap_ns(&self) -> Option<f64> {
        None
    }
}
