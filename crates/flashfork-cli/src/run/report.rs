//! What a run gained, as JSON and as one line.

use super::Engine;
use flashfork::{
	cost::{self, CostModel, Memory, Writes},
	never_seal,
};
use flashfork_core::{
	name::NAME,
	stats::{Stats, Timed},
};
use serde::Serialize;
use std::{
	ffi::OsString,
	sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The JSON of `--report`; docs/RUN.md says what each field is.
#[derive(Serialize)]
pub struct Report {
	schema: &'static str,
	engine: Engine,
	command: Vec<String>,
	exit_code: u8,
	shim_loaded: bool,
	programs: u64,
	plain_forks: Forks,
	forks_before_seal: Forks,
	forks_after_seal: Forks,
	forks_on_demand: Forks,
	seals: u64,
	seal_seconds: f64,
	pauses: Forks,
	longest_pause_us: f64,
	sealed_bytes: u64,
	largest_seal_bytes: u64,
	huge_bytes: u64,
	extra_bytes: u64,
	left_out: Vec<LeftOut>,
	culprit: Option<Culprit>,
	device: Option<String>,
	errors: u64,
	last_errno: u64,
}

#[derive(Serialize)]
struct Forks {
	count: u64,
	mean_us: Option<f64>,
}

#[derive(Serialize)]
struct Culprit {
	file: String,
	what: String,
}

#[derive(Serialize)]
struct LeftOut {
	reason: &'static str,
	count: u64,
	process: bool,
}

/// Reasons every program has some of: not worth a word in the summary.
const ORDINARY: [never_seal::Reason; 7] = {
	use never_seal::Reason::{Excluded, File, KernelArea, Shared, Small, Sparse, Stack};
	[Shared, File, Stack, KernelArea, Excluded, Small, Sparse]
};

impl Forks {
	fn new(t: &Timed) -> Forks {
		let (count, ns) = (t.count.load(Relaxed), t.ns.load(Relaxed));
		Forks { count, mean_us: (count > 0).then(|| ns as f64 / 1000.0 / count as f64) }
	}
}

impl Report {
	pub fn new(engine: Engine, command: &[OsString], exit_code: u8, s: &Stats) -> Report {
		let get = |a: &AtomicU64| a.load(Relaxed);
		let left_out = never_seal::TABLE
			.iter()
			.zip(&s.refused)
			.filter(|(_, n)| get(n) > 0)
			.map(|(row, n)| LeftOut {
				reason: row.name,
				count: get(n),
				process: row.scope == never_seal::Scope::Process,
			})
			.collect();
		Report {
			schema: "flashfork.run/1",
			engine,
			command: command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
			exit_code,
			shim_loaded: get(&s.programs) > 0,
			programs: get(&s.programs),
			plain_forks: Forks::new(&s.plain),
			forks_before_seal: Forks::new(&s.before),
			forks_after_seal: Forks::new(&s.sealed),
			forks_on_demand: Forks::new(&s.on_demand),
			seals: get(&s.seals.count),
			seal_seconds: get(&s.seals.ns) as f64 / 1e9,
			pauses: Forks::new(&s.pauses),
			longest_pause_us: get(&s.longest_pause) as f64 / 1000.0,
			sealed_bytes: get(&s.sealed_bytes),
			largest_seal_bytes: get(&s.largest_seal),
			huge_bytes: get(&s.huge_bytes),
			extra_bytes: get(&s.filled_bytes),
			left_out,
			culprit: culprit(s),
			device: device(s),
			errors: get(&s.errors),
			last_errno: get(&s.last_error) & 0xffff,
		}
	}

	/// One line for the terminal.
	pub fn summary(&self, model: Option<&CostModel>) -> String {
		if self.programs == 0 {
			return "the shim was not loaded (a statically linked or setuid program?); it ran as it is".into();
		}
		let mut parts = vec![self.forks(model)];
		if self.seals > 0 {
			parts.push(format!(
				"{} MB sealed in {:.2} s{}, {} MB extra memory",
				self.sealed_bytes >> 20,
				self.seal_seconds,
				self.earned_back(model).map_or(String::new(), |text| format!(" ({text})")),
				self.extra_bytes >> 20
			));
		}
		if let Some(mean) = self.pauses.mean_us {
			parts.push(format!(
				"threads stopped {} times, {} each, {} at most",
				self.pauses.count,
				time(mean),
				time(self.longest_pause_us)
			));
		}
		parts.extend(self.refused_ranges());
		parts.extend(self.refused_processes());
		if self.errors > 0 {
			let error = std::io::Error::from_raw_os_error(self.last_errno as i32);
			let s = if self.errors == 1 { "" } else { "s" };
			parts.push(format!("{} seal{s} failed: {error}", self.errors));
		}
		parts.extend(model.and_then(|m| self.beside_thp(m)));
		let text = parts.join("; ");
		if parts.len() > 1 { text + " (explained in docs/RUN.md)" } else { text }
	}

	/// "312 forks, 5.9 ms → 24 µs each"; the first figure is the model's where the process sealed before it ever
	/// forked.
	fn forks(&self, model: Option<&CostModel>) -> String {
		if let Some(us) = self.forks_on_demand.mean_us {
			let mut text = format!("{} on demand, {} each", forks(self.forks_on_demand.count), time(us));
			let others = self.plain_forks.count + self.forks_after_seal.count;
			if others > 0 {
				text += &format!(", and {others} others");
			}
			return text;
		}
		let Some(after) = self.forks_after_seal.mean_us else {
			return match self.plain_forks.mean_us {
				None => "no forks".into(),
				Some(us) => format!("{}, {} each, nothing sealed", forks(self.plain_forks.count), time(us)),
			};
		};
		let estimate = || Some(format!("about {} on 4 KB pages", time(self.plain_estimate(model)?)));
		let before = self.forks_before_seal.mean_us.map(time).or_else(estimate);
		let before = before.map_or(String::new(), |b| format!("{b} → "));
		let mut text = format!("{}, {before}{} each", forks(self.forks_after_seal.count), time(after));
		if self.plain_forks.count > 0 {
			text += &format!(", and {} plain", self.plain_forks.count);
		}
		text
	}

	/// What the model says a plain fork of what was sealed takes, in microseconds.
	fn plain_estimate(&self, model: Option<&CostModel>) -> Option<f64> {
		Some(micros(model?.fork_time(cost::Engine::Fork, Memory::clean(self.largest_seal_bytes))?))
	}

	/// "earned back by 15 forks": the seals' price in what forks gain by them, and whether there were so many.
	fn earned_back(&self, model: Option<&CostModel>) -> Option<String> {
		let after = self.forks_after_seal.mean_us?;
		let before = self.forks_before_seal.mean_us.or_else(|| self.plain_estimate(model))?;
		earned_back(self.seal_seconds * 1e6, before - after, self.forks_after_seal.count)
	}

	/// "3 ranges refused: 2 locked, 1 dont_fork".
	fn refused_ranges(&self) -> Option<String> {
		let rows: Vec<_> = self
			.left_out
			.iter()
			.filter(|l| !l.process && !ORDINARY.iter().any(|o| o.row().name == l.reason))
			.map(|l| (l.count, format!("{} {}", l.count, l.reason)))
			.collect();
		let n: u64 = rows.iter().map(|(n, _)| n).sum();
		let list: Vec<_> = rows.into_iter().map(|(_, text)| text).collect();
		(n > 0).then(|| format!("{n} range{} refused: {}", if n == 1 { "" } else { "s" }, list.join(", ")))
	}

	/// "not sealed: a process with other threads".
	fn refused_processes(&self) -> Vec<String> {
		let row = |name| never_seal::TABLE.iter().find(|row| row.name == name);
		self.left_out
			.iter()
			.filter(|l| l.process)
			.filter_map(|l| {
				let what = row(l.reason)?.what;
				let culprit = self.culprit.as_ref().filter(|_| l.reason == never_seal::Reason::SystemCalls.row().name);
				let device = self.device.as_ref().filter(|_| l.reason == never_seal::Reason::Driver.row().name);
				let threads = l.reason == never_seal::Reason::Threads.row().name;
				Some(match (culprit, device) {
					(Some(culprit), _) => format!("not sealed: {} {}", culprit.file, culprit.what),
					(_, Some(device)) => format!("not sealed: {what}: {device}"),
					_ if threads => format!("not sealed: {what}; --threads has threads stopped for a seal"),
					_ => format!("not sealed: {what}"),
				})
			})
			.collect()
	}

	/// Where forks of the same memory on huge pages would have taken less time. Asked of the model alone, as `advise`
	/// does: beside its prices the times measured here would count whatever else ran.
	fn beside_thp(&self, model: &CostModel) -> Option<String> {
		let forks = self.forks_after_seal.count;
		model.write_fork_thp?;
		self.forks_after_seal.mean_us?;
		let memory = Memory::clean(self.largest_seal_bytes);
		beside_thp(forks, model.break_even_forks(cost::Engine::ForkThp, memory, Writes::default()))
	}
}

fn forks(count: u64) -> String {
	if count == 1 { "1 fork".into() } else { format!("{count} forks") }
}

/// The same, by the price and a fork's gain in microseconds, and the number of forks.
fn earned_back(price: f64, gain: f64, count: u64) -> Option<String> {
	match (price / gain).ceil() {
		_ if gain <= 0.0 => Some("forks gain nothing by it".into()),
		number if number > count as f64 => Some(format!("not earned back, which takes {}", forks(number as u64))),
		number if number.is_finite() => Some(format!("earned back by {}", forks(number as u64))),
		_ => None,
	}
}

/// How a program's heap gets them (glibc 2.35 and later).
const THP: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";

/// By the number of forks from which on a seal pays against THP, if it ever does.
fn beside_thp(forks: u64, pays: Option<u64>) -> Option<String> {
	match pays {
		Some(pays) if forks >= pays => None,
		Some(pays) => Some(format!(
			"so few forks would have been faster on transparent huge pages ({THP}): against them a seal pays from about {pays} forks on, not counting writes"
		)),
		None => Some(format!("forks would have been as fast on transparent huge pages ({THP}), not counting writes")),
	}
}

fn device(s: &Stats) -> Option<String> {
	let mut buf = [0; NAME];
	Some(String::from_utf8_lossy(s.device.get(&mut buf)).into_owned()).filter(|name| !name.is_empty())
}

fn culprit(s: &Stats) -> Option<Culprit> {
	let mut name = [0; NAME];
	let (call, file) = s.culprit.get(&mut name)?;
	Some(Culprit { file: String::from_utf8_lossy(file).into_owned(), what: call.to_string() })
}

fn micros(d: std::time::Duration) -> f64 {
	d.as_secs_f64() * 1e6
}

fn time(us: f64) -> String {
	if us < 1000.0 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1000.0) }
}

