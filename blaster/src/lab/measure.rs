//! One measurement of the lab: starts a server, sends load to the server, and stops the server.
//!
//! ```text
//! server, point -> processes -> command line of kvblaster -> result -> figures of a row
//! ```
//!
//! Where: called by `resident` for each row.
//! Invariant: each measurement starts new server processes and fills them. So if two starts of a
//! server differ in speed by chance, the rounds show this difference. The record has the command
//! line that repeats the measurement.
//! Source: the KV-Cache paper, section 6.1: each run populates again; section 6.2: RTTs are
//! measured at a rate just below the capacity.

use super::command_line::{has_flag, parsed};
use super::experiment::{Drive, Method, Program, Scale, Server};
use super::figures::{self, CAPACITY_AVG};
use super::installed::MeasureError;
use super::link::Link;
use super::points::At;
use super::profile::{ProfileError, Profiler};
use super::record::{Row, Started};
use super::servers::Group;
use super::simulated;
use crate::flags::Verb;
use crate::launch::on_cpus;
use crate::measure::verdict::{NO_ANSWERS, Remark, Verdict};
use crate::result::RunResult;
use crate::run::{self, RunError, capacity};
use crate::words::split;

/// The rate of the run in `Method::BelowCapacity`, as a share of the capacity.
const BELOW: f64 = 0.95;
/// The first rate of a search, as a share of the capacity that an earlier round found.
const FIRST: f64 = 0.7;
/// The short and the long form of the flag that gives a search an objective.
const OBJECTIVE: [&str; 2] = ["-O", "--objective"];
/// The objectives of a search, unless the experiment gives other objectives.
const OBJECTIVES: [&str; 3] = ["mean<1ms", "p99<1ms", "late<=0"];

/// The CPUs and the link that a measurement uses.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    /// CPUs reserved for the servers.
    pub server_cpus: &'a [usize],
    /// CPUs of kvblaster.
    pub client_cpus: &'a [usize],
    /// The link between kvblaster and the servers. `None` over loopback and Unix sockets.
    pub link: Option<&'a Link>,
}

/// The times and repetitions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    /// The value of `--schedule` for a run.
    pub run: &'static str,
    /// The flags of a search that depend on the scale, such as `--schedule` for a trial.
    pub search: &'static str,
    /// Seconds that a run's schedule takes.
    pub run_s: f64,
    /// Approximate number of seconds that a search takes.
    pub search_s: f64,
    /// Number of rounds.
    pub rounds: u32,
}

impl Scale {
    /// Returns the scale's times and rounds.
    pub(crate) fn times(self) -> Times {
        let times =
            |run, run_s, search, search_s, rounds| Times { run, search, run_s, search_s, rounds };
        let quick =
            "--schedule 50ms+1x150ms --precision 0.15 --votes 3 --repeats 1 --populate-once";
        let usual = "--schedule 300ms+1x1s --precision 0.05 --votes 3 --repeats 1";
        let smoke = "--schedule 10ms+1x40ms --precision 0.5 --votes 1 --repeats 1 --populate-once";
        match self {
            Scale::Smoke => times("20ms+1x60ms", 0.08, smoke, 0.6, 1),
            Scale::Quick => times("50ms+1x250ms", 0.3, quick, 6.0, 3),
            Scale::Default => times("500ms+1x2s", 2.5, usual, 30.0, 3),
            Scale::Full => times(
                "10s+6x10s",
                70.0,
                "--schedule 10s+6x10s --precision 0.02 --votes 3 --repeats 1",
                1500.0,
                5,
            ),
        }
    }
}

