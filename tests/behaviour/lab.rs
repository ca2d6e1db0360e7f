//! The programs once more on other kernels, and what this machine may lack: swap, THP=always, huge pages in reserve, a
//! machine-wide setting that may be changed. Linux 6.1, which is unlike this machine's in most, runs all but those that
//! stop threads, the others those that show something only there, and 6.12 those that stop threads; with
//! `FLASHFORK_TEST_ALL=1` every kernel runs everything it can, and whatever programs do often (`often` of behaviour.h)
//! as often as on this machine.
//!
//! Each kernel boots once. A new program runs on 6.1 without further ado. If it takes more than a few seconds there,
//! what it repeats it does `often`; only what shows nothing of a kernel's own may be left to `FLASHFORK_TEST_ALL=1`.

use crate::program::{self, Program};
use flashfork_lab::{Collected, GuestFile, Kernel, Lab, Options, cache_dir};
use flashfork_tests::{odf, shim};
use libtest_mimic::{Completion, Failed, Trial};
use std::{
	fmt::Write,
	path::{Path, PathBuf},
	time::Duration,
};

/// Programs that show something only there: they must not be skipped.
const ON_STOCK_KERNELS: &[&str] = &["hugetlb", "low_memory", "odf_missing", "overcommit_never", "swapped"];
/// Likewise before `PAGEMAP_SCAN`.
const ON_6_1: &[&str] = &["too_large"];

/// Likewise where the kernel forks on demand.
const ON_DEMAND: &[&str] = &[
	"low_memory",
	"odf_auto",
	"odf_exec",
	"odf_inherited",
	"odf_one_fork",
	"odf_sealed_too",
	"odf_shared",
	"odf_switched_off",
	"odf_threads",
	"overcommit_never",
];

/// Programs whose threads are stopped: they must not be skipped. Not `threads_helper`: at an emulator's speed no helper
/// is caught in the middle.
const WITH_THREADS: &[&str] =
	&["threads_live", "threads_live_signals", "threads_interrupted", "threads_interrupted_signals"];

/// Which programs a kernel runs. Another C library's loader is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
	All,
	/// But for those whose threads are stopped for a seal.
	WithoutStops,
	/// Those that must show something there.
	MustRun,
}

fn programs(which: Which, must_run: &[&str]) -> Vec<Program> {
	let stops_threads =
		|program: &Program| program.directive("env").is_some_and(|env| env.starts_with("FLASHFORK_THREADS"));
	let wanted = |program: &Program| {
		let must = must_run.contains(&program.name.as_str());
		must || which == Which::All || which == Which::WithoutStops && !stops_threads(program)
	};
	program::all().into_iter().filter(|p| p.own_compiler().is_none() && wanted(p)).collect()
}

fn test_all() -> bool {
	std::env::var_os("FLASHFORK_TEST_ALL").is_some()
}

/// One test for each kernel, which boots once.
pub fn trials() -> Vec<Trial> {
	let kernels =
		[(Kernel::Debian6_1, ON_6_1, Which::WithoutStops), (Kernel::Debian6_12, WITH_THREADS, Which::MustRun)];
	let trial = |(kernel, more, quickly): (Kernel, &'static [&str], Which)| {
		let which = if test_all() { Which::All } else { quickly };
		let must_run = [ON_STOCK_KERNELS, more, if test_all() { WITH_THREADS } else { &[] }].concat();
		Trial::test(format!("lab/{kernel}"), move || stock(kernel, which, &must_run))
	};
	let on_demand = Trial::ignorable_test("lab/odf", || match odf::kernel() {
		Ok(image) => on_demand(image).map(|()| Completion::Completed),
		Err(why) => Ok(Completion::ignored_with(why)),
	});
	kernels.into_iter().map(trial).chain([on_demand]).collect()
}

/// Programs seal where they say so, and nowhere else.
fn stock(kernel: Kernel, which: Which, must_run: &[&str]) -> Result<(), Failed> {
	let place = format!("lab-{kernel}");
	let env = vec![("FLASHFORK_ENGINE".into(), "fork".into())];
	// A host thread for each CPU: where CPUs take turns, threads are hardly stopped at odd moments.
	run(&place, "", Options { kernel, threads: true, swap_mib: 256, env, ..Options::default() }, which, must_run)
}

