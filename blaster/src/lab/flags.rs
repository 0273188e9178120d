//! The verbs of `kvblaster lab` and their flags.
//!
//! Where: parsed by `crate::flags`; `main` prints the text that `run` returns.
//! Invariant: measurements that need neither root nor a missing program run in any case.

use super::card::{self, Pair};
use super::experiment::{Experiment, Scale};
use super::library::{self, LibraryError};
use super::report::{self, ReportError};
use super::rounds::{self, Lab, LabError};
use crate::exit::Exit;
use crate::run::{self, RunError};
use crate::words::values::{cpu_list, cpus, number, or};
use crate::words::{quoted, sentence, wrapped};
use std::fmt::Write;
use std::path::PathBuf;

const ROUNDS_MAX: u32 = 1000;
/// The folder of the records, unless the user names another folder.
const FOLDER: &str = "lab";

const ABOUT: &str = "\
Repeats the measurements of five documents on caches, on this machine: each
experiment measures Hypostyle, memcached and Redis in turn. An experiment varies
up to two settings (its axes). A point is one combination of their values.

kvblaster finds Hypostyle in the folder of kvblaster, and the other programs on
PATH. The environment variables HYPOSTYLE, MEMCACHED, REDIS and NUTCRACKER can
name other paths. BAG_LRU names a memcached with the engine Bag-LRU of the
KV-Cache paper, and TRACES a folder with recorded traces. If something that a
measurement needs is missing, the report says what. As root, kvblaster also
measures UDP and AF_XDP, over a link between two network namespaces.

  kvblaster lab list                      lists all experiments
  kvblaster lab show thesis-fig3.3-threads
  kvblaster lab run --quick --all         takes 20 minutes on 2 cores
  kvblaster lab run thesis-fig3.3-threads own-noise";

/// Flags of `kvblaster lab`.
#[derive(Debug, clap::Args)]
#[command(before_help = ABOUT)]
pub struct Plan {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List all experiments
    List {
        #[command(flatten)]
        library: LibraryFlags,
    },
    /// Show an experiment: its source, servers, axes and claims
    Show {
        /// Name of the experiment
        name: String,
        #[command(flatten)]
        library: LibraryFlags,
    },
    /// Run experiments
    Run(RunFlags),
    /// Write an HTML page with the data of all experiments, and a verdict on each claim
    Report(ReportFlags),
}

