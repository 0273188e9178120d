//! The flags of `size`, and the command itself.
//!
//! Where: a part of `flags`; called by `main`.
//! Invariant: if no server is given, nothing is sent. A server that only `--stats` names gets only
//! requests for statistics.

use super::servers::{DrivenServer, ServerStats};
use super::text::{SizeReport, text};
use super::{Parameters, memory};
use crate::flags::exit::Exit;
use crate::flags::given::CliOption;
use crate::measure::schedule::time;
use crate::run::compare::checked_start;
use crate::run::flags::ProcessFlags;
use crate::run::live::tell;
use crate::run::{self, Plan};
use crate::search::{Goal, goal};
use crate::words::values::rate;
use crate::words::values::{NUMBERS, number, or};
use std::sync::Arc;
use std::time::Duration;

/// The maximum size of a simulated store, in megabytes.
const MB_MAX: u64 = 1 << 20;
const SIZES_MAX: usize = 64;
const SIZED: &str = "Sizing";

const ABOUT: &str = "\
Finds out how many hits each size of memory gives at the rate of --rate:
Hypostyle's store runs in this process, in simulated time, so that an hour of
traffic takes seconds. Servers given as targets or by --start are then measured
at this rate, and at the highest rate that meets the objective; the report has
their p99 and CPU use.

  kvblaster size -r 40k --mix get=95,set=5 --value-size 5000 --ttl 60-300
  kvblaster size -r 40k -w mine.toml -O 'p99<1ms' \\
                 --start 'memcached -m {mb} -p {port}'
  kvblaster size -r 40k -w mine.toml --stats cache:11211";

/// Flags of sizing.
#[derive(Debug, clap::Args)]
#[command(before_help = format!("{ABOUT}\n\n{NUMBERS}"))]
#[command(mut_arg("targets", |arg| arg.required(false)))]
#[group(skip)]
pub struct Sizing {
    /// Requests per second; `own` means that the workload gives the times between requests
    #[arg(long = "rate", short, help_heading = SIZED, value_name = "N")]
    #[arg(value_parser = or("own", f64::NAN, rate))]
    rate_per_s: f64,
    /// Memory sizes to simulate, in megabytes as in a server's -m (default: several fractions of
    /// the memory needed to hold all live items)
    #[arg(long = "memory", short = 'm', help_heading = SIZED, value_name = "MB,...")]
    #[arg(value_delimiter = ',', value_parser = number(1..=MB_MAX))]
    memory_mb: Vec<u64>,
    /// Time that is simulated (default: until each key was requested 16 times, and each TTL has
    /// passed 4 times)
    #[arg(long, help_heading = SIZED, value_name = "TIME", value_parser = time)]
    span: Option<Duration>,
    /// Start a server with this shell command, and send the workload to it; {mb} is replaced by the
    /// memory size that gives 99 % of the hits, {port} or {socket} by the port or the Unix socket
    /// to listen on; may be repeated
    #[arg(long = "start", help_heading = SIZED, value_name = "CMD")]
    #[arg(value_parser = |text: &str| checked_start(text))]
    starts: Vec<String>,
    /// Find the highest rate at which each server meets this objective
    #[arg(long, short = 'O', help_heading = SIZED, value_name = "WHAT", value_parser = goal)]
    #[arg(default_value = "p99<1ms")]
    objective: Goal,
    /// Ask this server for its hits, and for its estimate of the hits with more or less memory; the
    /// server gets only requests for statistics; may be repeated
    #[arg(long = "stats", help_heading = SIZED, value_name = "TARGET")]
    stats: Vec<String>,
    #[command(flatten)]
    plan: Plan,
    #[command(flatten)]
    processes: ProcessFlags,
}

impl Sizing {
    /// Checks that the flags agree with each other, after all are parsed.
    pub(crate) fn finish(&mut self, given: Vec<CliOption>) -> Result<(), String> {
        if self.memory_mb.len() > SIZES_MAX {
            return Err(format!("--memory: at most {SIZES_MAX} sizes are possible"));
        }
        self.plan.rate_per_s = Some(self.rate_per_s);
        self.plan.server_pids.clone_from(&self.processes.server_pids);
        self.plan.finish(given)
    }

    /// Requests per second of all threads. With `--rate own`, the workload determines the rate.
    fn rate_per_s(&self) -> f64 {
        let threads = self.plan.threads;
        let own = || self.plan.workload.own_gap_ns(threads).filter(|gap_ns| *gap_ns > 0.0);
        let own = || own().map(|gap_ns| 1e9 * f64::from(threads) / gap_ns);
        let asked = Some(self.rate_per_s).filter(|rate| !rate.is_nan());
        asked.or_else(own).unwrap_or(f64::NAN)
    }

    /// Simulates stores, then drives servers. Returns the report, and `Met` if all servers were
    /// driven without an error. Fails if a store cannot be made, or a server of `--stats` does not
    /// answer.
    pub fn run(mut self) -> Result<(String, Exit), String> {
        // The servers of `--stats` are queried first, so that errors appear before the simulation.
        let said = self.stats.iter().map(|place| Ok((place.clone(), ServerStats::query(place)?)));
        let said = said.collect::<Result<Vec<_>, String>>()?;
        run::prepare::check_room(&mut self.plan).map_err(|error| error.to_string())?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let rate_per_s = self.rate_per_s();
        let parameters = Parameters {
            workload: Arc::new(self.plan.workload.clone()),
            seed: self.plan.seed,
            rate_per_s,
            populates: self.plan.populate,
            memory_bytes: self.memory_mb.iter().map(|mb| mb << 20).collect(),
            span: self.span,
            connections: self.plan.connections,
            threads,
            is_quiet: self.plan.quiet,
        };
        tell(&self.plan, "simulating the store at several sizes of memory");
        let memory = memory(&parameters).map_err(|error| error.to_string())?;
        let goal = self.objective.clone();
        let servers = self.plan.targets.len() + self.starts.len();
        let driven = match servers {
            0 => Vec::new(),
            _ => DrivenServer::drive_all(&mut self.plan, &self.starts, (&goal, &memory))
                .map_err(|error| error.to_string())?,
        };
        let left_out = servers - driven.len();
        let is_well = left_out == 0 && driven.iter().all(|one| one.trouble.is_none());
        let objective = goal.objective.to_string();
        let answer = SizeReport { rate_per_s, objective, memory, driven, left_out, said };
        let text = match self.plan.json {
            true => {
                serde_json::to_string_pretty(&answer).map_err(|error| error.to_string())? + "\n"
            }
            false => text(&parameters.workload, &answer),
        };
        Ok((text, if is_well { Exit::Met } else { Exit::NotMet }))
    }
}
