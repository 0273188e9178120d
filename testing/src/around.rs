//! What is around a test: whether it can run here, and which processes there are.
//!
//! Where: tests that start other programs. Invariant: a test that cannot run is counted as skipped,
//! and in CI as failed.

use std::io::Write;

/// Says that a test cannot run here, and why. In CI (`CI=true`) that is a failure.
///
/// # Panics
/// In CI.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "skipped in CI: {reason}");
    let test = std::thread::current();
    // Not captured, as a print would be, and whole among what others print: it is counted.
    let line = format!("SKIPPED {}: {reason}\n", test.name().unwrap_or_default());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// True if there is a process of this number, other than a dead one for which nobody has waited.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

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
