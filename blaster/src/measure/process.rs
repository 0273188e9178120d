//! What a process of this machine takes: CPU time and memory.
//!
//! Where: the server's, read before and after each report; our own likewise.
//! Invariant: what cannot be read is unknown, not zero and not an error.
//! Source: proc_pid_stat(5), proc_pid_status(5), the kernel's sched-stats.rst.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// What the kernel says of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// CPU time in user code, in seconds.
    pub usr_s: f64,
    /// CPU time in the kernel, in seconds.
    pub sys_s: f64,
    /// Time in which its threads were ready to run and had no CPU, summed, in seconds.
    pub waiting_s: Option<f64>,
    /// Memory that is resident now.
    pub rss_bytes: Option<u64>,
    /// The most that was resident.
    pub rss_bytes_max: Option<u64>,
    /// Threads.
    pub threads: Option<u32>,
}

/// What a process took between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// CPUs kept busy by user code: 1 is one whole CPU.
    pub usr_cpus: f64,
    /// CPUs kept busy by the kernel on its behalf.
    pub sys_cpus: f64,
    /// CPU seconds in all.
    pub cpu_s: f64,
    /// CPUs that it would have kept busy besides, had there been any.
    pub waiting_cpus: Option<f64>,
    /// Memory that was resident at the end.
    pub rss_bytes: Option<u64>,
    /// The most that was resident.
    pub rss_bytes_max: Option<u64>,
    /// Threads at the end.
    pub threads: Option<u32>,
}

impl ProcessUse {
    /// CPUs kept busy.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        self.usr_cpus + self.sys_cpus
    }

    /// CPU time of one request; none without requests.
    #[must_use]
    pub fn ns_per_request(&self, requests: u64) -> Option<f64> {
        (requests > 0).then(|| self.cpu_s * 1e9 / requests as f64)
    }

    /// The process in two spans of time, of `seconds` and `other_seconds`, together.
    #[must_use]
    pub fn and(&self, seconds: f64, other: &ProcessUse, other_seconds: f64) -> ProcessUse {
        let all = (seconds + other_seconds).max(f64::MIN_POSITIVE);
        let mean = |ours: f64, theirs: f64| (ours * seconds + theirs * other_seconds) / all;
        ProcessUse {
            usr_cpus: mean(self.usr_cpus, other.usr_cpus),
            sys_cpus: mean(self.sys_cpus, other.sys_cpus),
            cpu_s: self.cpu_s + other.cpu_s,
            waiting_cpus: self
                .waiting_cpus
                .zip(other.waiting_cpus)
                .map(|(ours, theirs)| mean(ours, theirs)),
            rss_bytes: other.rss_bytes.or(self.rss_bytes),
            rss_bytes_max: self.rss_bytes_max.max(other.rss_bytes_max),
            threads: other.threads.or(self.threads),
        }
    }
}

impl Reading {
    /// Takes /proc/PID/stat and /proc/PID/status; none where the first makes no sense.
    #[must_use]
    pub fn parse(stat: &str, status: &str, ticks_per_s: f64) -> Option<Reading> {
        // The name stands in parentheses and may hold any of them.
        let (_, figures) = stat.rsplit_once(')')?;
        let mut figures = figures.split_ascii_whitespace().skip(11);
        let mut seconds = || Some(figures.next()?.parse::<u64>().ok()? as f64 / ticks_per_s);
        let (usr_s, sys_s) = (seconds()?, seconds()?);
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let kib = |name: &str| field(name).and_then(|kib| kib.checked_mul(1024));
        Some(Reading {
            usr_s,
            sys_s,
            waiting_s: None,
            rss_bytes: kib("VmRSS:"),
            rss_bytes_max: kib("VmHWM:"),
            threads: field("Threads:").and_then(|threads| threads.try_into().ok()),
        })
    }

    /// Reads a process; none if it is gone or hidden.
    #[must_use]
    pub fn of(pid: u32) -> Option<Reading> {
        Reading::at(Path::new(&format!("/proc/{pid}")))
    }

    /// Reads this process.
    #[must_use]
    pub fn own() -> Option<Reading> {
        Reading::at(Path::new("/proc/self"))
    }

    fn at(folder: &Path) -> Option<Reading> {
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
        let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
        let reading = Reading::parse(&stat, &status, ticks_per_s)?;
        Some(Reading { waiting_s: waiting_s(&folder.join("task")), ..reading })
    }

