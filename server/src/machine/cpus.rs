//! The processors that affinity and the control groups' quota allow this process to use.
//!
//! Where: `main` reads these limits once, to set the default of `-t` and to pin the columns.
//! Invariant: the list of processors is never empty, and all listed processors are in the affinity
//! mask, unless the mask cannot be read.
//! Source: sched_getaffinity(2), cgroups(7), the kernel's `cgroup-v2.rst` (`cpu.max`) and
//! `sched-bwc.rst` (`cpu.cfs_quota_us`).

use std::fs;
use std::path::Path;

use super::groups;

/// The processors that this process may use, and the processor time that it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// The processors in the affinity mask: one processor of each core, then the other processors.
    pub list: Vec<usize>,
    /// The processor time that the control groups grant, as a number of processors, rounded up.
    /// `None` means no limit.
    pub quota: Option<usize>,
}

impl Cpus {
    /// The number of columns to run on these processors, at least 1.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.list.len().min(self.quota.unwrap_or(usize::MAX)).max(1)
    }

    /// The processors to which columns are pinned. Empty if the quota allows fewer processors than
    /// `list` has: several servers with such quotas would all be pinned to the same processors of
    /// the machine, and the other processors would stay idle.
    #[must_use]
    pub fn to_pin(&self) -> &[usize] {
        if self.columns() < self.list.len() { &[] } else { &self.list }
    }
}

/// Reads the limits from the system. `root` is `/`, except in tests.
#[must_use]
pub fn usable(root: &Path) -> Cpus {
    Cpus { list: cores_first(root, affinity()), quota: quota(root) }
}

fn affinity() -> Vec<usize> {
    net::thread_cpus().ok().filter(|list| !list.is_empty()).unwrap_or_else(|| {
        // The call fails if the machine has more processors than the mask has bits.
        (0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get)).collect()
    })
}

/// Puts one processor of each core first, so that the first columns do not share cores.
fn cores_first(root: &Path, mut list: Vec<usize>) -> Vec<usize> {
    let mut seen = std::collections::HashMap::new();
    let ranks: Vec<usize> = list
        .iter()
        .map(|cpu| {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let Ok(siblings) = fs::read_to_string(root.join(path)) else { return 0 };
            let rank = seen.entry(siblings).or_insert(0_usize);
            *rank += 1;
            *rank - 1
        })
        .collect();
    let rank_of: std::collections::HashMap<usize, usize> =
        list.iter().copied().zip(ranks).collect();
    list.sort_by_key(|cpu| (rank_of.get(cpu).copied().unwrap_or(0), *cpu));
    list
}

fn quota(root: &Path) -> Option<usize> {
    groups::tightest(root, "cpu", |group, unified| match unified {
        true => limit_v2(group),
        false => limit_v1(group),
    })
}

/// The quota of a version 2 group: `cpu.max` is "QUOTA PERIOD" or "max PERIOD", in microseconds.
fn limit_v2(group: &Path) -> Option<usize> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut fields = text.split_whitespace();
    rounded_up(fields.next()?, fields.next()?)
}

/// The quota of a version 1 group: `cpu.cfs_quota_us` (-1 for none) and `cpu.cfs_period_us`.
fn limit_v1(group: &Path) -> Option<usize> {
    let quota = fs::read_to_string(group.join("cpu.cfs_quota_us")).ok()?;
    let period = fs::read_to_string(group.join("cpu.cfs_period_us")).ok()?;
    rounded_up(quota.trim(), period.trim())
}

fn rounded_up(quota: &str, period: &str) -> Option<usize> {
    let (quota, period) = (quota.parse::<usize>().ok()?, period.parse::<usize>().ok()?);
    (period > 0).then(|| quota.div_ceil(period).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::groups::tests::{V1, V2, root};

    #[test]
    fn no_control_groups_no_quota() {
        let root = root(&[("proc/version", "")]);
        assert_eq!(quota(&root.0), None);
    }

    #[test]
    fn unlimited_group_has_no_quota() {
        let root = root(&[
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/a/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(quota(&root.0), None);
    }

    #[test]
    fn quota_is_rounded_up_and_never_zero() {
        for (text, cpus) in [("150000 100000", 2), ("1000 100000", 1), ("400000 100000", 4)] {
            let root = root(&[
                ("proc/self/cgroup", "0::/a\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/a/cpu.max", text),
            ]);
            assert_eq!(quota(&root.0), Some(cpus), "{text}");
        }
    }

    #[test]
    fn outer_group_may_be_the_tightest() {
        let root = root(&[
            ("proc/self/cgroup", "0::/slice/service/inner\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/slice/cpu.max", "300000 100000\n"),
            ("sys/fs/cgroup/slice/service/inner/cpu.max", "700000 100000\n"),
        ]);
        assert_eq!(quota(&root.0), Some(3));
    }

    #[test]
    fn version_1_quota() {
        let files = [
            ("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/docker/x\n"),
            ("proc/self/mountinfo", V1),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "250000\n"),
            ("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/m/cpu.cfs_quota_us", "1\n"),
            ("sys/fs/cgroup/memory/m/cpu.cfs_period_us", "1\n"),
        ];
        assert_eq!(quota(&root(&files).0), Some(3));
    }

    #[test]
    fn container_sees_only_its_own_mount() {
        // In the container, the mount point is the host's group `/docker/x`.
        let mounts = "32 23 0:28 /docker/x /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        let files = [
            ("proc/self/cgroup", "4:cpu:/docker/x\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota(&root(&files).0), Some(1));
    }

    #[test]
    fn hostile_path_stays_below_the_mount() {
        let root = root(&[
            ("proc/self/cgroup", "0::/../../a\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/a/cpu.max", "200000 100000\n"),
        ]);
        assert_eq!(quota(&root.0), Some(2));
    }

    #[test]
    fn siblings_come_last() {
        let root = root(&[
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n"),
            ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n"),
            ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2-3\n"),
            ("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "2-3\n"),
        ]);
        assert_eq!(cores_first(&root.0, vec![0, 1, 2, 3]), [0, 2, 1, 3]);
    }

    #[test]
    fn a_quota_unpins() {
        let cpus = Cpus { list: vec![0, 1, 2, 3], quota: Some(2) };
        assert_eq!((cpus.columns(), cpus.to_pin()), (2, &[][..]));
        let cpus = Cpus { list: vec![4, 6], quota: Some(2) };
        assert_eq!((cpus.columns(), cpus.to_pin()), (2, &[4, 6][..]));
        let cpus = Cpus { list: vec![4, 6], quota: None };
        assert_eq!((cpus.columns(), cpus.to_pin()), (2, &[4, 6][..]));
    }

    #[test]
    fn this_machine_has_a_processor() {
        assert!(usable(Path::new("/")).columns() >= 1);
    }
}
