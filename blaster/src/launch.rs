//! Starts servers on free ports and given CPUs, and pauses servers that are not measured.
//!
//! Where: called by the verbs `compare` and `size`.
//! Invariant: a server is killed when its `Server` is dropped, and when this process ends in any
//! way, because a `Guard` leads the server's process group. A thread reads all of the server's
//! output, so that the server never blocks while it writes.

pub(crate) mod guard;

use crate::measure::owner;
use crate::target::version;
use crate::target::{self, Family, Target};
use guard::Guard;
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

/// The placeholder for the port in a server's command.
pub const PORT: &str = "{port}";
/// The placeholder for the path of a Unix socket in a server's command.
pub const SOCKET: &str = "{socket}";
/// A new server that does not answer within this time is killed. The time is long, because some
/// servers write to all their memory before they answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two checks of a process that is to answer or to end.
const LOOK: Duration = Duration::from_millis(10);
/// Number of bytes that are kept from the end of a server's output, for error messages.
const WORDS_BYTES_MAX: usize = 2000;
/// Longest wait for the end of a killed server, and again for the end of the server's output.
const WORDS_PATIENCE: Duration = Duration::from_secs(1);

/// The reason why a server could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LaunchError(String);

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    guard: Guard,
    socket: PathBuf,
    /// Receives the end of the output. The lock only makes the receiver `Sync`.
    words: Mutex<mpsc::Receiver<String>>,
    /// The server's address, in the form that [`target::parse`] reads.
    pub target: String,
    /// The version that the server reports.
    pub version: Option<String>,
}

/// Returns the command line of a shell that replaces itself with `command`. The command may begin
/// with environment variables: `NAME=value`.
pub fn shell(command: &str) -> Vec<String> {
    ["sh", "-c", &exec_text(command)].map(str::to_owned).into()
}

/// Returns a script in which the shell is replaced by `command`. The script uses `env` to set
/// environment variables, because `exec` cannot set them.
pub(crate) fn exec_text(command: &str) -> String {
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let rest = command.trim_start().trim_start_matches(is_of_name);
    let is_assigned = rest.starts_with('=') && rest.len() < command.trim_start().len();
    format!("exec {}{command}", if is_assigned { "env " } else { "" })
}

/// Starts a server with the command line `words`, and waits until the server answers. The server
/// runs on `cpus`, or on this thread's CPUs if `cpus` is empty. In `words`, a free loopback port
/// replaces `{port}`, and the path of a Unix socket replaces `{socket}`. Fails if the server cannot
/// be started, ends, or does not answer.
pub fn start(words: &[String], cpus: &[usize]) -> Result<Server, LaunchError> {
    static SOCKETS: AtomicU32 = AtomicU32::new(0);
    let name = words.join(" ");
    let wrong = |why: &str| LaunchError(format!("{name}: {why}"));
    let failed = |error: io::Error| wrong(&error.to_string());
    // Relaxed: the numbers only have to differ.
    let nth = SOCKETS.fetch_add(1, Ordering::Relaxed);
    let socket = format!("kvblaster-{}-{nth}.sock", std::process::id());
    let socket = std::env::temp_dir().join(socket);
    let port = free_port().map_err(failed)?;
    let target = match [PORT, SOCKET].map(|place| name.contains(place)) {
        [true, _] => format!("127.0.0.1:{port}"),
        [_, true] => format!("unix:{}", socket.display()),
        _ => {
            return Err(wrong(&format!(
                "the command must contain {PORT} or {SOCKET} where it names the port or the socket"
            )));
        }
    };
    let placed = |word: &String| {
        word.replace(PORT, &port.to_string()).replace(SOCKET, &socket.to_string_lossy())
    };
    let mut placed = words.iter().map(placed);
    let mut command = Command::new(placed.next().unwrap_or_default());
    let (reader, writer) = io::pipe().map_err(failed)?;
    command.args(placed).stdin(Stdio::null());
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let guard = Guard::new(None).map_err(failed)?;
    command.process_group(guard.group.as_raw_pid());
    let child = on_cpus(cpus, || command.spawn()).and_then(|child| child).map_err(failed)?;
    // Closes this process's copies of the output pipe, so that its reader sees the output's end.
    drop(command);
    let words = Mutex::new(last_words(reader).map_err(failed)?);
    let mut server = Server { child, guard, socket, words, target, version: None };
    let target = server.wait(&name)?;
    if !server.has(server.pid()) {
        return Err(wrong(
            "kvblaster cannot pause the server, because the server left its process group: start \
             it without setsid and not as a daemon",
        ));
    }
    // `owners` omits processes that this process may not inspect, so such processes go unnoticed.
    match owner::owners(&target.place).into_iter().find(|pid| !server.has(*pid)) {
        Some(other) => Err(wrong(&format!(
            "another process ({other}) answers at the server's address {}: stop that process, or \
             choose another address",
            server.target
        ))),
        None => Ok(server),
    }
}

