//! The flags of the subcommands that send requests. Groups of flags are shared by subcommands.
//!
//! Where: parsed by `flags`.
//! Invariant: each flag has the default that `--help` shows. The flags of a workload's settings
//! come from the table `SETTINGS`; their values are applied, in their order on the command line, to
//! the workload that `--workload` names.

use super::agents;
pub use super::crowd::CrowdFlags;
use crate::flags::{CliOption, NUMBERS, cpus, number, or, time};
use crate::measure::objective::{Objective, ObjectiveError};
use crate::measure::schedule::Schedule;
use crate::search::{GOALS_MAX, SearchPlan};
use crate::steer::{STEERS, Steer};
use crate::target::{Family, TARGETS_MAX};
use crate::wire::{PROTOCOLS, Protocol};
use crate::words::{suggestion, without_suffix};
use crate::workload::settings::{self, SETTINGS, Setting};
use crate::workload::{VERBS, Verb, Workload, help, presets};
use clap::Arg;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

const THREADS_MAX: u32 = 1024;
const CONNECTIONS_MAX: u32 = 1 << 20;
const DEPTH_MAX: u32 = 1 << 16;
const RATE_MAX: f64 = 1e10;
const OUTSTANDING_MAX: u32 = 1 << 20;
const PID_MAX: u32 = 1 << 22;
/// Largest `--fill`, in percent. More than 100 % is allowed, so that evictions can be measured.
const FILL_PERCENT_MAX: f64 = 10_000.0;

const ASKED: &str = "Requests and items";
const DRIVEN: &str = "Sending requests";
const MEASURED: &str = "Measuring";
const SETTING: &str = "Settings of the workload (in a TOML file: NAME = VALUE)";

const ABOUT_RUN: &str = "\
Fills the servers with items, sends a workload to them, reports rates, times,
hits, errors and CPU use, and removes the items that it stored. A server that
holds other items is not filled. Several servers share the keys by ketama, as in
libmemcached.

  kvblaster run localhost:11211                        measures for a few seconds
  kvblaster run -r 50k -a 'p99<1ms' localhost:11211    is p99 under 1 ms at this rate?
  kvblaster run -w facebook --schedule 10s+6x10s -o mine localhost:11211
                        10 s unmeasured, then 6 reports of 10 s; the result is
                        written to the folder 'mine'
  kill -USR1 PID        prints a report while the run goes on; Ctrl-C or SIGTERM
                        ends the run and reports what was measured";

const ABOUT_CAPACITY: &str = "\
Finds, for each objective, the highest request rate at which the servers meet
the objective. At this rate the servers also answer at least 99 % of the
requests, and at most 0.1 % of the requests fail. A trial sends requests at one
rate. Prints all trials as a table, and latency against throughput as a plot.
Targets and workloads are given as for kvblaster run.

  kvblaster capacity localhost:11211
  kvblaster capacity -O 'p99.9<500us' --first 50k -o mine localhost:11211";

