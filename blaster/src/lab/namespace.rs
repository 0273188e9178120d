//! A network namespace without a name, and the changes to undo when the namespace ends.
//!
//! ```text
//! kvblaster --- undo: a line of shell --> holder: a shell in the namespace, with its own /sys
//!           --- end of input -----------> holder runs the lines, the last one first, and ends
//! ```
//!
//! Where: a `Link` has two namespaces, one for kvblaster and one for the servers.
//! Invariant: a namespace lives as long as its holder, which ends when kvblaster ends in any way.
//! Before each change, the holder gets the line that undoes this change.
//! Source: namespaces(7), network_namespaces(7), sysfs(5).

use super::link::LinkError;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

/// The path by which the holder's commands find the namespace in which kvblaster was started.
pub(super) const FIRST: &str = "/proc/self/fd/9";
/// Opens kvblaster's namespace as file descriptor 9, and runs a holder (`$0`) in new namespaces.
const BEFORE: &str = "exec 9</proc/self/ns/net; exec unshare --net --mount sh -c \"$0\"";
/// The script of a holder. The script mounts sysfs, because sysfs shows the namespace in which it
/// is mounted. Ctrl-C and a closed terminal must not end the holder before all changes are undone.
const HOLDER: &str = "\
trap '' HUP INT TERM
mount -t sysfs sysfs /sys 2>/dev/null
echo
while read -r line; do undo=\"$line
$undo\"; done
eval \"$undo\" >/dev/null";

/// A network namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    network: File,
    /// The shell, which ends when its standard input is closed.
    holder: Child,
}

impl Namespace {
    pub(super) fn new() -> Result<Namespace, LinkError> {
        let failed = |error: io::Error| LinkError(format!("unshare: {error}"));
        let mut command = Command::new("sh");
        command.args(["-c", BEFORE, HOLDER]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = command.spawn().map_err(failed)?;
        let mut ready = [0];
        let is_ready =
            holder.stdout.as_mut().is_some_and(|out| matches!(out.read(&mut ready), Ok(1)));
        if !is_ready {
            drop(holder.stdin.take());
            let output = holder.wait_with_output().map_err(failed)?;
            return Err(LinkError(complaint(&output)));
        }
        let path = format!("/proc/{}/ns/net", holder.id());
        match File::open(path) {
            Ok(network) => Ok(Namespace { network, holder }),
            Err(error) => {
                drop(holder.stdin.take());
                let _ = holder.wait();
                Err(failed(error))
            }
        }
    }

    /// Returns the holder's process id, by which iproute2 finds this namespace.
    pub(super) fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Returns the path by which this process opens `file` of the holder process. The holder's /sys
    /// shows the interfaces of this namespace, and this process's /sys does not. So the kernel must
    /// resolve links in the path.
    pub(super) fn seen(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{file}", self.pid()))
    }

    /// Returns the folder in /sys of an interface of this namespace.
    pub(super) fn files_of(&self, interface: &str) -> PathBuf {
        self.seen(&format!("/sys/class/net/{interface}"))
    }

    /// Makes the holder run `line`, a line of shell, before the holder ends.
    pub(super) fn undo(&self, line: &str) -> Result<(), LinkError> {
        let gone = || {
            LinkError(
                "kvblaster's helper process, which restores the network settings at the end, has \
                 ended too early"
                    .to_owned(),
            )
        };
        let mut input = self.holder.stdin.as_ref().ok_or_else(gone)?;
        input.write_all(format!("{line}\n").as_bytes()).map_err(|_| gone())
    }

    /// Runs `act` on a new thread of this namespace.
    pub(super) fn on<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        let entered = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.network.as_fd(), kind)?;
            Ok(act())
        };
        thread::scope(|scope| {
            let name = thread::current().name().unwrap_or("lab").to_owned();
            let thread = thread::Builder::new().name(name).spawn_scoped(scope, entered)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a program in this namespace, and returns its output. `words` is split at spaces.
    pub(super) fn run(&self, words: &str) -> Result<String, LinkError> {
        self.on(|| run(words)).unwrap_or_else(|error| Err(LinkError(format!("{words}: {error}"))))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // At the end of its input, the holder undoes all changes, and ends.
        drop(self.holder.stdin.take());
        let mut complaint = String::new();
        if let Some(err) = &mut self.holder.stderr {
            let _ = err.read_to_string(&mut complaint);
        }
        let _ = self.holder.wait();
        if !complaint.trim().is_empty() {
            // An error is ignored, because there is no other way to display the text.
            let (mut err, what) = (io::stderr().lock(), complaint.trim());
            let _ = writeln!(
                err,
                "kvblaster may not have restored all network settings after a measurement: {what}"
            );
        }
    }
}

/// Runs a program in this thread's namespace, and returns its output. `words` is split at spaces.
pub(super) fn run(words: &str) -> Result<String, LinkError> {
    let mut parts = words.split(' ');
    let mut command = Command::new(parts.next().unwrap_or_default());
    let output = command.args(parts).stdin(Stdio::null()).output();
    let output = output.map_err(|error| LinkError(format!("{words}: {error}")))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(LinkError(format!("{words}: {}", complaint(&output)))),
    }
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