#[derive(Clone, Debug, clap::Args)]
struct LibraryFlags {
    /// Read the experiments from the TOML files of this folder (default: the experiments that are
    /// built into kvblaster)
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
struct RunFlags {
    /// Names of the experiments
    #[arg(value_name = "NAME", required_unless_present = "all")]
    names: Vec<String>,
    /// Run all experiments
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Smoke test: measure at most two points of each axis, once and briefly; the report then has
    /// no verdicts
    #[arg(long, group = "scale")]
    smoke: bool,
    /// Measure only a few points, and briefly, for a first look
    #[arg(long, group = "scale")]
    quick: bool,
    /// Measure all points, with the numbers of keys and the durations of the documents
    #[arg(long, group = "scale")]
    full: bool,
    /// Number of rounds; in a round, each server is measured once at each point (default: 3; 1 with
    /// --smoke, 5 with --full)
    #[arg(long, value_name = "N", value_parser = number(1..=ROUNDS_MAX))]
    rounds: Option<u32>,
    /// Folder into which the data are written
    #[arg(long, short, value_name = "DIR", default_value = FOLDER)]
    out: PathBuf,
    /// Keep the data that the folder already has, and measure only what is missing
    #[arg(long)]
    resume: bool,
    /// CPUs for the servers, as in 0,2-5; `half` means the first half of all CPUs
    #[arg(long, value_name = "LIST", default_value = "half")]
    #[arg(value_parser = or("half", Vec::new(), cpus))]
    server_cpus: std::vec::Vec<usize>,
    /// CPUs for kvblaster; `half` means all CPUs that the servers do not use
    #[arg(long, value_name = "LIST", default_value = "half")]
    #[arg(value_parser = or("half", Vec::new(), cpus))]
    client_cpus: std::vec::Vec<usize>,
    /// Two network cards that a cable joins: NEAR for kvblaster, FAR for the servers. For each
    /// measurement over a link, the lab moves both cards into its own network namespaces, and then
    /// restores them. Give the flag once for each cable
    #[arg(long, value_name = "NEAR,FAR", value_parser = card::pair)]
    interface: Vec<Pair>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    library: LibraryFlags,
}

#[derive(Clone, Debug, clap::Args)]
struct ReportFlags {
    /// Folder with the data of `kvblaster lab run`
    #[arg(value_name = "DIR", default_value = FOLDER)]
    folder: PathBuf,
    /// File into which the page is written; `-` means stdout (default: report.html in DIR)
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write the report as Markdown to this folder
    #[arg(long, value_name = "DIR")]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    library: LibraryFlags,
}

/// The reason why a verb of the lab failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Experiments cannot be found.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// Experiments cannot be run.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The report cannot be made.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A network card of `--interface` cannot be used.
    #[error(transparent)]
    Card(#[from] card::CardError),
    /// kvblaster may not run on a CPU that the user named.
    #[error(transparent)]
    Cpu(#[from] RunError),
    /// The kernel does not tell the CPUs of this process.
    #[error("cannot read on which CPUs kvblaster may run: {0}")]
    Cpus(#[from] std::io::Error),
}

impl Plan {
    /// Executes the verb. Returns the text to print, and the exit status.
    ///
    /// # Errors
    /// An experiment is unknown or wrong, or data cannot be written.
    pub fn run(&self) -> Result<(String, Exit), Error> {
        match &self.verb {
            Verb::List { library } => {
                Ok((listed(&library::all(library.experiments.as_deref())?), Exit::Met))
            }
            Verb::Show { name, library } => {
                let names = std::slice::from_ref(name);
                let found = library::named(names, library.experiments.as_deref())?;
                Ok((found.iter().map(shown).collect(), Exit::Met))
            }
            Verb::Run(flags) => flags.run(),
            Verb::Report(flags) => flags.run(),
        }
    }
}

impl ReportFlags {
    fn run(&self) -> Result<(String, Exit), Error> {
        let more = (self.markdown.as_deref(), self.library.experiments.as_deref());
        Ok((report::write(&self.folder, self.out.as_deref(), more)?, Exit::Met))
    }
}

impl RunFlags {
    fn run(&self) -> Result<(String, Exit), Error> {
        let folder = self.library.experiments.as_deref();
        let experiments = match self.all {
            true => library::all(folder)?,
            false => library::named(&self.names, folder)?,
        };
        let lab = self.lab()?;
        let ended = rounds::run(&experiments, &lab)?;
        let mut text = format!("{} measurements", ended.measured);
        if ended.failures > 0 {
            let _ = write!(text, ", and {} more failed", ended.failures);
        }
        if ended.is_interrupted {
            text += "; the lab was stopped: --resume continues it";
        }
        let exit =
            if ended.is_interrupted || ended.failures > 0 { Exit::NotMet } else { Exit::Met };
        Ok((text + "\n", exit))
    }

    fn lab(&self) -> Result<Lab, Error> {
        card::check(&self.interface)?;
        let own = net::thread_cpus()?;
        let half = own.len().div_ceil(2);
        let server_cpus = match self.server_cpus.is_empty() {
            true => own[..half].to_vec(),
            false => self.server_cpus.clone(),
        };
        let rest = || {
            let rest = own.iter().copied().filter(|cpu| !server_cpus.contains(cpu));
            let rest: Vec<usize> = rest.collect();
            // kvblaster shares the CPUs with the servers if the servers have all CPUs.
            if rest.is_empty() { own.clone() } else { rest }
        };
        let client_cpus =
            if self.client_cpus.is_empty() { rest() } else { self.client_cpus.clone() };
        run::prepare::has_cpus(&[("server-cpus", &server_cpus), ("client-cpus", &client_cpus)])?;
        let (scale, flag) = match () {
            () if self.smoke => (Scale::Smoke, " --smoke"),
            () if self.quick => (Scale::Quick, " --quick"),
            () if self.full => (Scale::Full, " --full"),
            () => (Scale::Default, ""),
        };
        let folder = self.library.experiments.as_ref();
        let folder = folder.map(|folder| quoted(&folder.to_string_lossy()));
        let folder = folder.map_or(String::new(), |folder| format!(" --experiments {folder}"));
        // The record has the command that repeats the experiment with the same rounds and CPUs.
        let rounds = self.rounds.map_or(String::new(), |rounds| format!(" --rounds {rounds}"));
        let pinned = |flag: &str, cpus: &[usize]| {
            if cpus.is_empty() { String::new() } else { format!(" --{flag} {}", cpu_list(cpus)) }
        };
        let pinned =
            pinned("server-cpus", &self.server_cpus) + &pinned("client-cpus", &self.client_cpus);
        let cards = self.interface.iter().map(|pair| format!(" --interface {}", pair.join(",")));
        let cards: String = cards.collect();
        Ok(Lab {
            folder: self.out.clone(),
            scale,
            rounds: self.rounds,
            resumes: self.resume,
            server_cpus,
            client_cpus,
            is_quiet: self.quiet,
            cards: self.interface.clone(),
            flags: format!("{flag}{rounds}{pinned}{folder}{cards}"),
        })
    }
}

fn listed(experiments: &[Experiment]) -> String {
    let width = experiments.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for Experiment { name, title, .. } in experiments {
        let _ = writeln!(out, "{name:width$}  {title}");
    }
    out
}

/// The text of `lab show`.
fn shown(experiment: &Experiment) -> String {
    let mut out = format!("{}: {}\n\n", experiment.name, experiment.title);
    let source = format!("{}, {}", experiment.source.title(), experiment.place);
    out += &wrapped("source:  ", &sentence(&source));
    out += &wrapped("method:  ", &experiment.did);
    for found in &experiment.found {
        out += &wrapped("found:   ", found);
    }
    if !experiment.differs.is_empty() {
        out += &wrapped("differs: ", &experiment.differs);
    }
    for server in &experiment.servers {
        let program = format!("{:?} {}", server.program, server.flags).to_lowercase();
        out += &wrapped("server:  ", &format!("{} ({})", server.name, program.trim()));
    }
    for axis in &experiment.axes {
        let labels: Vec<String> = axis.points.iter().map(|point| point.at.to_string()).collect();
        out += &wrapped("axis:    ", &format!("{}: {}", axis.name, labels.join(", ")));
    }
    out += &wrapped("load:    ", &experiment.drive.flags);
    for claim in &experiment.claims {
        out += &wrapped("claim:   ", &claim.says);
    }
    out
}
