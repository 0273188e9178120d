//! Servers started by kvblaster: on ports and CPUs of their own, paused while another one is
//! measured.
//!
//! Where: between the verbs that compare or size servers and the operating system.
//! Invariant: a server ends with its `Server`, and with this process however that ends. A guard
//! ensures this: a shell that leads the server's process group and reads from a pipe that only this
//! process can write to; when the pipe closes, it kills the group. The server's output is read all
//! the time, so that it never blocks, and its last words are kept.

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

/// The placeholder of the port in a server's command; below, of the path of its Unix socket.
pub const PORT: &str = "{port}";
/// See [`PORT`].
pub const SOCKET: &str = "{socket}";
/// Time that a server has until it answers: one with much memory touches it first.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at a server.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes kept of the end of a server's output.
const WORDS_BYTES_MAX: usize = 2000;
/// Time that the last words have to arrive.
const WORDS_PATIENCE: Duration = Duration::from_secs(1);
/// Kills its process group when its input ends. It ignores SIGHUP, which the kernel sends to a
/// paused group whose parent ends, and which would end the guard first.
const GUARD: &str = "trap '' HUP; read _; kill -9 0";

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The command does not contain its place.
    #[error("{0}: where is it to listen? Write {PORT} in it, or {SOCKET} for a Unix socket")]
    Placeless(String),
    /// A system call failed.
    #[error("{0}: {1}")]
    System(String, #[source] io::Error),
    /// The server ended.
    #[error("{0}: it ended before it answered ({1}), and said: {2}")]
    Ended(String, ExitStatus, String),
    /// The server left its process group for a session of its own.
    #[error("{0}: it left its process group (setsid?), and could not be stopped for the others")]
    Escaped(String),
    /// Another server has the port.
    #[error("{0}: process {2} answers on {1}, where it was to listen: is that another server?")]
    Taken(String, String, u32),
    /// The server does not answer.
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
    /// Never contended: the lock only makes the receiver shareable between threads.
    words: Mutex<mpsc::Receiver<String>>,
    /// The server's place, in the form of [`target::parse`].
    pub target: String,
    /// The version that it reports.
    pub version: Option<String>,
}

/// Returns the words with which a shell becomes `command`. The command may begin with its
/// environment: `NAME=value`.
#[must_use]
pub fn shell(command: &str) -> Vec<String> {
    ["sh", "-c", &becoming(command)].map(str::to_owned).into()
}

/// Returns shell text that becomes `command`: `exec` alone does not take an environment.
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
    // Relaxed: it only matters that no number is given twice.
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
    // A group of its own, so Ctrl-C does not reach it.
    guard.args(["-c", GUARD]).process_group(0).stdin(Stdio::piped());
    let guard = guard.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let pid = i32::try_from(guard.id()).ok().and_then(Pid::from_raw);
    let group = pid.ok_or_else(|| failed(io::ErrorKind::Other.into()))?;
    command.process_group(group.as_raw_pid());
    // If this fails, the guard ends too: its pipe is closed.
    let child = on(cpus, || command.spawn()).and_then(|child| child).map_err(failed)?;
    // This closes our end of the pipe.
    drop(command);
    let words = Mutex::new(last_words(reader).map_err(failed)?);
    let mut server = Server { child, guard, group, socket, words, target, version: None };
    let target = server.wait(&name)?;
    if !server.has(server.pid()) {
        return Err(LaunchError::Escaped(name));
    }
    // A process that we may not inspect is not found, and passes.
    match owner::owners(served(&target)).into_iter().find(|pid| !server.has(*pid)) {
        Some(other) => Err(LaunchError::Taken(name, server.target.clone(), other)),
        None => Ok(server),
    }
}

impl Server {
    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True if this process is in the server's group.
    fn has(&self, pid: u32) -> bool {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.is_some() && getpgid(pid).is_ok_and(|group| group == self.group)
    }

    /// Pauses the server; it then uses no CPU.
    ///
    /// # Errors
    /// The server is gone.
    pub fn pause(&self) -> io::Result<()> {
        kill_process_group(self.group, Signal::STOP)?;
        // The guard stays awake.
        Ok(kill_process(self.group, Signal::CONT)?)
    }

    /// Lets a paused server go on.
    ///
    /// # Errors
    /// The server is gone.
    pub fn resume(&self) -> io::Result<()> {
        Ok(kill_process_group(self.group, Signal::CONT)?)
    }

    /// Returns its exit status and last words, if it ends within `patience`.
    ///
    /// # Errors
    /// The process cannot be waited for.
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

    /// Waits until it answers in any protocol, and returns its target.
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

    /// Kills the server and returns its last words.
    fn said(&mut self) -> String {
        self.kill();
        let words = self.words.get_mut().unwrap_or_else(PoisonError::into_inner);
        let words = words.recv_timeout(WORDS_PATIENCE).unwrap_or_default();
        if words.is_empty() { "nothing".to_owned() } else { words }
    }

    fn kill(&self) {
        // An error means that the group is gone already.
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about an error of these. The guard is waited for last: until then the
        // group's number is not given to another.
        self.kill();
        let _ = self.child.kill();
        // A server of another user cannot be killed: so the wait has a limit.
        let _ = self.ended(WORDS_PATIENCE);
        let _ = self.guard.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Returns a port of the loopback address on which nothing listens now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Collects the end of the output in a thread, and sends it when the output ends.
fn last_words(mut reader: PipeReader) -> io::Result<mpsc::Receiver<String>> {
    let (sender, receiver) = mpsc::channel();
    let keep = move || {
        let (mut kept, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(bytes @ 1..) = reader.read(&mut part) {
            kept.extend_from_slice(&part[..bytes]);
            kept.drain(..kept.len().saturating_sub(WORDS_BYTES_MAX));
        }
        // Without a receiver, nobody wants them.
        let _ = sender.send(String::from_utf8_lossy(&kept).trim().to_owned());
    };
    std::thread::Builder::new().name("last words".to_owned()).spawn(keep)?;
    Ok(receiver)
}

/// Runs `act` on these CPUs, or anywhere if there are none; processes that it starts stay there.
///
/// # Errors
/// The thread may not run on these CPUs.
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
