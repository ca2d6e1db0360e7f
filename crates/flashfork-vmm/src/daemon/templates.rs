//! Templates: made, saved, loaded, removed.

use super::error::DaemonError;
use super::{Daemon, boot};
use crate::template::{self, Quota, Template};
use flashfork_proto::api::{self, CreateTemplate, LoadTemplate, SaveTemplate};
use flashfork_proto::shape::Shape;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// A template and what the daemon knows of it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) template: Template,
    /// For claims.
    pub(super) state: Vec<u8>,
    boot_ns: Option<u64>,
    /// Clones that are.
    pub(super) alive: AtomicU64,
}

impl Daemon {
    /// Boots a guest and makes a template of it.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn create_template(&self, request: &CreateTemplate) -> Result<api::Template, DaemonError> {
        let hardware = self.hardware()?;
        let _reserved = self.reserve("template", &request.name)?;
        request.shape.check()?;
        if request.shape.disk != request.disk.is_some() {
            return Err(DaemonError::Invalid("a disk needs an image, and an image a shape with a disk".into()));
        }
        enough_memory(&request.shape)?;
        let (frozen, boot_ns) = boot::boot(&self.settings, &hardware.pools, request, self.cid())?;
        let tenant = rustix::process::geteuid().as_raw();
        let quota = Quota::new(tenant, request.max_clones);
        let created_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.adopt(&request.name, Template { frozen, quota, created_s }, Some(boot_ns))
    }

    fn adopt(&self, name: &str, template: Template, boot_ns: Option<u64>) -> Result<api::Template, DaemonError> {
        let state = template.frozen.state.encode()?;
        let shape = template.frozen.state.shape;
        let entry = Arc::new(Entry { template, state, boot_ns, alive: AtomicU64::new(0) });
        self.lock().templates.insert(name.to_owned(), entry.clone());
        self.hardware()?.pools.keep(shape, self.settings.pool);
        Ok(entry.show(name))
    }

    /// Loads one from a directory. Each load counts its clones for itself, from the number that was saved on.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn load_template(&self, request: &LoadTemplate) -> Result<api::Template, DaemonError> {
        let hardware = self.hardware()?;
        let _reserved = self.reserve("template", &request.name)?;
        absolute(&request.directory)?;
        let template = template::load(&request.directory, &hardware.kvm)?;
        self.adopt(&request.name, template, None)
    }

    /// Saves one to a directory.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn save_template(&self, name: &str, request: &SaveTemplate) -> Result<api::Template, DaemonError> {
        let entry = self.entry(name)?;
        absolute(&request.directory)?;
        template::save(&entry.template, &request.directory, &self.hardware()?.kvm)?;
        Ok(entry.show(name))
    }

    /// Shows one.
    ///
    /// # Errors
    /// [`DaemonError::Unknown`].
    pub fn template(&self, name: &str) -> Result<api::Template, DaemonError> {
        Ok(self.entry(name)?.show(name))
    }

    /// Shows all.
    pub fn templates(&self) -> Vec<api::Template> {
        self.lock().templates.iter().map(|(name, entry)| entry.show(name)).collect()
    }

    /// Forgets one that has no clones.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn remove_template(&self, name: &str) -> Result<(), DaemonError> {
        let mut state = self.lock();
        let unknown = || DaemonError::Unknown { kind: "template", name: name.into() };
        let entry = state.templates.get(name).cloned().ok_or_else(unknown)?;
        let alive = entry.alive.load(Ordering::Acquire);
        if alive > 0 {
            let s = if alive == 1 { "" } else { "s" };
            return Err(DaemonError::Conflict(format!(
                "template {name} has {alive} clone{s}: remove what it has first"
            )));
        }
        state.templates.remove(name);
        let shape = entry.shape();
        if state.templates.values().all(|other| other.shape() != shape) {
            self.hardware()?.pools.keep(shape, 0);
        }
        Ok(())
    }
}

impl Entry {
    pub(super) fn shape(&self) -> Shape {
        self.template.frozen.state.shape
    }

    /// Bytes of memory that it takes.
    pub(super) fn resident(&self) -> u64 {
        let frozen = &self.template.frozen;
        let files = [Some(&frozen.ram), frozen.disk.as_ref().map(|disk| &disk.overlay)];
        let blocks = |file| rustix::fs::fstat(file).map_or(0, |stat| stat.st_blocks.unsigned_abs());
        files.into_iter().flatten().map(blocks).sum::<u64>() * 512
    }

    fn show(&self, name: &str) -> api::Template {
        api::Template {
            name: name.into(),
            shape: self.shape(),
            created_s: self.template.created_s,
            clones_made: self.template.quota.made(),
            clones_alive: self.alive.load(Ordering::Relaxed),
            max_clones: self.template.quota.max(),
            resident_bytes: self.resident(),
            boot_ns: self.boot_ns,
        }
    }
}

fn absolute(path: &Path) -> Result<(), DaemonError> {
    if path.is_absolute() {
        Ok(())
    } else {
        Err(DaemonError::Invalid(format!("{} is not an absolute path", path.display())))
    }
}

/// A guest that doesn't fit would be killed in the middle, or something else would.
fn enough_memory(shape: &Shape) -> Result<(), DaemonError> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let asked = u64::from(shape.memory_mib);
    match available.map(|kib| kib / 1024) {
        Some(available) if asked > available => Err(DaemonError::Memory { asked, available }),
        _ => Ok(()),
    }
}
