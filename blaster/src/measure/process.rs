//! The CPU time and memory that a process of this machine uses.
//!
//! Where: the run reads the figures of servers and of itself before and after each report.
//! Invariant: a figure that cannot be read is unknown; it is not zero, and causes no error.
//! Source: proc_pid_stat(5), proc_pid_status(5); the kernel's sched-stats.rst, for each thread's
//! times.

use procfs::process::{Process, Status};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    /// User time in seconds. The kernel counts `usr_s` and `sys_s` in clock ticks.
    usr_s: f64,
    sys_s: f64,
    /// User time plus system time of the existing threads, which the kernel counts in nanoseconds.
    run_s: Option<f64>,
    /// Time for which threads were ready but had no CPU, summed over the threads.
    waiting_s: Option<f64>,
    rss_bytes: Option<u64>,
    rss_bytes_max: Option<u64>,
    threads: Option<u32>,
}

/// The resources that a process used between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// CPUs kept busy by user code, where 1 is one whole CPU.
    pub usr_cpus: f64,
    /// CPUs kept busy by the kernel on behalf of the process.
    pub sys_cpus: f64,
    /// CPU time of user code and of the kernel together, in seconds.
    pub cpu_s: f64,
    /// Seconds per clock tick, the unit in which user and kernel time are counted.
    #[serde(default)]
    pub tick_s: f64,
    /// True if `cpu_s` is counted in nanoseconds, not in ticks.
    #[serde(default)]
    pub is_exact: bool,
    /// Mean number of threads that were ready but had no CPU.
    pub waiting_cpus: Option<f64>,
    /// Resident memory at the second moment.
    pub rss_bytes: Option<u64>,
    /// Largest resident memory since the process started.
    pub rss_bytes_max: Option<u64>,
    /// Number of threads at the second moment.
    pub threads: Option<u32>,
    /// Datagrams that the kernel dropped at the process's sockets, if the run is over UDP.
    pub datagrams_dropped: Option<u64>,
}

impl ProcessUse {
    pub(crate) fn cpus(&self) -> f64 {
        self.usr_cpus + self.sys_cpus
    }

    /// CPU time per request in ns; `None` without requests or if `is_measurable` is false.
    pub(crate) fn ns_per_request(&self, requests: u64) -> Option<f64> {
        (requests > 0 && self.is_measurable()).then(|| self.cpu_s * 1e9 / requests as f64)
    }

    /// True if the CPU time is long enough for the precision of the clock that measured it.
    pub(crate) fn is_measurable(&self) -> bool {
        (self.is_exact && self.cpu_s > 0.0) || self.is_split_measurable()
    }

    /// True if the CPU time has enough ticks to be split into user time and kernel time.
    pub(crate) fn is_split_measurable(&self) -> bool {
        self.cpu_s >= TICKS_MIN * self.tick_s
    }

    /// Merges the use in two spans of time, of lengths `seconds` and `other_seconds`.
    pub(crate) fn merged_with(
        &self,
        seconds: f64,
        other: &ProcessUse,
        other_seconds: f64,
    ) -> ProcessUse {
        let all = (seconds + other_seconds).max(f64::MIN_POSITIVE);
        let mean = |ours: f64, theirs: f64| (ours * seconds + theirs * other_seconds) / all;
        let waiting = self.waiting_cpus.zip(other.waiting_cpus);
        ProcessUse {
            usr_cpus: mean(self.usr_cpus, other.usr_cpus),
            sys_cpus: mean(self.sys_cpus, other.sys_cpus),
            waiting_cpus: waiting.map(|(ours, theirs)| mean(ours, theirs)),
            rss_bytes: other.rss_bytes.or(self.rss_bytes),
            rss_bytes_max: self.rss_bytes_max.max(other.rss_bytes_max),
            threads: other.threads.or(self.threads),
            ..self.plus(other)
        }
    }

