//! Disks: ext4 images made of a directory, by mkfs.ext4 (e2fsprogs), without root or a mount.

use std::{
	fs,
	os::unix::fs::{MetadataExt, PermissionsExt},
	path::Path,
};

use tempfile::NamedTempFile;

use crate::{ImageError, host::MKFS};

/// Room for what clones write, in bytes. The image is sparse: it costs nothing until used.
const FREE: u64 = 512 << 20;

const BLOCK: u64 = 4096;
const INODE: u64 = 256;

/// What a file system takes that has nothing in it, beside its inodes.
const EMPTY: u64 = 1 << 20;

/// What is in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Content {
	entries: u64,
	bytes: u64,
}

/// Makes `image`, a file that does not exist yet, an ext4 file system with all that is in
/// `directory`: owners, permissions and links included. It has half a gigabyte of room, or, with
/// `size_mib`, that size in all.
///
/// It has no journal: a template's disk is captured together with its memory, and a clone's lives no
/// longer than the clone.
///
/// # Errors
/// See [`ImageError`]; nothing is left behind then.
pub fn from_dir(directory: &Path, image: &Path, size_mib: Option<u64>) -> Result<(), ImageError> {
	if image.symlink_metadata().is_ok() {
		return Err(ImageError::Exists { path: image.to_owned() });
	}
	let directory = directory.canonicalize().map_err(ImageError::io("cannot find", directory))?;
	let mut content = Content::default();
	measure(&directory, &mut content)?;
	let inodes = content.entries + content.entries / 8 + 4096;
	// A sixteenth for what the file system needs of its own.
	let needed = content.bytes + content.bytes / 16 + inodes * INODE + EMPTY;
	let size = size_mib.map_or(needed + FREE, |mib| mib << 20);

	let parent = image.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
	let work = NamedTempFile::new_in(parent).map_err(ImageError::io("cannot create a file in", parent))?;
	let mut mkfs = MKFS.command();
	// Not in an ordinary user's PATH.
	mkfs.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
	mkfs.args(["-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=0,root_owner=0:0", "-N"])
		.arg(inodes.to_string())
		.arg("-d")
		.arg(&directory)
		.arg(work.path())
		.arg(format!("{}k", size.div_ceil(BLOCK) * BLOCK / 1024));
	if let Err(error) = MKFS.success(&mut mkfs) {
		return Err(match size_mib.filter(|_| size < needed) {
			Some(given) => ImageError::TooSmall { directory, given, needed: needed.div_ceil(1 << 20) },
			None => error,
		});
	}
	let file = work.persist_noclobber(image).map_err(|error| ImageError::io("cannot create", image)(error.error))?;
	// Temporary files are for their owner alone; an image has no secrets that its directory hasn't.
	file.set_permissions(fs::Permissions::from_mode(0o644))
		.map_err(ImageError::io("cannot change the permissions of", image))
}

fn measure(directory: &Path, content: &mut Content) -> Result<(), ImageError> {
	for entry in directory.read_dir().map_err(ImageError::io("cannot list", directory))? {
		let path = entry.map_err(ImageError::io("cannot list", directory))?.path();
		let metadata = path.symlink_metadata().map_err(ImageError::io("cannot read", &path))?;
		content.entries += 1;
		// Sparse files are copied sparse; a directory and a link take a block at most, mostly.
		content.bytes += (metadata.blocks() * 512).min(metadata.len()).next_multiple_of(BLOCK) + BLOCK;
		if metadata.is_dir() {
			measure(&path, content)?;
		}
	}
	Ok(())
}

#[cfg(test)]
mod tests;
