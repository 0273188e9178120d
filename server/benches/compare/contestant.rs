//! A server under test: started on its cores, filled, stopped while the other one is measured,
//! killed at the end.
//!
//! Where: between `main` and the operating system.
//! Invariant: only the server being measured runs: the other is stopped by SIGSTOP, so it costs its
//! core nothing.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, getuid, kill_process};

use crate::clocks::{self, Cpu};
use crate::options::Options;
use crate::{Outcome, fail};

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);
/// Between two attempts to connect to a server that is starting.
const START_STEP: Duration = Duration::from_millis(10);

/// A running server.
pub(crate) struct Contestant {
    child: Child,
    pid: Pid,
    /// First line of its `-V`.
    pub(crate) version: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Contestant {
    /// Starts `program` on `cores` and waits until it listens. This thread's affinity is `cores`
    /// afterwards.
    pub(crate) fn start(
        program: &Path,
        extra: &[String],
        cores: &[usize],
        options: &Options,
    ) -> Outcome<Contestant> {
        let version = version_of(program)?;
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(["-l", "127.0.0.1", "-U", "0", "-p", &address.port().to_string()]);
        command.args(["-t", &options.threads.to_string()]);
        command.args(["-R", &options.reqs_per_event.to_string()]);
        command.args(["-m", &options.memory_mb.to_string()]);
        command.args(["-c", &options.connections.saturating_add(64).to_string()]);
        if getuid().is_root() || geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        if version.contains("hypostyle") {
            command.args(["-o", "no_pin"]);
        }
        command.args(extra);
        clocks::pin_to(cores)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            return fail("the system gave a process id out of range".to_owned());
        };
        await_listener(&mut child, address, program)?;
        Ok(Contestant { child, pid, version, address })
    }

    /// Lets it run again.
    pub(crate) fn resume(&self) -> Outcome<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Stops it where it is.
    pub(crate) fn pause(&self) -> Outcome<()> {
        Ok(kill_process(self.pid, Signal::STOP)?)
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
fn version_of(program: &Path) -> Outcome<String> {
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
