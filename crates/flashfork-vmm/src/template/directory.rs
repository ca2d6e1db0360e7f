//! A template in a directory: `manifest`, `ram`, and with a disk `disk` (the image) and `overlay` (what the template
//! wrote); of further ones `disk-1` and `overlay-1`, and so on.
//!
//! Checksums find damage, not malice: who can write to the directory can make a template of anything. It holds all the
//! guest's secrets, so only its owner may read it.

use super::{
	DirectoryError, Host, Template,
	manifest::{DiskSums, Manifest, Sum},
	sparse,
};
use crate::{
	devices::virtio::blk::{FrozenDisk, Seen, overlay_bytes},
	files,
	machine::Frozen,
	memory::{self, Layered},
	state::MachineState,
};
use flashfork::Headroom;
use flashfork_proto::shape::Pages;
use kvm_ioctls::Kvm;
use rustix::{
	fs::{FlockOperation, Mode, OFlags, flock, open},
	io::Errno,
	process::geteuid,
};
use std::{
	fs::{self, DirBuilder, File, OpenOptions},
	io::{self, Write},
	iter,
	ops::Range,
	os::{
		fd::{AsFd, BorrowedFd, OwnedFd},
		unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
	},
	path::{Path, PathBuf},
	sync::{Arc, Mutex, PoisonError},
};
use vm_memory::{Bytes, FileOffset, VolatileMemory, mmap::MmapRegion};

const MANIFEST: &str = "manifest";
const RAM: &str = "ram";
const IMAGE: &str = "disk";
const OVERLAY: &str = "overlay";
/// No manifest is longer: 8 vCPUs take some 120 KB.
const MAX_MANIFEST: u64 = 4 << 20;

/// Saves `template` to `directory`, which doesn't exist yet or is empty. It appears there complete or not at all; what
/// a save that was killed leaves beside it, the next one to the same directory removes.
pub fn save(template: &Template, directory: &Path, kvm: &Kvm) -> Result<(), DirectoryError> {
	let host = Host::this(kvm).map_err(DirectoryError::ThisHost)?;
	let empty = fs::read_dir(directory).map(|mut entries| entries.next().is_none());
	if fs::symlink_metadata(directory).is_ok() && !empty.unwrap_or(false) {
		return Err(DirectoryError::Exists(directory.to_owned()));
	}
	let draft = Draft::begin(directory)?;
	let Frozen { ram, disks, state } = &template.frozen;
	let mut sums = Vec::new();
	for (index, FrozenDisk { image, overlay, .. }) in disks.iter().enumerate() {
		let overlay = draft.put(&of_disk(OVERLAY, index), overlay.length(), overlay.ranges())?;
		sums.push(DiskSums { image: draft.put_whole(&of_disk(IMAGE, index), image)?, overlay });
	}
	// Before the copies were made, or while they were.
	template.frozen.check_images().map_err(DirectoryError::Disk)?;
	let manifest = Manifest {
		host,
		quota: template.quota.saved(),
		created_s: template.created_s,
		ram: draft.put(RAM, ram.length(), ram.ranges())?,
		disks: sums,
		state: state.encode().map_err(DirectoryError::Encode)?,
	};
	let bytes = manifest.encode().map_err(DirectoryError::Encode)?;
	draft.write(MANIFEST, |file| file.write_all(&bytes))?;
	draft.finish(directory)
}