impl Server {
    /// The id of the server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn has(&self, pid: u32) -> bool {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.is_some() && getpgid(pid).is_ok_and(|group| group == self.guard.group)
    }

    /// Pauses the server, so that it uses no CPU time. Fails if the server and its guard have
    /// ended.
    pub fn pause(&self) -> io::Result<()> {
        kill_process_group(self.guard.group, Signal::STOP)?;
        // Resumes the guard, whose process id is the group's number: the guard has to keep running.
        Ok(kill_process(self.guard.group, Signal::CONT)?)
    }

    /// Lets a paused server run again. Fails if the server and its guard have ended.
    pub fn resume(&self) -> io::Result<()> {
        Ok(kill_process_group(self.guard.group, Signal::CONT)?)
    }

    /// Waits up to `patience` for the server to end. Returns the server's exit status and the end
    /// of its output, or `None` if the server still runs. Fails if the system call that waits for
    /// the process fails.
    pub(crate) fn wait_for_end(
        &mut self,
        patience: Duration,
    ) -> io::Result<Option<(ExitStatus, String)>> {
        let status = status_within(&mut self.child, patience)?;
        Ok(status.map(|status| (status, self.kill_and_read())))
    }

    /// Waits until the server answers in any protocol, and returns the target.
    fn wait(&mut self, name: &str) -> Result<Target, LaunchError> {
        let start = Instant::now();
        let wrong = |why: String| LaunchError(format!("{name}: {why}"));
        let failed = |error: io::Error| wrong(error.to_string());
        let target = target::parse(&self.target, Family::Any).map_err(io::Error::other);
        let target = target.map_err(failed)?;
        loop {
            let info = version::query(&target, false);
            if let Some((status, output)) = self.wait_for_end(Duration::ZERO).map_err(failed)? {
                return Err(wrong(format!(
                    "the server ended before it answered ({status}); its output: {output}"
                )));
            }
            if let Ok(info) = info {
                self.version = info.version;
                let as_redis = || version::query(&target, true).ok()?.version;
                if self.version.is_none()
                    && let Some(version) = as_redis()
                {
                    self.version = Some(version);
                    self.target = format!("redis://{}", self.target);
                }
                return Ok(target);
            }
            if start.elapsed() > PATIENCE {
                return Err(wrong(format!(
                    "the server did not answer within {} s; its output: {}",
                    PATIENCE.as_secs(),
                    self.kill_and_read()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn kill_and_read(&mut self) -> String {
        self.guard.kill();
        let words = self.words.get_mut().unwrap_or_else(PoisonError::into_inner);
        let words = words.recv_timeout(WORDS_PATIENCE).unwrap_or_default();
        if words.is_empty() { "nothing".to_owned() } else { words }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors are ignored, because nothing can be done about them here.
        self.guard.kill();
        let _ = self.child.kill();
        // The wait has a limit, because kvblaster may not be able to kill a server of another user.
        let _ = self.wait_for_end(WORDS_PATIENCE);
        let _ = fs::remove_file(&self.socket);
    }
}

pub(crate) fn status_within(
    child: &mut Child,
    patience: Duration,
) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if begin.elapsed() >= patience => return Ok(None),
            None => std::thread::sleep(LOOK),
        }
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Starts a thread that reads a server's output and, when the output ends, sends the last bytes.
fn last_words(mut reader: PipeReader) -> io::Result<mpsc::Receiver<String>> {
    let (sender, receiver) = mpsc::channel();
    let keep = move || {
        let (mut kept, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(bytes @ 1..) = reader.read(&mut part) {
            kept.extend_from_slice(&part[..bytes]);
            kept.drain(..kept.len().saturating_sub(WORDS_BYTES_MAX));
        }
        let _ = sender.send(String::from_utf8_lossy(&kept).trim().to_owned());
    };
    std::thread::Builder::new().name("last words".to_owned()).spawn(keep)?;
    Ok(receiver)
}

/// Pins this thread to `cpus` while it runs `act`, unless `cpus` is empty. Processes that `act`
/// starts stay on these CPUs. Fails if the thread is not allowed to run on these CPUs.
pub(crate) fn on_cpus<T>(cpus: &[usize], act: impl FnOnce() -> T) -> io::Result<T> {
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
        let message = failed("echo no such {port} for >&2 me; exit 3");
        assert!(message.contains("ended") && message.contains("its output: no such"), "{message}");
        assert!(failed("no-such-program {socket}").contains("not found"), "no program");
        assert!(failed("memcached").contains("must contain {port}"), "no place");
    }
}