/// The plan of one run. Its flags belong to all subcommands that send requests. Flags of only some
/// subcommands are in the groups below, whose functions copy the values into the plan.
#[derive(Debug, clap::Args)]
#[command(after_help = help::lists(), args = settings())]
pub struct Plan {
    #[expect(missing_docs, reason = "clap takes the help, in which brackets are no link")]
    #[arg(
        required = true,
        value_name = "TARGET",
        help_heading = None::<&str>,
        help = "\
HOST:PORT, [IPV6]:PORT, udp://HOST:PORT, unix:/PATH, redis://HOST:PORT, redis://unix:/PATH or \
xdp://INTERFACE/HOST:PORT. xdp:// sends UDP packets that bypass the kernel (AF_XDP); it needs \
root, and an interface with at least one queue for each thread; append ?mode=native or \
?mode=generic to allow only this mode of AF_XDP. The default port is 11211 (6379 for Redis); :PORT \
alone is a port of this machine. To divide the keys unequally, append /WEIGHT to each target, or \
,WEIGHT to a unix:/PATH"
    )]
    pub targets: Vec<String>,

    /// Workload to send: the name of a preset listed below, or the path of a TOML file
    #[arg(long = "workload", short, help_heading = ASKED, value_name = "NAME")]
    #[arg(default_value = "mix-b")]
    pub workload_name: String,
    /// The workload with its settings applied.
    #[arg(skip)]
    pub workload: Workload,
    /// Seed of the random choice of requests: the same seed gives the same requests
    #[arg(long, help_heading = ASKED, value_name = "N")]
    #[arg(value_parser = number(0..=u64::MAX), default_value = "1")]
    pub seed: u64,
    /// Protocol of the requests (default: `text`, or `resp` for redis:// targets)
    #[arg(long = "protocol", short = 'P', help_heading = ASKED, value_name = "NAME")]
    #[arg(value_parser = PossibleValuesParser::new(PROTOCOLS.map(Protocol::name))
        .try_map(|name| Protocol::named(&name).ok_or("no protocol")))]
    pub protocol: Option<Protocol>,
    /// For servers that already hold the keys: do not fill them, and do not remove items at the end
    #[arg(long = "no-populate", help_heading = ASKED, action = clap::ArgAction::SetFalse)]
    pub populate: bool,
    /// Fill a server even if it holds items of another workload, which are then overwritten or
    /// evicted
    #[arg(long, help_heading = ASKED)]
    pub force: bool,
    /// Keep the stored items; without this flag they are deleted at the end, or the server is
    /// flushed if it was empty before
    #[arg(long, help_heading = ASKED)]
    pub keep: bool,
    /// Store at most this many keys a second when filling the servers
    #[arg(long = "fill-rate", help_heading = ASKED, value_name = "N", value_parser = rate)]
    pub fill_rate_per_s: Option<f64>,
    /// Compare each value that is read with the value that was set
    #[arg(long, help_heading = ASKED)]
    pub verify: bool,

    /// Number of threads that send the requests
    #[arg(long, short, help_heading = DRIVEN, value_name = "N")]
    #[arg(value_parser = number(1..=THREADS_MAX), default_value = "1")]
    pub threads: u32,
    /// Number of connections to each server, from all threads together
    #[arg(long, short, help_heading = DRIVEN, value_name = "N")]
    #[arg(value_parser = number(1..=CONNECTIONS_MAX), default_value = "16")]
    pub connections: u32,
    /// Open loop: greatest number of requests under way at a time in each thread
    #[arg(long = "outstanding", help_heading = DRIVEN, value_name = "N")]
    #[arg(value_parser = number(1..=OUTSTANDING_MAX), default_value = "8192")]
    pub outstanding_max: u32,
    /// CPUs to which the sending threads are pinned: the first thread to the first CPU of the list,
    /// and so on
    #[arg(long, help_heading = DRIVEN, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    pub cpus: std::vec::Vec<usize>,
    /// Receive answers on separate threads, pinned to these CPUs
    #[arg(long, help_heading = DRIVEN, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    pub receive_cpus: std::vec::Vec<usize>,
    /// Longest time to wait for an answer; also the longest time that a request which is due may
    /// wait for a free connection
    #[arg(long, help_heading = DRIVEN, value_name = "TIME")]
    #[arg(value_parser = time, default_value = "1s")]
    pub timeout: Duration,
    /// Replace each connection by a new one after this many requests
    #[arg(long = "churn", help_heading = DRIVEN, value_name = "N")]
    #[arg(value_parser = number(1..=u64::MAX))]
    pub churn_requests: Option<u64>,
    /// Send UDP requests of equal length in bursts, with one system call for each burst
    /// (UDP_SEGMENT). Bursts are longest if all keys have the same size
    #[arg(long, help_heading = DRIVEN)]
    pub gso: bool,
    /// How requests are directed to the server's columns (threads). `round-robin`, over UDP: each
    /// request goes to the next column; `key`, over UDP: each request goes to the column of its key
    /// (both write the column into two bytes of memcached's UDP header); `ports`, over UDP: each
    /// connection goes to the port of the next column, from PORT to PORT + columns - 1; `first`,
    /// over TCP: all connections go to the first column (kvblaster opens connections until the
    /// first column accepts enough)
    #[arg(long, help_heading = DRIVEN, value_name = "HOW")]
    #[arg(value_parser = PossibleValuesParser::new(STEERS.map(|(_, name)| name))
        .try_map(|name| Steer::named(&name).ok_or("this way to steer is unknown")))]
    pub steer: Option<Steer>,
    /// Number of columns (threads) of each server; needed if the server does not report this number
    /// over TCP
    #[arg(long, help_heading = DRIVEN, value_name = "N", requires = "steer")]
    #[arg(value_parser = number(NonZeroU16::MIN..=NonZeroU16::MAX))]
    pub columns: Option<NonZeroU16>,
    /// Poll for answers without sleeping: a server on this machine then spends no CPU time on
    /// waking kvblaster
    #[arg(long, help_heading = DRIVEN, conflicts_with = "receive_cpus")]
    pub spin: bool,
    /// Use only the IPv4 addresses of a host name
    #[arg(long, short = '4', help_heading = DRIVEN, overrides_with = "ipv6")]
    pub ipv4: bool,
    /// Use only the IPv6 addresses of a host name
    #[arg(long, short = '6', help_heading = DRIVEN)]
    pub ipv6: bool,

    /// Times of the reports: 2s+6x10s means 2 s without measurement, and then 6 reports of 10 s
    /// each; `paper` means 100s+6x10s, as in the KV-Cache paper
    #[arg(long, help_heading = MEASURED, value_name = "WHEN", default_value = "1s+5x1s")]
    pub schedule: Schedule,
    /// Before the schedule, send requests until the hit ratio is steady, but at most for this time.
    /// To decide, kvblaster divides the time so far into quarters. The hit ratio is steady if it
    /// differs between the last two quarters by at most half a percentage point, or by less if hits
    /// or misses are rare
    #[arg(long, help_heading = MEASURED, value_name = "TIME", value_parser = time)]
    pub warm: Option<Duration>,
    /// End after this many requests, or at the end of the schedule if that comes first
    #[arg(long, short = 'n', help_heading = MEASURED, value_name = "N")]
    #[arg(value_parser = number(1..=u64::MAX))]
    pub requests: Option<u64>,
    /// Count a request as late if its answer takes longer than this, or never comes
    #[arg(long, help_heading = MEASURED, value_name = "TIME")]
    #[arg(value_parser = time, default_value = "1ms")]
    pub late: Duration,
    /// Rate, in requests a second, that kvblaster reaches with these flags against a null server
    /// (kvblaster reflect). If this rate is less than 1.2 times the measured rate, the result is
    /// INVALID, because kvblaster may be the limit
    #[arg(long = "reflected", help_heading = MEASURED, value_name = "N", value_parser = rate)]
    pub reflected_per_s: Option<f64>,
    /// Print the result as JSON
    #[arg(long, help_heading = MEASURED)]
    pub json: bool,
    /// Show no progress
    #[arg(long, short, help_heading = MEASURED)]
    pub quiet: bool,

    /// True if this run is part of a larger measurement, which removes the stored items itself.
    #[arg(skip)]
    pub is_part: bool,
    /// All options, in the order of the command line.
    #[arg(skip)]
    pub given: Vec<CliOption>,
    /// The flags of `capacity`, if this is the plan of a search.
    #[arg(skip)]
    pub capacity: Option<Capacity>,
    /// Requests due per second in an open loop. NaN: the workload sets the times between requests.
    #[arg(skip)]
    pub rate_per_s: Option<f64>,
    /// Outstanding requests per connection in a closed loop.
    #[arg(skip = 1_u32)]
    pub depth: u32,
    /// Commands that start agents, which send the requests in place of this process.
    #[arg(skip)]
    pub agents: Vec<String>,
    /// The objectives of `--assert`.
    #[arg(skip)]
    pub asserts: Vec<Objective>,
    /// True if `--assert valid` was given.
    #[arg(skip)]
    pub asserts_valid: bool,
    /// Process ids of the servers. If the list is empty, kvblaster looks for the processes.
    #[arg(skip)]
    pub server_pids: Vec<u32>,
    /// The value of `--fill`: the share of the servers' memory that keys and values take.
    #[arg(skip)]
    pub fill_share: Option<f64>,
    /// The values of `--idle` and `--slow`.
    #[arg(skip)]
    pub crowd: CrowdFlags,
    /// The run's name. If it is `None`, the list of the targets is used.
    #[arg(skip)]
    pub label: Option<String>,
    /// The folder into which the result is written.
    #[arg(skip)]
    pub out: Option<PathBuf>,
}

