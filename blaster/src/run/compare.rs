//! A comparison: several servers take turns under the same load, and their figures are compared.
//!
//! ```text
//! targets, started servers -> rounds: a run of each -> figures: ratios by round -> text, results
//! ```
//!
//! Where: `main` calls `run`, which calls `super::run` once for each server in each round.
//! Invariant: in one round all servers get the same requests; the requests differ from round to
//! round. Only complete rounds count. Servers that the comparison started are paused while another
//! server is measured, and are killed at the end.
//! Source: Georges, Buytaert, Eeckhout, "Statistically Rigorous Java Performance Evaluation":
//! measurements are repeated and interleaved, and figures have intervals.

pub mod figures;

use super::context::RunContext;
use super::course::TrafficResult;
use super::error::RunError;
use super::flags::{AssertFlags, OutFlags, PaceFlags};
use super::judge::{GONE, judged};
use super::live::Live;
use super::prepare::{has_cpus, prepare_context};
use super::{items, live, record};
use crate::flags::given::CliOption;
use crate::launch::{self, PORT, SOCKET, Server};
use crate::measure::Interval;
use crate::measure::check;
use crate::measure::owner;
use crate::measure::verdict::{Remark, Severity};
use crate::reflect;
use crate::result::manifest::{Manifest, TargetRecord};
use crate::result::{self, ResultError, RunResult};
use crate::target;
use crate::words::Failure;
use crate::words::values::{NUMBERS, cpus, number, or};
use crate::words::{grouped, percent, time_or_dash};
use figures::{CONFIDENCE, Row, Series};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const COMPARED: &str = "Comparing";
const ROUNDS_MAX: u32 = 1000;
/// Maximum number of servers: each server is named by a letter.
pub const SERVERS_MAX: usize = 26;
/// Share of the servers' CPUs that other programs may use without a remark.
const OTHERS_MAX: f64 = 0.05;
/// Longest wait after a failed or interrupted run for the server's end, which may be the cause.
const END_PATIENCE: Duration = Duration::from_millis(200);
const FILE: &str = "comparison.json";
/// Rules whose remarks are collected from each round, because a merged result lacks them.
const CARRIED: [&str; 4] = ["not-populated", "not-warm", "cut-short", GONE];

const ABOUT: &str = "\
Measures servers in turn with the same workload, and compares each server with
the first: requests, CPU, times, hits and memory. For each figure, reports the
ratio with its confidence interval, and whether the servers differ. Targets and
workloads are given as for kvblaster run. In a command of --start, {port} stands
for a free port, and {socket} for the path of a Unix socket. A started server is
paused while another server is measured, and killed at the end.

  kvblaster compare old:11211 new:11211
  kvblaster compare --server-cpus 0 --start 'memcached -p {port}' --start \\
                    'hypostyle -p {port}'";

/// Flags of the comparison.
#[derive(Debug, clap::Args)]
#[command(before_help = format!("{ABOUT}\n\n{NUMBERS}"))]
#[command(mut_arg("targets", |arg| arg.required(false)))]
#[group(skip)]
#[command(mut_arg("schedule", |arg| arg.default_value("500ms+1x2s")))]
pub struct Plan {
    /// Start a server with this shell command; may be given several times. Reports list started
    /// servers after the targets
    #[arg(long = "start", help_heading = COMPARED, value_name = "CMD")]
    #[arg(value_parser = |text: &str| checked_start(text))]
    pub starts: Vec<String>,
    /// Number of rounds; each round measures each server once
    #[arg(long, help_heading = COMPARED, value_name = "N")]
    #[arg(value_parser = number(1..=ROUNDS_MAX), default_value = "10")]
    pub rounds: u32,
    /// CPUs reserved for the servers. kvblaster pins the servers that it starts to these CPUs, and
    /// itself runs on other CPUs. All CPU time spent on these CPUs, including interrupts, counts as
    /// CPU time of the servers
    #[arg(long, help_heading = COMPARED, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    pub server_cpus: std::vec::Vec<usize>,
    #[command(flatten)]
    /// The plan of each run.
    pub run: super::Plan,
    #[command(flatten)]
    paced: PaceFlags,
    #[command(flatten)]
    asserted: AssertFlags,
    #[command(flatten)]
    kept: OutFlags,
}

/// Checks that a command contains a placeholder for the address on which the server listens.
pub(crate) fn checked_start(text: &str) -> Result<String, String> {
    match [PORT, SOCKET].iter().any(|place| text.contains(place)) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "the command must contain {PORT} or {SOCKET} where it names the port or the socket: \
             {text}"
        )),
    }
}

