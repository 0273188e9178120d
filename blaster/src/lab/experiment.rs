//! An experiment, read from its TOML file: servers, a workload, axes, figures, and claims to check.
//!
//! ```text
//! axes x servers -> points -> runs of kvblaster -> figures -> claims of the source
//! ```
//!
//! Where: the first step of `kvblaster lab`; `check` reads the file, and `points` expands the axes.
//! Invariant: a file with an unknown field is refused.
//! Source: the five documents that `Document` lists.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Determines an experiment's points, the time of each measurement, and the number of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    pub(crate) fn title(self) -> &'static str {
        match self {
            Document::Kvcache => "KV-Cache paper",
            Document::Thesis => "Pavlik's thesis",
            Document::Solarflare => "Solarflare's white paper",
            Document::Notes => "baseline notes",
            Document::Analysis => "Performance Analysis of Memcached",
            Document::Own => "this project",
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
    /// The document whose measurement this experiment repeats.
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
    /// The conditions that the machine must meet for every server of the experiment.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The values of placeholders, which may depend on the scale.
    #[serde(default)]
    pub vars: Vars,
    /// The servers. The report compares the first server with each other server.
    pub servers: Vec<Server>,
    /// The parameters that are varied, at most two. The first parameter is the horizontal axis.
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// The load that kvblaster sends to the servers.
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
    /// Network cards (`--interface`) whose interrupts and coalescing can be set.
    Nic,
    /// The profiler perf, and the right to record with perf.
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
    /// The values at every scale, except where `quick` or `full` has another value.
    pub always: BTreeMap<String, Words>,
    /// The values for `--smoke` and `--quick` that replace values of `always`.
    pub quick: BTreeMap<String, Words>,
    /// The values for `--full` that replace values of `always`.
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

/// The program of a server. `installed` finds the program's path, and `servers` adds the options
/// that set address, threads and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// The cache of this project.
    Hypostyle,
    /// memcached: the program at the path in `MEMCACHED`, or the first on `PATH`.
    Memcached,
    /// Redis: the program at the path in `REDIS`, or the first on `PATH`.
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
    /// The server's name in charts and tables, such as `memcached, pinned`.
    pub name: String,
    /// The server's program.
    pub program: Program,
    /// Number of threads of each process (`-t`, or `--io-threads` for Redis).
    #[serde(default = "one")]
    pub threads: String,
    /// Memory limit of each process in megabytes (`-m`, or `--maxmemory` for Redis).
    #[serde(default = "memory")]
    pub memory_mb: String,
    /// Resident memory of all processes together at the end of a run, in megabytes, or empty. To
    /// reach this value, the lab varies the memory limit, beginning with `memory_mb`.
    #[serde(default)]
    pub resident_mb: String,
    /// Number of processes. If there are several, Ketama distributes the keys over the processes.
    #[serde(default = "one")]
    pub instances: String,
    /// `yes` if kvblaster reaches the processes through one nutcracker, which distributes the keys.
    /// `way` must then be `tcp`, and the protocol memcached's text protocol or Redis's protocol.
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
    /// `yes` if each thread of a process is pinned to one CPU; the threads take the CPUs in turn.
    #[serde(default)]
    pub pinned: String,
    /// Number of queues of each interface of a link. Default: `threads`, or unchanged for a card
    /// that no program drives by AF_XDP.
    #[serde(default)]
    pub queues: String,
    /// MTU of the link in bytes, if `way` is a link.
    #[serde(default = "mtu")]
    pub mtu: String,
    /// Number of wires (pairs of interfaces) of the link, if `way` is a link. No two processes
    /// share a wire if there are enough wires.
    #[serde(default = "one")]
    pub wires: String,
    /// The CPUs that process the packets arriving at the servers' interface (RPS): `all`, or a list
    /// such as `0-1`, in which 0 means the first of the servers' CPUs. If the text is empty, the
    /// setting stays unchanged.
    #[serde(default)]
    pub rps: String,
    /// The CPUs that handle the interrupts of the servers' network card (`--interface`), in the
    /// format of `rps`. The CPU at index n of the list handles queue n.
    #[serde(default)]
    pub irq: String,
    /// Microseconds for which the servers' network card (`--interface`) may delay an interrupt. If
    /// the text is empty, the setting stays unchanged.
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

/// A value in an experiment's file: a text, or a number, which is used as a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// A whole number.
    Whole(i64),
    /// A number that is not whole.
    Number(f64),
    /// A text.
    Text(String),
}

impl fmt::Display for Words {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Words::Whole(number) => number.fmt(out),
            Words::Number(number) => number.fmt(out),
            Words::Text(text) => text.fmt(out),
        }
    }
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
    /// The points, in the order of the report.
    pub points: Vec<Point>,
}

/// A point of an axis. A point gives values to placeholders.
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

/// The way in which kvblaster sends load to servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// One `kvblaster run` with the flags of `drive`.
    #[default]
    Run,
    /// A `kvblaster capacity`: the highest rates that meet the objectives.
    Capacity,
    /// A search for the highest rate with a mean below 1 ms, then a run at 95 % of this rate.
    BelowCapacity,
    /// No server is started: `kvblaster simulate` with the flags of `drive` simulates policies. In
    /// these flags, `$TRACES/FILE` is a file in the folder that the variable `TRACES` names.
    Simulate,
}

/// The load that kvblaster sends to the servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// The way in which kvblaster sends the load.
    #[serde(default)]
    pub method: Method,
    /// Flags of `kvblaster run`, `capacity` or `simulate`, with placeholders. The lab adds targets,
    /// seed and schedule or, for `simulate`, policy and seed.
    pub flags: String,
    /// Flags of a `kvblaster run` before the measurement, for example to fill the memory with other
    /// items. The lab adds only the targets, as addresses over TCP or Unix sockets.
    #[serde(default)]
    pub prepare: String,
    /// Flags of a second `kvblaster run`, which sends load to the same server during the
    /// measurement. The lab adds the measurement's schedule and `--no-populate`.
    #[serde(default)]
    pub beside: String,
    /// True if perf samples the servers' CPUs during the run. The share of each kind of work is
    /// then a figure whose name begins with `figures::PREFIX`.
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
    /// The server, or server at a point, with which `of` is compared. Without `to`, the claim is
    /// about the value of `of`. If a side names no point, the sides are compared at all points that
    /// the other side has.
    pub to: Option<String>,
    /// The claim holds only if the quantity is at least this number.
    pub at_least: Option<f64>,
    /// The claim holds only if the quantity is at most this number.
    pub at_most: Option<f64>,
}

impl Experiment {
    /// The name of the horizontal axis.
    pub(crate) fn x_name(&self) -> &str {
        self.axes.first().map_or("", |axis| &axis.name)
    }

    /// Writes a point in words: `connections = 16, server threads = 4`.
    pub(crate) fn place(&self, at: &[String]) -> String {
        let words =
            self.axes.iter().zip(at).map(|(axis, label)| format!("{} = {label}", axis.name));
        words.collect::<Vec<_>>().join(", ")
    }
}

impl Server {
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