/// Loads a template; its memory is checked and sealed. The disk's image stays open in the directory.
pub fn load(directory: &Path, kvm: &Kvm) -> Result<Template, DirectoryError> {
	let path = directory.join(MANIFEST);
	let manifest = read_small(&path).map_err(|cause| DirectoryError::Read { path: path.clone(), cause })?;
	let broken = |cause| DirectoryError::State { path: path.clone(), cause };
	let manifest = Manifest::decode(&manifest).map_err(broken)?;
	let state = MachineState::decode(&manifest.state).map_err(broken)?;
	Host::this(kvm).and_then(|host| host.check(&manifest.host)).map_err(DirectoryError::Host)?;
	let shape = state.shape;
	if manifest.ram.bytes != shape.memory_bytes() || manifest.disks.len() != state.disks().len() {
		return Err(DirectoryError::Damaged { path, why: "its parts don't belong together".into() });
	}
	let ram = get(&directory.join(RAM), &manifest.ram, "flashfork:vm", shape.pages)?;
	if shape.pages == Pages::Small {
		memory::collapse(&ram, shape.memory_bytes());
	}
	let mut disks = Vec::new();
	for (index, sums) in manifest.disks.iter().enumerate() {
		if sums.overlay.bytes != overlay_bytes(sums.image.bytes) {
			return Err(DirectoryError::Damaged { path, why: "its disk and overlay don't belong together".into() });
		}
		let at = directory.join(of_disk(IMAGE, index));
		let image = files::open(&at).map_err(|cause| DirectoryError::Read { path: at.clone(), cause })?;
		// From before it is read: what changes it then is noticed by the checksum, or later.
		let seen = Some(Arc::new(Seen::now(&at, &image).map_err(DirectoryError::Disk)?));
		let image = check(image, &at, &sums.image, |_, _| Ok(()))?.into();
		let overlay = directory.join(of_disk(OVERLAY, index));
		let overlay = get(&overlay, &sums.overlay, "flashfork:disk", Pages::Small)?;
		let overlay = Layered::single(overlay, sums.overlay.bytes);
		disks.push(FrozenDisk { image, overlay, attached: None, seen });
	}
	let ram = Layered::single(ram, shape.memory_bytes());
	let frozen = Frozen { ram, disks, state: Arc::new(state) };
	Ok(Template { frozen, quota: Arc::new(manifest.quota.into()), created_s: manifest.created_s })
}

fn of_disk(file: &str, index: usize) -> String {
	if index == 0 { file.to_owned() } else { format!("{file}-{index}") }
}

fn read_small(path: &Path) -> io::Result<Vec<u8>> {
	let file = files::open(path)?;
	let length = file.metadata()?.len();
	if length > MAX_MANIFEST {
		return Err(io::Error::new(io::ErrorKind::InvalidData, "too long for a manifest"));
	}
	let mut bytes = vec![0; length as usize];
	file.read_exact_at(&mut bytes, 0)?;
	Ok(bytes)
}

/// The file opened at `path`, if it is what was saved; `take` gets its content.
fn check(
	file: File,
	path: &Path,
	saved: &Sum,
	take: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<File, DirectoryError> {
	let failed = |cause| DirectoryError::Read { path: path.to_owned(), cause };
	let damaged = |why| DirectoryError::Damaged { path: path.to_owned(), why };
	let bytes = file.metadata().map_err(failed)?.len();
	if bytes != saved.bytes {
		return Err(damaged(format!("it has {bytes} bytes, {} were saved", saved.bytes)));
	}
	let sum = sparse::each_run(&file, bytes, take).map_err(failed)?;
	if sum != *saved { Err(damaged("its checksum is wrong".into())) } else { Ok(file) }
}

/// A sealed memory file with the content of the file at `path`.
fn get(path: &Path, saved: &Sum, name: &str, pages: Pages) -> Result<OwnedFd, DirectoryError> {
	let failed = |cause| DirectoryError::Read { path: path.to_owned(), cause };
	room(path).map_err(failed)??;
	let memory = memory::create(name, saved.bytes, pages)?;
	let file = File::from(memory.try_clone().map_err(failed)?);
	{
		// By mapping: files of 2 MB pages can't be written to.
		let region = MmapRegion::<()>::from_file(FileOffset::new(file, 0), saved.bytes as usize);
		let region = region.map_err(|e| failed(io::Error::other(e)))?;
		let slice = region.as_volatile_slice();
		let source = files::open(path).map_err(failed)?;
		check(source, path, saved, |at, run| slice.write_slice(run, at as usize).map_err(io::Error::other))?;
	}
	memory::seal(&memory)?;
	Ok(memory)
}

/// Whether what the file at `path` holds fits into memory: the kernel would take it, and then kill somebody.
fn room(path: &Path) -> io::Result<Result<(), DirectoryError>> {
	let need = (fs::metadata(path)?.blocks() * 512) >> 20;
	let Headroom { available, limit } = Headroom::now()?;
	let free = available >> 20;
	Ok(if need < free { Ok(()) } else { Err(DirectoryError::Room { need, free, limit }) })
}

/// Those that are being written.
static DRAFTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes what saves that are under way have written, when this process ends: they fail.
pub fn drop_drafts() {
	DRAFTS.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|draft| drop(fs::remove_dir_all(draft)));
}

