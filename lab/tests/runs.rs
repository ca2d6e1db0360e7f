//! A command's output and end arrive exactly as they were, from both of Debian's kernels.

mod common;

use std::fs;

use common::{run, shell, try_run};
use flashfork_lab::{GuestFile, ImageError, Kernel, LabError, Options, Phase, Status};

/// A file with every byte, a few line ends that a terminal would change, and more than any buffer
/// on the way holds.
fn bytes() -> Vec<u8> {
	let mut bytes: Vec<u8> = (0..=255).collect();
	bytes.extend_from_slice(b"\r\n\n\r\x03\x04\x11\x13\x1a\xff\xff\0");
	bytes.repeat(500)
}

/// Both streams whole and apart, the exit code, the environment, the arguments, the libraries of a
/// program of the host, and a leftover that must not keep the guest waiting.
fn everything(kernel: Kernel, release: &str) {
	let dir = tempfile::tempdir().unwrap();
	let file = dir.path().join("bytes");
	fs::write(&file, bytes()).unwrap();
	let options = Options {
		kernel,
		files: vec![GuestFile { host: file, guest: "/data/bytes".into() }],
		env: vec![("LAB_WORDS".into(), "two  words, it's $HOME".into())],
		..Options::default()
	};
	let script = "cat /data/bytes; cat /data/bytes /data/bytes >&2; \
		sleep 1000 & printf '%s|' \"$LAB_WORDS\" \"$@\" \"$PWD\" \"$HOME\" \"$USER\"; \
		[ ! -t 1 ] && exit 7";
	// Bash is a program of the host with libraries; the guest's own shell is busybox.
	let (output, outcome) = run(&options, &["/bin/bash", "-c", script, "bash", "a 'b'", ""]);
	let mut expected = bytes();
	expected.extend_from_slice(b"two  words, it's $HOME|a 'b'||/tmp|/root|root|");
	assert_eq!(outcome.status, Status::Exited(7));
	assert!(output.stdout == expected, "standard output differs");
	assert!(output.stderr == bytes().repeat(2), "standard error differs");
	assert!(outcome.kernel_release.starts_with(release), "{outcome:?}");
	assert!(!outcome.console_tail.is_empty());
}

#[test]
fn everything_arrives_from_debian_6_1() {
	everything(Kernel::Debian6_1, "6.1.");
}

#[test]
fn everything_arrives_from_debian_6_12() {
	everything(Kernel::Debian6_12, "6.12.");
}

#[test]
#[ignore = "boots guests of its own: make test-all"]
fn a_death_by_signal_is_told_from_an_exit() {
	let (_, outcome) = run(&Options::default(), &["sh", "-c", "kill -KILL $$"]);
	assert_eq!(outcome.status, Status::Signaled(9));
}

#[test]
#[ignore = "boots guests of its own: make test-all"]
fn a_command_that_is_not_there_exits_127() {
	let (output, outcome) = run(&Options::default(), &["no-such-program"]);
	assert_eq!(outcome.status, Status::Exited(127));
	let stderr = String::from_utf8_lossy(&output.stderr);
	assert!(stderr.contains("no-such-program"), "{stderr}");
}

#[test]
fn a_hang_ends_at_the_timeout_with_the_console() {
	let script = "echo before; echo lab-mark >/dev/kmsg; sleep 1000";
	// The shorter the better, but on a busy machine the boot alone may take longer.
	for seconds in [8, 24, 72, 216] {
		let options = Options { timeout: std::time::Duration::from_secs(seconds), ..Options::default() };
		let (output, outcome) = try_run(&options, &["sh", "-c", script]);
		let error = outcome.unwrap_err();
		let LabError::Timeout { phase, .. } = &error else {
			panic!("{error}");
		};
		if *phase == Phase::Running {
			assert!(error.to_string().contains("lab-mark"), "{error}");
			assert!(error.to_string().contains("NMI"), "where it was: {error}");
			assert_eq!(output.stdout, b"before\n");
			return;
		}
	}
	panic!("no guest booted in 216 s");
}

#[test]
fn a_boot_that_takes_too_long_says_so() {
	let options = Options { timeout: std::time::Duration::from_millis(50), ..Options::default() };
	let (_, outcome) = try_run(&options, &["true"]);
	assert!(matches!(outcome, Err(LabError::Timeout { phase: Phase::Booting, .. })), "{outcome:?}");
}

