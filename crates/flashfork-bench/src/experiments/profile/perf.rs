//! `perf record` beside a worker, and what `perf report` says of it.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::prelude::*;
use flashfork_measure::error::is_missing;

const FREQUENCY: &str = "4999";

/// A running `perf record`. Dropping it ends it.
pub struct Recording {
	perf: Child,
}

impl Recording {
	/// Samples the process `pid` into `file`, by a clock: virtual machines have no cycle counter.
	pub fn start(pid: u32, file: &Path) -> Result<Self> {
		let mut command = Command::new("perf");
		command.args(["record", "-q", "-e", "cpu-clock", "-F", FREQUENCY, "-p", &pid.to_string(), "-o"]).arg(file);
		command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
		match command.spawn() {
			Ok(perf) => Ok(Self { perf }),
			Err(error) if is_missing(&error) => {
				Err(unable!("perf is not installed (Debian: linux-perf); it is what tells where time goes"))
			}
			Err(error) => Err(BenchError::system("start perf", error)),
		}
	}

	/// Ends the recording and waits until it is written.
	pub fn stop(mut self) -> Result {
		let failed = |error: std::io::Error| BenchError::system("end perf", error);
		kill_process(Pid::from_child(&self.perf), Signal::INT).map_err(|errno| failed(errno.into()))?;
		let mut said = String::new();
		if let Some(mut stderr) = self.perf.stderr.take() {
			std::io::Read::read_to_string(&mut stderr, &mut said).map_err(failed)?;
		}
		let status = self.perf.wait().map_err(failed)?;
		// An interrupted perf says so by its signal, or by 130.
		let ended = status.success()
			|| status.code() == Some(130)
			|| std::os::unix::process::ExitStatusExt::signal(&status) == Some(2);
		if ended { Ok(()) } else { Err(refused(&said)) }
	}
}

impl Drop for Recording {
	fn drop(&mut self) {
		// Both fail only when it has been waited for already.
		let _ = self.perf.kill();
		let _ = self.perf.wait();
	}
}

fn refused(said: &str) -> BenchError {
	let why = said.trim().lines().next().unwrap_or("no reason given");
	unable!("perf may not look here ({why}); as root, or with kernel.perf_event_paranoid at 1 or less, it may")
}

/// The share of samples of each symbol, largest first.
pub fn shares(file: &Path) -> Result<Vec<(String, f64)>> {
	let mut command = Command::new("perf");
	command.args(["report", "--stdio", "-q", "--no-children", "--sort", "symbol", "-i"]).arg(file);
	let done = command.stdin(Stdio::null()).output().or_cant("start perf report")?;
	if !done.status.success() {
		return Err(refused(&String::from_utf8_lossy(&done.stderr)));
	}
	let shares = parse(&String::from_utf8_lossy(&done.stdout));
	if shares.is_empty() {
		return Err(unable!("perf has taken no samples; the host may deny it its clock"));
	}
	if !shares.iter().any(|(symbol, _)| symbol.starts_with("[k]")) {
		return Err(refused("no samples of the kernel"));
	}
	Ok(shares)
}

/// Lines such as `    12.34%  [k] copy_present_ptes`. Functions of one name, such as those that a compiler makes of one
/// with type parameters, are one function.
fn parse(report: &str) -> Vec<(String, f64)> {
	let line = |line: &str| {
		let (percent, symbol) = line.trim().split_once('%')?;
		let share = percent.trim().parse::<f64>().ok()? / 100.0;
		// Some versions add columns of their own behind the name.
		Some((symbol.trim().split("  ").next()?.to_owned(), share))
	};
	let mut all: Vec<(String, f64)> = Vec::new();
	for (symbol, share) in report.lines().filter_map(line) {
		match all.iter_mut().find(|(known, _)| *known == symbol) {
			Some((_, sum)) => *sum += share,
			None => all.push((symbol, share)),
		}
	}
	all.sort_by(|a, b| b.1.total_cmp(&a.1));
	all
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_report_is_read_as_perf_prints_it() {
		let report = "\n    61.25%  [k] copy_present_ptes\n     9.10%  [k] folio_remove_rmap_ptes     -      -            \n     0.50%  [.] main\n\n";
		let expected = [("[k] copy_present_ptes", 0.6125), ("[k] folio_remove_rmap_ptes", 0.091), ("[.] main", 0.005)];
		for ((symbol, share), (known, value)) in parse(report).iter().zip(expected) {
			assert!(symbol == known && (share - value).abs() < 1e-9, "{symbol} {share}");
		}
		assert!(parse("# no samples\n").is_empty());
	}

	#[test]
	fn functions_of_one_name_are_one() {
		let report = "    40.00%  [k] clear_page\n    30.00%  [.] branch\n    20.00%  [.] branch\n";
		let shares = parse(report);
		let [(first, half), (second, _)] = &shares[..] else { panic!("{shares:?}") };
		assert!(first == "[.] branch" && (half - 0.5).abs() < 1e-9 && second == "[k] clear_page", "{shares:?}");
	}

	#[test]
	fn a_refusal_says_what_to_do() {
		let said = refused("Access to performance monitoring is limited.\nmore\n").to_string();
		assert!(said.contains("limited.)") && said.contains("perf_event_paranoid") && !said.contains('\n'), "{said}");
	}
}