/// Measures a server at a point. `known_per_s` is the capacity that an earlier round found. Fails
/// if the server cannot be started or driven, or the user stopped the lab.
pub(crate) fn measure(
    (server, drive): (&Server, &Drive),
    at: &At,
    site: &Site<'_>,
    (scale, round, known_per_s): (Scale, u32, Option<f64>),
) -> Result<(Row, Started), MeasureError> {
    if drive.method == Method::Simulate {
        return simulated::measure((server, drive), at, (site.client_cpus, round));
    }
    let group = Group::start(server, at, site.server_cpus, site.link)?;
    let words = |verb: &str, flags: &str, more: &str| {
        command(verb, [flags, more], server, at, &group.targets)
    };
    let drive_with = |words: Result<Vec<String>, MeasureError>| driven(words?, &group.pids(), site);
    if !drive.prepare.is_empty() {
        drive_with(command("run", [&drive.prepare, ""], server, at, &group.stream_targets))?;
    }
    let (times, seed) = (scale.times(), format!("--seed {}", round + 1));
    let run = |flags: &str, more: &str| {
        words("run", flags, &format!("{seed} --schedule {}{more}", times.run))
    };
    let search = || {
        // A search that begins near the capacity needs few trials. It begins below, because it ends
        // if kvblaster is behind schedule at the first rate.
        let first = |rate: f64| format!(" --first {:.0}", FIRST * rate);
        let first = known_per_s.map_or_else(String::new, first);
        let more = format!("{seed} {}{first}", times.search);
        let mut words = words("capacity", &drive.flags, &more)?;
        words.extend(objectives(&words));
        Ok(words)
    };
    let (result, command) = match drive.method {
        Method::Run if !drive.beside.is_empty() => {
            let both = [run(&drive.flags, ""), run(&drive.beside, " --no-populate")];
            return together(both, (server, at, round), (&group, site), scale);
        }
        Method::Run if drive.profile => {
            let profiler = Profiler::start(site.server_cpus)?;
            let (result, command) = drive_with(run(&drive.flags, ""))?;
            let mut row = row(&result, (server, at, round), (site, scale))?;
            row.figures.extend(profiler.finish(&group.pids(), scale).map_err(unprofiled)?);
            return Ok((row, started(server, &group, command)));
        }
        Method::Run | Method::Simulate => drive_with(run(&drive.flags, ""))?,
        Method::Capacity => drive_with(search())?,
        Method::BelowCapacity => {
            let found = match known_per_s {
                Some(known) => Some(known),
                None => capacity_of(&drive_with(search())?.0),
            };
            let Some(rate) = found else {
                let why = "no rate was found with a mean response time below 1 ms".to_owned();
                return Err(MeasureError::Lacking(why));
            };
            let rate_flag = format!(" -r {:.0}", BELOW * rate);
            let (mut result, command) = drive_with(run(&drive.flags, &rate_flag))?;
            // The row has the capacity only if this round has searched for the capacity.
            if known_per_s.is_none() {
                result.manifest.set(CAPACITY_AVG, rate);
            }
            (result, command)
        }
    };
    Ok((row(&result, (server, at, round), (site, scale))?, started(server, &group, command)))
}