#[test]
fn a_panic_is_an_error_with_the_console() {
	let (_, outcome) = try_run(&Options::default(), &["sh", "-c", "echo c >/proc/sysrq-trigger"]);
	let error = outcome.unwrap_err();
	assert!(matches!(&error, LabError::Panic { phase: Phase::Running, .. }), "{error}");
	assert!(error.console_tail().iter().any(|line| line.contains("sysrq triggered crash")), "{error}");
}

#[test]
fn a_guest_that_switches_itself_off_is_not_mistaken_for_success() {
	let (_, outcome) = try_run(&Options::default(), &["poweroff", "-f"]);
	assert!(matches!(outcome, Err(LabError::WentDown { phase: Phase::Running, .. })), "{outcome:?}");
}

/// Fails on the first bytes, as a closed pipe does.
struct Closed;

impl flashfork_lab::Output for Closed {
	fn stdout(&mut self, _: &[u8]) -> std::io::Result<()> {
		Err(std::io::ErrorKind::BrokenPipe.into())
	}

	fn stderr(&mut self, _: &[u8]) -> std::io::Result<()> {
		Ok(())
	}
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
	let outcome = common::lab().run(&Options::default(), &["yes"], &mut Closed);
	assert!(matches!(outcome, Err(LabError::Output(_))), "{outcome:?}");
}

/// Keeps what comes, after a stall in which the guest fills every buffer.
struct Stalling(Vec<u8>);

impl flashfork_lab::Output for Stalling {
	fn stdout(&mut self, bytes: &[u8]) -> std::io::Result<()> {
		if self.0.is_empty() {
			std::thread::sleep(std::time::Duration::from_secs(2));
		}
		self.0.extend_from_slice(bytes);
		Ok(())
	}

	fn stderr(&mut self, _: &[u8]) -> std::io::Result<()> {
		Ok(())
	}
}

#[test]
#[ignore = "boots guests of its own: make test-all"]
fn a_slow_reader_loses_nothing() {
	let mut output = Stalling(Vec::new());
	let outcome = common::lab().run(&Options::default(), &["seq", "50000"], &mut output).unwrap();
	assert!(outcome.status.success());
	let expected: String = (1..=50000).map(|number| format!("{number}\n")).collect();
	assert!(output.0 == expected.as_bytes(), "output differs");
}

#[test]
#[ignore = "boots guests of its own: make test-all"]
fn runs_at_the_same_time_do_not_meet() {
	let scripts = ["echo one; sleep 1; echo one", "echo two; sleep 1; echo two"];
	let outputs = std::thread::scope(|scope| {
		scripts
			.map(|script| scope.spawn(move || shell(&Options::default(), script)))
			.map(|thread| thread.join().unwrap())
	});
	assert_eq!(outputs, ["one\none\n", "two\ntwo\n"]);
}

#[test]
#[ignore = "boots guests of its own: make test-all"]
fn a_kernel_of_ones_own_boots_from_its_path() {
	// Any bzImage will do: the one that the lab has for 6.1.
	shell(&Options::default(), "true");
	let cache = flashfork_lab::cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")).unwrap();
	let dir = fs::read_dir(cache.join("kernels"))
		.unwrap()
		.map(|entry| entry.unwrap().path())
		.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("6.1."))
		.unwrap();
	let image = fs::read_dir(dir.join("boot"))
		.unwrap()
		.map(|entry| entry.unwrap().path())
		.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("vmlinuz"))
		.unwrap();
	let options = Options { kernel: Kernel::Image { image, modules: None }, ..Options::default() };
	assert!(shell(&options, "uname -r").starts_with("6.1."));
	// Without its modules it has no driver for the swap disk, and says so.
	let (_, outcome) = try_run(&Options { swap_mib: 64, ..options }, &["true"]);
	assert!(matches!(&outcome, Err(LabError::Setup { reason, .. }) if reason.contains("swap disk")), "{outcome:?}");
}

#[test]
fn what_is_no_kernel_is_an_error() {
	let dir = tempfile::tempdir().unwrap();
	let image = dir.path().join("bzImage");
	fs::write(&image, "not a kernel").unwrap();
	let kernel = |image| Kernel::Image { image, modules: None };
	let options = Options { kernel: kernel(image), ..Options::default() };
	let (_, outcome) = try_run(&options, &["true"]);
	assert!(matches!(outcome, Err(LabError::Qemu { .. })), "{outcome:?}");

	let options = Options { kernel: kernel(dir.path().join("none")), ..Options::default() };
	let (_, outcome) = try_run(&options, &["true"]);
	assert!(matches!(outcome, Err(LabError::Image(ImageError::Io { .. }))), "{outcome:?}");
}