/// Flags for the pace of requests, for subcommands that do not choose the rate themselves.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PaceFlags {
    /// Open loop: this many requests become due each second, even if the server answers slowly.
    /// With the word `own`, the workload gives the times between requests. Without this flag, each
    /// answer triggers the next request (closed loop)
    #[arg(long = "rate", short, help_heading = DRIVEN, display_order = 0, value_name = "N")]
    #[arg(value_parser = or("own", f64::NAN, rate))]
    rate_per_s: Option<f64>,
    /// Closed loop: number of requests under way at a time on each connection
    #[arg(long, short, help_heading = DRIVEN, display_order = 1, value_name = "N")]
    #[arg(value_parser = number(1..=DEPTH_MAX), default_value = "1")]
    depth: u32,
}

impl PaceFlags {
    pub(crate) fn give(&self, plan: &mut Plan) {
        (plan.rate_per_s, plan.depth) = (self.rate_per_s, self.depth);
    }
}

/// Flags for assertions, for subcommands that do not search for a capacity.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AssertFlags {
    /// Exit with 1 unless this holds, or with 2 if the result is INVALID. Examples: 'p99<1ms',
    /// 'mean<800us', 'errors<0.1%', 'hit>95%', 'rate>100k'; 'valid' asserts only that the
    /// result is valid. May be given several times
    #[arg(long = "assert", short, help_heading = MEASURED, value_name = "WHAT")]
    asserts: Vec<Assertion>,
}

