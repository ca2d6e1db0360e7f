//! Every experiment there is: command line, `bench all`, workers and man pages follow from [`ALL`].

pub(crate) mod access;
mod check;
mod clones;
mod cluster;
pub(crate) mod cow_model;
pub(crate) mod creation;
mod forecasts;
pub(crate) mod fork;
mod fuzz;
mod libraries;
mod policy;
mod profile;
mod pytest;
mod redis;
mod rollback;
mod seal_threads;
mod serve;
mod serve_jobs;
mod threads;
mod unit_test;
pub(crate) mod vm_clone;
mod vm_fork;
mod vm_fuzz;
mod vm_jobs;
mod vm_memory;
mod vm_tree;
mod warm;
pub(crate) mod write_fraction;

use crate::prelude::*;
use flashfork_measure::experiment::Entry;

/// In the order of the command's help. A new experiment is a line here.
pub const ALL: [Entry; 29] = [
	Entry::of::<fork::ForkOptions>(),
	Entry::of::<creation::CreationOptions>(),
	Entry::of::<cow_model::CowModelOptions>(),
	Entry::of::<policy::PolicyOptions>(),
	Entry::of::<access::FaultOptions>(),
	Entry::of::<access::AccessMixOptions>(),
	Entry::of::<profile::ProfileOptions>(),
	Entry::of::<forecasts::AdviseOptions>(),
	Entry::of::<check::CheckOptions>(),
	Entry::of::<write_fraction::WriteFractionOptions>(),
	Entry::of::<rollback::RollbackOptions>(),
	Entry::of::<clones::ClonesOptions>(),
	Entry::of::<libraries::LibrariesOptions>(),
	Entry::of::<seal_threads::SealThreadsOptions>(),
	Entry::of::<redis::RedisOptions>(),
	Entry::of::<warm::WarmOptions>(),
	Entry::of::<threads::ThreadsOptions>(),
	Entry::of::<pytest::PytestOptions>(),
	Entry::of::<serve::ServeOptions>(),
	Entry::of::<serve_jobs::ServeJobsOptions>(),
	Entry::of::<cluster::ClusterOptions>(),
	Entry::of::<unit_test::UnitTestOptions>(),
	Entry::of::<fuzz::FuzzOptions>(),
	Entry::of::<vm_clone::VmCloneOptions>(),
	Entry::of::<vm_memory::VmMemoryOptions>(),
	Entry::of::<vm_fork::VmForkOptions>(),
	Entry::of::<vm_fuzz::VmFuzzOptions>(),
	Entry::of::<vm_jobs::VmJobsOptions>(),
	Entry::of::<vm_tree::VmTreeOptions>(),
];

/// The subjects of all workers.
pub fn workers() -> impl Iterator<Item = Registered> {
	ALL.iter().flat_map(|entry| entry.workers.iter().copied())
}

/// The figure of `document`: that of the first experiment which has one and records in it.
pub fn figure(document: &Document) -> Result<String> {
	ALL.iter()
		.find_map(|entry| entry.figure(document))
		.unwrap_or_else(|| Err(unable!("there are no records in it of an experiment that has a figure")))
}

#[cfg(test)]
mod tests {
	use super::*;
	use flashfork_measure::all::TIME;
	use std::collections::HashSet;

	#[test]
	fn all_of_them_keep_to_its_time() {
		// No clock is read: what `bench all` may take is shared out in seconds, and these must not be more.
		for quick in [true, false] {
			let seconds: u64 = ALL.iter().filter_map(|entry| Some(entry.in_all(quick)?.1)).sum();
			assert!(seconds > 0 && Duration::from_secs(seconds) <= TIME[usize::from(!quick)], "{seconds}");
		}
	}

	#[test]
	fn names_are_told_apart_and_help_has_an_example() {
		let names: HashSet<&str> = ALL.iter().map(|entry| entry.name).collect();
		assert_eq!(names.len(), ALL.len());
		for entry in ALL {
			let help = entry.command().render_long_help().to_string();
			let example = format!("Example: flashfork bench {}", entry.name);
			let told = entry.command().get_about().is_some_and(|about| about.to_string() == entry.about);
			assert!(help.contains(&example) && told, "{help}");
		}
	}
	#[test]
	fn nothing_measured_still_is_a_page() {
		let document = Document::here(Vec::new()).unwrap();
		ALL.iter()
			.for_each(|entry| assert!(entry.page(&document).starts_with(&document.host.line()), "{}", entry.name));
	}