/// Sends two loads to a server at the same time. The figures of the second load have names that
/// begin with `figures::BESIDE`.
fn together(
    words: [Result<Vec<String>, MeasureError>; 2],
    (server, at, round): (&Server, &At, u32),
    (group, site): (&Group, &Site<'_>),
    scale: Scale,
) -> Result<(Row, Started), MeasureError> {
    let [main, beside] = words;
    let (main, beside, pids) = (main?, beside?, group.pids());
    let (main, beside) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| driven(beside, &pids, site));
        let main = driven(main, &pids, site);
        (main, beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let ((result, command), (second, second_command)) = (main?, beside?);
    let mut row = row(&result, (server, at, round), (site, scale))?;
    check_answered(&second.verdict, scale)?;
    row.figures.extend(figures::beside(&figures::all(&second, site.server_cpus)));
    Ok((row, started(server, group, format!("{command} & {second_command}"))))
}

/// Few samples are no failure: the measurement was short, or the server was idle.
fn unprofiled(error: ProfileError) -> MeasureError {
    match error {
        ProfileError::Few(_) => MeasureError::Lacking(error.to_string()),
        error => error.into(),
    }
}

fn started(server: &Server, group: &Group, driven_by: String) -> Started {
    Started {
        server: server.name.clone(),
        version: group.version.clone(),
        commands: group.commands.clone(),
        driven_by,
    }
}

fn capacity_of(result: &RunResult) -> Option<f64> {
    result.search.as_ref()?.capacities.first()?.rate_per_s.filter(|rate| *rate > 0.0)
}

fn row(
    result: &RunResult,
    (server, at, round): (&Server, &At, u32),
    (site, scale): (&Site<'_>, Scale),
) -> Result<Row, MeasureError> {
    check_answered(&result.verdict, scale)?;
    let mut figures = figures::all(result, site.server_cpus);
    let known = result.manifest.settings.iter().find(|setting| setting.name == CAPACITY_AVG);
    if let Some(rate) = known.and_then(|setting| setting.value.parse().ok()) {
        figures.insert(CAPACITY_AVG.to_owned(), rate);
    }
    let fault = result.verdict.generator_fault().map(|remark| &remark.rule);
    let others = result.verdict.remarks.iter().filter(|remark| Some(&remark.rule) != fault);
    Ok(Row {
        round,
        at: at.labels.clone(),
        server: server.name.clone(),
        figures,
        bound: result.verdict.generator_fault().map(|remark| remark.sentence.clone()),
        remarks: others.map(|remark| remark.sentence.clone()).collect(),
    })
}

/// The words of a command line of kvblaster, without the program's name.
fn command(
    verb: &str,
    [flags, more]: [&str; 2],
    server: &Server,
    at: &At,
    targets: &[String],
) -> Result<Vec<String>, MeasureError> {
    let resolved = |text: &str| at.resolve(text).map_err(MeasureError::Failed);
    let mut words = vec![verb.to_owned()];
    words.extend(split(&resolved(flags)?));
    if server.program == Program::Redis {
        // `redis://` in a target selects the protocol, so the flag `-P` is removed.
        remove(&mut words, &["-P", "--protocol"]);
    }
    words.extend(split(&resolved(&server.drive)?));
    words.extend(split(more));
    words.extend(targets.iter().cloned());
    Ok(words)
}

/// Returns flags for the usual objectives, or no flags if the command line has an objective.
fn objectives(words: &[String]) -> Vec<String> {
    match has_flag(words, OBJECTIVE) {
        true => Vec::new(),
        false => OBJECTIVES.iter().flat_map(|one| ["-O", one]).map(str::to_owned).collect(),
    }
}

fn remove(words: &mut Vec<String>, flags: &[&str]) {
    while let Some(at) = words.iter().position(|word| flags.contains(&word.as_str())) {
        words.drain(at..words.len().min(at + 2));
    }
}

/// Executes a command line in this process. Returns its result, and the command line as text.
fn driven(
    words: Vec<String>,
    pids: &[u32],
    site: &Site<'_>,
) -> Result<(RunResult, String), MeasureError> {
    let (verb, text) = parsed(words)?;
    let act = || match verb {
        Verb::Run(mut run) => run::run(as_part(&mut run.plan, pids)?),
        Verb::Capacity(mut search) => {
            let plan = as_part(&mut search.plan, pids)?;
            match &plan.capacity {
                Some(capacity) => capacity::run(plan, &capacity.aim),
                None => run::run(plan),
            }
        }
        _ => Err(RunError::Failed(format!("{text}: the command is neither run nor capacity"))),
    };
    let on_own_cpus = || on_cpus(site.client_cpus, act);
    let result = match site.link {
        Some(link) => link.near(on_own_cpus).and_then(|done| done),
        None => on_own_cpus(),
    };
    let result = match result? {
        Err(RunError::Stopped) => return Err(MeasureError::Stopped),
        Ok(result) if result.is_interrupted && is_stopped() => return Err(MeasureError::Stopped),
        result => result?,
    };
    Ok((result, text))
}

/// Returns an error if a remark says that the server ended or answered nothing. On a loaded machine
/// a server may answer nothing within the short time of a smoke test, which concludes nothing.
fn check_answered(verdict: &Verdict, scale: Scale) -> Result<(), MeasureError> {
    let rules = [Some(run::GONE), (scale != Scale::Smoke).then_some(NO_ANSWERS)];
    let gone = |remark: &&Remark| rules.contains(&Some(remark.rule.as_str()));
    let gone = verdict.remarks.iter().find(gone);
    gone.map_or(Ok(()), |gone| Err(MeasureError::Failed(gone.sentence.clone())))
}

/// Prepares a plan. The run does not remove its items, because the lab kills the server afterwards.
fn as_part<'p>(plan: &'p mut run::Plan, pids: &[u32]) -> Result<&'p run::Plan, RunError> {
    plan.server_pids = pids.to_vec();
    (plan.is_part, plan.quiet, plan.force) = (true, true, true);
    run::set_keys_by_share(plan)?;
    Ok(plan)
}