    /// What was taken since an earlier reading, `seconds` before.
    #[must_use]
    pub fn since(&self, before: &Reading, seconds: f64) -> ProcessUse {
        // A process that was restarted under the same number would step back.
        let usr_s = (self.usr_s - before.usr_s).max(0.0);
        let sys_s = (self.sys_s - before.sys_s).max(0.0);
        let seconds = seconds.max(f64::MIN_POSITIVE);
        ProcessUse {
            usr_cpus: usr_s / seconds,
            sys_cpus: sys_s / seconds,
            cpu_s: usr_s + sys_s,
            waiting_cpus: self
                .waiting_s
                .zip(before.waiting_s)
                // A thread that ended takes its sum with it.
                .map(|(now, then)| (now - then).max(0.0) / seconds),
            rss_bytes: self.rss_bytes,
            rss_bytes_max: self.rss_bytes_max,
            threads: self.threads,
        }
    }
}

/// Threads looked at, of one process.
const THREADS_MAX: usize = 10_000;

/// Seconds that the threads in a folder waited for a CPU; none where the kernel does not count.
fn waiting_s(tasks: &Path) -> Option<f64> {
    let mut sum = None;
    for task in std::fs::read_dir(tasks).ok()?.flatten().take(THREADS_MAX) {
        let schedstat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        if let Some(ns) = waited_ns(&schedstat) {
            sum = Some(sum.unwrap_or(0.0) + ns as f64 / 1e9);
        }
    }
    sum
}

/// The second of three figures: time on a CPU, time waiting for one, both in ns, and slices.
fn waited_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose name is made to mislead.
    const STAT: &str = "21767 (a) R (b) R 21759 21759 14989 0 -1 4194304 100 0 0 0 1250 750 0 0 \
                        20 0 6 0 2256916 3133440 380 18446744073709551615 1 1 0";
    const STATUS: &str = "Name:\ta\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t6\n";

    #[test]
    fn a_process_is_read_past_its_name() {
        let reading = Reading::parse(STAT, STATUS, 100.0).unwrap();
        assert_eq!((reading.usr_s, reading.sys_s), (12.5, 7.5));
        assert_eq!(reading.rss_bytes, Some(1 << 20));
        assert_eq!(reading.rss_bytes_max, Some(2 << 20));
        assert_eq!(reading.threads, Some(6));
    }

    #[test]
    fn what_is_taken_is_told_by_second_and_by_request() {
        let before = Reading::parse(STAT, STATUS, 100.0).unwrap();
        let after = Reading { usr_s: 17.5, sys_s: 17.5, ..before };
        let taken = after.since(&before, 10.0);
        assert_eq!((taken.usr_cpus, taken.sys_cpus, taken.cpu_s), (0.5, 1.0, 15.0));
        assert_eq!(taken.ns_per_request(15_000_000), Some(1000.0));
        assert_eq!(taken.ns_per_request(0), None);
        assert_eq!(taken.waiting_cpus, None);
        let waits = |waiting_s| Reading { waiting_s: Some(waiting_s), ..after };
        assert_eq!(waits(7.0).since(&waits(2.0), 10.0).waiting_cpus, Some(0.5));
        assert_eq!(waits(1.0).since(&waits(2.0), 10.0).waiting_cpus, Some(0.0));
        let both = taken.and(10.0, &after.since(&before, 30.0), 30.0);
        assert!((both.cpus() - 0.75).abs() < 1e-9);
        assert_eq!(both.cpu_s, 30.0);
    }

    #[test]
    fn what_is_hidden_is_unknown() {
        assert_eq!(Reading::parse("", STATUS, 100.0), None);
        assert_eq!(Reading::parse("1 (a) S 1 2", STATUS, 100.0), None);
        let reading = Reading::parse(STAT, "VmRSS: much\n", 100.0).unwrap();
        assert_eq!((reading.rss_bytes, reading.threads), (None, None));
        assert_eq!(Reading::of(u32::MAX), None);
        assert_eq!(waited_ns("90 1500 7\n"), Some(1500));
        assert_eq!((waited_ns("90"), waited_ns("a b c"), waited_ns("")), (None, None, None));
        assert_eq!(waiting_s(Path::new("/nowhere")), None);
        assert!(Reading::own().is_some_and(|own| own.threads >= Some(1)));
    }
}
