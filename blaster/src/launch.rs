//! Servers that are started here: on places of their own, on their CPUs, stopped while another one
//! is measured.
//!
//! Where: between whoever compares or sizes servers and the operating system. Invariant: a server
//! goes with its `Server`, and with this process however that ends: a guard, a shell that leads its
//! process group and reads from a pipe that only this process can write to, kills the group when
//! the pipe closes. What it prints is read, so that it never waits, and its last words are kept.

use crate::measure::owner;
use crate::result::version;
use crate::run::served;
use crate::target::{self, Family, Target};
use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io::{self, PipeReader, Read};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// What stands in a server's words for its port, or the path of its Unix socket.
pub const PORT: &str = "{port}";
/// See [`PORT`].
pub const SOCKET: &str = "{socket}";
/// How long a server may take until it answers: one with much memory touches it first.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether it does.
const LOOK: Duration = Duration::from_millis(10);
/// Of what it printed, so much is kept.
const WORDS_BYTES_MAX: usize = 2000;
/// How long its last words are waited for.
const WORDS_PATIENCE: Duration = Duration::from_secs(1);
/// Kills its process group when its input ends. A group that stands still when its parent goes is
/// told to hang up, which would end it before.
const GUARD: &str = "trap '' HUP; read _; kill -9 0";

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// It is not told its place.
    #[error("{0}: where is it to listen? Write {PORT} in it, or {SOCKET} for a Unix socket")]
    Placeless(String),
    /// The system refuses.
    #[error("{0}: {1}")]
    System(String, #[source] io::Error),
    /// It ended.
    #[error("{0}: it ended before it answered ({1}), and said: {2}")]
    Ended(String, ExitStatus, String),
    /// It is in a session of its own.
    #[error("{0}: it left its process group (setsid?), and could not be stopped for the others")]
    Escaped(String),
    /// Another one has its place.
    #[error("{0}: process {2} answers on {1}, where it was to listen: is that another server?")]
    Taken(String, String, u32),
    /// It does not answer.
    #[error("{0}: it does not answer after {time} s, and said: {1}", time = PATIENCE.as_secs())]
    Silent(String, String),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    guard: Child,
    group: Pid,
    socket: PathBuf,
    /// Locked by nobody: it lets threads share what is read by one.
    words: Mutex<mpsc::Receiver<String>>,
    /// Where it is, as [`target::parse`] reads it.
    pub target: String,
    /// What it says its version is.
    pub version: Option<String>,
}

/// The words that have a shell start `command`, and become it. It may begin with its environment:
/// `NAME=value`.
#[must_use]
pub fn shell(command: &str) -> Vec<String> {
    ["sh", "-c", &becoming(command)].map(str::to_owned).into()
}

/// What has a shell become `command`: by itself `exec` takes no environment.
pub(crate) fn becoming(command: &str) -> String {
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let rest = command.trim_start().trim_start_matches(is_of_name);
    let is_assigned = rest.starts_with('=') && rest.len() < command.trim_start().len();
    format!("exec {}{command}", if is_assigned { "env " } else { "" })
}

/// Starts the server of these words on `cpus` (empty: wherever this thread may run), with a free
/// port of the loopback address for `{port}` and a path for `{socket}`, and waits until it answers.
///
/// # Errors
/// It cannot be started, ends, or does not answer.
pub fn start(words: &[String], cpus: &[usize]) -> Result<Server, LaunchError> {
    static SOCKETS: AtomicU32 = AtomicU32::new(0);
    let name = words.join(" ");
    let failed = |error| LaunchError::System(name.clone(), error);
    // Relaxed: only that each number is given once matters.
    let nth = SOCKETS.fetch_add(1, Ordering::Relaxed);
    let socket = format!("kvblaster-{}-{nth}.sock", std::process::id());
    let socket = std::env::temp_dir().join(socket);
    let port = free_port().map_err(failed)?;
    let target = match [PORT, SOCKET].map(|place| name.contains(place)) {
        [true, _] => format!("127.0.0.1:{port}"),
        [_, true] => format!("unix:{}", socket.display()),
        _ => return Err(LaunchError::Placeless(name)),
    };
    let placed = |word: &String| {
        word.replace(PORT, &port.to_string()).replace(SOCKET, &socket.to_string_lossy())
    };
    let mut placed = words.iter().map(placed);
    let mut command = Command::new(placed.next().unwrap_or_default());
    let (reader, writer) = io::pipe().map_err(failed)?;
    command.args(placed).stdin(Stdio::null());
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut guard = Command::new("sh");
    // A group of its own: Ctrl-C is not for it.
    guard.args(["-c", GUARD]).process_group(0).stdin(Stdio::piped());
    let guard = guard.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let pid = i32::try_from(guard.id()).ok().and_then(Pid::from_raw);
    let group = pid.ok_or_else(|| failed(io::ErrorKind::Other.into()))?;
    command.process_group(group.as_raw_pid());
    // Where it fails the guard goes too: its pipe is closed.
    let child = on(cpus, || command.spawn()).and_then(|child| child).map_err(failed)?;
    // With it goes our end of the pipe.
    drop(command);
    let words = Mutex::new(last_words(reader).map_err(failed)?);
    let mut server = Server { child, guard, group, socket, words, target, version: None };
    let target = server.wait(&name)?;
    if !server.has(server.pid()) {
        return Err(LaunchError::Escaped(name));
    }
    // Of those whose process is not for us to see nothing is known.
    match owner::owners(served(&target)).into_iter().find(|pid| !server.has(*pid)) {
        Some(other) => Err(LaunchError::Taken(name, server.target.clone(), other)),
        None => Ok(server),
    }
}

