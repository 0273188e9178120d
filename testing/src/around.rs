//! Skips tests that cannot run on this machine, runs other programs, and finds processes.
//!
//! Where: tests that start other programs. Invariant: a test that cannot run is skipped, but fails
//! in CI.

use std::io::Write;
use std::process::{Command, Output, Stdio};

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
