//! The flags of `kvblaster lab`.
//!
//! Where: parsed by `crate::flags`, and read by `verbs`.
//! Invariant: a flag has the default that `--help` shows.

use super::card::{self, Pair};
use crate::words::values::{cpus, number, or};
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
    pub(super) verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
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
pub(super) struct LibraryFlags {
    /// Read the experiments from the TOML files of this folder (default: the experiments that are
    /// built into kvblaster)
    #[arg(long, value_name = "DIR")]
    pub(super) experiments: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct RunFlags {
    /// Names of the experiments
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub(super) names: Vec<String>,
    /// Run all experiments
    #[arg(long, conflicts_with = "names")]
    pub(super) all: bool,
    /// Smoke test: measure at most two points of each axis, once and briefly; the report then has
    /// no verdicts
    #[arg(long, group = "scale")]
    pub(super) smoke: bool,
    /// Measure only a few points, and briefly, for a first look
    #[arg(long, group = "scale")]
    pub(super) quick: bool,
    /// Measure all points, with the numbers of keys and the durations of the documents
    #[arg(long, group = "scale")]
    pub(super) full: bool,
    /// Number of rounds; in a round, each server is measured once at each point (default: 3; 1 with
    /// --smoke, 5 with --full)
    #[arg(long, value_name = "N", value_parser = number(1..=ROUNDS_MAX))]
    pub(super) rounds: Option<u32>,
    /// Folder into which the data are written
    #[arg(long, short, value_name = "DIR", default_value = FOLDER)]
    pub(super) out: PathBuf,
    /// Keep the data that the folder already has, and measure only what is missing
    #[arg(long)]
    pub(super) resume: bool,
    /// CPUs for the servers, as in 0,2-5; `half` means the first half of all CPUs
    #[arg(long, value_name = "LIST", default_value = "half")]
    #[arg(value_parser = or("half", Vec::new(), cpus))]
    pub(super) server_cpus: std::vec::Vec<usize>,
    /// CPUs for kvblaster; `half` means all CPUs that the servers do not use
    #[arg(long, value_name = "LIST", default_value = "half")]
    #[arg(value_parser = or("half", Vec::new(), cpus))]
    pub(super) client_cpus: std::vec::Vec<usize>,
    /// Two network cards that a cable joins: NEAR for kvblaster, FAR for the servers. For each
    /// measurement over a link, the lab moves both cards into its own network namespaces, and then
    /// restores them. Give the flag once for each cable
    #[arg(long, value_name = "NEAR,FAR", value_parser = card::pair)]
    pub(super) interface: Vec<Pair>,
    /// Show no progress
    #[arg(long, short)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) library: LibraryFlags,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReportFlags {
    /// Folder with the data of `kvblaster lab run`
    #[arg(value_name = "DIR", default_value = FOLDER)]
    pub(super) folder: PathBuf,
    /// File into which the page is written; `-` means stdout (default: report.html in DIR)
    #[arg(long, short, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// Also write the report as Markdown to this folder
    #[arg(long, value_name = "DIR")]
    pub(super) markdown: Option<PathBuf>,
    #[command(flatten)]
    pub(super) library: LibraryFlags,
}
