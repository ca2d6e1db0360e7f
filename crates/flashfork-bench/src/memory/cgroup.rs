//! Memory limits of control groups, versions 1 and 2 (Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst).

use std::fs;
use std::path::{Path, PathBuf};

use procfs::ProcessCGroups;
use procfs::process::MountInfos;

use super::Headroom;

/// The names under which a version of control groups keeps its memory figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// The entry of `memory.stat` that counts file pages which can be dropped at once, descendants included.
    droppable: &'static str,
}

const V1: Names =
    Names { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", droppable: "total_inactive_file" };
const V2: Names = Names { limit: "memory.max", usage: "memory.current", droppable: "inactive_file" };

/// A control group's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    path: PathBuf,
    names: Names,
}

/// The directories of every memory control group that holds this process, from its own up to each mount's root.
pub(super) fn directories(groups: &ProcessCGroups, mounts: &MountInfos) -> Vec<Group> {
    let mut found = Vec::new();
    for mount in mounts {
        let (names, path) = match mount.fs_type.as_str() {
            "cgroup" if mount.super_options.contains_key("memory") => {
                let own = groups.into_iter().find(|group| group.controllers.iter().any(|name| name == "memory"));
                (V1, own.map(|group| group.pathname.clone()))
            }
            "cgroup2" => {
                (V2, groups.into_iter().find(|group| group.hierarchy == 0).map(|group| group.pathname.clone()))
            }
            _ => continue,
        };
        let Some(path) = path else { continue };
        let all = ancestors(&mount.mount_point, &mount.root, &path);
        found.extend(all.into_iter().map(|path| Group { path, names }));
    }
    found
}

/// `group` and its ancestors as directories under `mount_point`, where the group `root` is mounted. Groups outside the
/// mounted part can't be seen; the mount's root is then all that is known.
fn ancestors(mount_point: &Path, root: &str, group: &str) -> Vec<PathBuf> {
    let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
    let levels: Vec<&Path> = below.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    let mut all: Vec<PathBuf> = levels.into_iter().map(|part| mount_point.join(part)).collect();
    all.push(mount_point.to_owned());
    all
}

impl Group {
    /// What may still be used under this group's limit; `None` when it has none or can't be read.
    pub(super) fn headroom(&self) -> Option<Headroom> {
        let read = |name: &str| fs::read_to_string(self.path.join(name)).ok();
        // "max" in version 2 is no limit; version 1 shows a huge number instead, which never is the tightest.
        let limit: u64 = read(self.names.limit)?.trim().parse().ok()?;
        let usage: u64 = read(self.names.usage)?.trim().parse().ok()?;
        let droppable = read("memory.stat").and_then(|stat| entry(&stat, self.names.droppable)).unwrap_or(0);
        Some(Headroom {
            available: limit.saturating_sub(usage.saturating_sub(droppable)),
            limit: self.path.display().to_string(),
        })
    }
}

/// The number after `name` in a `memory.stat` file.
fn entry(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(mount_point: &str, root: &str, group: &str) -> Vec<String> {
        let all = ancestors(Path::new(mount_point), root, group);
        all.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn every_ancestor_counts() {
        assert_eq!(paths("/cg", "/", "/a/b"), ["/cg/a/b", "/cg/a", "/cg"]);
        assert_eq!(paths("/cg", "/", "/"), ["/cg"]);
    }

    #[test]
    fn a_container_sees_only_its_part() {
        assert_eq!(paths("/cg", "/docker/1", "/docker/1/x"), ["/cg/x", "/cg"]);
        assert_eq!(paths("/cg", "/docker/1", "/elsewhere"), ["/cg"]);
    }

    #[test]
    fn droppable_pages_are_not_counted_as_used() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group { path: dir.path().to_owned(), names: V2 };
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(group.headroom(), None);
        write("memory.max", "max\n");
        write("memory.current", "600\n");
        assert_eq!(group.headroom(), None);
        write("memory.max", "1000\n");
        assert_eq!(group.headroom().unwrap().available, 400);
        write("memory.stat", "anon 350\ninactive_file_x 1\ninactive_file 250\n");
        assert_eq!(group.headroom().unwrap().available, 650);
        write("memory.current", "5000\n");
        assert_eq!(group.headroom().unwrap().available, 0);
    }

    #[test]
    fn version_1_has_its_own_names() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("memory.limit_in_bytes", "1000");
        write("memory.usage_in_bytes", "900");
        write("memory.stat", "inactive_file 1\ntotal_inactive_file 50\n");
        let group = Group { path: dir.path().to_owned(), names: V1 };
        assert_eq!(group.headroom().unwrap().available, 150);
    }
}
