//! The guest that needs no image of the user's: Debian's cloud kernel and an initramfs with busybox,
//! the modules for the monitor's devices, and the agent as its init.

use std::{
	fs,
	hash::{DefaultHasher, Hash, Hasher},
	os::unix::fs::PermissionsExt,
	path::{Path, PathBuf},
	time::{Duration, SystemTime},
};

use tempfile::Builder;

use crate::{ImageError, KernelFiles, Module, Tree};

/// The series whose cloud kernel guests run: the first of Debian's with VMGENID.
pub const SERIES: &str = "6.12";

/// The guest's command line: its console, an end when it panics or restarts (Linux asks EFI for that, where ACPI is of
/// the reduced kind), kvmclock (a clone's TSC says nothing of the time), the agent. `flashfork.ready=fork` added, it
/// gives the fork signal once the agent is up.
pub const CMDLINE: &str = "console=ttyS0 quiet panic=-1 reboot=acpi,force clocksource=kvm-clock flashfork.serve=vsock";

/// Where the agent is in the guest.
pub const AGENT: &str = "/usr/bin/flashfork-agent";

/// What the monitor's devices, the agent's socket and a root disk need, unless it is built in.
pub const MODULES: [&str; 6] =
	["virtio_mmio", "virtio_blk", "virtio_rng", "vmw_vsock_virtio_transport", "vmgenid", "overlay"];

/// How long an initramfs is kept for which there is a newer one.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// What a guest boots from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
	/// The bzImage.
	pub kernel: PathBuf,
	/// The initramfs.
	pub initramfs: PathBuf,
}

/// The guest with the agent at `agent`, a static program. Kernel and initramfs are made once and kept
/// in the directory `cache`, which may be deleted at any time when nothing boots from it.
pub fn default_guest(cache: &Path, agent: &Path, progress: &mut dyn FnMut(&str)) -> Result<Guest, ImageError> {
	fs::create_dir_all(cache).map_err(ImageError::io("cannot create", cache))?;
	let kernel = KernelFiles::debian(SERIES, cache, progress)?;
	let modules = kernel.load_order(&MODULES)?;
	let mut tree = Tree::new();
	let key = fill(&mut tree, agent, &modules)?;
	let initramfs = cache.join(format!("guest-{key:016x}.cpio"));
	if initramfs.is_file() {
		// In use. Who may not say so doesn't own the cache, and cleans it neither.
		let _ = fs::File::options().append(true).open(&initramfs).and_then(|file| file.set_modified(SystemTime::now()));
	} else {
		write(&tree, &initramfs, cache)?;
		remove_old(cache, &initramfs);
	}
	Ok(Guest { kernel: kernel.image, initramfs })
}

/// Puts everything into `tree` and returns a number that changes with any of it.
fn fill(tree: &mut Tree, agent: &Path, modules: &[Module]) -> Result<u64, ImageError> {
	let program = fs::read(agent).map_err(ImageError::io("cannot read the guest agent", agent))?;
	let mut key = DefaultHasher::new();
	(env!("CARGO_PKG_VERSION"), &program).hash(&mut key);

	for dir in ["/dev", "/proc", "/sys", "/run", "/root", "/etc/flashfork/clone.d", "/var", "/mnt"] {
		tree.add_dir(dir, 0o755);
	}
	tree.add_dir("/tmp", 0o1777);
	tree.add_link("/var/tmp", "/tmp");
	tree.add_busybox()?;
	tree.add_bytes(AGENT, program, 0o755);
	tree.add_link("/init", AGENT);
	tree.add_text(
		"/etc/passwd",
		"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n".to_owned(),
	);
	tree.add_text("/etc/group", "root:x:0:\nnogroup:x:65534:\n".to_owned());
	tree.add_text("/etc/hosts", "127.0.0.1 localhost flashfork\n".to_owned());
	let mut order = String::new();
	for Module { name, content } in modules {
		(name, content).hash(&mut key);
		tree.add_bytes(&format!("/lib/flashfork/modules/{name}.ko"), content.clone(), 0o644);
		order += &format!("{name}\n");
	}
	tree.add_text("/lib/flashfork/modules/order", order);
	tree.size()?.hash(&mut key);
	Ok(key.finish())
}

/// Removes what earlier agents were packed into and nobody has used for a while. What can't be removed
/// only takes room.
fn remove_old(cache: &Path, new: &Path) {
	let old = |path: &Path| {
		let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
		let age = path.metadata().and_then(|found| found.modified()).ok().and_then(|time| time.elapsed().ok());
		path != new && name.starts_with("guest-") && name.ends_with(".cpio") && age.is_some_and(|age| age > KEPT)
	};
	for entry in cache.read_dir().into_iter().flatten().flatten() {
		if old(&entry.path()) {
			let _ = fs::remove_file(entry.path());
		}
	}
}

/// Writes `tree` to `path` in one step, whoever else does the same.
fn write(tree: &Tree, path: &Path, cache: &Path) -> Result<(), ImageError> {
	// Not a temporary file's own permissions: another user's shell may boot from it.
	let mut work = Builder::new()
		.permissions(fs::Permissions::from_mode(0o644))
		.tempfile_in(cache)
		.map_err(ImageError::io("cannot create a file in", cache))?;
	tree.write(work.as_file_mut())?;
	work.persist(path).map_err(|error| ImageError::io("cannot create", path)(error.error))?;
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn an_initramfs_of_an_earlier_agent_goes_after_a_day() {
		let cache = tempfile::tempdir().unwrap();
		let file = |name: &str, days: u64| {
			let path = cache.path().join(name);
			let file = fs::File::create(&path).unwrap();
			file.set_modified(SystemTime::now() - Duration::from_secs(days * 24 * 3600 + 60)).unwrap();
			path
		};
		let [new, old, fresh, other] =
			[("guest-1.cpio", 9), ("guest-2.cpio", 1), ("guest-3.cpio", 0), ("vmlinuz-2", 9)].map(|(n, d)| file(n, d));
		remove_old(cache.path(), &new);
		assert_eq!([new, old, fresh, other].map(|path| path.exists()), [true, false, true, true]);
	}
}
