//! A measurement without a server: one eviction policy, simulated on a trace or on drawn requests.
//!
//! ```text
//! policy, point -> command line of kvblaster simulate -> misses -> figures of a row
//! ```
//!
//! Where: `measure` calls this module instead of starting a server if the method is `simulate`.
//! Invariant: the replay of a trace has the same result each time, so one round is exact. Drawn
//! requests are a sample, so each round draws other requests.
//! Source: none; see the crate `simulate`.

use super::command_line::{has_flag, parsed};
use super::experiment::{Drive, Experiment, Method, Program, Scale, Server};
use super::figures;
use super::installed::{MeasureError, TRACES, traces};
use super::points::{self, At};
use super::record::{Row, Started};
use crate::flags::Verb;
use crate::launch::on_cpus;
use crate::result::manifest::Manifest;
use crate::simulate::outcomes;
use crate::words::{quoted, split};
use serde_json::json;
use simulate::contestant::SimulatedPolicy;

/// The beginning of a word in an experiment's flags that names a file in the folder of the traces.
const IN_TRACES: &str = "$TRACES/";
/// The short and the long form of the flag by which `kvblaster simulate` draws requests.
const DRAWING: [&str; 2] = ["-w", "--workload"];

/// True if each row of the experiment has the same figures in each round.
pub(super) fn is_exact(experiment: &Experiment) -> bool {
    let draws = |server: &Server, at: &At| {
        let words = words(server, &experiment.drive, at);
        words.map_or(true, |words| has_flag(&words, DRAWING))
    };
    experiment.drive.method == Method::Simulate
        && !points::points(experiment, Scale::Full)
            .iter()
            .any(|at| experiment.servers.iter().any(|server| draws(server, at)))
}

/// Checks that the experiment simulates only policies, and starts only programs.
pub(super) fn check(experiment: &Experiment) -> Result<(), String> {
    let Experiment { drive, servers, .. } = experiment;
    let simulates = drive.method == Method::Simulate;
    for server in servers {
        let wrong = |why: &str| Err(format!("servers: {}: {why}", server.name));
        match (server.program == Program::Policy, simulates) {
            (true, false) => return wrong("the program `policy` needs the method `simulate`"),
            (false, true) => return wrong("the method `simulate` needs the program `policy`"),
            (false, false) => {}
            (true, true) => {
                if let Err(why) = server.flags.parse::<SimulatedPolicy>() {
                    return wrong(&format!("flags: {why}"));
                }
                if !is_bare(server) {
                    let why = "a policy may have only the fields name, program, flags, drive and \
                               needs";
                    return wrong(why);
                }
            }
        }
    }
    if simulates && (drive.profile || !drive.prepare.is_empty() || !drive.beside.is_empty()) {
        return Err("drive: the method `simulate` allows no prepare, beside or profile".to_owned());
    }
    Ok(())
}

/// True if all fields that describe a process have their defaults.
fn is_bare(server: &Server) -> bool {
    let Server { name, flags, drive, needs, .. } = server;
    let bare = json!({
        "name": name, "program": "policy", "flags": flags, "drive": drive, "needs": needs,
    });
    let bare = serde_json::from_value::<Server>(bare).and_then(serde_json::to_value);
    bare.ok() == serde_json::to_value(server).ok()
}

/// Simulates a policy at a point, on these CPUs. Fails if the trace is not there, or the flags do
/// not give one trace and one size.
pub(super) fn measure(
    (server, drive): (&Server, &Drive),
    at: &At,
    (cpus, round): (&[usize], u32),
) -> Result<(Row, Started), MeasureError> {
    let mut words = words(server, drive, at).map_err(MeasureError::Failed)?;
    if has_flag(&words, DRAWING) {
        words.extend(["--seed".to_owned(), (round + 1).to_string()]);
    }
    let command = shown(&words);
    let words = words.into_iter().map(in_folder).collect::<Result<_, _>>()?;
    let (verb, _) = parsed(words)?;
    let wrong = |why: &str| MeasureError::Failed(format!("{command}: {why}"));
    let Verb::Simulate(mut plan) = verb else { return Err(wrong("the command is not simulate")) };
    // `parsed` has added LRU for comparison, but only the server's policy is to be simulated.
    plan.contestants = vec![server.flags.parse().map_err(|why: String| wrong(&why))?];
    let done = on_cpus(cpus, || outcomes(&plan, |_, _| ()));
    let (_, outcomes) = done?.map_err(|error| MeasureError::Failed(error.to_string()))?;
    let misses = match outcomes.as_slice() {
        [one] => match one.sizes.as_slice() {
            [(_, misses)] => misses.iter().sum::<u64>() as f64 / (one.requests as f64).max(1.0),
            _ => return Err(wrong("a measurement must have exactly one cache size (--sizes)")),
        },
        _ => return Err(wrong("a measurement must have one trace")),
    };
    let row = Row {
        round,
        at: at.labels.clone(),
        server: server.name.clone(),
        figures: figures::of_misses(misses),
        ..Row::default()
    };
    let started = Started {
        server: server.name.clone(),
        version: format!("simulated by kvblaster {}", Manifest::here().kvblaster),
        commands: Vec::new(),
        driven_by: command,
    };
    Ok((row, started))
}