impl Server {
    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Is this process in its group?
    fn has(&self, pid: u32) -> bool {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.is_some() && getpgid(pid).is_ok_and(|group| group == self.group)
    }

    /// Stops it where it is: it costs its CPUs nothing.
    ///
    /// # Errors
    /// It is gone.
    pub fn pause(&self) -> io::Result<()> {
        kill_process_group(self.group, Signal::STOP)?;
        // The guard stays awake.
        Ok(kill_process(self.group, Signal::CONT)?)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It is gone.
    pub fn resume(&self) -> io::Result<()> {
        Ok(kill_process_group(self.group, Signal::CONT)?)
    }

    /// How it ended, and its last words, if it does within `patience`.
    ///
    /// # Errors
    /// That cannot be known.
    pub fn ended(&mut self, patience: Duration) -> io::Result<Option<(ExitStatus, String)>> {
        let begin = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(Some((status, self.said()))),
                None if begin.elapsed() >= patience => return Ok(None),
                None => std::thread::sleep(LOOK),
            }
        }
    }

    /// Waits until it answers, in whichever protocol, and gives its place.
    fn wait(&mut self, name: &str) -> Result<Target, LaunchError> {
        let start = Instant::now();
        let failed = |error| LaunchError::System(name.to_owned(), error);
        let target = target::parse(&self.target, Family::Any).map_err(io::Error::other);
        let target = target.map_err(failed)?;
        loop {
            let said = version::ask(&target, false);
            if let Some((status, said)) = self.ended(Duration::ZERO).map_err(failed)? {
                return Err(LaunchError::Ended(name.to_owned(), status, said));
            }
            if let Ok(said) = said {
                self.version = said.version;
                let as_redis = || version::ask(&target, true).ok()?.version;
                if self.version.is_none()
                    && let Some(version) = as_redis()
                {
                    self.version = Some(version);
                    self.target = format!("redis://{}", self.target);
                }
                return Ok(target);
            }
            if start.elapsed() > PATIENCE {
                return Err(LaunchError::Silent(name.to_owned(), self.said()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Its last words.
    fn said(&mut self) -> String {
        self.kill();
        let words = self.words.get_mut().unwrap_or_else(PoisonError::into_inner);
        let words = words.recv_timeout(WORDS_PATIENCE).unwrap_or_default();
        if words.is_empty() { "nothing".to_owned() } else { words }
    }

    fn kill(&self) {
        // It may be gone already.
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // None of these can fail in a way that leaves anything to do. The guard is waited for last:
        // until then the number of the group is no other's.
        self.kill();
        let _ = self.child.kill();
        // One that runs as somebody else cannot be killed, and would be waited for for ever.
        let _ = self.ended(WORDS_PATIENCE);
        let _ = self.guard.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

/// A port of the loopback address on which nobody listens now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Keeps the end of what is printed, and sends it when there is no more.
fn last_words(mut reader: PipeReader) -> io::Result<mpsc::Receiver<String>> {
    let (sender, receiver) = mpsc::channel();
    let keep = move || {
        let (mut kept, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(bytes @ 1..) = reader.read(&mut part) {
            kept.extend_from_slice(&part[..bytes]);
            kept.drain(..kept.len().saturating_sub(WORDS_BYTES_MAX));
        }
        // Who does not ask does not want them.
        let _ = sender.send(String::from_utf8_lossy(&kept).trim().to_owned());
    };
    std::thread::Builder::new().name("last words".to_owned()).spawn(keep)?;
    Ok(receiver)
}

/// Does something on these CPUs, or anywhere if there are none: what is started so stays there.
///
/// # Errors
/// There are no such CPUs.
pub fn on<T>(cpus: &[usize], act: impl FnOnce() -> T) -> io::Result<T> {
    if cpus.is_empty() {
        return Ok(act());
    }
    let (before, mut set) = (sched_getaffinity(None)?, CpuSet::new());
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set)?;
    let done = act();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(command: &str) -> String {
        start(&shell(command), &[]).unwrap_err().to_string()
    }

    #[test]
    fn a_server_that_cannot_start_is_told_with_its_last_words() {
        let told = failed("echo no such {port} for >&2 me; exit 3");
        assert!(told.contains("ended") && told.contains("and said: no such"), "{told}");
        assert!(failed("no-such-program {socket}").contains("not found"), "no program");
        assert!(failed("memcached").contains("Write {port}"), "no place");
    }
}
