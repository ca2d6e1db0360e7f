//! Debian's kernel on the monitor's disk and vsock, under nested KVM in the lab: an ext4 file system that a template
//! has mounted goes on in clones, each for itself.

use flashfork_image::guest::default_guest;
use flashfork_lab::{Collected, GuestFile, Kernel, Lab, Options, Status};
use std::{
	fs::File,
	path::{Path, PathBuf},
	process::Command,
	time::Duration,
};

/// What each step shows; see `examples/disk.rs`.
const EXPECTED: &[&str] = &[
	"template: example1",
	"template: of the template",
	"template: later",
	"clone: of the template",
	"clone: 64+0 records out",
	"clone: of the template",
	"clone: of clone 0",
	"clone: of the template",
	"clone: 64+0 records out",
	"clone: of the template",
	"clone: of clone 1",
	"again: of the template",
	"again: of clone 0",
	"again: of the template",
	"again: of clone 1",
	"written: true",
	"old stream: dead",
	"rolled back: of the template",
	"rolled back: file",
	"rolled back: lost+found",
	"rolled back: 1",
	"rolled back: 0",
	"again and again: 1",
	"again and again: 1",
	"again and again: 1",
	"again and again: 1",
	"rolled back: of the template",
	"rolled back: 0",
	"done",
];

#[test]
fn a_mounted_ext4_disk_goes_on_in_clones_each_for_itself_and_is_driven_through_vsock() {
	let dir = tempfile::tempdir().unwrap();
	let cache = cache();
	let guest = default_guest(&cache, &agent(), &mut |line| eprintln!("{line}")).unwrap();
	let image = dir.path().join("image");
	File::create(&image).unwrap().set_len(32 << 20).unwrap();
	assert!(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status().unwrap().success());

	let file = |host: &Path, name: &str| GuestFile { host: host.to_owned(), guest: Path::new("/guest").join(name) };
	let options = Options {
		kernel: Kernel::Debian6_12,
		memory_mib: 2048,
		nested_kvm: true,
		files: vec![
			file(&example(), "disk"),
			file(&guest.kernel, "vmlinuz"),
			file(&guest.initramfs, "initramfs"),
			file(&image, "image"),
		],
		timeout: Duration::from_secs(500),
		..Options::default()
	};
	let mut output = Collected::default();
	let words = ["/guest/disk", "/guest/vmlinuz", "/guest/initramfs", "/guest/image"];
	let outcome = Lab::new(&cache).unwrap().run(&options, &words, &mut output).unwrap();
	let text = String::from_utf8_lossy(&output.stdout);
	let errors = String::from_utf8_lossy(&output.stderr);
	assert_eq!(outcome.status, Status::Exited(0), "{text}\n{errors}");
	assert_eq!(text.lines().collect::<Vec<_>>(), EXPECTED, "{errors}");
}

fn cache() -> PathBuf {
	flashfork_lab::cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")).expect("HOME is set")
}

/// The static agent of this tree, built if it isn't up to date.
fn agent() -> PathBuf {
	let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-agent");
	let built = Command::new(script).output().unwrap();
	assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
	String::from_utf8(built.stdout).unwrap().trim().into()
}

/// Built with the tests, beside their directory.
fn example() -> PathBuf {
	std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/disk")
}
