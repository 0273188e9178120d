//! The use of this machine's CPUs by category, in total and per CPU.
//!
//! Where: the run reads the figures before and after each report.
//! Invariant: the shares of one CPU add up to 1. A figure that the kernel does not report is 0, and
//! no content of /proc/stat makes reading fail.
//! Source: proc_stat(5); the categories of mpstat, as in Pavlik's thesis, section 3.1.2.

use super::interrupts::CoreNetwork;
use serde::{Deserialize, Serialize};

/// Maximum number of CPUs that are read from a table of the kernel.
pub(super) const CPUS_MAX: usize = 4096;
/// Number of categories of CPU time that are read from /proc/stat.
const CATEGORIES: usize = 8;

/// CPU time by category, or each category's share of the CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Categories {
    /// User code, guests included.
    pub usr: f64,
    /// User code of low priority.
    pub nice: f64,
    /// Kernel code on behalf of a process.
    pub sys: f64,
    /// Idle while a process waits for a disk.
    pub iowait: f64,
    /// Hardware interrupts.
    pub irq: f64,
    /// Software interrupts: most of the network stack.
    pub softirq: f64,
    /// Time that the hypervisor gave to other virtual machines.
    pub steal: f64,
    /// Idle, while no process waits for a disk.
    pub idle: f64,
}

const NAMES: [&str; CATEGORIES] =
    ["usr", "nice", "sys", "iowait", "irq", "softirq", "steal", "idle"];

impl Categories {
    fn of([usr, nice, sys, iowait, irq, softirq, steal, idle]: [f64; CATEGORIES]) -> Categories {
        Categories { usr, nice, sys, iowait, irq, softirq, steal, idle }
    }

    fn figures(&self) -> [f64; CATEGORIES] {
        let Categories { usr, nice, sys, iowait, irq, softirq, steal, idle } = *self;
        [usr, nice, sys, iowait, irq, softirq, steal, idle]
    }

    pub(crate) fn named(&self) -> [(&'static str, f64); CATEGORIES] {
        let figures = self.figures();
        std::array::from_fn(|at| (NAMES[at], figures[at]))
    }

    /// The share of CPU time that is neither idle, waiting for I/O nor stolen; 1 is a whole CPU.
    pub(crate) fn busy(&self) -> f64 {
        self.usr + self.nice + self.sys + self.irq + self.softirq
    }

    /// The mean of the shares in two spans of time of lengths `weight` and `other_weight`.
    fn merged_with(&self, weight: f64, other: &Categories, other_weight: f64) -> Categories {
        let all = (weight + other_weight).max(f64::MIN_POSITIVE);
        let (ours, theirs) = (self.figures(), other.figures());
        let mean = |at: usize| (ours[at] * weight + theirs[at] * other_weight) / all;
        Categories::of(std::array::from_fn(mean))
    }

    fn shares(now: &[u64; CATEGORIES], before: &[u64; CATEGORIES]) -> Option<Categories> {
        // The kernel's idle and iowait counters may decrease.
        let passed: [u64; CATEGORIES] =
            std::array::from_fn(|at| now[at].saturating_sub(before[at]));
        let all = passed.iter().sum::<u64>() as f64;
        // The kernel writes idle and iowait before irq.
        let [usr, nice, sys, idle, iowait, irq, softirq, steal] =
            passed.map(|ticks| ticks as f64 / all);
        (all > 0.0).then_some(Categories { usr, nice, sys, iowait, irq, softirq, steal, idle })
    }
}

/// Ticks of all CPUs since the machine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    total: Option<[u64; CATEGORIES]>,
    cores: Vec<(u32, [u64; CATEGORIES])>,
}

/// The use of the CPUs between two readings of /proc/stat: each category's share of the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShares {
    /// The mean of the shares of all CPUs.
    pub total: Categories,
    /// The figures of each CPU.
    pub cores: Vec<Core>,
}

/// The figures of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Core {
    /// The CPU's number.
    pub cpu: u32,
    /// The CPU's shares of time by category.
    pub shares: Categories,
    /// The CPU's interrupts and packets, if the kernel reports them.
    pub network: Option<CoreNetwork>,
}

impl CpuShares {
    /// Merges two spans of time, weighted by length. Omits a CPU that is missing in one span.
    pub(crate) fn merged_with(
        &self,
        seconds: f64,
        other: &CpuShares,
        other_seconds: f64,
    ) -> CpuShares {
        let cores = self.cores.iter().filter_map(|core| {
            let theirs = other.cores.iter().find(|theirs| theirs.cpu == core.cpu)?;
            let shares = core.shares.merged_with(seconds, &theirs.shares, other_seconds);
            let network = core.network.zip(theirs.network);
            let network =
                network.map(|(ours, theirs)| ours.merged_with(seconds, &theirs, other_seconds));
            Some(Core { cpu: core.cpu, shares, network })
        });
        CpuShares {
            total: self.total.merged_with(seconds, &other.total, other_seconds),
            cores: cores.collect(),
        }
    }
}

