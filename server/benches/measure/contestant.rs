//! A server under test: started on its cores, stopped while another one is measured, killed at the
//! end.
//!
//! Where: between a program and the operating system.
//! Invariant: a server listens on a loopback port of its own and does not outlive its `Contestant`;
//! one that is paused (by SIGSTOP) costs its core nothing.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, geteuid, getuid, kill_process, prlimit};

use super::clocks::{self, Cpu};
use super::{Outcome, fail};

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);
/// Between two attempts to connect to a server that is starting.
const START_STEP: Duration = Duration::from_millis(10);

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    /// `-t`.
    pub(crate) threads: u32,
    /// `-m`, in megabytes.
    pub(crate) memory_mb: u32,
    /// `-c`.
    pub(crate) connections: u32,
    /// Further arguments.
    pub(crate) extra: &'a [String],
    /// Cores it may run on; empty: all of them.
    pub(crate) cores: &'a [usize],
}

/// A running server.
pub(crate) struct Contestant {
    child: Child,
    pid: Pid,
    /// First line of its `-V`.
    pub(crate) version: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

/// This project's server, where cargo has built it.
pub(crate) fn ours() -> Option<PathBuf> {
    option_env!("CARGO_BIN_EXE_hypostyle").map(PathBuf::from)
}

/// The memcached that `MEMCACHED=` names, or the first on the path.
pub(crate) fn memcached() -> PathBuf {
    std::env::var_os("MEMCACHED").unwrap_or_else(|| "memcached".into()).into()
}

impl Contestant {
    /// Starts a server and waits until it listens. If it is told its cores, they are this thread's
    /// too afterwards.
    pub(crate) fn start(launch: Launch<'_>) -> Outcome<Contestant> {
        let Launch { program, threads, memory_mb, connections, extra, cores } = launch;
        let version = version_of(program)?;
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(["-l", "127.0.0.1", "-U", "0", "-p", &address.port().to_string()]);
        command.args(["-t", &threads.to_string(), "-m", &memory_mb.to_string()]);
        command.args(["-c", &connections.to_string()]);
        if getuid().is_root() || geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        if version.contains("hypostyle") {
            command.args(["-o", "no_pin"]);
        }
        command.args(extra);
        if !cores.is_empty() {
            clocks::pin_to(cores)?;
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            return fail("the system gave a process id out of range".to_owned());
        };
        await_listener(&mut child, address, program)?;
        Ok(Contestant { child, pid, version, address })
    }

    /// Its resident bytes.
    pub(crate) fn resident_bytes(&self) -> Outcome<u64> {
        clocks::resident_bytes(self.child.id())
    }

    /// Bytes of it in small pages that will be in huge ones.
    pub(crate) fn bytes_to_be_huge(&self) -> Outcome<u64> {
        clocks::bytes_to_be_huge(self.child.id())
    }

    /// Its page faults so far that needed no disk.
    pub(crate) fn minor_faults(&self) -> Outcome<u64> {
        clocks::minor_faults(self.child.id())
    }

    /// Lets it run again.
    pub(crate) fn resume(&self) -> Outcome<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Stops it where it is.
    pub(crate) fn pause(&self) -> Outcome<()> {
        Ok(kill_process(self.pid, Signal::STOP)?)
    }

    /// Leaves it `more` descriptors beside those it has open; returns how many it might have.
    pub(crate) fn limit_files(&self, more: u64) -> Outcome<Rlimit> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count();
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id()))?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        // None where there is no limit.
        let maximum = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        let current = Some(u64::try_from(open)? + more);
        Ok(prlimit(Some(self.pid), Resource::Nofile, Rlimit { current, maximum })?)
    }

    /// Lets it have as many descriptors as before.
    pub(crate) fn restore_files(&self, limit: Rlimit) -> Outcome<()> {
        prlimit(Some(self.pid), Resource::Nofile, limit)?;
        Ok(())
    }

    /// Its CPU time and its cores' so far.
    pub(crate) fn cpu(&self, cores: &[usize]) -> Outcome<Cpu> {
        clocks::read(self.child.id(), cores)
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        // Neither can fail in a way that leaves anything to do: the child is ours and not yet
        // waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// First line of `program -V`.
pub(crate) fn version_of(program: &Path) -> Outcome<String> {
    let output = Command::new(program).arg("-V").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or("(no version)").to_owned())
}

/// A loopback port nobody listens on now.
fn free_address() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn await_listener(child: &mut Child, address: SocketAddr, program: &Path) -> Outcome<()> {
    let end = Instant::now() + START;
    loop {
        if TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            return fail(format!("{} ended at once: {status}", program.display()));
        }
        if Instant::now() > end {
            // Killed here since no `Contestant` owns it yet.
            child.kill()?;
            child.wait()?;
            return fail(format!("{} does not listen", program.display()));
        }
        std::thread::sleep(START_STEP);
    }
}