    /// Returns the use of two processes together in the same span of time.
    pub(crate) fn plus(&self, other: &ProcessUse) -> ProcessUse {
        let sum = |ours: Option<u64>, theirs: Option<u64>| Some(ours? + theirs?);
        ProcessUse {
            usr_cpus: self.usr_cpus + other.usr_cpus,
            sys_cpus: self.sys_cpus + other.sys_cpus,
            cpu_s: self.cpu_s + other.cpu_s,
            tick_s: self.tick_s.max(other.tick_s),
            is_exact: self.is_exact && other.is_exact,
            waiting_cpus: self.waiting_cpus.zip(other.waiting_cpus).map(|(one, two)| one + two),
            rss_bytes: sum(self.rss_bytes, other.rss_bytes),
            rss_bytes_max: sum(self.rss_bytes_max, other.rss_bytes_max),
            threads: self.threads.zip(other.threads).map(|(one, two)| one.saturating_add(two)),
            datagrams_dropped: sum(self.datagrams_dropped, other.datagrams_dropped),
        }
    }
}

impl Reading {
    /// Reads a process's figures. `None` if the process has ended or is hidden.
    pub(crate) fn of(pid: u32) -> Option<Reading> {
        Reading::at(&Process::new(i32::try_from(pid).ok()?).ok()?)
    }

    pub(crate) fn own() -> Option<Reading> {
        Reading::at(&Process::myself().ok()?)
    }

    fn at(process: &Process) -> Option<Reading> {
        let (stat, status) = (process.stat().ok()?, process.status().ok());
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let bytes = |kib: fn(&Status) -> Option<u64>| kib(status.as_ref()?)?.checked_mul(1024);
        let (run_s, waiting_s) = scheduled_s(process).unzip();
        Some(Reading {
            usr_s: seconds(stat.utime),
            sys_s: seconds(stat.stime),
            run_s,
            waiting_s,
            rss_bytes: bytes(|status| status.vmrss),
            rss_bytes_max: bytes(|status| status.vmhwm),
            threads: stat.num_threads.try_into().ok(),
        })
    }

    /// The use since the reading `before`, which was made `seconds` before this reading.
    pub(crate) fn since(&self, before: &Reading, seconds: f64) -> ProcessUse {
        // A difference can be negative if another process now has the id, or if threads have ended.
        let since = |now: f64, then: f64| (now - then).max(0.0);
        let (usr_s, sys_s) = (since(self.usr_s, before.usr_s), since(self.sys_s, before.sys_s));
        let (tick_s, ticks_s) = (1.0 / procfs::ticks_per_second() as f64, usr_s + sys_s);
        let run_s = self.run_s.zip(before.run_s).map(|(now, then)| since(now, then));
        // `run_s` lacks the time of ended threads. If `run_s` is clearly too small, use ticks.
        let run_s = run_s.filter(|run_s| *run_s >= WHOLE_SHARE * ticks_s - 2.0 * tick_s);
        let cpu_s = run_s.unwrap_or(ticks_s);
        let usr_share = match ticks_s > 0.0 {
            true => usr_s / ticks_s,
            // Without ticks in this span, the process's total user and kernel times give the ratio.
            false => self.usr_s / (self.usr_s + self.sys_s).max(f64::MIN_POSITIVE),
        };
        let seconds = seconds.max(f64::MIN_POSITIVE);
        let waited_s = self.waiting_s.zip(before.waiting_s).map(|(now, then)| since(now, then));
        ProcessUse {
            usr_cpus: cpu_s * usr_share / seconds,
            sys_cpus: cpu_s * (1.0 - usr_share) / seconds,
            cpu_s,
            tick_s,
            is_exact: run_s.is_some(),
            waiting_cpus: waited_s.map(|waited_s| waited_s / seconds),
            rss_bytes: self.rss_bytes,
            rss_bytes_max: self.rss_bytes_max,
            threads: self.threads,
            datagrams_dropped: None,
        }
    }
}

