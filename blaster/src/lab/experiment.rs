//! An experiment, read from its TOML file: servers, a workload, axes, figures, and claims to check.
//!
//! ```text
//! axes x servers -> points -> runs of kvblaster -> figures -> claims of the source
//! ```
//!
//! Where: the first step of `kvblaster lab`; `points` expands the axes.
//! Invariant: an experiment is data. A file with an unknown name, an axis without points, a claim
//! about an unknown figure or server, or an unknown placeholder is refused when it is read.
//! Source: the five seed documents that `Document` lists.

use super::figures;
use super::points::{self, Words};
use super::simulated;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The maximum number of servers of an experiment.
const SERVERS_MAX: usize = 16;
/// The maximum number of points of an experiment: the product of its axes' numbers of points.
const POINTS_MAX: usize = 512;

/// The size of an experiment: how many points, how long they are measured, and how often.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Everything runs once, briefly, and nothing is concluded.
    Smoke,
    /// Short measurements of a few points, for a first look.
    Quick,
    /// The points and times at which a small machine gives verdicts.
    #[default]
    Default,
    /// The points, keys and times of the source.
    Full,
}

/// The document that an experiment repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Document {
    /// "KV-Cache: A Scalable High-Performance Web-Object Cache for Manycore", 2013.
    Kvcache,
    /// M. Pavlik, "Memcached vs Redis: Benchmarking In-memory Object Caches", 2016.
    Thesis,
    /// Solarflare's white paper on memcached over `OpenOnload`, 2013.
    Solarflare,
    /// Notes on a memcached baseline for capacity models.
    Notes,
    /// V. Chidambaram and others, "Performance Analysis of Memcached".
    Analysis,
    /// No document: a question about caches, or about the machine, that the documents leave open.
    Own,
}

impl Document {
    /// The document's name in reports.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Document::Kvcache => "KV-Cache paper",
            Document::Thesis => "Pavlik's thesis",
            Document::Solarflare => "Solarflare's white paper",
            Document::Notes => "baseline notes",
            Document::Analysis => "Performance Analysis of Memcached",
            Document::Own => "own question",
        }
    }
}

/// An experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The name of the file, without `.toml`.
    #[serde(skip_deserializing, default)]
    pub name: String,
    /// A heading for the report.
    pub title: String,
    /// The document that is repeated.
    pub source: Document,
    /// Figure, table, section and page of the document.
    pub place: String,
    /// The hardware, load and method of the source, in one or two sentences.
    pub did: String,
    /// The source's findings, a sentence each, with the numbers.
    pub found: Vec<String>,
    /// How this repetition differs from the source, in a sentence. Empty if there is no difference.
    #[serde(default)]
    pub differs: String,
    /// The conditions that the machine must meet for any part of the experiment.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Values of placeholders by name, and other values by scale.
    #[serde(default)]
    pub vars: Vars,
    /// The servers. Each is a series in the figures, and the first is compared with the others.
    pub servers: Vec<Server>,
    /// The parameters that are varied: at most two. The first is the horizontal axis.
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// The load.
    pub drive: Drive,
    /// The figures that the report shows.
    pub figures: Vec<Figure>,
    /// The source's claims, which this experiment tests.
    #[serde(default)]
    pub claims: Vec<Claim>,
}

/// A condition that the machine must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// The right to make network namespaces and AF_XDP sockets.
    Root,
    /// Network cards whose interrupts and coalescing can be set, named by `--interface`.
    Nic,
    /// Linux's profiler.
    Perf,
    /// The engine of the KV-Cache paper's baseline, at the path in `BAG_LRU`.
    BagLru,
    /// Recorded traces, in the folder that `TRACES` names.
    Traces,
    /// The proxy for memcached and Redis, at the path in `NUTCRACKER` or on `PATH`.
    Nutcracker,
    /// A kernel-bypass library for sockets, which replaces the kernel's stack by `LD_PRELOAD`.
    Bypass,
}

/// The values of placeholders.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vars {
    /// The values, unless the scale has others.
    pub always: BTreeMap<String, Words>,
    /// Other values for `--smoke` and `--quick`.
    pub quick: BTreeMap<String, Words>,
    /// Other values for `--full`.
    pub full: BTreeMap<String, Words>,
}