#[cfg(test)]
mod tests {
	use super::{Culprit, Engine, Report, Stats, beside_thp, earned_back};

	#[test]
	fn every_field_of_the_report_is_documented() {
		let mut report = Report::new(Engine::Auto, &[], 0, &Stats::new());
		report.culprit = Some(Culprit { file: String::new(), what: String::new() });
		report.left_out = vec![super::LeftOut { reason: "", count: 0, process: true }];
		let documented = include_str!("../../../../docs/RUN.md");
		let mut todo = vec![serde_json::to_value(&report).unwrap()];
		while let Some(value) = todo.pop() {
			match value {
				serde_json::Value::Object(fields) => {
					for (name, value) in fields {
						assert!(documented.contains(&format!("`{name}`")), "docs/RUN.md says nothing of {name}");
						todo.push(value);
					}
				}
				serde_json::Value::Array(values) => todo.extend(values),
				_ => {}
			}
		}
	}

	#[test]
	fn one_failed_seal_is_told_as_one() {
		let stats = Stats::new();
		[&stats.programs, &stats.errors].into_iter().for_each(|count| count.store(1, super::Relaxed));
		assert!(Report::new(Engine::Seal, &[], 0, &stats).summary(None).contains("; 1 seal failed: "));
	}

	#[test]
	fn a_seal_is_held_against_huge_pages_by_the_number_of_forks() {
		assert!(beside_thp(300, Some(1398)).unwrap().contains("from about 1398 forks on"));
		assert_eq!(beside_thp(1398, Some(1398)), None);
		assert!(beside_thp(300, None).unwrap().contains("as fast on transparent huge pages"));
	}

	#[test]
	fn a_seals_price_is_told_in_forks() {
		assert_eq!(earned_back(310_000.0, 21_000.0, 15).as_deref(), Some("earned back by 15 forks"));
		assert_eq!(earned_back(10.0, 21_000.0, 1).as_deref(), Some("earned back by 1 fork"));
		assert_eq!(earned_back(310_000.0, 21_000.0, 14).as_deref(), Some("not earned back, which takes 15 forks"));
		assert_eq!(earned_back(10.0, -1.0, 3).as_deref(), Some("forks gain nothing by it"));
	}
}