impl CpuTicks {
    /// Parses the `cpu` lines of /proc/stat. The procfs crate is not used: it drops the CPU
    /// numbers, which are needed if CPUs go offline or online between two readings.
    fn parse(text: &str) -> CpuTicks {
        let mut ticks = CpuTicks::default();
        for line in text.lines() {
            let Some((name, figures)) = line.split_once(' ') else { continue };
            let Some(number) = name.strip_prefix("cpu") else { continue };
            let mut read = [0; CATEGORIES];
            for (read, figure) in read.iter_mut().zip(figures.split_ascii_whitespace()) {
                *read = figure.parse().unwrap_or(0);
            }
            if number.is_empty() {
                ticks.total = Some(read);
            } else if let Ok(number) = number.parse()
                && ticks.cores.len() < CPUS_MAX
            {
                ticks.cores.push((number, read));
            }
        }
        ticks
    }

    /// Reads /proc/stat. The result is empty if the file cannot be read.
    pub(crate) fn read() -> CpuTicks {
        CpuTicks::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Returns the shares since the reading `before`, or `None` if one of the readings is empty.
    pub(crate) fn since(&self, before: &CpuTicks) -> Option<CpuShares> {
        let total = Categories::shares(self.total.as_ref()?, before.total.as_ref()?)?;
        let mut cores = Vec::new();
        for (cpu, now) in &self.cores {
            // A CPU that went offline or online between the two readings has no share.
            let Some((_, then)) = before.cores.iter().find(|(other, _)| other == cpu) else {
                continue;
            };
            let core = |shares| Core { cpu: *cpu, shares, network: None };
            cores.extend(Categories::shares(now, then).map(core));
        }
        Some(CpuShares { total, cores })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contents of /proc/stat on two cores under Linux 6.18. `AFTER` was read ten seconds later.
    const BEFORE: &str = "\
cpu  1740473 243342 605898 1759296 9208 0 122535 3727 0 0
cpu0 837456 122707 305584 908932 1984 0 63734 1846 0 0
cpu1 903017 120635 300313 850363 7224 0 58801 1881 0 0
intr 44681095 0 0
ctxt 123
";
    const AFTER: &str = "\
cpu  1740973 243342 606498 1759996 9207 0 122735 3727 0 0
cpu0 837656 122707 305784 909532 1984 0 63734 1846 0 0
cpu1 903317 120635 300713 850463 7223 0 59001 1881 0 0
intr 44681095 0 0
";

    #[test]
    fn shares_are_told_by_category_and_core() {
        let (before, after) = (CpuTicks::parse(BEFORE), CpuTicks::parse(AFTER));
        let shares = after.since(&before).unwrap();
        assert_eq!(
            (shares.total.usr, shares.total.sys, shares.total.softirq, shares.total.idle),
            (0.25, 0.3, 0.1, 0.35)
        );
        let merged = shares.merged_with(1.0, &CpuShares::default(), 3.0);
        assert_eq!((merged.total.usr, merged.cores.len()), (0.0625, 0));
        assert_eq!(shares.merged_with(2.0, &shares, 2.0).cores.len(), 2);
        let names: Vec<u32> = shares.cores.iter().map(|core| core.cpu).collect();
        assert_eq!(names, [0, 1]);
        assert_eq!(shares.cores[1].shares.usr, 0.3);
        assert!((shares.cores[0].shares.busy() - 0.4).abs() < 1e-9);
        let sum: f64 = shares.total.named().map(|(_, share)| share).iter().sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }

    #[test]
    fn no_text_and_no_time_tell_nothing() {
        let before = CpuTicks::parse(BEFORE);
        assert_eq!(before.since(&before), None);
        assert_eq!(CpuTicks::parse("").since(&before), None);
        assert_eq!(before.since(&CpuTicks::parse("cpu")), None);
        let strange = CpuTicks::parse("cpu x y\ncpu0\ncpuq 1 2\n\u{0}cpu 1");
        assert_eq!(strange.since(&before), None);
    }

    #[test]
    fn a_core_that_came_in_between_has_no_share() {
        let before = CpuTicks::parse(&BEFORE.replace("cpu1", "cpu7"));
        let shares = CpuTicks::parse(AFTER).since(&before).unwrap();
        assert_eq!(shares.cores.len(), 1);
    }
}
