//! The built binary as a process that a test starts, drives by requests and signals, and ends.
//!
//! Where: every test and bench that starts a server.
//! Invariant: no process started here outlives its test, and no wait is longer than `PATIENCE`.
#![allow(dead_code, reason = "each test crate uses its own part of this module")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testing::{Folder, KillOnDrop, await_some};

/// The program of this build.
pub(crate) const HYPOSTYLE: &str = env!("CARGO_BIN_EXE_hypostyle");

pub(crate) fn hypostyle(arguments: &[&str]) -> Command {
    let mut command = launch(&[], HYPOSTYLE);
    command.args(arguments);
    command
}

/// Returns a command line that starts with the words `by`, which are another program that starts
/// `program`, or nothing.
pub(crate) fn launch(by: &[&str], program: impl AsRef<OsStr>) -> Command {
    let mut words = by.iter().map(OsStr::new).chain([program.as_ref()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env_remove("MEMCACHED_PORT_FILENAME");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[track_caller]
pub(crate) fn ended(mut command: Command) -> Output {
    let mut child = KillOnDrop::spawn(&mut command);
    let status = await_some("the end", || child.try_wait().unwrap());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    Output { status, stdout, stderr }
}

/// A process that is not a child of this test, killed if the test fails.
pub(crate) struct Detached(pub(crate) Pid);

impl Drop for Detached {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = kill_process(self.0, Signal::KILL);
        }
    }
}

pub(crate) struct Running {
    pub(crate) child: KillOnDrop,
    pub(crate) place: Folder,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Running {
        let mut command = hypostyle(arguments);
        command.args(["-p", "-1"]);
        Running::of(command)
    }

    #[track_caller]
    pub(crate) fn of(mut command: Command) -> Running {
        Running::spawned(&mut command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Starts a server, and waits until it has written its port file.
    #[track_caller]
    pub(crate) fn spawned(command: &mut Command) -> io::Result<Running> {
        let place = Folder::new();
        let child = command.env("MEMCACHED_PORT_FILENAME", place.path("ports")).spawn()?;
        let mut running = Running { child: KillOnDrop(child), place };
        await_some("the port file", || {
            if let Some(status) = running.child.try_wait().unwrap() {
                panic!("{command:?} ended at its start: {status}: {}", running.stderr());
            }
            running.place.path("ports").exists().then_some(())
        });
        Ok(running)
    }

    pub(crate) fn on_loopback(arguments: &[&str]) -> Running {
        let mut all = vec!["-l", "127.0.0.1"];
        all.extend_from_slice(arguments);
        Running::start(&all)
    }

    pub(crate) fn ports(&self) -> String {
        fs::read_to_string(self.place.path("ports")).unwrap()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port_of("TCP INET: ").unwrap()
    }

    /// Returns the port in the first line of the port file that begins with `name`.
    pub(crate) fn port_of(&self, name: &str) -> Option<u16> {
        self.ports().lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    pub(crate) fn ask(&self, request: &str) -> String {
        talk(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).unwrap(), request)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn proc(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.pid())).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(to_pid(self.pid()), signal).unwrap();
    }

    /// Returns the text of stderr. The process must have ended before this call.
    pub(crate) fn stderr(&mut self) -> String {
        let mut text = String::new();
        let stderr = self.child.stderr.take();
        stderr.map(|mut stderr| stderr.read_to_string(&mut text).unwrap());
        text
    }

    #[track_caller]
    pub(crate) fn stop(&mut self, signal: Signal) -> (i32, String) {
        self.signal(signal);
        self.end()
    }

    /// Waits until the process ends. Returns the exit status and the text of stderr.
    #[track_caller]
    pub(crate) fn end(&mut self) -> (i32, String) {
        let status = await_some("the end", || self.child.try_wait().unwrap());
        (status.code().unwrap_or(-1), self.stderr())
    }
}

pub(crate) fn to_pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// Sends `request`. Returns the whole reply: one line, or the rows of `stats` and the line `END`.
pub(crate) fn talk<S: Read + Write>(mut stream: S, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut reply = String::new();
    loop {
        let start = reply.len();
        let bytes = reader.read_line(&mut reply).unwrap();
        if bytes == 0 || !reply[start..].starts_with("STAT ") {
            return reply;
        }
    }
}

pub(crate) const VERSION_REPLY: &str = "VERSION 1.6.45\r\n";

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
