use super::*;
use flashfork_proto::agent::Exit;

fn hook(directory: &Path, name: &str, script: &str) {
	let path = directory.join(name);
	fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
	fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

// One test, since a process has one reaper.
#[test]
fn hooks_run_in_order_know_their_clone_and_end() {
	let reaper = Reaper::start().unwrap();
	let identity = CloneIdentity { name: "web-3".into(), index: 3, generation: [0xab; 16], job: b"j\0x".to_vec() };
	let directory = tempfile::tempdir().unwrap();
	let at = directory.path();
	hook(at, "20-fails", "echo one; echo two >&2; exit 7");
	hook(at, "10-says", "echo $FLASHFORK_CLONE $FLASHFORK_INDEX $FLASHFORK_GENERATION $FLASHFORK_JOB");
	hook(at, "30-hangs", "sleep 1000 & sleep 1000");
	hook(at, "40-leaves-a-child", "sleep 12 & echo done");
	fs::write(at.join("50-no-program"), "").unwrap();
	fs::write(at.join("60-no-interpreter"), "#!/nonexistent\n").unwrap();
	fs::set_permissions(at.join("60-no-interpreter"), fs::Permissions::from_mode(0o755)).unwrap();
	let runs = run_in(at, &identity, &reaper, Duration::from_secs(6));
	let brief: Vec<_> = runs.iter().map(|run| (run.name.as_str(), run.exit, run.message.as_str())).collect();
	let said = format!("web-3 3 {} j", "ab".repeat(16));
	assert_eq!(
		brief[..4],
		[
			("10-says", Some(Exit::Code(0)), said.as_str()),
			("20-fails", Some(Exit::Code(7)), "two"),
			(
				"30-hangs",
				None,
				"killed after 6 s (the template's processes stand still until all hooks have run: a hook can't wait for one)"
			),
			("40-leaves-a-child", Some(Exit::Code(0)), "done"),
		]
	);
	assert_eq!((brief.len(), brief[4].0, brief[4].1), (5, "60-no-interpreter", None));
	assert_eq!(run_in(Path::new("/nonexistent"), &identity, &reaper, TIMEOUT), []);
}
