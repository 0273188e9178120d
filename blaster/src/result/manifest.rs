//! The conditions of a result: command line, workload, servers, machine and settings.
//!
//! Where: made before the traffic.
//! Invariant: the run can be repeated from the manifest alone.
//! Source: Pavlik's thesis, section 2.3 (the same seed).

use super::machine::Machine;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// The conditions of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The run's name in reports, which the user gives or which consists of the servers' names.
    pub label: String,
    /// The version of kvblaster.
    pub kvblaster: String,
    /// The time of the start, as Unix time in seconds.
    pub started_unix_s: f64,
    /// The time of the start in UTC, as text.
    pub started: String,
    /// The command line, word by word.
    pub command_line: Vec<String>,
    /// The machine on which the command was run.
    pub machine: Machine,
    /// The seed of all random choices of the run.
    pub seed: u64,
    /// The workload as TOML.
    pub workload_toml: String,
    /// The servers.
    pub targets: Vec<TargetRecord>,
    /// `text`, `meta`, `binary` or `resp`.
    pub protocol: String,
    /// The loop by which requests are sent: `open` or `closed`.
    pub driven: String,
    /// The settling time and the reports, such as `10s+6x10s`.
    pub schedule: String,
    /// Number of driving threads.
    pub threads: u32,
    /// The response time in ns above which an answer counts as late.
    pub late_limit_ns: u64,
    /// All other settings by name: connections, depth, rate, timeout.
    pub settings: Vec<Setting>,
}

/// A setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The flag's name.
    pub name: String,
    /// The setting's value.
    pub value: String,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// The target as written on the command line.
    pub name: String,
    /// The address, such as `tcp 127.0.0.1:11211`.
    pub place: String,
    /// The server's weight in the distribution of keys over servers.
    pub weight: u32,
    /// The version that the server reports, if any.
    pub version: Option<String>,
    /// The server's process ids, if it is on this machine.
    pub pids: Vec<u32>,
    /// The command line of the server's first process.
    pub command_line: Option<String>,
    /// The CPUs that the first process may run on, such as `0-3,8`.
    pub cpus: Option<String>,
    /// The interface of this machine through which the server is reached; `None` without a network.
    pub interface: Option<String>,
}

impl Manifest {
    /// A manifest with this machine, version, time and command line; all other fields are empty.
    pub fn here() -> Manifest {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        Manifest {
            kvblaster: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_s: now.as_secs_f64(),
            started: utc(now.as_secs()),
            command_line: words.collect(),
            machine: Machine::here(),
            ..Manifest::default()
        }
    }

    /// Adds a setting.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.settings.push(Setting { name: name.to_owned(), value: value.to_string() });
    }
}

/// Formats a moment in UTC as in RFC 3339.
pub(crate) fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Days since 1 March 0000 (Howard Hinnant, "chrono-compatible low-level date algorithms").
    let days = days + 719_468;
    let (cycle, day_of_cycle) = (days / 146_097, days % 146_097);
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524
        - day_of_cycle / 146_096)
        / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = 400 * cycle + year_of_cycle + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_240_800), "2026-11-21T06:00:00Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn this_run_knows_where_and_when_it_is() {
        let manifest = Manifest::here();
        assert!(manifest.started.starts_with("20") && manifest.started_unix_s > 1.7e9);
        assert!(!manifest.command_line.is_empty() && manifest.machine.cpus >= 1);
    }
}