impl Plan {
    /// Completes the plan, and checks that its flags agree with each other.
    pub(crate) fn finish(&mut self, given: Vec<CliOption>) -> Result<(), String> {
        match self.run.targets.len() + self.starts.len() {
            0 | 1 => Err("at least two servers are needed: give targets or --start".to_owned()),
            2..=SERVERS_MAX => {
                self.run.rate_per_s = self.paced.rate_per_s;
                self.run.depth = self.paced.depth;
                self.asserted.give(&mut self.run);
                self.run.out.clone_from(&self.kept.out);
                self.run.finish(given)
            }
            _ => Err(format!("at most {SERVERS_MAX} servers can be compared")),
        }
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The schema number of the results in `servers`.
    pub schema: u32,
    /// Number of complete rounds.
    pub rounds: usize,
    /// True if the comparison ended before its last round.
    pub is_interrupted: bool,
    /// The error that ended the comparison early, if any.
    pub failed: Option<String>,
    /// The confidence of the intervals.
    pub confidence: f64,
    /// One row per figure.
    pub figures: Vec<Row>,
    /// One result per server, with one report per round.
    pub servers: Vec<RunResult>,
}

#[derive(Default)]
struct Contestant {
    letter: char,
    target: String,
    server: Option<Server>,
    /// The server's state before the first round. `None` if this comparison started the server.
    context: Option<RunContext>,
    manifest: Manifest,
    windows: Vec<Interval>,
    /// The rounds in which kvblaster was the limit, each with the reason.
    bound: Vec<(usize, String)>,
    remarks: Vec<Remark>,
    left_behind: Vec<String>,
}

/// Returns the order of servers in a round. Rounds form pairs. The second round of a pair has the
/// reverse order of the first round, so that a drift affects all servers alike. Each pair begins
/// with another server, so that every server comes first, second and so on equally often.
pub(crate) fn order(round: usize, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).map(|at| (at + round / 2) % count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Compares the servers of `plan`. Fails if a server cannot be started or measured.
pub fn run(plan: &mut Plan) -> Result<Comparison, Failure> {
    has_cpus(&[("server-cpus", &plan.server_cpus)])?;
    let failed = |error| format!("cannot choose the CPUs of kvblaster's threads: {error}");
    // All threads of kvblaster run on CPUs outside `--server-cpus`, if there are any.
    let mut rest = net::thread_cpus().map_err(failed)?;
    rest.retain(|cpu| !plan.server_cpus.contains(cpu));
    launch::on_cpus(&rest, || compared(plan)).map_err(failed)?
}

fn compared(plan: &mut Plan) -> Result<Comparison, Failure> {
    let seed = plan.run.seed;
    let mut all = contestants(plan)?;
    // Because of `is_part`, runs do not remove the items, which later rounds use too.
    plan.run.is_part = true;
    let rounds = rounds(plan, &mut all);
    (plan.run.is_part, plan.run.seed) = (false, seed);
    all.iter_mut().for_each(|one| one.leave(&mut plan.run));
    if rounds.is_err() {
        let left = all.iter().flat_map(|one| &one.left_behind);
        left.for_each(|message| live::tell(&plan.run, message));
    }
    let (rounds, failed) = rounds?;
    all.iter_mut().for_each(|one| one.windows.truncate(rounds));
    measure_headroom(&mut all);
    let series = |one: &Contestant| Series {
        is_bound: one.bound.iter().any(|(round, _)| *round < rounds),
        windows: one.windows.clone(),
    };
    let series: Vec<Series> = all.iter().map(series).collect();
    let result = |one: Contestant| one.result(&plan.run, &plan.server_cpus);
    let servers: Vec<RunResult> = all.into_iter().map(result).collect();
    Ok(Comparison {
        schema: crate::result::SCHEMA,
        rounds,
        is_interrupted: rounds < plan.rounds as usize,
        failed,
        confidence: CONFIDENCE,
        figures: figures::rows(&series, &plan.server_cpus),
        servers,
    })
}

/// Returns the number of complete rounds, and the error that ended the rounds early, if any.
fn rounds(plan: &mut Plan, all: &mut [Contestant]) -> Result<(usize, Option<String>), Failure> {
    let (begin, seed) = (Instant::now(), plan.run.seed);
    let (mut rounds, mut failed) = (0, None);
    'all: for round in 0..plan.rounds {
        plan.run.seed = seed.wrapping_add(round.into());
        for at in order(round as usize, all.len()) {
            let Some(one) = all.get_mut(at) else { continue };
            match one.measure(&mut plan.run, (round, plan.rounds), begin) {
                Ok(true) => {}
                Ok(false) => break 'all,
                Err(error) if rounds == 0 => return Err(error),
                Err(error) => {
                    failed = Some(error.to_string());
                    break 'all;
                }
            }
        }
        rounds += 1;
    }
    if rounds == 0 {
        let mut remarks =
            all.iter().flat_map(|one| one.remarks.iter().map(move |remark| (one, remark)));
        let cut_short = remarks.find(|(_, remark)| remark.rule == "cut-short");
        return Err(cut_short.map_or(RunError::Stopped.into(), |(one, remark)| {
            format!("{}: {}", one.named(), remark.sentence).into()
        }));
    }
    Ok((rounds, failed))
}

/// Sets `reflected_per_s` of each round to the null server's rate in this round, if there is one.
fn measure_headroom(all: &mut [Contestant]) {
    let rounds = all.iter().map(|one| one.windows.len()).min().unwrap_or(0);
    for round in 0..rounds {
        let nulls = all.iter().filter(|one| one.is_null_server());
        let rate = nulls.map(|one| one.windows[round].achieved_per_s()).reduce(f64::max);
        let Some(rate) = rate else { return };
        for one in all.iter_mut().filter(|one| !one.is_null_server()) {
            one.windows[round].reflected_per_s = Some(rate);
            let bound = check::generator_bound(&one.windows[round]);
            one.bound.extend(bound.map(|remark| (round, remark.sentence)));
        }
    }
}

/// Connects to the targets, and starts the servers of `--start`, which are then paused.
fn contestants(plan: &mut Plan) -> Result<Vec<Contestant>, Failure> {
    let mut all = Vec::new();
    let mut add = |target: String, server, context| {
        let letter = ('A'..='Z').nth(all.len()).unwrap_or('?');
        all.push(Contestant { letter, target, server, context, ..Contestant::default() });
    };
    let targets = plan.run.targets.clone();
    for target in &targets {
        has_own_cpus(target, plan)?;
        // All targets are checked for items of other workloads before any server is filled.
        plan.run.targets = vec![target.clone()];
        let context = prepare_context(&plan.run).map_err(|error| match error {
            held @ RunError::ForeignItems(_) => Failure::from(held),
            error => format!("{target}: {error}").into(),
        });
        add(target.clone(), None, Some(context?));
    }
    (plan.run.targets, plan.run.force) = (targets, true);
    for command in &plan.starts {
        live::tell(&plan.run, &format!("starting {command}"));
        let server = launch::start(&launch::shell(command), &plan.server_cpus)?;
        let paused = server.pause();
        let why = |error| format!("{}: cannot pause the server: {error}", server.target);
        paused.map_err(why)?;
        add(server.target.clone(), Some(server), None);
    }
    Ok(all)
}

/// If `--server-cpus` is given, checks that a target's processes run only on these CPUs, because
/// CPU time on other CPUs is not counted. A process that kvblaster may not inspect passes, because
/// its CPU time is unknown anyway.
fn has_own_cpus(name: &str, plan: &Plan) -> Result<(), Failure> {
    if plan.server_cpus.is_empty() {
        return Ok(());
    }
    let target = target::parse(name, plan.run.family());
    let target = target.map_err(RunError::failed)?;
    let strays = |pid| Some((pid, record::strays(pid, &plan.server_cpus)?));
    match owner::owners(&target.place).into_iter().find_map(strays) {
        Some((pid, may)) => Err(format!(
            "{name}: process {pid} may also run on CPUs outside --server-cpus, because its CPUs \
             are {may}: pin all threads of the process to the CPUs of --server-cpus (taskset -acp \
             LIST {pid}), or leave out --server-cpus"
        )
        .into()),
        None => Ok(()),
    }
}

impl Contestant {
    /// Makes one run. Returns false if the run ended early, for example by Ctrl-C.
    fn measure(
        &mut self,
        plan: &mut super::Plan,
        (round, rounds): (u32, u32),
        begin: Instant,
    ) -> Result<bool, Failure> {
        let usual = (plan.populate, plan.warm, plan.quiet);
        plan.targets = vec![self.target.clone()];
        if let Some(context) = &self.context {
            context.stored.set(context.workload.keys());
        }
        if round > 0 {
            (plan.populate, plan.warm, plan.quiet) = (false, None, true);
        }
        let start_s = begin.elapsed().as_secs_f64();
        self.let_run(true)?;
        let done = super::run(plan);
        self.let_run(false)?;
        (plan.populate, plan.warm, plan.quiet) = usual;
        let is_over = !matches!(&done, Ok(done) if !done.is_interrupted);
        let patience = if is_over { END_PATIENCE } else { Duration::ZERO };
        let ended = self.server.as_mut().map_or(Ok(None), |server| server.wait_for_end(patience));
        let ended = ended.map_err(|error| format!("{}: {error}", self.named()))?;
        if let Some((status, said)) = ended {
            let name = self.named();
            let why = format!("{name}: the server ended ({status}); its output: {said}");
            return Err(why.into());
        }
        let done = match done {
            Err(RunError::Stopped) => return Ok(false),
            done => done.map_err(|error| format!("{}: {error}", self.named()))?,
        };
        let is_carried = |remark: &&Remark| CARRIED.contains(&remark.rule.as_str());
        self.remarks.extend(done.verdict.remarks.iter().filter(is_carried).cloned());
        let Some(mut window) = done.merged.filter(|_| !done.is_interrupted) else {
            return Ok(false);
        };
        if let Some(remark) = done.verdict.generator_fault() {
            self.bound.push((self.windows.len(), remark.sentence.clone()));
        }
        let mean = time_or_dash(window.tally.total().response_ns.mean_ns());
        let rate = grouped(window.achieved_per_s());
        let (letter, round) = (self.letter, round + 1);
        live::tell(
            plan,
            &format!(
                "round {round} of {rounds}, server {letter}: {rate} requests/s, mean response time \
                 {mean}"
            ),
        );
        (window.start_s, window.run) = (start_s, round - 1);
        self.windows.push(window);
        if round == 1 {
            self.manifest = done.manifest;
        }
        Ok(true)
    }

