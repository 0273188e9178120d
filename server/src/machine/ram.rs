//! The memory that the machine and the control groups' limits allow this process to have.
//!
//! Where: `main` reads these limits once. If `-m` exceeds the smaller limit, `main` prints a
//! warning. `-m` may be a percentage of this limit.
//! Invariant: a limit that the system does not report counts as no limit.
//! Source: proc(5) (`meminfo`), the kernel's `cgroup-v2.rst` (`memory.max`) and `memory.rst`
//! (`memory.limit_in_bytes`).

use std::fs;
use std::path::Path;

use super::groups;

/// The memory that this process may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ram {
    /// Bytes of memory that the machine has.
    pub machine: Option<u64>,
    /// Bytes of memory that the control groups allow.
    pub granted: Option<u64>,
}

impl Ram {
    /// The smaller of the two limits, and words that name this limit in a message to the user.
    #[must_use]
    pub fn least(&self) -> Option<(u64, &'static str)> {
        let machine = self.machine.map(|bytes| (bytes, "the machine has"));
        let granted = self.granted.map(|bytes| (bytes, "the control group allows"));
        [machine, granted].into_iter().flatten().min()
    }
}

/// Reads the limits from the system. `root` is `/`, except in tests.
#[must_use]
pub fn usable(root: &Path) -> Ram {
    let granted = groups::tightest(root, "memory", |group, unified| {
        let name = if unified { "memory.max" } else { "memory.limit_in_bytes" };
        // "max" (version 2) and a number above the machine's memory (version 1) mean no limit.
        fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok()
    });
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok();
    let machine = machine.and_then(|text| {
        let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        kib.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1 << 10)
    });
    Ram { machine, granted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::groups::tests::{V1, V2, root};

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:        4096 kB\nMemFree:         1024 kB\n");

    fn told(files: &[(&str, &str)]) -> Ram {
        usable(&root(files).0)
    }

    #[test]
    fn the_machine_is_the_limit_where_no_group_has_less() {
        let (machine, unlimited) = (Some(4 << 20), "9223372036854771712\n");
        let ram = told(&[MEMINFO]);
        assert_eq!(ram, Ram { machine, granted: None });
        assert_eq!(ram.least(), Some((4 << 20, "the machine has")));
        let files = [MEMINFO, ("proc/self/cgroup", "5:memory:/m\n"), ("proc/self/mountinfo", V1)];
        let limit = ("sys/fs/cgroup/memory/m/memory.limit_in_bytes", unlimited);
        assert_eq!(told(&[&files[..], &[limit]].concat()).least(), ram.least());
        assert_eq!(told(&[("proc/version", "")]).least(), None);
    }

    #[test]
    fn the_tightest_group_is_the_limit() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/a/memory.max", "2097152\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ];
        assert_eq!(told(&files).least(), Some((2 << 20, "the control group allows")));
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(usable(Path::new("/")).least().is_some_and(|(bytes, _)| bytes > 1 << 20));
    }
}