/// The path by which requests reach a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// TCP over the loopback interface.
    #[default]
    Tcp,
    /// A Unix socket.
    Unix,
    /// UDP over the loopback interface.
    Udp,
    /// TCP over a link between two network namespaces.
    LinkTcp,
    /// UDP over a link, through the kernel at both ends.
    LinkUdp,
    /// UDP over a link; the client bypasses the kernel, the server does not.
    LinkXdpUdp,
    /// UDP over a link; the server bypasses the kernel (AF_XDP), the client does not.
    LinkUdpXdp,
    /// UDP over a link; both ends bypass the kernel.
    LinkXdp,
}

/// The server's program. `servers` finds its path, and adds the options that set address, threads
/// and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// The cache of this project.
    Hypostyle,
    /// memcached: the one that `MEMCACHED` names, or the first on `PATH`.
    Memcached,
    /// Redis: the one that `REDIS` names, or the first on `PATH`.
    Redis,
    /// memcached with the KV-Cache paper's baseline engine, at the path in `BAG_LRU`.
    BagLru,
    /// kvblaster's null server, which shows the limit of the generator and of the network.
    Reflect,
    /// No program: the eviction policy in `flags`, which the method `simulate` simulates.
    Policy,
}

/// A server of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The name of the series, such as `memcached, pinned`.
    pub name: String,
    /// The program.
    pub program: Program,
    /// Threads of each process (`-t`; `--io-threads` of Redis).
    #[serde(default = "one")]
    pub threads: String,
    /// Memory of each process in megabytes (`-m`).
    #[serde(default = "memory")]
    pub memory_mb: String,
    /// Resident memory of all processes at the end of a run, in megabytes. If this size is given,
    /// the lab searches for the memory limit that leads to it, and tries `memory_mb` first.
    #[serde(default)]
    pub resident_mb: String,
    /// Number of processes. Ketama distributes the keys over several processes.
    #[serde(default = "one")]
    pub instances: String,
    /// `yes` if the processes are reached through one nutcracker, which spreads the keys. The way
    /// must then be `tcp`, and the protocol must be memcached's text protocol or Redis's.
    #[serde(default)]
    pub proxy: String,
    /// Further words of the server's command line.
    #[serde(default)]
    pub flags: String,
    /// Further words of kvblaster's command line, for this server only.
    #[serde(default)]
    pub drive: String,
    /// The path of the requests.
    #[serde(default)]
    pub way: Way,
    /// `yes` if the threads of each process are pinned, each thread to one CPU, in turn.
    #[serde(default)]
    pub pinned: String,
    /// Queues of the link, if `way` is a link (default: as many as threads).
    #[serde(default)]
    pub queues: String,
    /// Largest packet of the link in bytes, if `way` is a link.
    #[serde(default = "mtu")]
    pub mtu: String,
    /// Number of wires of the link, if `way` is a link. Each process is reached by its own wires if
    /// there are enough wires.
    #[serde(default = "one")]
    pub wires: String,
    /// The CPUs that process the packets that the link brings to the servers (RPS): `all`, or a
    /// list such as `0-1`, in which 0 is the first of the servers' CPUs. An empty text changes
    /// nothing.
    #[serde(default)]
    pub rps: String,
    /// The CPUs that handle the interrupts of the servers' card, written like `rps`: queue n gets
    /// the CPU at place n of the list. Needs network cards.
    #[serde(default)]
    pub irq: String,
    /// Microseconds for which the servers' card may delay an interrupt. An empty text changes
    /// nothing. Needs network cards.
    #[serde(default)]
    pub coalesce_us: String,
    /// The conditions that the machine must meet for this server.
    #[serde(default)]
    pub needs: Vec<Need>,
}

fn one() -> String {
    "1".to_owned()
}

fn mtu() -> String {
    "1500".to_owned()
}

fn memory() -> String {
    "1024".to_owned()
}

/// A parameter that is varied.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The parameter's name, with its unit: `connections`, `value size, bytes`.
    pub name: String,
    /// True for a logarithmic axis.
    #[serde(default)]
    pub log: bool,
    /// The points, in order.
    pub points: Vec<Point>,
}

