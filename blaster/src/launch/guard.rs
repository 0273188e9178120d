//! A guard: a shell that leads a process group, and kills the group when kvblaster ends in any way.
//!
//! ```text
//! kvblaster --- pipe ---> guard: when the pipe is closed, removes a folder and kills the group
//! ```
//!
//! Where: guards each server that kvblaster starts, and perf.
//! Invariant: only this process can write to the pipe, so the kernel closes the pipe when this
//! process ends. The group is killed before the guard is reaped, because afterwards the kernel may
//! give the group's number to another group.
//! Source: credentials(7), "Process group ID".

use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The guard's script. The guard ignores SIGHUP, which the kernel sends to a paused group when
/// kvblaster ends, because SIGHUP would end the guard before it kills the group.
const SCRIPT: &str = "trap '' HUP; read _; rm -rf -- \"$@\"; kill -9 0";

/// A process group that contains only the guard until processes are added.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    /// The group's number. Each guarded process is added to the group when the process is started.
    pub(crate) group: Pid,
}

impl Guard {
    /// Starts a guard. If kvblaster ends before the guard is dropped, the guard removes `folder`.
    pub(crate) fn new(folder: Option<&Path>) -> io::Result<Guard> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard"]).args(folder);
        // The guard gets a new process group, to which the terminal does not send Ctrl-C.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or(io::ErrorKind::Other)?;
        Ok(Guard { child, group })
    }

    /// Kills all processes of the group, including the guard.
    pub(crate) fn kill(&self) {
        // An error means that the group has no processes left.
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill();
        // The error is ignored, because nothing can be done about it.
        let _ = self.child.wait();
    }
}
