//! What a fork server is started with, in one directory: kernel, initramfs, seeds, the library that forks QEMU, and the
//! script that starts it, which afl-fuzz can start, too.

use std::{
	fs::{self, File, Permissions},
	os::unix::fs::PermissionsExt,
};

use flashfork_image::{KernelFiles, Tree, guest::SERIES};

use super::seeds;
use crate::{
	prelude::*,
	subjects::{command::cc, vm_host::vm},
};

/// What is compiled: its name, source and options.
const PROGRAMS: [(&str, &str, [&str; 3]); 2] = [
	("fork_server", include_str!("../../../../fuzz-target/fork_server.c"), ["-O2", "-shared", "-fPIC"]),
	("guest", include_str!("../../../../fuzz-target/guest.c"), ["-O2", "-static", "-s"]),
];

/// What the guest's kernel has for itself; the rest of its memory the guest fills.
const OF_KERNEL: u64 = 192 << 20;
/// Where the guest's driver looks for its input (guest.c).
const INPUT: u64 = 96;

/// Makes everything in `dir`, unless it is there already; the kernel is downloaded, if need be.
pub fn make(dir: &Path, size: u64, run: &mut Run) -> Result {
	if size <= OF_KERNEL {
		return Err(unable!("Linux in QEMU needs more memory: --size 256M or more"));
	}
	let (script, start) = (dir.join("qemu"), start(size));
	let is = |file: &Path, text: &str| fs::read(file).is_ok_and(|there| there == text.as_bytes());
	let source = |name: &str| dir.join(name).with_extension("c");
	// The script is written last: what was interrupted has none.
	if is(&script, &start) && PROGRAMS.iter().all(|(name, text, _)| is(&source(name), text)) {
		return Ok(());
	}
	let doing = format!("write into {}", dir.display());
	run.begin("QEMU's fork server and the guest's kernel", 1);
	fs::create_dir_all(dir.join("seeds")).or_cant(&doing)?;
	for (name, text, options) in PROGRAMS {
		fs::write(source(name), text).or_cant(&doing)?;
		cc(&options, &source(name), &dir.join(name))?;
	}
	let inputs = seeds::all();
	for (number, input) in inputs.iter().enumerate() {
		fs::write(dir.join("seeds").join(number.to_string()), input).or_cant(&doing)?;
	}
	let cache = run.here.cache("lab")?;
	fs::create_dir_all(&cache).or_cant(&doing)?;
	let kernel = KernelFiles::debian(SERIES, &cache, &mut |line| run.progress.note(line)).map_err(vm)?;
	fs::copy(&kernel.image, dir.join("kernel")).or_cant(&doing)?;
	let mut tree = Tree::new();
	tree.add_bytes("/init", fs::read(dir.join("guest")).or_cant(&doing)?, 0o755);
	tree.add_bytes("/seeds", inputs.concat(), 0o644);
	tree.write(&mut File::create(dir.join("initramfs")).or_cant(&doing)?).map_err(vm)?;
	fs::write(&script, start).or_cant(&doing)?;
	fs::set_permissions(&script, Permissions::from_mode(0o755)).or_cant(&doing)?;
	run.step();
	Ok(())
}

/// The script. The library is a plugin, too, where AFL wants to know of edges.
fn start(size: u64) -> String {
	let (megabytes, fill) = (size >> 20, (size - OF_KERNEL) >> 20);
	format!(
		"#!/bin/sh
cd \"${{0%/*}}\" || exit
[ -z \"$__AFL_SHM_ID\" ] || set -- -plugin ./fork_server
export LD_PRELOAD=\"${{LD_PRELOAD:+$LD_PRELOAD:}}./fork_server\"
exec qemu-system-x86_64 -accel tcg,thread=single -cpu max -m {megabytes}M -machine pc,mem-merge=off -nodefaults \\
	-no-user-config -display none -no-reboot -chardev file,id=console,path=/dev/stderr,append=on -serial chardev:console \\
	-chardev stdio,id=port,signal=off -device isa-debugcon,chardev=port -kernel kernel -initrd initramfs \\
	-append 'console=ttyS0 quiet panic=-1 oops=panic nokaslr memmap=128K${INPUT}M fill={fill}' \"$@\"
"
	)
}
