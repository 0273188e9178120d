//! Skips tests that cannot run on this machine, runs other programs, finds processes, waits with a
//! deadline, and makes folders.
//!
//! Where: tests that start other programs. Invariant: a test that cannot run is skipped, but fails
//! in CI. A process and a folder end with the test.

use std::fs;
use std::io::{self, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// If an operation of a test takes longer, the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Reports that the calling test cannot run, and why. In CI (`CI=true`) the test fails instead.
///
/// # Panics
/// In CI.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "skipped in CI: {reason}");
    let test = std::thread::current();
    // A script counts these lines. The test harness captures prints, but not this write. The whole
    // line is one write, so that no other output gets into the line.
    let line = format!("SKIPPED {}: {reason}\n", test.name().unwrap_or_default());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Runs the program `words[0]` with `text` as standard input, and returns the program's output. If
/// the program is not installed, reports the test as skipped and returns `None`.
///
/// # Panics
/// The system cannot wait for the program, or the program does not read all of the text.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub fn piped(words: &[&str], text: &str) -> Option<Output> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.stderr(Stdio::piped()).spawn() else {
        skip(&format!("no {}", words[0]));
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writing = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    Some(output)
}

/// Waits until `done` returns a value, and returns the value.
///
/// # Panics
/// After [`PATIENCE`]. The message names the event `what`.
#[track_caller]
pub fn await_some<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Waits until `done` returns true.
///
/// # Panics
/// After [`PATIENCE`]. The message names the event `what`.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        std::thread::yield_now();
    }
}

/// A new folder that every user may use. Dropping a `Folder` removes the folder and its files.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes an empty folder.
    ///
    /// # Panics
    /// The folder cannot be made.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a default value is expected to have no effect")]
    #[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the numbers only have to differ.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hyp-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        Folder(path)
    }

    /// Returns the path of the file `name` in this folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed at the end of its scope, so a test that fails leaves no process behind.
#[derive(Debug)]
pub struct KillOnDrop(pub Child);

impl KillOnDrop {
    /// Starts a program.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    #[expect(clippy::panic, reason = "a test fails by panicking")]
    pub fn spawn(command: &mut Command) -> KillOnDrop {
        let started = command.spawn();
        KillOnDrop(started.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Closes stdin, reads the pipes of stdout and stderr to their ends, and waits for the process.
    ///
    /// # Errors
    /// A pipe cannot be read, or the system cannot wait for the process.
    ///
    /// # Panics
    /// The thread that reads stderr cannot be started.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let [mut stdout, mut stderr] = [Vec::new(), Vec::new()];
        let (out, err) = (self.stdout.take(), self.stderr.take());
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| err.map_or(Ok(0), |mut err| err.read_to_end(&mut stderr)));
            out.map_or(Ok(0), |mut out| out.read_to_end(&mut stdout))?;
            reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok(Output { status: self.wait()?, stdout, stderr })
    }
}

impl Deref for KillOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KillOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both fail if the process has ended already and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// True if process `pid` exists and is not a zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_with_its_scope_or_with_its_output() {
        let started = KillOnDrop::spawn(Command::new("cat").stdin(Stdio::piped()));
        let pid = started.id();
        assert!(is_alive(pid));
        drop(started);
        assert!(!is_alive(pid));
        let mut command = Command::new("sh");
        command.args(["-c", "cat; echo out; echo err >&2; exit 3"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = KillOnDrop::spawn(&mut command).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    fn a_process_that_has_ended_is_not_alive_though_nobody_has_waited_for_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(is_alive(child.id()));
        child.kill().unwrap();
        while is_alive(child.id()) {
            std::thread::yield_now();
        }
        assert!(std::path::Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }
}