/// Returns the words of the command line, without the program's name and the seed.
fn words(server: &Server, drive: &Drive, at: &At) -> Result<Vec<String>, String> {
    let mut words = vec!["simulate".to_owned()];
    for text in [&drive.flags, &server.drive] {
        words.extend(split(&at.resolve(text)?));
    }
    words.extend(["-p".to_owned(), server.flags.clone()]);
    Ok(words)
}

/// Returns the command line with `$TRACES`, which a shell replaces by the folder.
fn shown(words: &[String]) -> String {
    let shown = |word: &String| match word.starts_with(IN_TRACES) {
        true => word.clone(),
        false => quoted(word),
    };
    format!("kvblaster {}", words.iter().map(shown).collect::<Vec<_>>().join(" "))
}

/// Returns the path of a trace if the word begins with `IN_TRACES`, and otherwise the word itself.
fn in_folder(word: String) -> Result<String, MeasureError> {
    let Some(file) = word.strip_prefix(IN_TRACES) else { return Ok(word) };
    let folder = traces()?;
    let path = folder.join(file);
    match path.is_file() {
        true => Ok(path.display().to_string()),
        false => {
            let why = format!("{TRACES}={}: there is no file {file}", folder.display());
            Err(MeasureError::Lacking(why))
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::lab::library;

    fn experiment(flags: &str, policy: &str, more: &str) -> Result<Experiment, String> {
        let text = format!(
            r#"
            title = "t"
            source = "own"
            place = "p"
            did = "d"
            found = ["f"]
            drive = {{ method = "simulate", flags = "{flags}" }}
            figures = [{{ y = "hits" }}]
            servers = [{{ name = "one", program = "policy", flags = "{policy}"{more} }}]
        "#
        );
        Experiment::parse("t", &text).map_err(|error| error.to_string())
    }

    fn measured(flags: &str, policy: &str, round: u32) -> Result<(Row, Started), MeasureError> {
        let experiment = experiment(flags, policy, "").unwrap();
        let (server, drive) = (&experiment.servers[0], &experiment.drive);
        measure((server, drive), &At::default(), (&[], round))
    }

    #[test]
    fn each_round_draws_other_requests_and_each_policy_has_its_own_hits() {
        let flags = "-w zipf --keys 500 --requests 5k -s 10%";
        let hits = |policy, round| measured(flags, policy, round).unwrap().0.figures["hits"];
        assert!(hits("belady", 0) > hits("lru", 0) && hits("lru", 0) > 0.0);
        assert_ne!(hits("lru", 0).to_bits(), hits("lru", 1).to_bits());
        assert_eq!(hits("lru", 1).to_bits(), hits("lru", 1).to_bits());
        let (row, started) = measured(flags, "sieve", 1).unwrap();
        assert!((row.figures["hits"] + row.figures["not found"] - 1.0).abs() < 1e-4);
        assert_eq!(started.driven_by, format!("kvblaster simulate {flags} -p sieve --seed 2"));
    }

    #[test]
    fn a_command_line_names_the_variable_of_the_traces_not_its_value() {
        let words = ["simulate", "$TRACES/a.u32.zst", "-s", "1%", "$a b"].map(str::to_owned);
        assert_eq!(shown(&words), "kvblaster simulate $TRACES/a.u32.zst -s 1% '$a b'");
    }

    #[test]
    fn only_a_recorded_trace_is_exact() {
        let exact = |flags: &str| is_exact(&experiment(flags, "lru", "").unwrap());
        assert!(exact("$TRACES/a.u32.zst -s 1%"));
        assert!(!exact("-w zipf -s 1%") && !exact("a --workload=zipf"));
    }

    #[test]
    fn a_policy_that_is_none_or_has_a_process_is_refused() {
        let told = |policy, more| experiment("a", policy, more).unwrap_err();
        assert!(told("lfu", "").contains("no policy called lfu"));
        assert!(told("lru", ", threads = \"2\"").contains("only the fields"));
        assert!(told("lru", ", way = \"udp\"").contains("only the fields"));
        let wrong = measured("-w zipf --keys 9 --requests 99 -s 10%,20%", "lru", 0).unwrap_err();
        assert!(wrong.to_string().contains("one cache size"), "{wrong}");
    }

    #[test]
    fn every_command_line_of_the_experiments_can_be_parsed() {
        for experiment in library::all(None).unwrap() {
            let is_simulated = experiment.drive.method == Method::Simulate;
            let (server, all) = (&experiment.servers[0], points::points(&experiment, Scale::Full));
            for at in all.iter().filter(|_| is_simulated) {
                let words = words(server, &experiment.drive, at).unwrap();
                let (verb, command) = parsed(words).unwrap();
                let Verb::Simulate(plan) = verb else { panic!("{command}") };
                assert_eq!(plan.sizes.len(), 1, "{command}");
                assert_eq!(plan.traces.len() + plan.workload.iter().len(), 1, "{command}");
            }
        }
    }
}
