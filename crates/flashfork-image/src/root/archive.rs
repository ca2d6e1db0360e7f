//! Writes a root as the archive the kernel unpacks at boot
//! (Documentation/driver-api/early-userspace/buffer-format.rst): cpio, "newc", not compressed.

use std::{
	fs::File,
	io::{self, BufWriter, Write},
	os::unix::ffi::OsStrExt,
	path::Path,
};

use cpio::newc::{Builder, ModeFileType, trailer};

use super::tree::{Node, Tree};
use crate::ImageError;

/// Writes all of `tree` to `out`.
pub fn write(tree: &Tree, out: &mut File) -> Result<(), ImageError> {
	let mut out = BufWriter::with_capacity(1 << 20, out);
	for (inode, (path, node)) in (1..).zip(tree.entries()) {
		let name = path
			.to_str()
			.ok_or_else(|| ImageError::Unfit { path: path.to_owned(), reason: "its name is not UTF-8" })?;
		let entry = |kind, mode: &u32| Builder::new(name).ino(inode).nlink(1).mode(*mode).set_mode_file_type(kind);
		let (written, path) = match node {
			Node::Dir(mode) => (append(&mut out, entry(ModeFileType::Directory, mode), &[]), path),
			Node::Bytes(content, mode) => (append(&mut out, entry(ModeFileType::Regular, mode), content), path),
			Node::Link(target) => (append(&mut out, entry(ModeFileType::Symlink, &0o777), target.as_bytes()), path),
			Node::HostFile(host, mode) => (copy(&mut out, entry(ModeFileType::Regular, mode), host), host.as_path()),
		};
		written.map_err(ImageError::io("cannot archive", path))?;
	}
	trailer(&mut out).and_then(|out| out.flush()).map_err(ImageError::io("cannot archive", Path::new("/")))
}

fn append(out: &mut impl Write, entry: Builder, content: &[u8]) -> io::Result<()> {
	let mut writer = entry.write(out, length(content.len() as u64)?);
	writer.write_all(content)?;
	writer.finish().map(drop)
}

fn copy(out: &mut impl Write, entry: Builder, host: &Path) -> io::Result<()> {
	let mut file = File::open(host)?;
	let mut writer = entry.write(out, length(file.metadata()?.len())?);
	io::copy(&mut file, &mut writer)?;
	writer.finish().map(drop)
}

/// The format has 32 bits for a file's size.
fn length(bytes: u64) -> io::Result<u32> {
	u32::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

#[cfg(test)]
mod tests {
	use super::*;
	use cpio::newc::Reader;
	use std::io::{Read, Seek};

	#[test]
	fn the_archive_reads_back() {
		let mut tree = Tree::new();
		tree.add_bytes("/data/bytes", vec![0, 13, 10, 255], 0o640);
		tree.add_link("/data/link", "bytes");
		let mut file = tempfile::tempfile().unwrap();
		write(&tree, &mut file).unwrap();
		file.rewind().unwrap();

		let mut found = Vec::new();
		loop {
			let mut reader = Reader::new(file).unwrap();
			if reader.entry().is_trailer() {
				break;
			}
			let mut content = Vec::new();
			reader.read_to_end(&mut content).unwrap();
			found.push((reader.entry().name().to_owned(), reader.entry().mode(), content));
			file = reader.finish().unwrap();
		}
		assert!(found.contains(&("data".into(), 0o040_755, vec![])));
		assert!(found.contains(&("data/bytes".into(), 0o100_640, vec![0, 13, 10, 255])));
		assert!(found.contains(&("data/link".into(), 0o120_777, b"bytes".to_vec())));
	}
}