/// True after Ctrl-C or SIGTERM.
pub(super) fn is_stopped() -> bool {
    // Relaxed: the flag publishes no other data.
    let flags = run::prepare::signal_flags();
    flags.is_ok_and(|flags| flags.stop.load(std::sync::atomic::Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;
    use crate::measure::verdict::Severity;

    #[test]
    fn a_larger_scale_takes_longer_and_its_words_are_flags() {
        let scales = [Scale::Smoke, Scale::Quick, Scale::Default, Scale::Full];
        for pair in scales.windows(2) {
            let [less, more] = [pair[0].times(), pair[1].times()];
            assert!(less.run_s < more.run_s && less.search_s < more.search_s);
            assert!(less.rounds <= more.rounds, "{pair:?}");
        }
        for times in scales.map(Scale::times) {
            for words in [
                format!("kvblaster run a --schedule {}", times.run),
                format!("kvblaster capacity a {}", times.search),
            ] {
                assert!(flags::parse(words.split(' ').map(Into::into)).is_ok(), "{words}");
            }
        }
    }

    #[test]
    fn a_quoted_word_may_have_spaces() {
        let words = split("-O 'p99<1ms'  --agent 'sh agent' ");
        assert_eq!(words, ["-O", "p99<1ms", "--agent", "sh agent"]);
    }

    #[test]
    fn a_search_has_its_own_objectives_or_the_usual_ones() {
        for own in ["-O p99<2ms", "-Op99<2ms", "--objective p99<2ms", "--objective=p99<2ms"] {
            assert_eq!(objectives(&split(&format!("capacity {own} a"))), [""; 0], "{own}");
        }
        let usual = objectives(&split("capacity a -d 4"));
        assert_eq!(usual.join(" "), "-O mean<1ms -O p99<1ms -O late<=0");
    }

    #[test]
    fn a_run_without_answers_has_no_figures() {
        let refused = |rule: &str, scale| {
            let mut verdict = Verdict::default();
            verdict.add(rule, Severity::Invalid, "why".to_owned());
            check_answered(&verdict, scale).map_err(|error| error.to_string())
        };
        let wrong =
            [(NO_ANSWERS, Scale::Quick), (run::GONE, Scale::Quick), (run::GONE, Scale::Smoke)];
        for (rule, scale) in wrong {
            assert_eq!(refused(rule, scale).unwrap_err(), "why");
        }
        for (rule, scale) in [(run::SILENT, Scale::Quick), (NO_ANSWERS, Scale::Smoke)] {
            assert_eq!(refused(rule, scale), Ok(()));
        }
    }

    #[test]
    fn redis_gets_no_protocol_of_memcached() {
        let mut words = split("run -P binary -c 4 --protocol text");
        remove(&mut words, &["-P", "--protocol"]);
        assert_eq!(words, ["run", "-c", "4"]);
    }
}
