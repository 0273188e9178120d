//! Limits set by the control groups that this process is in.
//!
//! Where: `cpus` and `ram` call `tightest` before the command line is read.
//! Invariant: no file above a hierarchy's mount point is read, even if a group's path has `..`.
//! Source: cgroups(7), the kernel's `cgroup-v2.rst`.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Returns the lowest limit of this process's control groups and of the groups that contain them.
/// `read` gets a group's folder, and true for version 2, and returns the group's limit.
pub(crate) fn tightest<L: Ord>(
    root: &Path,
    controller: &str,
    read: impl Fn(&Path, bool) -> Option<L>,
) -> Option<L> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mut tightest = None;
    let mut visited = HashSet::new();
    for line in groups.lines() {
        // "ID:CONTROLLERS:PATH". In version 2, ID is 0 and CONTROLLERS is empty.
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let unified = id == "0" && controllers.is_empty();
        if !unified && !controllers.split(',').any(|one| one == controller) {
            continue;
        }
        for (top, below) in mounted(&mounts, (!unified).then_some(controller), Path::new(path)) {
            let top = root.join(top.strip_prefix("/").unwrap_or(&top));
            let mut group = top.join(below);
            while group.starts_with(&top) && visited.insert(group.clone()) {
                let limit = read(&group, unified);
                tightest = [tightest, limit].into_iter().flatten().min();
                if !group.pop() {
                    break;
                }
            }
        }
    }
    tightest
}

/// Returns each mount point of the hierarchy of `controller` (version 1), or of the only hierarchy
/// (version 2) if `controller` is `None`, with the path of the group below the mount point.
fn mounted(mounts: &str, controller: Option<&str>, path: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        // "ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPEROPTIONS"
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut after = after.split(' ');
        let (kind, options) = (after.next().unwrap_or(""), after.nth(1).unwrap_or(""));
        let fits = match controller {
            None => kind == "cgroup2",
            Some(name) => kind == "cgroup" && options.split(',').any(|option| option == name),
        };
        let mut before = before.split(' ').skip(3);
        let (Some(mount_root), Some(point), true) = (before.next(), before.next(), fits) else {
            continue;
        };
        // In a container, `path` may not begin with `mount_root`. In this case the mount point
        // itself is the group of this process.
        let below = path.strip_prefix(mount_root).unwrap_or(Path::new(""));
        let below = below.components().filter(|name| matches!(name, Component::Normal(_)));
        found.push((PathBuf::from(point), below.collect()));
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use testing::Folder;

    /// Makes a folder with these files, which a test uses in place of `/`.
    pub(crate) fn root(files: &[(&str, &str)]) -> Folder {
        let root = Folder::new();
        for (path, text) in files {
            let path = root.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    pub(crate) const V2: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    pub(crate) const V1: &str = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 23 0:28 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
}