    /// Removes the stored items, unless this comparison started the server.
    fn leave(&mut self, plan: &mut super::Plan) {
        let Some(context) = &self.context else { return };
        plan.targets = vec![self.target.clone()];
        self.left_behind = items::clean_up(plan, context, &Live::new(plan));
    }

    fn let_run(&self, runs: bool) -> Result<(), Failure> {
        let Some(server) = &self.server else { return Ok(()) };
        let (done, verb) =
            if runs { (server.resume(), "resume") } else { (server.pause(), "pause") };
        let why = || format!("{}: cannot {verb} the server", self.named());
        Ok(done.map_err(|error| format!("{}: {error}", why()))?)
    }

    fn is_null_server(&self) -> bool {
        let target = self.manifest.targets.first();
        target.is_some_and(|target| target.version.as_deref() == Some(reflect::NAME))
    }

    fn named(&self) -> String {
        format!("{} ({})", self.letter, self.target)
    }

    fn result(self, plan: &super::Plan, cpus: &[usize]) -> RunResult {
        let mut manifest = self.manifest;
        let name = manifest.targets.first().map_or(self.target, name);
        manifest.label = format!("{} {name}", self.letter);
        let rounds = self.windows.len();
        let course = TrafficResult { intervals: self.windows, ..TrafficResult::default() };
        let mut done = judged(plan, manifest, course);
        done.left_behind = self.left_behind;
        done.verdict.remarks.extend(self.remarks);
        let mut bound: Vec<_> = self.bound.iter().filter(|(round, _)| *round < rounds).collect();
        bound.sort_by_key(|(round, _)| *round);
        bound.dedup_by_key(|(round, _)| *round);
        if let Some((_, why)) = bound.first().filter(|_| done.verdict.generator_fault().is_none()) {
            let sentence = format!("in {} of {rounds} rounds: {why}", bound.len());
            done.verdict.add("generator-limited", Severity::Warning, sentence);
        }
        let others = done.merged.as_ref().and_then(|all| figures::others(all, cpus));
        if let Some(others) = others.filter(|share| *share > OTHERS_MAX) {
            let sentence = format!(
                "other programs used {} of the CPU time on --server-cpus, and this time counts as \
                 the server's",
                percent(others)
            );
            done.verdict.add("cpus-shared", Severity::Warning, sentence);
        }
        done
    }
}

/// Returns the program and version of a server, if known, and otherwise the target's name.
fn name(target: &TargetRecord) -> String {
    let program = target.command_line.as_ref().and_then(|line| line.split_whitespace().next());
    let program = program.and_then(|path| path.rsplit('/').next());
    match (program, &target.version) {
        (_, Some(version)) if version.contains(' ') => version.clone(),
        (Some(program), Some(version)) => format!("{program} {version}"),
        _ => target.name.clone(),
    }
}

pub(crate) fn folders(folder: &Path, count: usize) -> impl Iterator<Item = PathBuf> {
    let folder = folder.to_owned();
    ('A'..='Z').take(count).map(move |letter| folder.join(letter.to_string()))
}

/// Checks, before anything is measured, that all results can be written. Fails if a result already
/// exists, or cannot be written.
pub fn prepare(plan: &Plan) -> Result<(), ResultError> {
    let Some(folder) = &plan.run.out else { return Ok(()) };
    let count = plan.run.targets.len() + plan.starts.len();
    folders(folder, count).try_for_each(|folder| RunResult::prepare(&folder))
}

impl Comparison {
    /// Returns the comparison as JSON. Fails if a histogram cannot be encoded.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub(crate) fn is_at(path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == FILE) || path.join(FILE).exists()
    }