/// A directory that is being written, beside the one it will be.
struct Draft {
	path: PathBuf,
	/// Locked, so that nobody else writes or removes it.
	_lock: File,
}

impl Draft {
	fn begin(directory: &Path) -> Result<Self, DirectoryError> {
		let (Some(name), Some(parent)) = (directory.file_name(), directory.parent()) else {
			return Err(DirectoryError::Name(directory.to_owned()));
		};
		let path = parent.join(format!(".{}.saving", name.to_string_lossy()));
		let failed = |cause| DirectoryError::Write { path: path.clone(), cause };
		match DirBuilder::new().mode(0o700).create(&path) {
			Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
			_ => {}
		}
		// In a place where others may write, somebody may have been there first: what we write there would be theirs to
		// read.
		let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
		let lock = match open(&path, flags, Mode::empty()) {
			Err(Errno::NOTDIR | Errno::LOOP) => return Err(DirectoryError::Foreign(path)),
			other => File::from(other.map_err(|e| failed(e.into()))?),
		};
		let found = lock.metadata().map_err(failed)?;
		if found.uid() != geteuid().as_raw() || found.mode() & 0o7777 != 0o700 {
			return Err(DirectoryError::Foreign(path));
		}
		match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
			Err(Errno::AGAIN) => return Err(DirectoryError::Busy(directory.to_owned())),
			other => other.map_err(|e| failed(e.into()))?,
		}
		DRAFTS.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
		for left in fs::read_dir(&path).map_err(failed)? {
			fs::remove_file(left.map_err(failed)?.path()).map_err(failed)?;
		}
		Ok(Self { path, _lock: lock })
	}

	fn write<T>(&self, name: &str, what: impl FnOnce(&mut File) -> io::Result<T>) -> Result<T, DirectoryError> {
		let path = self.path.join(name);
		let write = || {
			let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
			let result = what(&mut file)?;
			file.sync_all()?;
			Ok(result)
		};
		write().map_err(|cause| DirectoryError::Write { path: path.clone(), cause })
	}

	fn put<'a>(
		&self,
		name: &str,
		bytes: u64,
		from: impl Iterator<Item = (Range<u64>, BorrowedFd<'a>)>,
	) -> Result<Sum, DirectoryError> {
		self.write(name, |file| {
			file.set_len(bytes)?;
			sparse::each_run_of(from, |at, run| file.write_all_at(run, at))
		})
	}

	fn put_whole(&self, name: &str, from: &OwnedFd) -> Result<Sum, DirectoryError> {
		let bytes = rustix::fs::seek(from, rustix::fs::SeekFrom::End(0));
		let bytes = bytes.map_err(|e| DirectoryError::Write { path: self.path.join(name), cause: e.into() })?;
		self.put(name, bytes, iter::once((0..bytes, from.as_fd())))
	}

	fn finish(self, directory: &Path) -> Result<(), DirectoryError> {
		let sync = |path: &Path| File::open(path)?.sync_all();
		let renamed = sync(&self.path).and_then(|()| fs::rename(&self.path, directory));
		renamed.map_err(|cause| DirectoryError::Write { path: directory.to_owned(), cause })?;
		let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
		sync(parent).map_err(|cause| DirectoryError::Write { path: parent.to_owned(), cause })
	}
}

impl Drop for Draft {
	/// After [`Self::finish`] there is nothing left by this name.
	fn drop(&mut self) {
		let _ = fs::remove_dir_all(&self.path);
		DRAFTS.lock().unwrap_or_else(PoisonError::into_inner).retain(|draft| *draft != self.path);
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_is_being_saved_goes_when_the_daemon_ends() {
		let dir = tempfile::tempdir().unwrap();
		let draft = Draft::begin(&dir.path().join("saved")).unwrap();
		draft.write(RAM, |file| file.write_all(b"bytes")).unwrap();
		drop_drafts();
		assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
		draft.write(RAM, |file| file.write_all(b"bytes")).unwrap_err();
	}
}
