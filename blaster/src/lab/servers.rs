//! The servers of an experiment: programs, command lines, CPUs, and the targets that reach them.
//!
//! Where: between a point of an experiment and `launch`, which starts the processes.
//! Invariant: at one point all servers get the same threads, memory, CPUs and connections, unless
//! the experiment says otherwise. The command lines are recorded as they were started.
//! Source: Pavlik's thesis, section 2.2; Solarflare's white paper, "Test setup" (tuning is stated).

use super::experiment::{Need, Program, Server, Way};
use super::link::{FAR, Link, WIRE};
use super::points::At;
use super::profile;
use crate::launch::{self, LaunchError, PORT, SOCKET};
use crate::words::quoted;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::env;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The most processes of one server.
const INSTANCES_MAX: usize = 64;
/// `-c` of all servers: connections that they accept.
const CONNECTIONS: u32 = 4096;
/// Networks that Hypostyle answers over UDP; without them, limits on long replies apply.
const EVERYBODY: &str = "udp_allow=0.0.0.0/0,udp_allow=::/0";

/// The reason why a server cannot be measured here.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The machine or its software lacks something.
    #[error("{0}")]
    Lacking(String),
    /// A process cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A thread or a CPU cannot be used.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// A server's running processes.
#[derive(Debug)]
pub struct Group {
    processes: Vec<launch::Server>,
    /// The processes' addresses, as kvblaster's command line names them.
    pub targets: Vec<String>,
    /// The processes' addresses over TCP or a Unix socket.
    pub stream_targets: Vec<String>,
    /// The version of the first process.
    pub version: String,
    /// The command line of each kind of process.
    pub commands: Vec<String>,
}

/// A server's command line and the numbers that the experiment gives it at one point.
#[derive(Debug)]
struct Launch {
    program: Program,
    path: PathBuf,
    way: Way,
    threads: usize,
    memory_mb: u64,
    instances: usize,
    pinned: bool,
    queues: usize,
    mtu: usize,
    flags: String,
}

impl Way {
    /// True if the requests take the link between two network namespaces.
    #[must_use]
    pub fn is_linked(self) -> bool {
        !matches!(self, Way::Tcp | Way::Unix | Way::Udp)
    }

    fn is_udp(self) -> bool {
        !matches!(self, Way::Tcp | Way::Unix | Way::LinkTcp)
    }
}

impl Program {
    /// Finds the program: at the path in the environment, beside kvblaster, or on `PATH`.
    ///
    /// # Errors
    /// The program is not there.
    pub fn path(self) -> Result<PathBuf, ServerError> {
        let (variable, file) = match self {
            Program::Hypostyle => ("HYPOSTYLE", "hypostyle"),
            Program::Memcached => ("MEMCACHED", "memcached"),
            Program::Redis => ("REDIS", "redis-server"),
            Program::BagLru => ("BAG_LRU", ""),
            Program::Reflect => return Ok(env::current_exe()?),
        };
        if let Some(named) = env::var_os(variable) {
            let path = PathBuf::from(named);
            let lacking = || format!("{variable}={}: there is no such file", path.display());
            return path.is_file().then(|| path.clone()).ok_or_else(|| lacking_of(lacking()));
        }
        let beside = env::current_exe()?.with_file_name(file);
        if self == Program::Hypostyle && beside.is_file() {
            return Ok(beside);
        }
        let found = (!file.is_empty()).then(|| on_path(file)).flatten();
        found.ok_or_else(|| match file {
            "" => lacking_of(format!("it is not installed: {variable} names no path")),
            _ => lacking_of(format!("{file} is neither on PATH nor named by {variable}")),
        })
    }
}

fn lacking_of(why: String) -> ServerError {
    ServerError::Lacking(why)
}

/// Returns the first file of this name in the folders of `PATH`.
pub(crate) fn on_path(file: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&folders).map(|folder| folder.join(file));
    found.into_iter().find(|path| path.is_file())
}

/// Checks a need that is the same for all experiments.
///
/// # Errors
/// The machine does not meet the need; the error says why.
pub fn check(need: Need) -> Result<(), ServerError> {
    let found = match need {
        Need::Root if rustix::process::geteuid().is_root() => return Ok(()),
        Need::Root => "it needs root: network namespaces and AF_XDP",
        Need::Nic => "it needs a network card whose interrupts can be set",
        Need::TwoNics => "it needs two network cards",
        Need::Perf => {
            let cpu = net::thread_cpus()?.first().copied().unwrap_or_default();
            return profile::check(cpu).map_err(|error| lacking_of(error.to_string()));
        }
        Need::BagLru if env::var_os("BAG_LRU").is_some() => return Ok(()),
        Need::BagLru => "the paper's baseline is not installed: BAG_LRU names no path",
        Need::Nutcracker if on_path("nutcracker").is_some() => return Ok(()),
        Need::Nutcracker => "it needs the program nutcracker",
        Need::Bypass => {
            "it needs a library that replaces the kernel's sockets, and its network card"
        }
    };
    Err(lacking_of(found.to_owned()))
}

