//! What a process of this machine takes: CPU time and memory.
//!
//! Where: the server's, read before and after each report; our own likewise.
//! Invariant: what cannot be read is unknown, not zero and not an error.
//! Source: proc_pid_stat(5), proc_pid_status(5), the kernel's sched-stats.rst.

use procfs::process::{Process, Status};
use serde::{Deserialize, Serialize};

/// What the kernel says of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    usr_s: f64,
    sys_s: f64,
    /// Time in which its threads were ready to run and had no CPU, summed.
    waiting_s: Option<f64>,
    rss_bytes: Option<u64>,
    rss_bytes_max: Option<u64>,
    threads: Option<u32>,
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
    pub(crate) fn cpus(&self) -> f64 {
        self.usr_cpus + self.sys_cpus
    }

    /// CPU time of one request; none without requests.
    pub(crate) fn ns_per_request(&self, requests: u64) -> Option<f64> {
        (requests > 0).then(|| self.cpu_s * 1e9 / requests as f64)
    }

    /// The process in two spans of time, of `seconds` and `other_seconds`, together.
    pub(crate) fn and(&self, seconds: f64, other: &ProcessUse, other_seconds: f64) -> ProcessUse {
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
    /// Reads a process; none if it is gone or hidden.
    pub(crate) fn of(pid: u32) -> Option<Reading> {
        Reading::at(&Process::new(i32::try_from(pid).ok()?).ok()?)
    }

    /// Reads this process.
    pub(crate) fn own() -> Option<Reading> {
        Reading::at(&Process::myself().ok()?)
    }

    fn at(process: &Process) -> Option<Reading> {
        let (stat, status) = (process.stat().ok()?, process.status().ok());
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let bytes = |kib: fn(&Status) -> Option<u64>| kib(status.as_ref()?)?.checked_mul(1024);
        Some(Reading {
            usr_s: seconds(stat.utime),
            sys_s: seconds(stat.stime),
            waiting_s: waiting_s(process),
            rss_bytes: bytes(|status| status.vmrss),
            rss_bytes_max: bytes(|status| status.vmhwm),
            threads: stat.num_threads.try_into().ok(),
        })
    }

    /// What was taken since an earlier reading, `seconds` before.
    pub(crate) fn since(&self, before: &Reading, seconds: f64) -> ProcessUse {
        // A process that was restarted under the same number would step back, and a thread that
        // ended takes its waiting with it.
        let since = |now: f64, then: f64| (now - then).max(0.0);
        let (usr_s, sys_s) = (since(self.usr_s, before.usr_s), since(self.sys_s, before.sys_s));
        let seconds = seconds.max(f64::MIN_POSITIVE);
        let waited_s = self.waiting_s.zip(before.waiting_s).map(|(now, then)| since(now, then));
        ProcessUse {
            usr_cpus: usr_s / seconds,
            sys_cpus: sys_s / seconds,
            cpu_s: usr_s + sys_s,
            waiting_cpus: waited_s.map(|waited_s| waited_s / seconds),
            rss_bytes: self.rss_bytes,
            rss_bytes_max: self.rss_bytes_max,
            threads: self.threads,
        }
    }
}

/// Threads looked at, of one process.
const THREADS_MAX: usize = 10_000;

/// Seconds that its threads waited for a CPU; none where the kernel does not count.
fn waiting_s(process: &Process) -> Option<f64> {
    let tasks = process.tasks().ok()?.take(THREADS_MAX).filter_map(Result::ok);
    let waits = tasks.filter_map(|task| Some(task.schedstat().ok()?.run_delay as f64 / 1e9));
    waits.reduce(|sum, one| sum + one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_told_by_second_and_by_request() {
        let before = Reading { usr_s: 12.5, sys_s: 7.5, ..Reading::default() };
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
    fn this_process_is_seen_and_what_is_hidden_is_unknown() {
        let own = Reading::own().unwrap();
        assert!(own.threads >= Some(1) && own.rss_bytes > Some(1 << 20), "{own:?}");
        assert!(own.rss_bytes_max >= own.rss_bytes, "{own:?}");
        assert_eq!([Reading::of(u32::MAX), Reading::of(i32::MAX.unsigned_abs())], [None; 2]);
    }
}