    /// Reads a comparison from its folder or from its file.
    pub(crate) fn read(path: &Path) -> Result<Comparison, ResultError> {
        let path = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        result::read(&path)
    }

    /// Writes `comparison.json`, and for each server a folder that `kvblaster report` can read.
    /// Fails if a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ResultError> {
        for (server, folder) in self.servers.iter().zip(folders(folder, self.servers.len())) {
            server.write(&folder)?;
        }
        let path = folder.join(FILE);
        let json = self.json().map_err(|error| ResultError::Contents(path.clone(), error))?;
        std::fs::write(&path, json).map_err(|error| ResultError::File(path.clone(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Verb;
    use crate::flags::tests::{parse_words, refused};
    use crate::workload::Verb as Request;

    #[test]
    fn servers_are_named_or_started_and_work_as_a_run_says() {
        let words = "compare a b --start {port} --start={socket} --rounds 3 --server-cpus 0 -c 5";
        let Verb::Compare(plan) = parse_words(words).unwrap() else { panic!("another verb") };
        assert_eq!((plan.run.targets.len(), plan.run.connections, plan.rounds), (2, 5, 3));
        assert_eq!((plan.starts[1].as_str(), plan.server_cpus.len()), ("{socket}", 1));
        assert_eq!(plan.run.schedule.reports, 1);
        let rows = [
            ("a", "at least two servers are needed"),
            ("a b --start memcached", "--start: the command must contain {port} or {socket}"),
            ("a b --rounds 0", "--rounds"),
            ("a b -t 3 -c 2", "--threads 3"),
            (&"a ".repeat(27), "at most 26 servers can be compared"),
        ];
        refused("compare", &rows);
        let rows = [("a b --server-pid 3", "'--server-pid'"), ("a b --agent c", "'--agent'")];
        refused("compare", &rows);
    }

    #[test]
    fn what_answers_hardly_less_than_a_null_server_is_bound_by_the_generator() {
        let contestant = |letter, version: &str, rates: [u64; 2]| {
            let window = |answered| {
                let mut window = Interval { seconds: 1.0, ..Interval::default() };
                (0..answered).for_each(|_| window.tally.answered(Request::Get, false, 0, 0, 1000));
                window
            };
            let version = Some(version.to_owned());
            let target = TargetRecord { version, ..TargetRecord::default() };
            let manifest = Manifest { targets: vec![target], ..Manifest::default() };
            Contestant {
                letter,
                manifest,
                windows: rates.map(window).into(),
                ..Contestant::default()
            }
        };
        let mut all = [
            contestant('A', "1.6.45", [100, 200]),
            contestant('B', "reflect", [50, 60]),
            contestant('C', "reflect", [150, 230]),
        ];
        measure_headroom(&mut all);
        let bound = |one: &Contestant| one.bound.iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(all.each_ref().map(bound), [vec![1], vec![], vec![]]);
        assert!(all[0].bound[0].1.contains("230 requests a second"), "{}", all[0].bound[0].1);
        assert_eq!(all[0].windows[0].headroom(), Some(1.5));
        let others = &mut all[..1];
        others[0].bound.clear();
        measure_headroom(others);
        assert!(others[0].bound.is_empty(), "no null server");
    }

    #[test]
    fn everybody_is_as_often_at_each_place_and_what_drifts_drifts_for_all() {
        assert_eq!([0, 1, 2, 3].map(|round| order(round, 2)), [[0, 1], [1, 0], [1, 0], [0, 1]]);
        for count in 2..7 {
            let rounds: Vec<Vec<usize>> = (0..2 * count).map(|round| order(round, count)).collect();
            for one in 0..count {
                let places = rounds.iter().map(|order| order.iter().position(|at| *at == one));
                let places: Vec<usize> = places.map(Option::unwrap).collect();
                let often = |place| places.iter().filter(|at| **at == place).count();
                assert!((0..count).all(|place| often(place) == 2), "{one} of {count}: {places:?}");
                assert!(places.chunks(2).all(|two| two.iter().sum::<usize>() == count - 1));
            }
        }
    }
}
