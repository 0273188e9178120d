//! The flags of the subcommands that send requests. Groups of flags are shared by subcommands.
//!
//! Where: parsed by `flags`.
//! Invariant: each flag has the default that `--help` shows. The flags of a workload's settings
//! come from the table `SETTINGS`; their values are applied, in their order on the command line, to
//! the workload that `--workload` names.

pub(crate) use super::crowd::CrowdFlags;
use super::plan::{ASKED, Capacity, DRIVEN, MEASURED, Plan, VALID};
use crate::flags::given::CliOption;
use crate::measure::objective::{Objective, ObjectiveError};
use crate::search::{GOALS_MAX, SearchPlan};
use crate::words::values::{NUMBERS, number, or, rate};
use std::path::PathBuf;
use std::str::FromStr;

const DEPTH_MAX: u32 = 1 << 16;
const PID_MAX: u32 = 1 << 22;
/// Largest `--fill`, in percent. More than 100 % is allowed, so that evictions can be measured.
const FILL_PERCENT_MAX: f64 = 10_000.0;

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

/// Flags for the pace of requests, for subcommands that do not choose the rate themselves.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PaceFlags {
    /// Open loop: this many requests become due each second, even if the server answers slowly.
    /// With the word `own`, the workload gives the times between requests. Without this flag, each
    /// answer triggers the next request (closed loop)
    #[arg(long = "rate", short, help_heading = DRIVEN, display_order = 0, value_name = "N")]
    #[arg(value_parser = or("own", f64::NAN, rate))]
    pub(crate) rate_per_s: Option<f64>,
    /// Closed loop: number of requests under way at a time on each connection
    #[arg(long, short, help_heading = DRIVEN, display_order = 1, value_name = "N")]
    #[arg(value_parser = number(1..=DEPTH_MAX), default_value = "1")]
    pub(crate) depth: u32,
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

/// Flags for the servers' processes, for subcommands that do not compare their targets.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProcessFlags {
    /// Process ids of the servers, if kvblaster does not find them itself
    #[arg(long = "server-pid", help_heading = MEASURED, value_name = "LIST")]
    #[arg(value_delimiter = ',', action = clap::ArgAction::Set, value_parser = number(1..=PID_MAX))]
    pub(crate) server_pids: Vec<u32>,
}

/// Flags for the folder of results.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OutFlags {
    /// Write the results into this folder as JSON, CSV and HDR logs
    #[arg(long, short, help_heading = MEASURED, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Flags for subcommands that measure all targets together, and start no server themselves.
#[derive(Clone, Debug, clap::Args)]
struct TogetherFlags {
    /// Command that runs 'kvblaster agent', as in 'ssh HOST kvblaster agent'; the agent then sends
    /// the requests in place of this process. May be given several times; threads, connections and
    /// rates are divided among all agents
    #[arg(long = "agent", help_heading = DRIVEN, value_name = "COMMAND")]
    agents: Vec<String>,
    /// Name of the run in reports (default: the targets)
    #[arg(long, help_heading = MEASURED, value_name = "NAME")]
    label: Option<String>,
    #[command(flatten)]
    processes: ProcessFlags,
    /// Choose the number of keys so that keys and values take this share of the memory that the
    /// servers may use, as in 70%; replaces --keys
    #[arg(long = "fill", help_heading = ASKED, value_name = "SHARE", value_parser = share)]
    #[arg(conflicts_with_all = ["keys", "agents"])]
    fill_share: Option<f64>,
    #[command(flatten)]
    kept: OutFlags,
}

impl TogetherFlags {
    fn give(&self, plan: &mut Plan) {
        plan.agents.clone_from(&self.agents);
        plan.label.clone_from(&self.label);
        plan.server_pids.clone_from(&self.processes.server_pids);
        plan.fill_share = self.fill_share;
        plan.out.clone_from(&self.kept.out);
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
    together: TogetherFlags,
    #[command(flatten)]
    crowd: CrowdFlags,
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
    together: TogetherFlags,
}

impl Run {
    /// Completes the plan, and checks that its flags agree with each other.
    pub(crate) fn finish(&mut self, given: Vec<CliOption>) -> Result<(), String> {
        let plan = &mut self.plan;
        (plan.rate_per_s, plan.depth) = (self.paced.rate_per_s, self.paced.depth);
        self.asserted.give(plan);
        self.together.give(plan);
        plan.crowd = self.crowd;
        plan.finish(given)
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
        self.together.give(plan);
        plan.finish(given)
    }
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
    use crate::target::Family;
    use crate::target::steer::Steer;
    use crate::wire::Protocol;
    use std::num::NonZeroU16;
    use std::time::Duration;

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
