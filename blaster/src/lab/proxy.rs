//! nutcracker (twemproxy) in front of the processes of one server.
//!
//! ```text
//! kvblaster -> nutcracker: ketama over the names of the processes -> memcached or Redis, n times
//! ```
//!
//! Where: started by `servers` after the processes; stopped with them.
//! Invariant: the proxy's command line has its whole configuration. The file of the configuration
//! has no name when the proxy runs, so nothing is left behind however the proxy ends.
//! Source: twemproxy, notes/recommendation.md and README.md ("Configuration").

use super::servers::{ServerError, lacking_of, located};
use crate::launch::{self, PORT};
use crate::words::command_line;
use std::fmt::Write;
use std::process::Command;

/// The address of the proxy's statistics, which are not read, but cannot be switched off.
const STATISTICS: &str = "127.0.0.2";
/// The level of errors and warnings in the proxy's output.
const VERBOSE: u32 = 4;
/// Connections that may wait until the proxy accepts them.
const BACKLOG: u32 = 4096;
/// Writes the configuration, the first argument, to a file, and executes the other arguments: the
/// proxy's command line. The proxy reads the file several times, so a pipe is not enough.
const SCRIPT: &str = "\
f=$(mktemp) && echo \"$1\" >\"$f\" && exec 3<\"$f\" && rm \"$f\" && shift && exec \"$@\"";

/// A running proxy.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) process: launch::Server,
    /// The proxy's address, as kvblaster's command line names it.
    pub(super) target: String,
    /// The proxy's name and version.
    pub(super) version: String,
    /// The proxy's command line.
    pub(super) command: String,
}

/// Starts a proxy on `cpus` in front of the servers at these targets.
///
/// # Errors
/// The proxy is not installed, or does not start.
pub(super) fn start(targets: &[String], cpus: &[usize]) -> Result<Proxy, ServerError> {
    let path = located("NUTCRACKER", "nutcracker")?.display().to_string();
    let redis = "redis://";
    let is_redis = targets.iter().any(|target| target.starts_with(redis));
    let mut words: Vec<String> = ["sh", "-c", SCRIPT, "sh"].map(str::to_owned).into();
    words.push(configuration(targets.iter().map(|one| one.trim_start_matches(redis)), is_redis));
    let flags = format!("-c /proc/self/fd/3 -o /dev/stderr -v {VERBOSE} -a {STATISTICS} -s {PORT}");
    words.push(path.clone());
    words.extend(flags.split(' ').map(str::to_owned));
    let process = launch::start(&words, cpus)?;
    let prefix = if is_redis { redis } else { "" };
    Ok(Proxy {
        target: format!("{prefix}{}", process.target.trim_start_matches(redis)),
        process,
        version: version(&path)?,
        command: command_line(&words),
    })
}

fn configuration<'t>(addresses: impl Iterator<Item = &'t str>, is_redis: bool) -> String {
    let mut text = format!(
        "pool:\n  listen: 127.0.0.1:{PORT}\n  hash: fnv1a_64\n  distribution: ketama\n  \
         auto_eject_hosts: false\n  preconnect: true\n  backlog: {BACKLOG}\n  \
         redis: {is_redis}\n  servers:"
    );
    // The last number is the weight.
    addresses.for_each(|address| {
        let _ = write!(text, "\n   - {address}:1");
    });
    text
}

/// The proxy's name and version, from its first line: `This is nutcracker-0.5.0`.
fn version(path: &str) -> Result<String, ServerError> {
    let output = Command::new(path).arg("--version").output()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let word = text.split_whitespace().find(|word| word.starts_with("nutcracker"));
    let lacking = || lacking_of(format!("{path} --version names no nutcracker"));
    Ok(word.ok_or_else(lacking)?.replace('-', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_names_all_servers() {
        let text = configuration(["127.0.0.1:1", "127.0.0.1:2"].into_iter(), true);
        assert!(text.contains("\n  redis: true\n"), "{text}");
        assert!(text.ends_with("servers:\n   - 127.0.0.1:1:1\n   - 127.0.0.1:2:1"), "{text}");
    }
}