impl Group {
    /// Starts a server's processes on `cpus` and waits until they answer.
    ///
    /// # Errors
    /// A need is not met, or a process does not start.
    pub fn start(
        server: &Server,
        at: &At,
        cpus: &[usize],
        link: Option<&Link>,
    ) -> Result<Group, ServerError> {
        server.needs.iter().try_for_each(|need| check(*need))?;
        let launch = Launch::new(server, at)?;
        let words = launch.words();
        let mut group = Group {
            processes: Vec::new(),
            targets: Vec::new(),
            stream_targets: Vec::new(),
            version: String::new(),
            commands: vec![words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")],
        };
        for nth in 0..launch.instances {
            let own = launch.cpus_of(nth, cpus);
            let start = || launch::start(&words, &own);
            let process = match link.filter(|_| launch.way.is_linked()) {
                Some(link) => link.far(start)??,
                None => start()?,
            };
            if launch.pinned {
                pin_threads(process.pid(), &own)?;
            }
            group.targets.push(launch.target(&process.target));
            group.stream_targets.push(launch.stream_target(&process.target));
            group.processes.push(process);
        }
        group.version = group.processes.first().map_or(String::new(), |one| launch.named(one));
        Ok(group)
    }

    /// Returns the link that a server needs at one point, with a queue for each of its threads.
    /// `None` if its requests take no link.
    ///
    /// # Errors
    /// The link cannot be made.
    pub fn link(server: &Server, at: &At) -> Result<Option<Link>, ServerError> {
        if !server.way.is_linked() {
            return Ok(None);
        }
        check(Need::Root)?;
        let Launch { queues, mtu, .. } = Launch::new(server, at)?;
        Link::new(queues, mtu).map(Some).map_err(|error| lacking_of(error.to_string()))
    }

    /// The processes' ids.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(launch::Server::pid).collect()
    }
}

impl Launch {
    fn new(server: &Server, at: &At) -> Result<Launch, ServerError> {
        let resolved = |text: &str| at.resolve(text).map_err(lacking_of);
        let number = |name: &str, text: &str| {
            let text = resolved(text)?;
            let number = text.trim().parse::<usize>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| lacking_of(format!("{name}: {text} is no number above 0")))
        };
        let instances = number("instances", &server.instances)?;
        if instances > INSTANCES_MAX {
            return Err(lacking_of(format!("instances: at most {INSTANCES_MAX}")));
        }
        let pinned = resolved(&server.pinned)?;
        let queues = if server.queues.is_empty() { &server.threads } else { &server.queues };
        Ok(Launch {
            program: server.program,
            path: server.program.path()?,
            way: server.way,
            threads: number("threads", &server.threads)?,
            memory_mb: number("memory_mb", &server.memory_mb)? as u64,
            instances,
            pinned: matches!(pinned.trim(), "yes" | "true"),
            queues: number("queues", queues)?,
            mtu: number("mtu", &server.mtu)?,
            flags: resolved(&server.flags)?,
        })
    }

    fn words(&self) -> Vec<String> {
        let mut words = vec![self.path.display().to_string()];
        words.extend(match self.program {
            Program::Redis => self.redis(),
            Program::Reflect => self.reflect(),
            Program::Hypostyle | Program::Memcached | Program::BagLru => self.memcached(),
        });
        words.extend(split(&self.flags));
        words
    }

    /// The options that memcached and its successors share.
    fn memcached(&self) -> Vec<String> {
        let mut text = match self.way {
            Way::Tcp => format!("-l 127.0.0.1 -p {PORT} -U 0"),
            Way::Unix => format!("-s {SOCKET}"),
            Way::Udp => format!("-l 127.0.0.1 -p {PORT} -U {PORT}"),
            Way::LinkTcp => format!("-p {PORT} -U 0"),
            Way::LinkUdp | Way::LinkXdpUdp => format!("-p {PORT} -U {PORT}"),
            Way::LinkUdpXdp => format!("-p {PORT} -U {PORT} --xdp {WIRE}"),
            // A reply sent through one queue arrives in the client's queue of the same number, so
            // another column may not answer.
            Way::LinkXdp => format!("-p {PORT} -U {PORT} --xdp {WIRE} -o no_steal"),
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

    /// The CPUs of one process: all, or a part of its own if processes are pinned.
    fn cpus_of(&self, nth: usize, cpus: &[usize]) -> Vec<usize> {
        if !self.pinned || self.instances < 2 || cpus.is_empty() {
            return cpus.to_vec();
        }
        let each = (cpus.len() / self.instances).max(1);
        cpus.iter().copied().cycle().skip(nth * each % cpus.len()).take(each).collect()
    }

    /// The target by which kvblaster reaches a process that `launch` knows by this name.
    fn target(&self, name: &str) -> String {
        let port = || name.rsplit(':').next().unwrap_or(name).to_owned();
        match self.way {
            Way::Tcp | Way::Unix | Way::LinkTcp => self.stream_target(name),
            Way::Udp => format!("udp://{}:{}", Ipv4Addr::LOCALHOST, port()),
            Way::LinkUdp | Way::LinkUdpXdp => format!("udp://{FAR}:{}", port()),
            Way::LinkXdpUdp | Way::LinkXdp => format!("xdp://{WIRE}/{FAR}:{}", port()),
        }
    }

    /// The same process as a target over TCP or a Unix socket.
    fn stream_target(&self, name: &str) -> String {
        let far = FAR.to_string();
        if self.way.is_linked() { name.replace("127.0.0.1", &far) } else { name.to_owned() }
    }

    /// The program's name and version; a distribution's package is shown as such.
    fn named(&self, process: &launch::Server) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let version = process.version.as_deref().unwrap_or("of unknown version");
        let version = version.strip_prefix(&format!("{file} ")).unwrap_or(version);
        let name = if self.program == Program::Reflect { "null server" } else { &file };
        let is_packaged = self.path.starts_with("/usr/bin") || self.path.starts_with("/usr/sbin");
        let package = if is_packaged { " (the distribution's package)" } else { "" };
        format!("{name} {version}{package}")
    }
}

/// Splits a text into words. Single quotes around a word are removed.
pub(crate) fn split(text: &str) -> Vec<String> {
    text.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect()
}

/// Pins each thread of a process to one CPU, in turn.
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
        // A thread may have ended meanwhile.
        let _ = sched_setaffinity(Pid::from_raw(thread), &set);
    }
    Ok(())
}