/// Programs seal where they say so, and all their forks are on demand.
fn on_demand(image: PathBuf) -> Result<(), Failed> {
	let kernel = Kernel::Image { image, modules: None };
	let env = vec![("FLASHFORK_ENGINE".into(), "odf".into())];
	let switch_on = "echo 1 > /proc/sys/vm/on_demand_fork || exit 1\n";
	// Those whose threads are stopped for a seal would show nothing of their own.
	let which = if test_all() { Which::WithoutStops } else { Which::MustRun };
	run("lab-odf", switch_on, Options { kernel, env, ..Options::default() }, which, ON_DEMAND)
}

fn run(place: &str, first: &str, options: Options, which: Which, must_run: &[&str]) -> Result<(), Failed> {
	let cache = cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"));
	let lab = Lab::new(cache.ok_or("the lab needs HOME or XDG_CACHE_HOME for its kernels")?)?;
	let mut programs = programs(which, must_run);
	let (script, files) = job(place, &mut programs)?;
	let script = format!("{first}{script}");
	let mut options = Options {
		memory_mib: 1024,
		cpus: 2,
		// Never reached: it gives the guest the memory controller.
		memory_max: Some(900 << 20),
		files,
		timeout: Duration::from_secs(if test_all() { 4 * 3600 } else { 1800 }),
		..options
	};
	options.env.push(("FLASHFORK_LAB".into(), "1".into()));
	if test_all() {
		options.env.push(("FLASHFORK_TEST_ALL".into(), "1".into()));
	}
	let mut output = Collected::default();
	let outcome = lab.run(&options, &["sh", "-c", &script], &mut output);
	let said = String::from_utf8_lossy(&output.stdout);
	let outcome = outcome.map_err(|e| format!("{e}\nafter {}", said.lines().last().unwrap_or("nothing")))?;
	let mut wrong = String::new();
	let mut count = 0;
	for line in said.lines() {
		let mut words = line.splitn(3, ' ');
		let (name, code) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
		let skipped_well = code == "77" && !must_run.contains(&name);
		if code != "0" && !skipped_well {
			writeln!(wrong, "{line}")?;
		}
		count += 1;
	}
	let expected = programs.len();
	if count != expected {
		writeln!(wrong, "{count} of {expected} programs ran: {}", outcome.status)?;
	}
	for line in outcome.kernel_warnings {
		writeln!(wrong, "{line}")?;
	}
	if wrong.is_empty() { Ok(()) } else { Err(format!("on {}:\n{wrong}", outcome.kernel_release).into()) }
}

/// The script that runs every program and prints `name exit-code message`, and the files it needs.
fn job(place: &str, programs: &mut [Program]) -> Result<(String, Vec<GuestFile>), Failed> {
	let into = |host: PathBuf, guest: String| GuestFile { host, guest: guest.into() };
	let mut files = vec![into(shim::path().to_path_buf(), "/t/shim.so".into())];
	// Seconds for one program.
	let limit = if test_all() { 1200 } else { 240 };
	let mut script = format!("limit={limit}\n");
	script.push_str(
		"mkdir -p /tmp; cd /tmp; echo 4 > /proc/sys/vm/nr_hugepages\n\
		 run() {\n\
			 (export \"LD_PRELOAD=$2\" $3; exec timeout $limit /t/$1) 2> /tmp/err > /dev/null < /dev/null\n\
			 code=$? said=\n\
			 [ ! -s /tmp/err ] || said=$(tr '\\n' ' ' < /tmp/err)\n\
			 echo \"$1 $code $said\"\n\
		 }\n",
	);
	// It changes the machine.
	programs.sort_by_key(|p| p.name == "overcommit_never");
	for program in programs {
		files.push(into(program.compile(place)?, format!("/t/{}", program.name)));
		let mut preload = String::from("/t/shim.so");
		if let Some(library) = program.directive("preload") {
			preload = format!("/t/{library}:{preload}");
			files.extend(library_path(&library).map(|host| into(host, format!("/t/{library}"))));
		}
		let env = program.directive("env").unwrap_or_default();
		writeln!(script, "run {} {preload} {env}", program.name)?;
	}
	// Or there may be no memory for the guest's own last words.
	script.push_str("echo 0 > /proc/sys/vm/overcommit_memory\n");
	Ok((script, files))
}

/// Where a library of the host is, as the linker finds it.
fn library_path(name: &str) -> Option<PathBuf> {
	let output = Program::compiler().arg(format!("-print-file-name={name}")).output().ok()?;
	let path = String::from_utf8(output.stdout).ok()?;
	Some(Path::new(path.trim()).to_path_buf()).filter(|p| p.is_absolute())
}
