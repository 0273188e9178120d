//! The servers that are asked, as their users start them.
//!
//! Where: started once for each comparison. Invariant: one thread, on one CPU; none where there is
//! no such program.

use blaster::launch::{self, Server};
use std::error::Error;
use std::process::{Command, Stdio};

/// memcached with one thread.
pub(crate) fn memcached(cpu: usize) -> Result<Option<Server>, Box<dyn Error>> {
    let program = std::env::var("MEMCACHED").unwrap_or_else(|_| "memcached".to_owned());
    start(cpu, &program, "-V", "-u root -l 127.0.0.1 -t 1 -U 0 -m 256 -p {port}")
}

/// Redis, which has one thread for commands.
pub(crate) fn redis(cpu: usize) -> Result<Option<Server>, Box<dyn Error>> {
    start(cpu, "redis-server", "-v", "--bind 127.0.0.1 --save '' --appendonly no --port {port}")
}

/// `version` is the option by which a program that is there says its version, and ends.
fn start(
    cpu: usize,
    program: &str,
    version: &str,
    words: &str,
) -> Result<Option<Server>, Box<dyn Error>> {
    if Command::new(program).arg(version).stdout(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    Ok(Some(launch::start(&launch::shell(&format!("{program} {words}")), &[cpu])?))
}
