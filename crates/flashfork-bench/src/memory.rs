//! Whether something fits into memory, asked before anything is allocated.
//!
//! Swap is not counted: memory in swap can't be measured as memory.

mod cgroup;

use procfs::Current;

use crate::BenchError;

/// The tightest limit on further memory use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headroom {
    /// Bytes that can still be used.
    pub available: u64,
    /// What sets the limit: `MemAvailable` or a control group's path.
    pub limit: String,
}

impl Headroom {
    /// The headroom of this process now: the least of `MemAvailable` and, for every control group from its own up to the
    /// root (versions 1 and 2), the limit less what the group uses and could not drop at once.
    pub fn now() -> Result<Self, BenchError> {
        let failed = |error: procfs::ProcError| {
            BenchError::system("read how much memory is available", std::io::Error::other(error))
        };
        let meminfo = procfs::Meminfo::current().map_err(failed)?;
        let machine =
            Self { available: meminfo.mem_available.unwrap_or(meminfo.mem_free), limit: "MemAvailable".to_owned() };
        let process = procfs::process::Process::myself().map_err(failed)?;
        let groups = cgroup::directories(&process.cgroups().map_err(failed)?, &process.mountinfo().map_err(failed)?);
        let tightest = groups.iter().filter_map(|group| group.headroom()).min_by_key(|headroom| headroom.available);
        Ok(match tightest {
            Some(group) if group.available < machine.available => group,
            _ => machine,
        })
    }

    /// Refuses `what` when it needs more than there is.
    pub fn require(&self, what: impl Into<String>, needed: u64) -> Result<(), BenchError> {
        if needed <= self.available {
            return Ok(());
        }
        Err(BenchError::DoesNotFit { what: what.into(), needed, available: self.available, limit: self.limit.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_some_memory_left_and_not_more_than_the_machine() {
        let headroom = Headroom::now().unwrap();
        let total = procfs::Meminfo::current().unwrap().mem_total;
        assert!(headroom.available > 0 && headroom.available <= total, "{headroom:?}");
    }

    #[test]
    fn a_refusal_says_what_is_needed_and_what_is_there() {
        let headroom = Headroom { available: 1 << 30, limit: "/sys/fs/cgroup/a".into() };
        assert!(headroom.require("1G", 1 << 30).is_ok());
        let text = headroom.require("2G, method seal", 5 << 29).unwrap_err().to_string();
        for part in ["2G, method seal", "2.5 GB", "1 GB", "/sys/fs/cgroup/a"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}