/// The value of `--assert` that asserts a valid result.
pub(super) const VALID: &str = "valid";

#[derive(Clone, Debug)]
enum Assertion {
    Valid,
    Figure(Objective),
}

impl FromStr for Assertion {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Assertion, ObjectiveError> {
        match text.trim() {
            VALID => Ok(Assertion::Valid),
            figure => figure.parse().map(Assertion::Figure),
        }
    }
}

impl AssertFlags {
    pub(crate) fn give(&self, plan: &mut Plan) {
        let figure = |one: &Assertion| match one {
            Assertion::Valid => None,
            Assertion::Figure(objective) => Some(objective.clone()),
        };
        plan.asserts = self.asserts.iter().filter_map(figure).collect();
        plan.asserts_valid = plan.asserts.len() < self.asserts.len();
    }
}

/// Flags for agents and the run's name, for subcommands that measure all targets together.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AgentFlags {
    /// Command that runs 'kvblaster agent', as in 'ssh HOST kvblaster agent'; the agent then sends
    /// the requests in place of this process. May be given several times; threads, connections and
    /// rates are divided among all agents
    #[arg(long = "agent", help_heading = DRIVEN, value_name = "COMMAND")]
    agents: Vec<String>,
    /// Name of the run in reports (default: the targets)
    #[arg(long, help_heading = MEASURED, value_name = "NAME")]
    label: Option<String>,
}

