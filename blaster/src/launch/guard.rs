//! A guard: a shell that leads a process group, and kills the group when kvblaster ends in any way.
//!
//! ```text
//! kvblaster --- pipe ---> guard: at the end of the pipe, removes a folder and kills its group
//! ```
//!
//! Where: around each server that kvblaster starts, and around perf.
//! Invariant: only this process can write to the pipe, so the pipe ends with this process. The
//! guard is reaped after its group is killed, because until then the kernel does not give the
//! group's number to another group.
//! Source: credentials(7), "Process group ID".

use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The guard's script. When kvblaster ends, the kernel sends SIGHUP to a paused group, which would
/// end the guard first.
const SCRIPT: &str = "trap '' HUP; read _; rm -rf -- \"$@\"; kill -9 0";

/// A process group without processes of its own, except the guard.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    /// The group, to which the guarded processes are added when they are started.
    pub(crate) group: Pid,
}

impl Guard {
    /// Starts a guard. If kvblaster ends first, the guard removes `folder`.
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

    /// Kills all processes of the group, and so the guard.
    pub(crate) fn kill(&self) {
        // An error means that the group has no processes left.
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill();
        // Nothing can be done about an error.
        let _ = self.child.wait();
    }
}
