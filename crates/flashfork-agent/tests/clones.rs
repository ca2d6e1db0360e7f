//! Clones of the default guest in flashfork's monitor, under nested KVM in the lab: each becomes one of
//! its own before it says that it is alive.

mod common;

use std::{
	collections::HashSet,
	fs::{self, File},
	io::Write,
	path::Path,
	process::Command,
	time::Duration,
};

use flashfork_image::Tree;
use flashfork_lab::{Collected, GuestFile, Kernel, Lab, Options, Status};

const CLONES: usize = 3;

/// Runs in each clone after entropy and clock, and ends it.
const HOOK: &str = r#"#!/bin/sh
echo report $FLASHFORK_CLONE $FLASHFORK_INDEX $FLASHFORK_GENERATION $(cat /proc/sys/kernel/random/uuid) $(date +%s) \
    $(cat /proc/sys/kernel/random/boot_id) >/dev/ttyS0
exec /run/flashfork/agent signal done
"#;

#[test]
fn random_numbers_differ_between_siblings_and_the_wall_clock_is_right() {
	let dir = tempfile::tempdir().unwrap();
	let guest = common::guest();
	let mut hook = Tree::new();
	hook.add_bytes("/etc/flashfork/clone.d/50-report", HOOK.as_bytes().to_vec(), 0o755);
	let mut archive = File::options().create_new(true).read(true).write(true).open(dir.path().join("hook")).unwrap();
	hook.write(&mut archive).unwrap();
	// The kernel unpacks archives that follow each other.
	let initramfs = dir.path().join("initramfs");
	fs::copy(&guest.initramfs, &initramfs).unwrap();
	File::options()
		.append(true)
		.open(&initramfs)
		.unwrap()
		.write_all(&fs::read(dir.path().join("hook")).unwrap())
		.unwrap();

	let file = |host: &Path, name: &str| GuestFile { host: host.to_owned(), guest: Path::new("/guest").join(name) };
	let options = Options {
		kernel: Kernel::Debian6_12,
		memory_mib: 2048,
		nested_kvm: true,
		files: vec![file(&monitor(), "linux"), file(&guest.kernel, "vmlinuz"), file(&initramfs, "initramfs")],
		timeout: Duration::from_secs(1200),
		..Options::default()
	};
	let command = format!(
		"date +%s; /guest/linux /guest/vmlinuz /guest/initramfs 256 1 {CLONES} \
         'nowatchdog quiet flashfork.serve=vsock flashfork.ready=fork'; date +%s"
	);
	let mut output = Collected::default();
	let lab = Lab::new(common::cache()).unwrap();
	let outcome = lab.run(&options, &["sh", "-c", &command], &mut output).unwrap();
	let text = String::from_utf8_lossy(&output.stdout).into_owned();
	assert_eq!(outcome.status, Status::Exited(0), "{text}");

	let number = |line: Option<&str>| line.and_then(|line| line.trim().parse::<u64>().ok());
	let (start, end) = (number(text.lines().next()).unwrap(), number(text.lines().last()).unwrap());
	let reports: Vec<Vec<&str>> =
		text.lines().filter_map(|line| line.strip_prefix("report ")).map(|line| line.split(' ').collect()).collect();
	assert_eq!(reports.len(), CLONES, "{text}");
	let mut seen = HashSet::new();
	for (index, report) in reports.iter().enumerate() {
		let [name, number, generation, uuid, seconds, boot] = report[..] else { panic!("{report:?}") };
		assert_eq!((name, number), (&*format!("clone{index}"), &*index.to_string()));
		assert!(seen.insert(generation) && seen.insert(uuid), "{text}");
		assert!((start..=end).contains(&seconds.parse().unwrap()), "{text}");
		assert_eq!(boot.trim(), reports[0][5].trim(), "{text}");
	}
}

/// The monitor's example that boots a guest, freezes it at its fork signal, and runs clones.
fn monitor() -> std::path::PathBuf {
	let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
	// Of the workspace, so that nothing is compiled again with other features.
	let built = Command::new(cargo).args(["build", "-q", "--workspace", "--example", "linux"]).status().unwrap();
	assert!(built.success());
	// target/debug/deps/THIS
	let directory = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
	directory.join("examples/linux")
}
