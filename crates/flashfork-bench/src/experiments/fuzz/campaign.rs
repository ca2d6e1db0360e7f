//! One campaign: AFL from its seeds on, watched from the first execution to the last.

use super::{
	afl_stats::AflStats,
	process::{Fuzzer, Setup},
};
use crate::{
	prelude::*,
	subjects::{
		heap::HeapPages,
		shim::{ShimReport, ShimStats},
	},
};

/// How often the counter is looked at.
const LOOK: Duration = Duration::from_millis(20);
const WINDOW: Duration = Duration::from_secs(1);
/// How long loading the database, sealing it and the first execution may take.
const STARTING: Duration = Duration::from_secs(900);
/// By how much AFL's count of executions may differ from the program's own, as a share.
const DISAGREEMENT: f64 = 0.02;

/// When a campaign ends.
#[derive(Clone, Copy, PartialEq)]
pub enum Until {
	/// After so long, counted from the first execution.
	Time(Duration),
	/// After so many executions, by AFL's count, which stops a little later.
	Executions(u64),
}

#[derive(Clone)]
pub struct Campaign {
	/// From AFL's start to the first execution, in seconds: loading, and sealing.
	pub startup: f64,
	/// Executions per second, window by window, with the window's end in seconds since the first execution.
	pub windows: Vec<Window>,
	/// Executions since the first.
	pub executions: u64,
	/// Seconds since the first.
	pub seconds: f64,
	/// AFL's own account.
	pub afl: AflStats,
	/// The fork server's memory.
	pub pages: HeapPages,
	/// What the shim did, where there was one.
	pub shim: Option<ShimReport>,
}

/// Part of the time series.
#[derive(Clone, Copy, PartialEq)]
pub struct Window {
	/// Its end, in seconds since the first execution.
	pub end: f64,
	/// Executions per second in it.
	pub rate: f64,
}

/// The number that every clone of the fuzzed program adds one to.
struct Counter(PathBuf);

impl Counter {
	fn create(path: PathBuf) -> Result<Self> {
		std::fs::write(&path, [0; 8]).or_cant(format_args!("write {}", path.display()))?;
		Ok(Self(path))
	}

	fn read(&self) -> Result<u64> {
		let failed = |error| BenchError::system(format!("read {}", self.0.display()), error);
		let bytes = std::fs::read(&self.0).map_err(failed)?;
		let bytes = bytes.try_into().map_err(|_| failed(std::io::ErrorKind::UnexpectedEof.into()))?;
		Ok(u64::from_ne_bytes(bytes))
	}
}

/// Runs one campaign in the new directory `dir`. One step of progress per window. An interruption ends it,
/// and is an error before the first execution.
pub fn run(setup: &Setup, method: Method, seed: u64, until: Until, dir: &Path, run: &mut Run) -> Result<Campaign> {
	std::fs::create_dir(dir).or_cant(format_args!("make {}", dir.display()))?;
	let counter = Counter::create(dir.join("counter"))?;
	let stats = match method {
		Method::Seal | Method::Odf => Some(ShimStats::create(dir.join("shim-stats"))?),
		Method::Fork4k | Method::ForkThp | Method::Hugetlb => None,
	};
	let executions = match until {
		Until::Executions(executions) => Some(executions),
		Until::Time(_) => None,
	};
	let output = dir.join("out");
	let begin = Instant::now();
	let mut fuzzer = Fuzzer::start(setup, method, seed, executions, &output, &counter.0, stats.as_ref())?;
	while counter.read()? == 0 {
		fuzzer.check_running()?;
		run.go_on()?;
		if begin.elapsed() > STARTING {
			return Err(unable!("nothing was executed within {} s", STARTING.as_secs()));
		}
		std::thread::sleep(LOOK);
	}
	let startup = begin.elapsed().as_secs_f64();
	let pages = HeapPages::of(fuzzer.fork_server()?)?;
	let (windows, executions, seconds) = watch(&mut fuzzer, &counter, until, run)?;
	let afl = AflStats::read(&output.join("default/fuzzer_stats"))?;
	let counted = counter.read()?;
	if counted.abs_diff(afl.executions) as f64 > 10.0 + DISAGREEMENT * counted as f64 {
		return Err(unable!(
			"AFL counted {} executions, the fuzzed program {counted}: one of them did not do what it should",
			afl.executions
		));
	}
	let shim = stats.map(|stats| stats.read(method)).transpose()?;
	Ok(Campaign { startup, windows, executions, seconds, afl, pages, shim })
}

fn watch(fuzzer: &mut Fuzzer, counter: &Counter, until: Until, run: &mut Run) -> Result<(Vec<Window>, u64, f64)> {
	let (begin, first) = (Instant::now(), counter.read()?);
	let (mut windows, mut window_begin, mut window_first) = (Vec::new(), begin, first);
	loop {
		std::thread::sleep(LOOK);
		let (now, count) = (Instant::now(), counter.read()?);
		if now - window_begin >= WINDOW {
			let rate = (count - window_first) as f64 / (now - window_begin).as_secs_f64();
			windows.push(Window { end: (now - begin).as_secs_f64(), rate });
			(window_begin, window_first) = (now, count);
			run.step();
		}
		let interrupted = run.interrupted();
		let over = match until {
			_ if interrupted => true,
			Until::Time(time) => {
				fuzzer.check_running()?;
				now - begin >= time
			}
			Until::Executions(_) => match fuzzer.ended()? {
				Some(status) if !status.success() => return Err(fuzzer.died(status)),
				ended => ended.is_some(),
			},
		};
		if over && windows.is_empty() {
			let seconds = (now - begin).as_secs_f64();
			windows.push(Window { end: seconds, rate: (count - first) as f64 / seconds });
		}
		if over {
			if interrupted || matches!(until, Until::Time(_)) {
				fuzzer.stop()?;
			}
			return Ok((windows, count - first, (now - begin).as_secs_f64()));
		}
	}
}
