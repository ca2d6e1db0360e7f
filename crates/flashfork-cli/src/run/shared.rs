//! The statistics file that the shim in every process of the program adds to.

use crate::error::CliError;
use flashfork_core::stats::Stats;
use memmap2::MmapMut;
use std::path::Path;
use tempfile::NamedTempFile;

/// A temporary file that holds a `Stats`, mapped shared. Removed at the end.
pub struct SharedStats {
    file: NamedTempFile,
    map: MmapMut,
}

impl SharedStats {
    /// Makes the file with all counters zero.
    pub fn create() -> Result<SharedStats, CliError> {
        let unable = |e| CliError::file("make a statistics file in (set TMPDIR)", std::env::temp_dir())(e);
        let file = tempfile::Builder::new().prefix("flashfork-stats-").tempfile().map_err(unable)?;
        file.as_file().set_len(size_of::<Stats>() as u64).map_err(unable)?;
        // SAFETY: the file was just made; whoever else maps it only changes 64-bit counters, which are read as atomics.
        let mut map = unsafe { MmapMut::map_mut(file.as_file()) }.map_err(unable)?;
        map[..8].copy_from_slice(&Stats::MAGIC.to_ne_bytes());
        Ok(SharedStats { file, map })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The counters.
    pub fn get(&self) -> &Stats {
        // SAFETY: the mapping is page-aligned, as long as a Stats, and every bit pattern is a valid one; all access is atomic.
        unsafe { &*self.map.as_ptr().cast::<Stats>() }
    }
}
