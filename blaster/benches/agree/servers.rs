//! Starts the servers to which the tools send requests, as users would start the servers.
//!
//! Where: a server is started once for each comparison. Invariant: a server has one thread, on one
//! CPU. A server whose program is not installed is `None`.

use blaster::launch::{self, Server};
use std::error::Error;
use std::process::{Command, Stdio};

pub(crate) fn memcached(cpu: usize) -> Result<Option<Server>, Box<dyn Error>> {
    let program = std::env::var("MEMCACHED").unwrap_or_else(|_| "memcached".to_owned());
    start(cpu, &program, "-V", "-u root -l 127.0.0.1 -t 1 -U 0 -m 256 -p {port}")
}

pub(crate) fn redis(cpu: usize) -> Result<Option<Server>, Box<dyn Error>> {
    start(cpu, "redis-server", "-v", "--bind 127.0.0.1 --save '' --appendonly no --port {port}")
}

/// Starts `program`. With the option `version`, the program prints its version and exits.
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
