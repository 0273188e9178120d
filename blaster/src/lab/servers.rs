//! The servers of an experiment: their programs, command lines and CPUs, and the addresses at which
//! kvblaster reaches them.
//!
//! Where: between a point of an experiment and `launch`, which starts the processes.
//! Invariant: at one point all servers get the same threads, memory, CPUs and connections, unless
//! the experiment says otherwise. The record has the command lines that were executed.
//! Source: Pavlik's thesis, section 2.2; Solarflare's white paper, "Test setup".

use super::card::{self, Pair};
use super::experiment::{Need, Program, Server, Way};
use super::installed::{MeasureError, lacking_of, located, traces, version};
use super::link::{self, Link, Shape, WIRES_MAX, far_address};
use super::points::At;
use super::tuning::Tuning;
use super::{profile, proxy};
use crate::launch::{self, PORT, SOCKET};
use crate::words::{command_line, split, values};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::env;
use std::io;
use std::path::{Path, PathBuf};

/// The maximum number of processes of one server.
const INSTANCES_MAX: usize = 64;
/// The value of `-c` for all servers: the maximum number of connections.
const CONNECTIONS: u32 = 4096;
/// Lets Hypostyle answer all networks over UDP. Without this option, long replies are limited.
const EVERYBODY: &str = "udp_allow=0.0.0.0/0,udp_allow=::/0";

/// The address at which `launch` reaches a process.
const LOOPBACK: &str = "127.0.0.1";

/// A server's running processes.
#[derive(Debug, Default)]
pub(crate) struct Group {
    processes: Vec<launch::Server>,
    /// The processes' addresses, as kvblaster's command line names them.
    pub targets: Vec<String>,
    /// The processes' addresses over TCP or a Unix socket.
    pub stream_targets: Vec<String>,
    /// The name and version of the server's program.
    pub version: String,
    /// The different command lines of the processes, then commands for settings of the link.
    pub commands: Vec<String>,
}

/// A server's program, and the settings that the experiment gives the server at one point.
#[derive(Debug)]
struct Launch {
    program: Program,
    path: PathBuf,
    way: Way,
    threads: usize,
    memory_mb: u64,
    instances: usize,
    pinned: bool,
    /// The names of the interfaces of each wire. Empty if there is no link.
    wires: Vec<Pair>,
    is_proxied: bool,
    flags: String,
}

/// The CPUs and network cards that an experiment may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    /// CPUs reserved for the servers.
    pub cpus: &'p [usize],
    /// The pairs of network cards (`--interface`).
    pub cards: &'p [Pair],
}

impl Way {
    /// True if the requests take the link between two network namespaces.
    pub(crate) fn is_linked(self) -> bool {
        !matches!(self, Way::Tcp | Way::Unix | Way::Udp)
    }

    fn is_udp(self) -> bool {
        !matches!(self, Way::Tcp | Way::Unix | Way::LinkTcp)
    }

    /// True if the server bypasses the kernel.
    fn is_server_bypassing(self) -> bool {
        matches!(self, Way::LinkUdpXdp | Way::LinkXdp)
    }

    /// True if the client or the server bypasses the kernel.
    fn is_bypassing(self) -> bool {
        self.is_server_bypassing() || self == Way::LinkXdpUdp
    }
}

/// Checks that the machine meets a need. `cards` are the network cards of `--interface`. Fails if
/// the machine does not meet the need; the error says why.
pub(crate) fn check(need: Need, cards: &[Pair]) -> Result<(), MeasureError> {
    let found = match need {
        Need::Root if rustix::process::geteuid().is_root() => return Ok(()),
        Need::Root => "network namespaces and AF_XDP need root",
        Need::Nic if cards.is_empty() => "two network cards are needed: name them with --interface",
        Need::Nic => match cards.iter().find(|[_, far]| !card::is_hardware(far)) {
            Some([_, far]) => {
                return Err(lacking_of(format!("--interface: {far} is no hardware network card")));
            }
            None => return Ok(()),
        },
        Need::Perf => {
            let cpu = net::thread_cpus()?.first().copied().unwrap_or_default();
            return profile::check(cpu).map_err(|error| lacking_of(error.to_string()));
        }
        Need::BagLru if env::var_os("BAG_LRU").is_some() => return Ok(()),
        Need::BagLru => {
            "the KV-Cache paper's baseline is not installed: the environment variable BAG_LRU does \
             not name its path"
        }
        Need::Traces => return traces().map(drop),
        Need::Nutcracker => return located("NUTCRACKER", "nutcracker").map(drop),
        Need::Bypass => {
            "the server needs a library that replaces the kernel's sockets, and a network card \
             that this library supports"
        }
    };
    Err(lacking_of(found.to_owned()))
}

