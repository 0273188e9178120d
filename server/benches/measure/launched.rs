//! The servers under test: starting them, and reading their memory and CPU time from the system.
//!
//! Where: between a program and `blaster::launch`.
//! Invariant: both servers of a comparison get the same options, except for options under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use blaster::launch::{PORT, Server};
use procfs::process::Process;
use procfs::{Current, Meminfo};

use super::running::HYPOSTYLE;
use super::statistics::count_of_u64;
use super::{Outcome, fail};

/// Options that allow every network over UDP. Without these options, the server limits UDP replies.
pub(crate) const EVERYBODY: &str = "udp_allow=0.0.0.0/0,udp_allow=::/0";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) threads: u32,
    pub(crate) memory_mb: u32,
    pub(crate) connections: u32,
    pub(crate) extra: &'a [String],
}

/// The program that `--subject` names, or by default this build's `hypostyle`.
pub(crate) fn subject(named: Option<&PathBuf>) -> PathBuf {
    named.map_or_else(|| HYPOSTYLE.into(), PathBuf::clone)
}

/// The memcached that the environment variable `MEMCACHED` names, or the first memcached on `PATH`.
pub(crate) fn memcached() -> PathBuf {
    std::env::var_os("MEMCACHED").unwrap_or_else(|| "memcached".into()).into()
}

pub(crate) fn version_of(program: &Path) -> Outcome<String> {
    let output = Command::new(program).arg("-V").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or("(no version)").to_owned())
}

impl Launch<'_> {
    pub(crate) fn words(&self) -> Outcome<Vec<String>> {
        let Launch { program, threads, memory_mb, connections, extra } = self;
        let mut words = vec![program.display().to_string()];
        words.extend(["-l", "127.0.0.1", "-U", "0", "-p", PORT].map(str::to_owned));
        let numbers = [("-t", threads), ("-m", memory_mb), ("-c", connections)];
        words.extend(numbers.iter().flat_map(|(name, one)| [(*name).to_owned(), one.to_string()]));
        if rustix::process::geteuid().is_root() {
            words.extend(["-u", "root"].map(str::to_owned));
        }
        if version_of(program)?.contains("hypostyle") {
            words.extend(["-o", "no_pin"].map(str::to_owned));
        }
        words.extend(extra.iter().cloned());
        Ok(words)
    }

    /// Starts the server, and waits until it answers. If `cores` is empty, all cores are allowed.
    pub(crate) fn start(&self, cores: &[usize]) -> Outcome<Server> {
        Ok(blaster::launch::start(&self.words()?, cores)?)
    }
}

fn process(server: &Server) -> Outcome<Process> {
    Ok(Process::new(i32::try_from(server.pid())?)?)
}

/// A server's resident bytes, including huge pages of every kind.
pub(crate) fn resident_bytes(server: &Server) -> Outcome<u64> {
    let status = process(server)?.status()?;
    match status.vmrss {
        Some(resident) => Ok((resident + status.hugetlbpages.unwrap_or(0)) * 1024),
        None => fail(format!("{}: the system reports no resident memory", server.target)),
    }
}

/// Bytes in a server's small pages that the kernel may replace by huge pages, perhaps much later.
pub(crate) fn bytes_to_be_huge(server: &Server) -> Outcome<u64> {
    let maps = process(server)?.smaps()?;
    let small = maps.iter().map(|map| {
        let of = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
        of("THPeligible").min(1) * of("Rss").saturating_sub(of("AnonHugePages"))
    });
    Ok(small.sum())
}

pub(crate) fn minor_faults(server: &Server) -> Outcome<u64> {
    Ok(process(server)?.stat()?.minflt)
}

pub(crate) fn cpu_seconds(server: &Server) -> Outcome<f64> {
    let stat = process(server)?.stat()?;
    Ok(count_of_u64(stat.utime + stat.stime) / count_of_u64(procfs::ticks_per_second()))
}

pub(crate) fn available_bytes() -> Outcome<u64> {
    match Meminfo::current()?.mem_available {
        Some(bytes) => Ok(bytes),
        None => fail("/proc/meminfo has no MemAvailable".to_owned()),
    }
}
