//! What the system says about CPU time, and about the machine.
//!
//! Where: read before and after what is measured.
//! Invariant: a core's busy time is user + nice + system + irq + softirq: idle, iowait and steal
//! are left out, and guest is part of user.
//! Source: proc_stat(5), proc_pid_stat(5).

use std::fs;
use std::time::Instant;

use rustix::param::clock_ticks_per_second;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::{Outcome, fail};

/// CPU time so far, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    /// When it was read.
    pub(crate) at: Instant,
    /// The cores' busy time, softirq included.
    pub(crate) cores_seconds: f64,
    /// The hypervisor's share of the cores.
    pub(crate) steal_seconds: f64,
    /// The process' user and system time.
    pub(crate) process_seconds: f64,
}

/// Reads the clocks of process `pid` and of `cores`.
pub(crate) fn read(pid: u32, cores: &[usize]) -> Outcome<Cpu> {
    let stat = fs::read_to_string("/proc/stat")?;
    let mut busy_ticks = 0;
    let mut steal_ticks = 0;
    for core in cores {
        let name = format!("cpu{core} ");
        let Some(line) = stat.lines().find_map(|line| line.strip_prefix(name.as_str())) else {
            return fail(format!("/proc/stat knows no core {core}"));
        };
        let Ok(ticks) = line.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()
        else {
            return fail(format!("/proc/stat: {line:?}"));
        };
        let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
            return fail(format!("/proc/stat: {line:?}"));
        };
        busy_ticks += user + nice + system + irq + softirq;
        steal_ticks += steal;
    }
    Ok(Cpu {
        at: Instant::now(),
        cores_seconds: seconds(busy_ticks),
        steal_seconds: seconds(steal_ticks),
        process_seconds: seconds(process_ticks(pid)?),
    })
}

/// utime + stime of all threads of `pid`.
fn process_ticks(pid: u32) -> Outcome<u64> {
    let [user, system] = stat_fields(pid, [14, 15])?;
    Ok(user + system)
}

/// Page faults of all threads of `pid` that needed no disk.
pub(crate) fn minor_faults(pid: u32) -> Outcome<u64> {
    stat_fields(pid, [10]).map(|[faults]| faults)
}

/// Fields of /proc/PID/stat by their numbers.
fn stat_fields<const N: usize>(pid: u32, numbers: [usize; N]) -> Outcome<[u64; N]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name in brackets, and may hold anything; after it comes field 3.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| {
        let text = after_name.split_whitespace().nth(number - 3);
        text.and_then(|text| text.parse::<u64>().ok())
    };
    match numbers.map(field) {
        fields if fields.iter().all(Option::is_some) => Ok(fields.map(Option::unwrap_or_default)),
        _ => fail(format!("/proc/{pid}/stat: {stat:?}")),
    }
}

#[expect(clippy::cast_precision_loss, reason = "ticks since boot stay far below 2^53")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

/// Nanoseconds of CPU time this thread has used.
#[inline]
pub(crate) fn thread_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Resident bytes of process `pid`, huge pages of every kind among them.
pub(crate) fn resident_bytes(pid: u32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
    };
    match kilobytes("VmRSS:") {
        Some(resident) => Ok((resident + kilobytes("HugetlbPages:").unwrap_or(0)) * 1024),
        None => fail(format!("/proc/{pid}/status has no VmRSS")),
    }
}

/// Bytes in small pages of process `pid` that the system is to put huge pages in the place of; it
/// may do so much later.
pub(crate) fn bytes_to_be_huge(pid: u32) -> Outcome<u64> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let (mut resident, mut huge, mut sum) = (0, 0, 0);
    for line in smaps.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let number = || value.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
        match name {
            "Rss" => resident = number() * 1024,
            "AnonHugePages" => huge = number() * 1024,
            "THPeligible" if number() == 1 => sum += resident.saturating_sub(huge),
            _ => {}
        }
    }
    Ok(sum)
}

/// Bytes of memory the machine could give now.
pub(crate) fn available_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The cores this process may use, ascending.
pub(crate) fn cores() -> Outcome<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Pins this thread, and what it starts, to `cores`.
pub(crate) fn pin_to(cores: &[usize]) -> Outcome<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The machine in a few words, as pairs of name and value.
pub(crate) fn machine(cores: usize) -> Vec<(&'static str, String)> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    vec![
        ("cpu", model.unwrap_or_else(|| "unknown".to_owned())),
        ("cores", cores.to_string()),
        ("kernel", one_line("/proc/sys/kernel/osrelease")),
        ("tcp", one_line("/proc/sys/net/ipv4/tcp_congestion_control")),
    ]
}

fn one_line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