impl AgentFlags {
    pub(crate) fn give(&self, plan: &mut Plan) {
        plan.agents.clone_from(&self.agents);
        plan.label.clone_from(&self.label);
    }
}

/// Flags for the servers' processes, for subcommands that do not compare their targets.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProcessFlags {
    /// Process ids of the servers, if kvblaster does not find them itself
    #[arg(long = "server-pid", help_heading = MEASURED, value_name = "LIST")]
    #[arg(value_delimiter = ',', action = clap::ArgAction::Set, value_parser = number(1..=PID_MAX))]
    server_pids: Vec<u32>,
}

impl ProcessFlags {
    pub(crate) fn give(&self, plan: &mut Plan) {
        plan.server_pids.clone_from(&self.server_pids);
    }
}

/// Flags for the number of keys, for subcommands that start no server themselves.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FillFlags {
    /// Choose the number of keys so that keys and values take this share of the memory that the
    /// servers may use, as in 70%; replaces --keys
    #[arg(long = "fill", help_heading = ASKED, value_name = "SHARE", value_parser = share)]
    #[arg(conflicts_with_all = ["keys", "agents"])]
    fill_share: Option<f64>,
}

/// Flags for the folder of results.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OutFlags {
    /// Write the results into this folder as JSON, CSV and HDR logs
    #[arg(long, short, help_heading = MEASURED, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl OutFlags {
    pub(crate) fn give(&self, plan: &mut Plan) {
        plan.out.clone_from(&self.out);
    }
}

/// The flags of `kvblaster run`.
#[derive(Debug, clap::Args)]
#[command(before_help = format!("{ABOUT_RUN}\n\n{NUMBERS}"))]
pub struct Run {
    /// The flags of all subcommands that send requests.
    #[command(flatten)]
    pub plan: Plan,
    #[command(flatten)]
    paced: PaceFlags,
    #[command(flatten)]
    asserted: AssertFlags,
    #[command(flatten)]
    alone: AgentFlags,
    #[command(flatten)]
    processes: ProcessFlags,
    #[command(flatten)]
    filled: FillFlags,
    #[command(flatten)]
    crowd: CrowdFlags,
    #[command(flatten)]
    kept: OutFlags,
}

/// Flags of a search for capacity.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Searching")]
pub struct Capacity {
    /// The objectives, the rates to try and the precision.
    #[command(flatten)]
    pub aim: SearchPlan,
    /// Fill the servers only once instead of before each trial
    #[arg(long)]
    pub populate_once: bool,
}

/// The flags of `kvblaster capacity`.
#[derive(Debug, clap::Args)]
#[command(before_help = format!("{ABOUT_CAPACITY}\n\n{NUMBERS}"))]
#[command(mut_arg("schedule", |arg| arg.default_value("1s+1x2s")))]
pub struct Search {
    #[command(flatten)]
    capacity: Capacity,
    /// The flags of all subcommands that send requests.
    #[command(flatten)]
    pub plan: Plan,
    #[command(flatten)]
    alone: AgentFlags,
    #[command(flatten)]
    processes: ProcessFlags,
    #[command(flatten)]
    filled: FillFlags,
    #[command(flatten)]
    kept: OutFlags,
}

impl Run {
    /// Completes the plan, and checks that its flags agree with each other.
    pub(crate) fn finish(&mut self, given: Vec<CliOption>) -> Result<(), String> {
        let plan = &mut self.plan;
        self.paced.give(plan);
        self.asserted.give(plan);
        self.alone.give(plan);
        self.processes.give(plan);
        plan.fill_share = self.filled.fill_share;
        plan.crowd = self.crowd;
        self.kept.give(plan);
        plan.finish(given)
    }
}