impl Group {
    /// Starts a server's processes on the servers' CPUs, and waits until they answer. The caller
    /// has checked the server's needs. Fails if a program is not there, or a process does not
    /// start.
    pub(crate) fn start(
        server: &Server,
        at: &At,
        cpus: &[usize],
        link: Option<&Link>,
    ) -> Result<Group, MeasureError> {
        let launch = Launch::new(server, at, link)?;
        let settings = link.map_or(Vec::new(), |link| link.settings.clone());
        let mut group = Group::default();
        for nth in 0..launch.instances {
            let own = launch.cpus_of(nth, cpus);
            let words = launch.words(nth);
            let start = || launch::start(&words, &own);
            let process = match link {
                Some(link) => link.far(start)??,
                None => start()?,
            };
            if launch.pinned {
                pin_threads(process.pid(), &own)?;
            }
            group.targets.extend(launch.targets(nth, &process.target));
            group.stream_targets.push(launch.stream_target(nth, &process.target));
            group.processes.push(process);
            let command = command_line(&words);
            if !group.commands.contains(&command) {
                group.commands.push(command);
            }
        }
        group.version = group.processes.first().map_or(String::new(), |one| launch.named(one));
        if launch.is_proxied {
            group.hide_behind(proxy::start(&group.targets, cpus)?);
        }
        group.commands.extend(settings);
        Ok(group)
    }

    /// Replaces the targets of the processes by the target of a proxy.
    fn hide_behind(&mut self, proxy: proxy::Proxy) {
        self.targets = vec![proxy.target];
        self.stream_targets.clone_from(&self.targets);
        self.version += &format!(" behind {}", proxy.version);
        self.commands.push(proxy.command);
        self.processes.push(proxy.process);
    }

    /// Returns the link that a server needs at one point, with the queues and the settings that the
    /// experiment requests. `None` if the server is not reached over a link. Fails if the link
    /// cannot be made.
    pub(crate) fn link(
        server: &Server,
        at: &At,
        place: Place<'_>,
    ) -> Result<Option<Link>, MeasureError> {
        if !server.way.is_linked() {
            return Ok(None);
        }
        check(Need::Root, place.cards)?;
        let lacking = |error: link::LinkError| lacking_of(error.to_string());
        let shape = shape(server, at, place.cards)?;
        let tuning = tuning(server, at, place)?;
        let mut link = Link::new(shape).map_err(lacking)?;
        link.tune(&tuning).map_err(lacking)?;
        Ok(Some(link))
    }

    /// The processes' ids.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(launch::Server::pid).collect()
    }
}

/// Parses a number of an experiment, which must be above 0.
pub(super) fn number(name: &str, text: &str, at: &At) -> Result<usize, MeasureError> {
    let text = at.resolve(text).map_err(lacking_of)?;
    let number = text.trim().parse::<usize>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| lacking_of(format!("{name}: {text} is no number above 0")))
}

/// Returns the shape of the link that a server needs at one point.
fn shape(server: &Server, at: &At, cards: &[Pair]) -> Result<Shape, MeasureError> {
    let number = |name: &str, text: &str| number(name, text, at);
    let wires = number("wires", &server.wires)?;
    if wires > WIRES_MAX {
        return Err(lacking_of(format!("wires: give at most {WIRES_MAX} wires")));
    }
    if (1..wires).contains(&cards.len()) {
        let has = cards.len();
        let why =
            format!("the link needs {wires} pairs of network cards, and --interface gives {has}");
        return Err(lacking_of(why));
    }
    let queues = match server.queues.is_empty() {
        false => Some(number("queues", &server.queues)?),
        // Without AF_XDP, kvblaster and the server can use any number of queues of a card.
        true if !cards.is_empty() && !server.way.is_bypassing() => None,
        true => Some(number("threads", &server.threads)?),
    };
    let (wires, has_cards) = (link::names(cards, wires), !cards.is_empty());
    Ok(Shape { wires, has_cards, queues, mtu: number("mtu", &server.mtu)? })
}

