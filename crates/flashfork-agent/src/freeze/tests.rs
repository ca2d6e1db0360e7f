use super::*;
use std::{
	io::Write,
	process::{Child, Command, Stdio},
};

/// A cgroup of the test's own, or none on a host where it can't be made.
fn base() -> Option<PathBuf> {
	let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
	let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
	let base = Path::new(mount).join(format!("flashfork-test-{}", std::process::id()));
	fs::create_dir(&base).inspect_err(|error| eprintln!("skipped: {}: {error}", base.display())).ok()?;
	Some(base)
}

/// A shell that begins in a cgroup: nothing that it makes is elsewhere.
fn in_cgroup(cgroup: &Path, script: &str) -> Child {
	let script = format!("read go; {script}");
	let mut child = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
	join(cgroup, child.id()).unwrap();
	child.stdin.take().unwrap().write_all(b"go\n").unwrap();
	child
}

fn length(file: &Path) -> u64 {
	fs::metadata(file).map_or(0, |file| file.len())
}

fn grows(file: &Path) {
	let (before, start) = (length(file), Instant::now());
	while length(file) == before {
		assert!(start.elapsed() < Duration::from_secs(600), "{} stands still", file.display());
		thread::sleep(AGAIN);
	}
}

#[test]
fn processes_stand_still_wherever_they_are_and_go_on_where_they_were() {
	let Some(base) = base() else { return };
	let dir = tempfile::tempdir().unwrap();
	let (one, two, own) = (dir.path().join("one"), dir.path().join("two"), dir.path().join("own"));
	let sub = base.join("sub");
	fs::create_dir(&sub).unwrap();
	// Each line by its own process; the third makes none, which would be frozen.
	let writes = |file: &Path| format!("while :; do (echo >>{}); done", file.display());
	let alone = format!("while :; do echo >>{}; done", own.display());
	let mut children = [in_cgroup(&base, &writes(&one)), in_cgroup(&sub, &writes(&two)), in_cgroup(&base, &alone)];
	let cgroups = Cgroups { root: base.clone(), _mount: None };
	let others = freeze(cgroups, base.clone(), children[2].id());
	let others = others.unwrap();
	let before = [length(&one), length(&two)];
	grows(&own);
	thread::sleep(Duration::from_millis(50));
	grows(&own);
	assert_eq!([length(&one), length(&two)], before);
	others.undo(children[2].id()).unwrap();
	[&one, &two].into_iter().for_each(|file| grows(file));
	assert!(!base.join(PLACE).exists());
	assert!(processes(&base).unwrap().contains(&children[0].id()));
	for child in &mut children {
		child.kill().unwrap();
		// Another test's reaper may have its status.
		let _ = child.wait();
	}
	// What they were just running ends a moment later.
	for cgroup in [&sub, &base] {
		while fs::remove_dir(cgroup).is_err() {
			thread::sleep(AGAIN);
		}
	}
}

#[test]
fn kernel_threads_are_told_from_processes() {
	// In a container's processes there is none.
	let comm = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
	assert_eq!(is_kernel_thread(2), comm.trim() == "kthreadd", "{comm}");
	assert!(!is_kernel_thread(std::process::id()) && !is_kernel_thread(0));
}