const THREADS_MAX: usize = 10_000;

/// A figure needs at least this many clock ticks, so that an error of one tick is at most 10 %.
pub(crate) const TICKS_MIN: f64 = 10.0;
/// If the existing threads have less than this share of the process's CPU time, threads have ended.
const WHOLE_SHARE: f64 = 0.95;

/// Seconds for which threads ran, and for which they waited for a CPU; `None` if not counted.
fn scheduled_s(process: &Process) -> Option<(f64, f64)> {
    let tasks = process.tasks().ok()?.take(THREADS_MAX).filter_map(Result::ok);
    let all = tasks.filter_map(|task| {
        let told = task.schedstat().ok()?;
        Some((told.sum_exec_runtime as f64 / 1e9, told.run_delay as f64 / 1e9))
    });
    all.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_told_by_second_and_by_request() {
        let before = Reading { usr_s: 12.5, sys_s: 7.5, ..Reading::default() };
        let after = Reading { usr_s: 17.5, sys_s: 17.5, ..before };
        let taken = after.since(&before, 10.0);
        assert!((taken.usr_cpus - 0.5).abs() + (taken.sys_cpus - 1.0).abs() < 1e-9, "{taken:?}");
        assert_eq!(taken.cpu_s, 15.0);
        assert_eq!(taken.ns_per_request(15_000_000), Some(1000.0));
        assert_eq!(taken.ns_per_request(0), None);
        assert_eq!(taken.waiting_cpus, None);
        let waits = |waiting_s| Reading { waiting_s: Some(waiting_s), ..after };
        assert_eq!(waits(7.0).since(&waits(2.0), 10.0).waiting_cpus, Some(0.5));
        assert_eq!(waits(1.0).since(&waits(2.0), 10.0).waiting_cpus, Some(0.0));
        let both = taken.merged_with(10.0, &after.since(&before, 30.0), 30.0);
        assert!((both.cpus() - 0.75).abs() < 1e-9);
        assert_eq!(both.cpu_s, 30.0);
    }

    #[test]
    fn nanoseconds_are_told_where_the_kernel_counts_them_and_few_ticks_tell_nothing() {
        // 4 ms of CPU time in a second: the kernel counts no tick or one tick.
        let before = Reading { usr_s: 3.0, sys_s: 1.0, run_s: Some(4.0), ..Reading::default() };
        for ticks_s in [0.0, 0.01] {
            let after = Reading { usr_s: 3.0 + ticks_s, run_s: Some(4.004), ..before };
            let exact = after.since(&before, 1.0);
            assert!((exact.ns_per_request(1000).unwrap() - 4000.0).abs() < 1e-3, "{exact:?}");
            assert!(exact.is_exact && !exact.is_split_measurable(), "{exact:?}");
            let ticks =
                Reading { run_s: None, ..after }.since(&Reading { run_s: None, ..before }, 1.0);
            assert_eq!((ticks.ns_per_request(1000), ticks.is_measurable()), (None, false));
        }
        // Nine tenths of the CPU time belong to ended threads, so ticks are used.
        let after = Reading { usr_s: 4.0, run_s: Some(4.1), ..before };
        let ended = after.since(&before, 1.0);
        assert_eq!((ended.cpu_s, ended.is_exact, ended.is_split_measurable()), (1.0, false, true));
    }

    #[test]
    fn this_process_is_seen_and_what_is_hidden_is_unknown() {
        let own = Reading::own().unwrap();
        assert!(own.run_s.is_none_or(|run_s| run_s > 0.0), "{own:?}");
        assert!(own.threads >= Some(1) && own.rss_bytes > Some(1 << 20), "{own:?}");
        assert!(own.rss_bytes_max >= own.rss_bytes, "{own:?}");
        assert_eq!([Reading::of(u32::MAX), Reading::of(i32::MAX.unsigned_abs())], [None; 2]);
    }
}