/// Returns the settings of the link that a server needs at one point.
fn tuning(server: &Server, at: &At, place: Place<'_>) -> Result<Tuning, MeasureError> {
    let cpus = |name: &str, text: &str| {
        let text = at.resolve(text).map_err(lacking_of)?;
        match text.trim() {
            "" => Ok(Vec::new()),
            "all" => Ok(place.cpus.to_vec()),
            places => {
                chosen(places, place.cpus).map_err(|why| lacking_of(format!("{name}: {why}")))
            }
        }
    };
    let (rps, irq) = (cpus("rps", &server.rps)?, cpus("irq", &server.irq)?);
    let us = at.resolve(&server.coalesce_us).map_err(lacking_of)?;
    let wrong = || lacking_of(format!("coalesce_us: {us} is no whole number"));
    let coalesce_us = match us.trim() {
        "" => None,
        us => Some(us.parse().map_err(|_| wrong())?),
    };
    if !irq.is_empty() || coalesce_us.is_some() {
        check(Need::Nic, place.cards)?;
    }
    Ok(Tuning { rps, irq, coalesce_us })
}

/// Returns the elements of `cpus` at these indexes, such as `0-1`.
fn chosen(places: &str, cpus: &[usize]) -> Result<Vec<usize>, String> {
    let places = values::cpus(places)?;
    let needs = places.iter().max().map_or(0, |last| last + 1);
    let lacking =
        || format!("the list needs {needs} CPUs, but --server-cpus gives only {}", cpus.len());
    places.iter().map(|nth| cpus.get(*nth).copied().ok_or_else(lacking)).collect()
}

impl Launch {
    fn new(server: &Server, at: &At, link: Option<&Link>) -> Result<Launch, MeasureError> {
        let resolved = |text: &str| at.resolve(text).map_err(lacking_of);
        let number = |name: &str, text: &str| number(name, text, at);
        let instances = number("instances", &server.instances)?;
        if instances > INSTANCES_MAX {
            return Err(lacking_of(format!("instances: give at most {INSTANCES_MAX} processes")));
        }
        let wires = link.map_or(Vec::new(), |link| link.wires.clone());
        if server.way.is_server_bypassing() && wires.len() > instances {
            let why = "a process bypasses the kernel on only one wire, so there must not be more \
                       wires than processes";
            return Err(lacking_of(why.to_owned()));
        }
        let is_yes =
            |text: &str| Ok::<_, MeasureError>(matches!(resolved(text)?.trim(), "yes" | "true"));
        Ok(Launch {
            program: server.program,
            path: server.program.path()?,
            way: server.way,
            threads: number("threads", &server.threads)?,
            memory_mb: number("memory_mb", &server.memory_mb)? as u64,
            instances,
            pinned: is_yes(&server.pinned)?,
            wires,
            is_proxied: is_yes(&server.proxy)?,
            flags: resolved(&server.flags)?,
        })
    }