/// A point of an axis: values of placeholders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The label. It is also the position on the axis if all labels of the axis are numbers.
    pub at: Words,
    /// The smallest scale at which the point is measured.
    #[serde(default)]
    pub scale: Scale,
    /// Number of CPUs that the point needs for servers. With fewer CPUs the point is not measured,
    /// and the report says so.
    #[serde(default)]
    pub server_cpus: usize,
    /// Values of placeholders by name. `{at}` stands for the label.
    #[serde(flatten)]
    pub vars: BTreeMap<String, Words>,
}

/// The way in which servers are driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// One `kvblaster run` with the flags of `drive`.
    #[default]
    Run,
    /// A `kvblaster capacity`: the highest rates that meet the objectives.
    Capacity,
    /// A search for the highest rate with a mean below 1 ms, and then a run at 0.95 of it.
    BelowCapacity,
    /// No server is driven: `kvblaster simulate` with the flags of `drive` simulates policies. In
    /// the flags, `$TRACES/FILE` is a file in the folder that the variable `TRACES` names.
    Simulate,
}

/// The load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// The way in which servers are driven.
    #[serde(default)]
    pub method: Method,
    /// Flags of `kvblaster run`, `capacity` or `simulate`, with placeholders; the lab adds targets,
    /// CPUs, seed and schedule, or the policy.
    pub flags: String,
    /// Flags of a `kvblaster run` before the measurement, such as one that fills the memory with
    /// other items. The lab adds the targets only, and these are reached over TCP or a Unix socket.
    #[serde(default)]
    pub prepare: String,
    /// Flags of a second `kvblaster run`, which drives the same server during the measurement. The
    /// lab adds the same schedule as to `flags`; neither of the two loads may fill the server.
    #[serde(default)]
    pub beside: String,
    /// True if perf samples the servers' CPUs during the run. The shares of the kinds of work are
    /// figures with names that begin with `profile::PREFIX`.
    #[serde(default)]
    pub profile: bool,
}

/// A figure of the report: one parameter's effect on one measured value.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The name of the value, from `figures::FIGURES`.
    pub y: String,
    /// True for a logarithmic axis.
    #[serde(default)]
    pub log: bool,
}

/// A claim of the source, in a form that data can confirm. The claimed quantity is the value of
/// `figure` for `of`, or the ratio of this value to the value for `to`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The source's sentence, with its number: `the paper: 2.3 times Bag-LRU's capacity at 64 B`.
    pub says: String,
    /// The name of the value, from `figures::FIGURES`.
    pub figure: String,
    /// A server, or a server at a point: `hypostyle`, `hypostyle @ 64`.
    pub of: String,
    /// The server, or server at a point, to which `of` is compared. Without `to`, the claim is
    /// about the value itself. A server without a point is compared at every point.
    #[serde(default)]
    pub to: Option<String>,
    /// The claim holds if the quantity is at least this.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// The claim holds if the quantity is at most this.
    #[serde(default)]
    pub at_most: Option<f64>,
}

/// The reason why a file is no experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file is not TOML, or has an unknown or missing name.
    #[error("{0}: {1}")]
    Toml(String, #[source] Box<toml::de::Error>),
    /// A part of the file contradicts another part.
    #[error("{0}: {1}")]
    Wrong(String, String),
}

