//! The plan of a run: the flags that all subcommands that send requests share.
//!
//! Where: filled by `flags`, and read by each step of a run.
//! Invariant: the flags of a finished plan agree with each other. The flags of a workload's
//! settings come from the table `SETTINGS`; their values are applied, in their order on the command
//! line, to the workload that `--workload` names.

use super::crowd::CrowdFlags;
use crate::flags::given::CliOption;
use crate::measure::objective::Objective;
use crate::measure::schedule::{Schedule, time};
use crate::search::SearchPlan;
use crate::target::steer::{STEERS, Steer};
use crate::target::{Family, TARGETS_MAX};
use crate::wire::{PROTOCOLS, Protocol};
use crate::words::quoted;
use crate::words::values::{cpus, number, or, rate};
use crate::workload::settings::{self, SETTINGS, Setting};
use crate::workload::{VERBS, Verb, Workload, help};
use clap::Arg;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

const THREADS_MAX: u32 = 1024;
const CONNECTIONS_MAX: u32 = 1 << 20;
const OUTSTANDING_MAX: u32 = 1 << 20;
/// Maximum number of agents in one run.
pub(crate) const AGENTS_MAX: usize = 256;

pub(super) const ASKED: &str = "Requests and items";
pub(super) const DRIVEN: &str = "Sending requests";
pub(super) const MEASURED: &str = "Measuring";
const SETTING: &str = "Settings of the workload (in a TOML file: NAME = VALUE)";

/// The value of `--assert` that asserts a valid result.
pub(super) const VALID: &str = "valid";

/// The plan of one run. Its flags belong to all subcommands that send requests. Flags of only some
/// subcommands are in the groups below, whose values are copied into the plan.
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

impl Plan {
    /// Builds the workload, and checks that the flags agree with each other.
    pub(crate) fn finish(&mut self, given: Vec<CliOption>) -> Result<(), String> {
        self.workload =
            Workload::named(&self.workload_name).map_err(|why| format!("--workload: {why}"))?;
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
        check_agents(self)?;
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
    pub(crate) fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }

    /// True for an open loop: requests become due at a given rate even if none is answered.
    pub(crate) fn is_open(&self) -> bool {
        self.rate_per_s.is_some() || self.capacity.is_some()
    }

    /// Returns a command line: the verb `command`, the words of `more`, this plan's options except
    /// those that `less` names, and this plan's servers.
    pub(crate) fn command_for(&self, command: &str, more: &str, less: &[&str]) -> String {
        let mut words = vec!["kvblaster".to_owned(), command.to_owned()];
        words.extend(more.split_whitespace().map(str::to_owned));
        for CliOption { long, value } in &self.given {
            // `--out` is left out, because another run cannot write to the same folder.
            if long == "out" || less.contains(&long.as_str()) {
                continue;
            }
            // A search has `--objective` in place of `--assert`, and always checks validity.
            let is_goal = command == "capacity" && long == "assert";
            if is_goal && value.as_deref() == Some(VALID) {
                continue;
            }
            words.push(format!("--{}", if is_goal { "objective" } else { long }));
            words.extend(value.as_deref().map(quoted));
        }
        words.extend(self.targets.iter().map(|target| quoted(target)));
        words.join(" ")
    }

    /// False if the workload sets the pace, because such a pace may vary from report to report.
    pub(crate) fn has_steady_rate(&self) -> bool {
        !self.rate_per_s.is_some_and(f64::is_nan)
    }
}

/// Checks the flags of a run with agents. If `--threads` was not given, makes sure that each agent
/// has a thread.
fn check_agents(plan: &mut Plan) -> Result<(), String> {
    let agents = u32::try_from(plan.agents.len()).unwrap_or(u32::MAX);
    if agents as usize > AGENTS_MAX {
        return Err(format!("--agent: at most {AGENTS_MAX} agents are possible"));
    }
    if agents > 0 && !(plan.cpus.is_empty() && plan.receive_cpus.is_empty()) {
        let why = "--cpus and --receive-cpus: with --agent, add these flags to the agents' \
                   commands, as in 'kvblaster agent --cpus 0-3'";
        return Err(why.to_owned());
    }
    if plan.agents.iter().any(|command| command.trim().is_empty()) {
        return Err("--agent: the command is empty; write a command such as 'ssh HOST kvblaster \
                    agent'"
            .to_owned());
    }
    if plan.threads < agents {
        if plan.given.iter().any(|given| given.long == "threads") {
            let why = "this is the number of threads of all agents together, and each agent needs \
                       a thread";
            return Err(format!("--threads {}: {why}", plan.threads));
        }
        plan.threads = agents;
    }
    if plan.workload.per_agent() && agents == 0 {
        let why = "there are no agents; give --agent, or --keys-per connection";
        return Err(format!("--keys-per agent: {why}"));
    }
    if plan.workload.per_agent() && plan.workload.keys() < u64::from(agents) {
        let keys = plan.workload.keys();
        return Err(format!("--keys-per agent: {keys} keys are too few for {agents} agents"));
    }
    Ok(())
}

fn settings() -> impl Iterator<Item = Arg> {
    SETTINGS.iter().map(|Setting { name, value, help, .. }| {
        Arg::new(*name).long(*name).value_name(*value).help(*help).help_heading(SETTING)
    })
}
