//! How much memory is left: on the machine and in every memory cgroup above this process, versions 1 and 2
//! (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).

use procfs::process::{MountInfos, Process};
use procfs::{Current, Meminfo, ProcResult, ProcessCGroups};
use std::fs;
use std::path::{Path, PathBuf};

/// Memory that can still be taken, and what sets the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Bytes that can still be taken.
    pub available: u64,
    /// What sets the limit: `MemAvailable`, or the file of a memory cgroup.
    pub limit: String,
}

impl Headroom {
    /// Of this process now: the least of `MemAvailable` and, for every cgroup from its own up to the root, the limit
    /// less its use. File cache counts as free, swap doesn't count.
    pub fn now() -> std::io::Result<Headroom> {
        headroom().map_err(std::io::Error::other)
    }
}

fn headroom() -> ProcResult<Headroom> {
    let memory = Meminfo::current()?;
    let machine = Headroom { available: memory.mem_available.unwrap_or(memory.mem_free), limit: "MemAvailable".into() };
    let me = Process::myself()?;
    let groups = groups(&me.cgroups()?, &me.mountinfo()?);
    let tightest = groups.iter().filter_map(Group::headroom).min_by_key(|h| h.available);
    Ok(tightest.filter(|h| h.available < machine.available).unwrap_or(machine))
}

/// A cgroup's directory and the names of its files.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    path: PathBuf,
    names: &'static Names,
}

#[derive(Debug, PartialEq, Eq)]
struct Names {
    limits: &'static [&'static str],
    usage: &'static str,
    /// Entries of memory.stat for file cache, which the kernel drops before it gives up.
    cache: [&'static str; 2],
}

static V1: Names = Names {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};
static V2: Names =
    Names { limits: &["memory.max", "memory.high"], usage: "memory.current", cache: ["inactive_file", "active_file"] };

/// Every group that holds this process, up to the root of each mount.
fn groups(own: &ProcessCGroups, mounts: &MountInfos) -> Vec<Group> {
    let mut found = Vec::new();
    for mount in mounts {
        let (names, group) = match mount.fs_type.as_str() {
            "cgroup" if mount.super_options.contains_key("memory") => {
                (&V1, own.into_iter().find(|g| g.controllers.iter().any(|c| c == "memory")))
            }
            "cgroup2" => (&V2, own.into_iter().find(|g| g.hierarchy == 0)),
            _ => continue,
        };
        let Some(group) = group else { continue };
        // In a container the mount shows part of the tree: a group outside it can't be looked at.
        let below = Path::new(&group.pathname).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let paths = below.ancestors().map(|part| mount.mount_point.join(part));
        found.extend(paths.map(|path| Group { path, names }));
    }
    found
}

impl Group {
    /// `None` without a limit, or where it can't be read.
    fn headroom(&self) -> Option<Headroom> {
        let number = |name: &str| fs::read_to_string(self.path.join(name)).ok()?.trim().parse::<u64>().ok();
        let (limit, name) = self.names.limits.iter().filter_map(|name| Some((number(name)?, name))).min()?;
        let used = number(self.names.usage)?;
        let stat = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let entry = |key: &&str| {
            let rest = stat.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' '))?;
            rest.trim().parse::<u64>().ok()
        };
        let cache: u64 = self.names.cache.iter().filter_map(entry).sum();
        let available = limit.saturating_sub(used.saturating_sub(cache));
        Some(Headroom { available, limit: self.path.join(name).display().to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_memory_left_here_and_not_more_than_the_machine_has() {
        let headroom = Headroom::now().unwrap();
        let total = Meminfo::current().unwrap().mem_total;
        assert!((1..=total).contains(&headroom.available), "{headroom:?}");
    }

    #[test]
    fn the_tightest_limit_counts_and_cache_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group { path: dir.path().into(), names: &V2 };
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(group.headroom(), None);
        write("memory.max", "max\n");
        write("memory.current", "600\n");
        assert_eq!(group.headroom(), None, "no limit");
        write("memory.max", "2000\n");
        write("memory.high", "1000\n");
        write("memory.stat", "anon 350\ninactive_file_x 9\ninactive_file 50\nactive_file 100\n");
        let found = group.headroom().unwrap();
        assert_eq!(found.available, 550);
        assert!(found.limit.ends_with("memory.high"), "{}", found.limit);
        write("memory.current", "9000\n");
        assert_eq!(group.headroom().unwrap().available, 0);
    }

    #[test]
    fn every_ancestor_in_the_mounted_part_counts() {
        let own: ProcessCGroups = procfs::FromBufRead::from_buf_read(&b"4:memory:/box/in\n0::/a/b\n"[..]).unwrap();
        let mounts = b"31 23 0:27 /box /cg1 rw - cgroup cgroup rw,memory\n\
            30 23 0:26 / /cg2 rw shared:9 - cgroup2 cgroup2 rw\n\
            29 23 0:25 / /cpu rw - cgroup cgroup rw,cpu\n";
        let mounts: MountInfos = procfs::FromBufRead::from_buf_read(&mounts[..]).unwrap();
        let paths: Vec<_> = groups(&own, &mounts).into_iter().map(|g| g.path.display().to_string()).collect();
        assert_eq!(paths, ["/cg1/in", "/cg1/", "/cg2/a/b", "/cg2/a", "/cg2/"]);
    }
}