impl Experiment {
    /// Reads an experiment from the text of its file.
    ///
    /// # Errors
    /// The text is no experiment.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, ExperimentError> {
        let toml = |error| ExperimentError::Toml(name.to_owned(), Box::new(error));
        let mut experiment: Experiment = toml::from_str(text).map_err(toml)?;
        name.clone_into(&mut experiment.name);
        match experiment.check() {
            Ok(()) => Ok(experiment),
            Err(why) => Err(ExperimentError::Wrong(name.to_owned(), why)),
        }
    }

    fn check(&self) -> Result<(), String> {
        let is_named = |name: &&str| self.servers.iter().any(|server| server.name == **name);
        if self.servers.is_empty() || self.servers.len() > SERVERS_MAX {
            return Err(format!("servers: give 1 to {SERVERS_MAX}"));
        }
        if let Some(twice) = (1..self.servers.len())
            .find(|at| self.servers[..*at].iter().any(|one| one.name == self.servers[*at].name))
        {
            return Err(format!("servers: {} is named twice", self.servers[twice].name));
        }
        self.servers.iter().try_for_each(Server::check)?;
        simulated::check(self)?;
        if self.figures.is_empty() {
            return Err("figures: give at least one".to_owned());
        }
        let of_claims = self.claims.iter().map(|claim| &claim.figure);
        for name in self.figures.iter().map(|figure| &figure.y).chain(of_claims) {
            if figures::named(name).is_none() {
                return Err(format!("{name}: no such figure; there are {}", figures::listed()));
            }
        }
        let is_lone_run = self.drive.method == Method::Run && self.drive.beside.is_empty();
        if self.drive.profile && !(is_lone_run && self.needs.contains(&Need::Perf)) {
            return Err("drive: profile needs the method run, no beside, and the need perf".into());
        }
        for claim in &self.claims {
            if claim.at_least.is_none() && claim.at_most.is_none() {
                return Err(format!("claims: \"{}\" has no at_least or at_most", claim.says));
            }
            for side in std::iter::once(&claim.of).chain(&claim.to) {
                let (server, point) = side_of(side);
                if !is_named(&server) {
                    return Err(format!("claims: {server} is no server of this experiment"));
                }
                if let Some(point) = point.filter(|at| !self.has_point(at)) {
                    return Err(format!("claims: {point} is no point of the axes"));
                }
            }
        }
        self.check_points()
    }

    fn check_points(&self) -> Result<(), String> {
        if self.axes.len() > 2 {
            return Err("axes: at most two".to_owned());
        }
        if let Some(empty) = self.axes.iter().find(|axis| axis.points.is_empty()) {
            return Err(format!("axes: {} has no points", empty.name));
        }
        // The number of points is checked before they are made, because two long axes have very
        // many points.
        let most: usize = self.axes.iter().map(|axis| axis.points.len()).product();
        if most > POINTS_MAX {
            return Err(format!("axes: {most} points, more than {POINTS_MAX}"));
        }
        for scale in [Scale::Smoke, Scale::Quick, Scale::Default, Scale::Full] {
            let all = points::points(self, scale);
            if all.is_empty() {
                return Err(
                    "axes: give at least one point of each axis scale = \"quick\"".to_owned()
                );
            }
            for (point, server) in
                all.iter().flat_map(|at| self.servers.iter().map(move |s| (at, s)))
            {
                for flags in [&self.drive.flags, &self.drive.prepare, &self.drive.beside] {
                    point.resolve(flags)?;
                }
                for words in server.templates() {
                    point.resolve(words)?;
                }
            }
        }
        Ok(())
    }

    fn has_point(&self, text: &str) -> bool {
        points::points(self, Scale::Full).iter().any(|point| point.is_at(text))
    }

    /// The name of the horizontal axis.
    #[must_use]
    pub fn x_name(&self) -> &str {
        self.axes.first().map_or("", |axis| &axis.name)
    }
}

impl Server {
    fn check(&self) -> Result<(), String> {
        let of_link = [&self.rps, &self.irq, &self.coalesce_us];
        if !self.way.is_linked() && of_link.iter().any(|field| !field.is_empty()) {
            return Err(format!(
                "servers: {}: rps, irq and coalesce_us need a way that begins with link",
                self.name
            ));
        }
        if self.way != Way::Tcp && !self.proxy.is_empty() {
            return Err(format!("servers: {}: a proxy needs the way tcp", self.name));
        }
        Ok(())
    }

    /// The texts that may contain placeholders.
    pub(crate) fn templates(&self) -> [&str; 14] {
        [
            &self.resident_mb,
            &self.proxy,
            &self.wires,
            &self.rps,
            &self.irq,
            &self.coalesce_us,
            &self.queues,
            &self.mtu,
            &self.threads,
            &self.memory_mb,
            &self.instances,
            &self.flags,
            &self.drive,
            &self.pinned,
        ]
    }
}

/// Splits a side of a claim into the server's name and the point, if one is given.
pub(crate) fn side_of(side: &str) -> (&str, Option<&str>) {
    match side.split_once('@') {
        Some((server, point)) => (server.trim(), Some(point.trim())),
        None => (side.trim(), None),
    }
}
