//! nutcracker (twemproxy), a proxy between kvblaster and the processes of one server.
//!
//! ```text
//! kvblaster -> nutcracker: ketama over the names of the processes -> memcached or Redis, n times
//! ```
//!
//! Where: `servers` starts the proxy after the processes, and stops the proxy with the processes.
//! Invariant: the proxy's command line has its whole configuration. The configuration's file is
//! unlinked before the proxy starts, so no file remains, however the proxy ends.
//! Source: twemproxy, notes/recommendation.md and README.md ("Configuration").

use super::installed::{MeasureError, located, version};
use crate::launch::{self, PORT};
use crate::words::command_line;
use std::fmt::Write;
use std::path::Path;

/// The address of the proxy's statistics, which are not read, but cannot be switched off.
const STATISTICS: &str = "127.0.0.2";
/// The verbosity at which the proxy prints errors and warnings, but no notices.
const VERBOSE: u32 = 4;
/// Maximum number of connections that wait until the proxy accepts them.
const BACKLOG: u32 = 4096;
/// Writes its first argument, the configuration, to a file, and executes its other arguments, the
/// proxy. A pipe is not enough, because the proxy reads the configuration several times.
const SCRIPT: &str = "\
f=$(mktemp) && echo \"$1\" >\"$f\" && exec 3<\"$f\" && rm \"$f\" && shift && exec \"$@\"";

/// A running proxy.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) process: launch::Server,
    /// The proxy's address, as kvblaster's command line names it.
    pub(super) target: String,
    pub(super) version: String,
    pub(super) command: String,
}

/// Starts a proxy on `cpus` in front of the servers at these targets. Fails if the proxy is not
/// installed, or does not start.
pub(super) fn start(targets: &[String], cpus: &[usize]) -> Result<Proxy, MeasureError> {
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
        version: version(Path::new(&path), "nutcracker")?,
        command: command_line(&words),
    })
}

fn configuration<'t>(addresses: impl Iterator<Item = &'t str>, is_redis: bool) -> String {
    let mut text = format!(
        "pool:\n  listen: 127.0.0.1:{PORT}\n  hash: fnv1a_64\n  distribution: ketama\n  \
         auto_eject_hosts: false\n  preconnect: true\n  backlog: {BACKLOG}\n  \
         redis: {is_redis}\n  servers:"
    );
    // The number after the address is the server's weight.
    addresses.for_each(|address| {
        let _ = write!(text, "\n   - {address}:1");
    });
    text
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