impl Plan {
    /// Builds the workload, and checks that the flags agree with each other.
    pub(crate) fn finish(&mut self, given: Vec<CliOption>) -> Result<(), String> {
        self.workload =
            workload(&self.workload_name).map_err(|why| format!("--workload: {why}"))?;
        let value = |given: &CliOption| given.value.clone().unwrap_or_default();
        for one in given.iter().filter(|one| settings::names().any(|name| name == one.long)) {
            let set = self.workload.set(&one.long, &value(one));
            // Some errors already begin with the setting's name.
            set.map_err(|error| match error.to_string() {
                why if why.starts_with(&format!("{}: ", one.long)) => format!("--{why}"),
                why => format!("--{}: {why}", one.long),
            })?;
        }
        self.given = given;
        self.check()
    }

    fn check(&mut self) -> Result<(), String> {
        if self.targets.len() > TARGETS_MAX {
            return Err(format!("at most {TARGETS_MAX} targets are possible"));
        }
        self.workload.check().map_err(|error| error.to_string())?;
        agents::check(self)?;
        if self.steer == Some(Steer::First) && !self.agents.is_empty() {
            let why = "an agent finds the first column by the number of connections that the \
                       column has accepted, and other agents change this number";
            return Err(format!("--steer first cannot be combined with --agent, because {why}"));
        }
        if !self.has_steady_rate() && self.workload.own_gap_ns(self.threads).is_none() {
            let why = "--rate own: the workload does not set the times between requests; give a \
                       rate such as 20k";
            return Err(why.to_owned());
        }
        let gets = |shares: [f64; VERBS.len()]| shares[Verb::Get as usize] > 0.0;
        if self.warm.is_some() && !self.workload.shares().is_none_or(gets) {
            return Err("--warm: the workload has no reads, so it has no hits".to_owned());
        }
        if self.connections < self.threads {
            let threads = self.threads;
            return Err(format!(
                "--threads {threads}: each thread needs a connection; give --connections {threads} \
                 or more"
            ));
        }
        if self.is_open() && self.depth != 1 {
            return Err(
                "--depth: this flag is only for the closed loop; with --rate (open loop), use \
                 --outstanding"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Returns the steering of requests, and the number of columns if the user gave it.
    pub(crate) fn steered(&self) -> Option<(Steer, Option<NonZeroU16>)> {
        self.steer.map(|steer| (steer, self.columns))
    }

    /// Returns the address family that host names must have.
    #[must_use]
    pub fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

impl Search {
    /// Builds the objectives, and checks that the flags agree with each other.
    pub(crate) fn finish(&mut self, given: Vec<CliOption>) -> Result<(), String> {
        let mut capacity = self.capacity.clone();
        capacity.aim.seed = self.plan.seed;
        if capacity.aim.goals.is_empty() {
            let usual = SearchPlan::usual_goals(self.plan.late);
            capacity.aim.goals = usual.map_err(|error| error.to_string())?;
        }
        if capacity.aim.goals.len() > GOALS_MAX {
            return Err(format!("--objective: at most {GOALS_MAX} objectives are possible"));
        }
        let plan = &mut self.plan;
        plan.capacity = Some(capacity);
        self.alone.give(plan);
        self.processes.give(plan);
        plan.fill_share = self.filled.fill_share;
        self.kept.give(plan);
        plan.finish(given)
    }
}

/// Returns the preset with this name, or the workload in the file with this name.
pub(crate) fn workload(text: &str) -> Result<Workload, String> {
    match Workload::preset(text) {
        Some(workload) => Ok(workload),
        None if !Path::new(text).exists() => {
            let (names, meant) = (presets::listed(), suggestion(text, presets::names()));
            Err(format!("{text} is neither a preset ({names}) nor a file{meant}"))
        }
        None => Workload::read(Path::new(text)).map_err(|error| error.to_string()),
    }
}

fn settings() -> impl Iterator<Item = Arg> {
    SETTINGS.iter().map(|Setting { name, value, help, .. }| {
        Arg::new(*name).long(*name).value_name(*value).help(*help).help_heading(SETTING)
    })
}

pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let number = without_suffix(text).parse::<f64>().ok();
    let number = number.filter(|number| *number > 0.0 && *number <= RATE_MAX);
    number.ok_or_else(|| format!("must be a rate such as 500, 20k or 1.5m, not {text}"))
}

fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= FILL_PERCENT_MAX);
    let wrong =
        || format!("must be a share of at most {FILL_PERCENT_MAX}%, such as 70%, not {text}");
    percent.map(|percent| percent / 100.0).ok_or_else(wrong)
}

/// Returns a plan in which all flags have their defaults.
#[cfg(test)]
pub(crate) fn plan(searches: bool) -> Result<Box<Plan>, String> {
    tests::planned(if searches { "capacity a" } else { "run a" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Verb;
    use crate::flags::tests::{parse_words, refused};

    pub(super) fn planned(words: &str) -> Result<Box<Plan>, String> {
        parse_words(words).map(|verb| match verb {
            Verb::Run(run) => Box::new(run.plan),
            Verb::Capacity(search) => Box::new(search.plan),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn every_flag_does_what_it_says() {
        let planned = |words: &str| planned(&format!("run {words}")).unwrap();
        let plan = planned("a:1 b:2 -w etc --keys 5000 --seed 7 -P meta --no-populate --verify");
        assert_eq!((plan.targets.len(), plan.workload.keys(), plan.seed), (2, 5000, 7));
        assert_eq!(
            (plan.protocol, plan.populate, plan.verify),
            (Some(Protocol::Meta), false, true)
        );
        let plan = planned("a -r 20k -t 2 -c 8 --outstanding 9 --cpus 0,2-3 --receive-cpus 4 -4");
        assert_eq!((plan.rate_per_s, plan.threads, plan.connections), (Some(20_000.0), 2, 8));
        assert_eq!((&plan.cpus, &plan.receive_cpus), (&vec![0, 2, 3], &vec![4]));
        assert_eq!((plan.outstanding_max, plan.family()), (9, Family::V4));
        let plan =
            planned("a -d 3 --timeout 20ms --churn 5 --gso --schedule 1s+2x3s -n 9 -4 -6 -q");
        assert_eq!((plan.depth, plan.timeout.as_millis(), plan.churn_requests), (3, 20, Some(5)));
        assert_eq!((plan.schedule.reports, plan.requests, plan.gso), (2, Some(9), true));
        assert_eq!(
            (plan.family(), planned("a -w etc -r own").has_steady_rate()),
            (Family::V6, false)
        );
        let steered = |words: &str| planned(words).steered();
        let columns = NonZeroU16::new(4);
        assert_eq!(steered("a --steer key --columns 4"), Some((Steer::Key, columns)));
        assert_eq!((steered("a --steer ports"), steered("a")), (Some((Steer::Ports, None)), None));
        assert!(plan.quiet && !plan.json && plan.capacity.is_none() && plan.populate);
        let plan = planned("a --late 2ms -a p99<1ms -a hit>90% --server-pid 4,5 -o dir --json");
        assert_eq!((plan.late.as_millis(), plan.asserts.len()), (2, 2));
        assert_eq!(planned("a --warm 2m").warm, Some(Duration::from_secs(120)));
        assert_eq!((&plan.server_pids, plan.json), (&vec![4, 5], true));
        assert!(plan.out.is_some());
        let plan = planned("a --keys 5m -n 20k --outstanding 1k --churn 1.5k -w etc-as-printed");
        assert_eq!((plan.requests, plan.churn_requests), (Some(20_000), Some(1500)));
        assert_eq!((plan.outstanding_max, plan.workload_name.as_str()), (1000, "etc-as-printed"));
        // The last value of a repeated flag counts. Settings apply to the workload even if they
        // precede `-w`.
        let plan = planned("a --keys 5 --keys 6m -t 3 -w etc -t 4 --cpus 1 --cpus none");
        assert_eq!((plan.workload.keys(), plan.threads, plan.cpus.len()), (6_000_000, 4, 0));
    }

    #[test]
    fn a_search_has_goals() {
        let search = |words: &str| planned(&format!("capacity a {words}")).unwrap();
        let goals = |plan: &Plan| {
            let names = plan.capacity.iter().flat_map(|search| &search.aim.goals);
            names.map(|goal| goal.name.clone()).collect::<Vec<_>>().join(" ")
        };
        let plan = search("--first 5k --late 2ms");
        assert_eq!((goals(&plan).as_str(), plan.schedule.reports), ("avg p99 p999 max", 1));
        assert_eq!(plan.capacity.unwrap().aim.start_per_s, 5000.0);
        let plan = search("--seed 3 -O p95<3ms -O hit>50% --precision 0.1 --votes 5 --repeats 2");
        assert_eq!(goals(&plan), "p95 hit");
        let search = plan.capacity.unwrap();
        assert_eq!((search.aim.votes, search.aim.rounds, search.populate_once), (5, 2, false));
        assert_eq!((search.aim.seed, search.aim.rate_per_s_max), (3, 1e9));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let rows = [
            ("", "not provided: <TARGET>..."),
            ("a -r 0", "--rate: must be a rate such as 500, 20k or 1.5m, not 0"),
            ("a -r 1e99", "--rate"),
            ("a -w uniform -r own", "own"),
            ("a -w nosuch.toml", "nosuch.toml"),
            ("a --keys many", "--keys: many: "),
            ("a -t 3 -c 2", "--threads 3"),
            ("a -r 3 -d 2", "--outstanding"),
            ("a -w nosuch", "mix-b"),
            ("a --cpus 9-3", "--cpus"),
            ("a --timeout 0s", "--timeout"),
            ("a -a p99", "--assert"),
            ("a --first 3", "--first"),
            ("a --mix get=x", "--mix: get=x: "),
            ("a --speed 3", "--speed"),
            ("a --thread 3", "a similar argument exists: '--threads'"),
            ("a --value-sizes 3", "a similar argument exists: '--value-size'"),
            ("a -w mixa", "; do you mean mix-a?"),
            ("a -P txt", "a similar value exists: 'text'"),
            ("a -t", "'--threads <N>'"),
            ("a --schedule soon", "--schedule"),
            ("a --warm 10s --mix set", "--warm"),
            ("a --steer keys", "a similar value exists: 'key'"),
            ("a --columns 3", "--steer <HOW>"),
            ("a --fill 70", "--fill: must be a share of at most 10000%, such as 70%, not 70"),
            ("a --fill 70% --keys 5", "--keys"),
            ("a --fill 70% --agent x", "--agent"),
            ("a --keys-per agent", "--keys-per agent: there are no agents; give --agent, or "),
            ("a --keys-per agent --keys 1 --agent x --agent x", "1 keys are too few for 2 agents"),
            ("a --steer key --columns 0", "--columns: must be a number from 1 to 65535"),
        ];
        refused("run", &rows);
        let rows = [("a -r 3", "'-r'"), ("a -a p99<1ms", "'-a'"), ("a -O p99", "--objective: ")];
        refused("capacity", &rows);
    }

    #[test]
    fn only_a_search_has_its_flags_and_only_a_run_a_rate() {
        for verb in ["run", "capacity"] {
            let help = parse_words(&format!("{verb} --help")).unwrap_err();
            assert_eq!(help.contains("--precision"), verb == "capacity");
            assert_eq!(help.contains("--rate"), verb == "run");
            assert!(help.contains("Arguments:\n  <TARGET>...  HOST:PORT"), "{help}");
        }
    }
}
