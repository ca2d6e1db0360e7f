//! The guest is what the options ask for, on both of Debian's kernels.

mod common;

use common::{run, shell, try_run};
use flashfork_lab::{Kernel, Options, Status, Thp};

const KERNELS: [Kernel; 2] = [Kernel::Debian6_1, Kernel::Debian6_12];

/// Swap, memory, CPUs, THP mode and user in one boot each; the memory limit holds against a
/// process that would not fit, which swap then saves.
#[test]
fn size_swap_thp_user_and_limit_are_as_asked() {
	let modes = [(Thp::Madvise, "always [madvise] never"), (Thp::Never, "always madvise [never]")];
	for (kernel, (thp, shown)) in KERNELS.into_iter().zip(modes) {
		let options = Options {
			kernel,
			memory_mib: 700,
			cpus: 2,
			swap_mib: 300,
			thp: Some(thp),
			user: Some(1234),
			memory_max: Some(64 << 20),
			..Options::default()
		};
		let text = shell(
			&options,
			"nproc; id -u; id -g; id -un; hostname; \
			 cat /sys/kernel/mm/transparent_hugepage/enabled; \
			 awk '/^(MemTotal|SwapTotal)/ {print $2}' /proc/meminfo; \
			 cat /sys/fs/cgroup/command/memory.max; \
			 [ ! -w /etc/passwd ] && echo not root; \
			 env | cut -d= -f1 | sort | tr '\\n' ' '; echo; \
			 cat /sys/class/net/lo/flags",
		);
		let lines: Vec<&str> = text.lines().collect();
		assert_eq!(lines[..6], ["2", "1234", "1234", "lab", "lab", shown], "{text}");
		let kib: Vec<u64> = lines[6..8].iter().map(|line| line.parse().unwrap()).collect();
		assert!((500 << 10..700 << 10).contains(&kib[0]), "{text}");
		assert_eq!(kib[1], (300 << 10) - 4, "{text}");
		assert_eq!(lines[8..], ["67108864", "not root", "HOME PATH PWD SHLVL USER ", "0x9"], "{text}");
	}
}

/// 30 MB in a 24 MiB cgroup: killed without swap, alive with it.
#[test]
#[ignore = "boots guests of its own: make test-all"]
fn the_memory_limit_kills_and_swap_saves() {
	let script = ["awk", "BEGIN { s = sprintf(\"%30000000s\", \"\"); print length(s) }"];
	let tight = Options { memory_max: Some(24 << 20), ..Options::default() };
	let (output, outcome) = run(&tight, &script);
	assert_eq!(outcome.status, Status::Signaled(9));
	assert_eq!(outcome.oom_kills, 1);
	assert_eq!(output.stdout, b"");

	let swap = Options { swap_mib: 512, ..tight };
	let (output, outcome) = run(&swap, &script);
	assert_eq!(outcome.status, Status::Exited(0));
	assert_eq!(outcome.oom_kills, 0);
	assert_eq!(output.stdout, b"30000000\n");
}

/// Both kernels find the emulated CPU's SVM and give an ordinary user `/dev/kvm`.
#[test]
#[ignore = "boots guests of its own: make test-all"]
fn nested_kvm_is_there() {
	for kernel in KERNELS {
		let options = Options { kernel, nested_kvm: true, user: Some(1000), ..Options::default() };
		let text = shell(&options, "[ -c /dev/kvm ]; exec 4<>/dev/kvm; cat /sys/module/kvm_amd/parameters/npt");
		assert!(["Y\n", "1\n"].contains(&text.as_str()), "{text}");
	}
}

/// Under instruction counting the guest's clock shows work done, not time passed: two runs of the
/// same loop agree far better than emulated time ever does.
#[test]
#[ignore = "boots guests of its own: make test-all"]
fn instructions_are_counted() {
	let options = Options { icount: true, ..Options::default() };
	let script = "t() { read up _ </proc/uptime; echo ${up%.*}${up#*.}; }; \
		for run in 1 2; do \
			a=$(t); i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done; b=$(t); echo $((b - a)); \
		done; a=$(t); sleep 100; b=$(t); echo $((b - a))";
	let text = shell(&options, script);
	let ticks: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
	assert!(ticks[0] > 0.0 && (ticks[1] / ticks[0] - 1.0).abs() < 0.15, "{text}");
	// Guest time jumps over an idle stretch instead of waiting for it.
	assert!(ticks[2] >= 10_000.0, "{text}");
}

/// CPUs with a host thread each, and kernel parameters as given.
#[test]
#[ignore = "boots guests of its own: make test-all"]
fn threads_and_kernel_parameters_are_as_asked() {
	let options =
		Options { cpus: 2, threads: true, kernel_parameters: "lab.mark=1 quiet".into(), ..Options::default() };
	let text = shell(&options, "nproc; cat /proc/cmdline");
	let lines: Vec<&str> = text.lines().collect();
	assert_eq!(lines[0], "2");
	assert!(lines[1].ends_with(" lab.mark=1 quiet"), "{text}");
}

/// A fault of the guest's kernel does not go unnoticed.
#[test]
fn kernel_warnings_are_reported() {
	let mark = "WARNING: CPU: 0 PID: 1 at lab/mark.c:1";
	let script = format!("echo '<4>{mark}' >/dev/kmsg");
	let (_, outcome) = try_run(&Options::default(), &["sh", "-c", &script]);
	let outcome = outcome.unwrap();
	assert_eq!(outcome.kernel_warnings.len(), 1, "{outcome:?}");
	assert!(outcome.kernel_warnings[0].ends_with(mark));
}
