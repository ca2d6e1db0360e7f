//! Makes the guest's root: busybox, the init, the caller's files, the command; as an initramfs.

mod script;

use std::{ffi::OsStr, fs::File, os::unix::ffi::OsStrExt, path::Path};

use flashfork_image::{GuestFile, KernelFiles, Tree};

use crate::{LabError, Options};

/// PID 1 of the guest.
const INIT: &[u8] = include_bytes!("../guest/init.sh");
/// Puts itself into the command's cgroup and becomes the command's user.
const ENTER: &[u8] = include_bytes!("../guest/enter.sh");

/// Memory the kernel needs beside the root, in MiB: Debian's boots with 96, a custom one with less.
const KERNEL_MIB: u64 = 96;

/// The initramfs for `command` under `options`, in an unnamed file in `scratch`.
pub(crate) fn build<S: AsRef<OsStr>>(
	options: &Options,
	kernel: &KernelFiles,
	command: &[S],
	scratch: &Path,
) -> Result<File, LabError> {
	let command: Vec<&OsStr> = command.iter().map(AsRef::as_ref).collect();
	let Some(program) = command.first() else {
		return Err(LabError::Options { message: "no command to run in the guest".to_owned() });
	};
	let mut tree = Tree::new();
	add_system(&mut tree)?;
	for file in &options.files {
		tree.add_from_host(file)?;
	}
	add_program(&mut tree, program)?;
	tree.add_libraries()?;

	let modules = kernel.load_order(&wanted_modules(options))?;
	tree.add_text("/lab/config", script::config(options, &modules));
	for module in modules {
		tree.add_bytes(&format!("/lab/modules/{}.ko", module.name), module.content, 0o644);
	}
	tree.add_bytes("/lab/command", script::command(options, &command)?, 0o755);
	add_users(&mut tree, options.user);

	let size_mib = tree.size()? >> 20;
	// The archive and what is unpacked from it are both in memory for a moment, and the unpacked
	// root may take no more than half of it.
	let needed_mib = 2 * size_mib + KERNEL_MIB;
	if needed_mib > u64::from(options.memory_mib) {
		return Err(LabError::RootTooLarge { root_mib: size_mib, needed_mib, memory_mib: options.memory_mib });
	}
	let mut image = tempfile::tempfile_in(scratch).map_err(LabError::io("cannot create a file in", scratch))?;
	tree.write(&mut image)?;
	Ok(image)
}

/// Directories, busybox and its applets, the lab's own scripts.
fn add_system(tree: &mut Tree) -> Result<(), LabError> {
	for dir in ["/dev", "/proc", "/sys", "/run", "/root", "/etc", "/var"] {
		tree.add_dir(dir, 0o755);
	}
	tree.add_dir("/tmp", 0o1777);
	tree.add_link("/var/tmp", "/tmp");
	tree.add_busybox()?;
	tree.add_bytes("/init", INIT.to_vec(), 0o755);
	tree.add_bytes("/lab/enter", ENTER.to_vec(), 0o755);
	Ok(())
}

/// A command given as a path of the host comes along, unless the root has something there already.
fn add_program(tree: &mut Tree, program: &OsStr) -> Result<(), LabError> {
	let path = Path::new(program);
	if !program.as_bytes().contains(&b'/') || !path.is_file() {
		return Ok(());
	}
	let file = GuestFile::at_same_path(path).map_err(LabError::io("cannot find", path))?;
	if tree.contains(&file.guest) {
		return Ok(());
	}
	tree.add_from_host(&file)?;
	Ok(())
}

fn add_users(tree: &mut Tree, user: Option<u32>) {
	let mut passwd = "root:x:0:0:root:/root:/bin/sh\n".to_owned();
	let mut group = "root:x:0:\n".to_owned();
	if let Some(id) = user.filter(|id| *id != 0) {
		passwd += &format!("{0}:x:{id}:{id}::/tmp:/bin/sh\n", script::USER_NAME);
		group += &format!("{0}:x:{id}:\n", script::USER_NAME);
	}
	tree.add_text("/etc/passwd", passwd);
	tree.add_text("/etc/group", group);
	tree.add_text("/etc/hosts", "127.0.0.1 localhost lab\n".to_owned());
}

/// Modules the options need, unless they are built in.
fn wanted_modules(options: &Options) -> Vec<&'static str> {
	let mut wanted = Vec::new();
	if options.swap_mib > 0 {
		wanted.extend(["virtio_pci", "virtio_blk"]);
	}
	if options.nested_kvm {
		wanted.push("kvm_amd");
	}
	wanted
}

#[cfg(test)]
mod tests {
	use super::*;

	fn no_modules() -> KernelFiles {
		KernelFiles { image: "/nonexistent".into(), modules: None }
	}

	#[test]
	fn a_root_larger_than_memory_is_refused_before_the_boot() {
		let dir = tempfile::tempdir().unwrap();
		let big = dir.path().join("big");
		File::create(&big).unwrap().set_len(100 << 20).unwrap();
		let options =
			Options { memory_mib: 256, files: vec![GuestFile::at_same_path(&big).unwrap()], ..Options::default() };
		let error = build(&options, &no_modules(), &["true"], dir.path()).unwrap_err();
		assert!(
			matches!(error, LabError::RootTooLarge { root_mib, memory_mib: 256, .. } if root_mib >= 100),
			"{error}"
		);
	}

	#[test]
	fn a_command_is_needed() {
		let dir = tempfile::tempdir().unwrap();
		let error = build::<&str>(&Options::default(), &no_modules(), &[], dir.path()).unwrap_err();
		assert!(matches!(error, LabError::Options { .. }), "{error}");
	}

	#[test]
	fn a_program_of_the_host_comes_along_but_never_replaces_the_shell() {
		let mut tree = Tree::new();
		add_system(&mut tree).unwrap();
		add_program(&mut tree, OsStr::new("/bin/sh")).unwrap();
		assert!(tree.is_link(Path::new("/bin/sh")));
		add_program(&mut tree, OsStr::new("/bin/bash")).unwrap();
		assert!(tree.contains(Path::new("/usr/bin/bash")));
	}
}