	#[test]
	fn wrong_usage_is_refused_by_the_parser() {
		for (name, wrong) in [
			("fork", &["--up-to 64M", "--sizes 1GB", "--sizes 64M,1M", "--sizes ", "--concurrent 1", "--rounds 0"][..]),
			("creation", &["--sizes big", "--touch some", "--fds -1", "--vmas x"]),
			("policy", &["--dirty 101", "--dirty x", "--forks 0", "--rounds 0"]),
			("fault", &["--size 2M", "--size 5M", "--size 0", "--size x"]),
			("access-mix", &["--size 2M", "--size 5M"]),
			("write-fraction", &["--pid 0", "--pid -4", "--pid 1 -- true", "--ready redis --pid 1"]),
			("write-fraction", &["--for -1", "--for soon", "--runs 0"]),
			("warm", &["--programs fortran"]),
			("threads", &["--threads 0"]),
			("pytest", &["--workers 0", "--suites none"]),
			("serve", &["--clients 1", "--functions java"]),
			("serve-jobs", &["--clients 0", "--clients x"]),
			("cluster", &["--clients 1", "--faults flood", "--rounds 0", "--size big"]),
			("unit-test", &["--size 1GB", "--jobs 0", "--rounds 0", "--rounds x"]),
			("fuzz", &["--size 1GB", "--seconds 0", "--slices 1", "--seconds 1.5", "--targets --size 4M"]),
			("vm-clone", &["--sizes 0", "--sizes 3M", "--guests windows", "--rounds 0"]),
			("vm-memory", &["--size 2M", "--size 4G", "--size 5M", "--rounds 0"]),
			("vm-fork", &["--sizes 8M", "--sizes 4G", "--sizes 17M", "--rounds 0", "--pages 0", "--pages 3"]),
			("vm-fork", &["--pages 514", "--written 0", "--written 51", "--written NaN"]),
			("vm-jobs", &["--jobs spark", "--rounds 0"]),
		] {
			let entry = ALL.iter().find(|entry| entry.name == name).unwrap();
			let parse = |args: &str| entry.command().no_binary_name(true).try_get_matches_from(args.split(' '));
			assert!(entry.command().no_binary_name(true).try_get_matches_from([""; 0]).is_ok(), "{name}");
			wrong.iter().for_each(|args| assert!(parse(args).is_err(), "{name} {args}"));
		}
	}

	#[test]
	fn what_is_asked_for_is_sorted_or_stands_in_table_order_once_each() {
		use crate::flags::parse;
		let creation = |args: &[&str]| parse::<creation::CreationOptions>(args).unwrap().bytes();
		// Those of the book's table come first.
		assert_eq!(creation(&[]).iter().map(|size| (size * 10) >> 20).take(3).collect::<Vec<_>>(), [16, 26, 116]);
		assert_eq!((creation(&["--quick"]).len(), creation(&["--sizes", "4M,1M,4M"])), (3, vec![1 << 20, 4 << 20]));
		let fork = |args: &[&str]| parse::<fork::ForkOptions>(args).unwrap().asked();
		assert_eq!(fork(&["--up-to", "1.6G"]), Some(vec![512 << 20, 1 << 30, 3 << 29]));
		assert_eq!((fork(&[]), fork(&["--sizes", "0,64M"])), (None, Some(vec![0, 64 << 20])));
		let policy = parse::<policy::PolicyOptions>(&["--quick", "--dirty", "5,5", "--forks", "30,7,30"]).unwrap();
		assert_eq!(
			(policy.sizes().len(), policy.dirty(), policy.forks(), policy.rounds()),
			(2, vec![5.0], vec![7, 30], 1)
		);
		assert_eq!(parse::<pytest::PytestOptions>(&["--suites", "fixture,small,fixture"]).unwrap().suites().len(), 2);
		assert_eq!(parse::<serve::ServeOptions>(&["--functions", "numpy,small,numpy"]).unwrap().functions().len(), 2);
		assert_eq!(parse::<warm::WarmOptions>(&["--programs", "numpy,true,numpy"]).unwrap().programs().len(), 2);
		assert_eq!(parse::<vm_jobs::VmJobsOptions>(&["--jobs", "mixed,gcc,mixed"]).unwrap().works().len(), 2);
		assert_eq!(parse::<vm_fork::VmForkOptions>(&["--sizes", "64M,16M,64M"]).unwrap().sizes(), [16 << 20, 64 << 20]);
		let targets = |args: &[&str]| parse::<fuzz::FuzzOptions>(args).unwrap().targets;
		assert_eq!(
			(targets(&[]).len(), targets(&["--targets"]).len(), targets(&["--targets", "cjson"]).len()),
			(0, 4, 1)
		);
		let command = parse::<write_fraction::WriteFractionOptions>(&["--after", "0.5", "--", "python3", "-c", "pass"])
			.unwrap()
			.command;
		assert_eq!(command, ["python3", "-c", "pass"]);
	}
}