    /// Returns the wires by which kvblaster reaches a process. Each wire belongs to one process,
    /// but if there are more processes than wires, processes share wires.
    fn wires_of(&self, nth: usize) -> impl Iterator<Item = usize> + '_ {
        let all = self.wires.len().max(1);
        (0..all).filter(move |wire| wire % self.instances == nth % all)
    }

    /// Returns the servers' interface of the first wire of a process.
    fn interface(&self, nth: usize) -> &str {
        let wire = self.wires_of(nth).next().unwrap_or_default();
        self.wires.get(wire).map_or("", |[_, far]| far)
    }

    /// Returns the command line of one process.
    fn words(&self, nth: usize) -> Vec<String> {
        let mut words = vec![self.path.display().to_string()];
        words.extend(match self.program {
            Program::Redis => self.redis(),
            Program::Reflect => self.reflect(),
            Program::Hypostyle | Program::Memcached | Program::BagLru => self.memcached(nth),
            // A policy is simulated, and has no process.
            Program::Policy => Vec::new(),
        });
        words.extend(split(&self.flags));
        words
    }

    /// Returns the options of memcached. Hypostyle and Bag-LRU accept the same options.
    fn memcached(&self, nth: usize) -> Vec<String> {
        let interface = self.interface(nth);
        let mut text = match self.way {
            Way::Tcp => format!("-l 127.0.0.1 -p {PORT} -U 0"),
            Way::Unix => format!("-s {SOCKET}"),
            Way::Udp => format!("-l 127.0.0.1 -p {PORT} -U {PORT}"),
            Way::LinkTcp => format!("-p {PORT} -U 0"),
            Way::LinkUdp | Way::LinkXdpUdp => format!("-p {PORT} -U {PORT}"),
            Way::LinkUdpXdp => format!("-p {PORT} -U {PORT} --xdp {interface}"),
            // A client thread gets only the replies that are sent through the queue of the same
            // number, so the server thread that receives a request must answer this request.
            Way::LinkXdp => format!("-p {PORT} -U {PORT} --xdp {interface} -o no_steal"),
        };
        let Launch { threads, memory_mb, .. } = self;
        text += &format!(" -t {threads} -m {memory_mb} -c {CONNECTIONS}");
        if rustix::process::geteuid().is_root() {
            text += " -u root";
        }
        if self.program == Program::Hypostyle {
            text += if self.pinned { "" } else { " -o no_pin" };
            if self.way.is_linked() && self.way.is_udp() {
                text = format!("{text} -o {EVERYBODY}");
            }
        }
        if self.program == Program::BagLru {
            text += " -E bag_lru_engine.so";
        }
        split(&text)
    }

    fn redis(&self) -> Vec<String> {
        let place = match self.way {
            Way::Unix => format!("--port 0 --unixsocket {SOCKET}"),
            Way::Tcp => format!("--bind 127.0.0.1 --port {PORT}"),
            _ => format!("--port {PORT} --protected-mode no"),
        };
        let Launch { threads, memory_mb, .. } = self;
        let mut words = split(&format!(
            "{place} --io-threads {threads} --maxmemory {memory_mb}mb \
             --maxmemory-policy allkeys-lru --maxclients {CONNECTIONS} --appendonly no"
        ));
        words.extend(["--save".to_owned(), String::new()]);
        words
    }

    fn reflect(&self) -> Vec<String> {
        let (host, threads) =
            (if self.way.is_linked() { "0.0.0.0" } else { "127.0.0.1" }, self.threads);
        let place = match self.way {
            Way::Unix => format!("unix:{SOCKET}"),
            way if way.is_udp() => format!("{host}:{PORT} udp://{host}:{PORT}"),
            _ => format!("{host}:{PORT}"),
        };
        split(&format!("reflect -t {threads} {place}"))
    }

    /// Returns the CPUs of one process: all CPUs or, if several processes are pinned, its share.
    fn cpus_of(&self, nth: usize, cpus: &[usize]) -> Vec<usize> {
        if !self.pinned || self.instances < 2 || cpus.is_empty() {
            return cpus.to_vec();
        }
        let each = (cpus.len() / self.instances).max(1);
        cpus.iter().copied().cycle().skip(nth * each % cpus.len()).take(each).collect()
    }

    /// Returns the targets of a process, one for each wire. `name` is the target from `launch`.
    fn targets(&self, nth: usize, name: &str) -> Vec<String> {
        let port = name.rsplit(':').next().unwrap_or(name);
        let target = |wire: usize| {
            let far = far_address(wire);
            match self.way {
                Way::Tcp | Way::Unix => name.to_owned(),
                Way::LinkTcp => name.replace(LOOPBACK, &far.to_string()),
                Way::Udp => format!("udp://{LOOPBACK}:{port}"),
                Way::LinkUdp | Way::LinkUdpXdp => format!("udp://{far}:{port}"),
                Way::LinkXdpUdp | Way::LinkXdp => {
                    format!("xdp://{}/{far}:{port}", self.wires[wire][0])
                }
            }
        };
        self.wires_of(nth).map(target).collect()
    }

    /// Returns the target of a process over TCP or a Unix socket.
    fn stream_target(&self, nth: usize, name: &str) -> String {
        let far = far_address(self.wires_of(nth).next().unwrap_or_default()).to_string();
        if self.way.is_linked() { name.replace(LOOPBACK, &far) } else { name.to_owned() }
    }

    /// Returns the program's name and version. A package of the distribution is mentioned.
    fn named(&self, process: &launch::Server) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reported = process.version.as_deref().unwrap_or("of unknown version");
        let reported = reported.strip_prefix(&format!("{file} ")).unwrap_or(reported);
        let name = if self.program == Program::Reflect { "null server" } else { &file };
        let is_packaged = self.path.starts_with("/usr/bin") || self.path.starts_with("/usr/sbin");
        let package = if is_packaged { " (the distribution's package)" } else { "" };
        // In the protocol, Hypostyle reports the version of memcached with which it is compatible.
        let own = match self.program {
            Program::Hypostyle => version(&self.path, "hypostyle").ok(),
            _ => None,
        };
        format!("{}{package}", own.unwrap_or_else(|| format!("{name} {reported}")))
    }
}

/// Pins each thread of a process to one CPU. The threads take the CPUs in turn.
fn pin_threads(pid: u32, cpus: &[usize]) -> io::Result<()> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let mut threads: Vec<i32> = std::fs::read_dir(tasks)?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    for (thread, cpu) in threads.into_iter().zip(cpus.iter().cycle()) {
        let mut set = CpuSet::new();
        set.set(*cpu);
        // An error is ignored, because the thread may have ended meanwhile.
        let _ = sched_setaffinity(Pid::from_raw(thread), &set);
    }
    Ok(())
}
