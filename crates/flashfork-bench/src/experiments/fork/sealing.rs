//! Sealing itself: time per GB, of the clock and of the CPU, from 4 KB pages and from THP, and how much more memory it
//! takes at its peak. Beside it the floor: a file of a tmpfs with `huge=always`, into which memory is written and from
//! which it is mapped, with nothing that keeps writes by others from being lost. Where the host lets it, seals by
//! default use such a file, too.

use rustix::time::ClockId;

use super::{EXPERIMENT, footprint::held, plan::Plan, tmpfs::Tmpfs};
use crate::{
	prelude::*,
	subjects::{
		clock::nanoseconds,
		engine::{self, Pages, Sealed},
		memory::Warm,
	},
};
use flashfork_measure::order::shuffled_rounds;

/// Sealing is measured up to this size; the time grows in proportion.
const LARGEST: u64 = 1 << 30;
/// What a seal took, for each GB.
pub const TIME: &str = "seal_time";
/// The same of the CPU.
pub const CPU: &str = "seal_cpu";
/// Extra bytes held at the peak, by the engine's own account.
pub const EXTRA_REPORTED: &str = "seal_peak_extra_reported";
/// The same as seen from outside.
pub const EXTRA_SEEN: &str = "seal_peak_extra_seen";
/// The share that got 2 MB pages.
pub const HUGE_FRACTION: &str = "seal_huge_fraction";
/// How often a worker's memory is looked at while it seals.
const LOOK: Duration = Duration::from_millis(1);

/// Who seals memory of which pages.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::VariantArray)]
pub enum Way {
	/// The engine, from 4 KB pages to such.
	Small,
	/// The engine as it is by default, from 4 KB pages.
	Default,
	/// The same, from THP.
	DefaultFromThp,
	/// A copy in a tmpfs, from 4 KB pages.
	Tmpfs,
	/// The same, from THP.
	TmpfsFromThp,
}

impl Way {
	/// The method in records, and the pages asked for.
	fn key(self) -> (&'static str, Pages) {
		match self {
			Self::Small => ("seal", Pages::Small),
			Self::Default => ("seal", Pages::Auto),
			Self::DefaultFromThp => ("seal-from-thp", Pages::Auto),
			Self::Tmpfs => ("tmpfs", Pages::Auto),
			Self::TmpfsFromThp => ("tmpfs-from-thp", Pages::Auto),
		}
	}

	/// What fills the memory.
	fn source(self) -> Method {
		match self {
			Self::DefaultFromThp | Self::TmpfsFromThp => Method::ForkThp,
			_ => Method::Fork4k,
		}
	}

	fn seals(self) -> bool {
		!matches!(self, Self::Tmpfs | Self::TmpfsFromThp)
	}

	/// As tables call it.
	pub fn title(self) -> [&'static str; 2] {
		let from = if self.source() == Method::ForkThp { "THP" } else { "4 KB" };
		let to = match self {
			Self::Small => "sealed, 4 KB",
			Self::Default | Self::DefaultFromThp => "sealed",
			Self::Tmpfs | Self::TmpfsFromThp => "tmpfs",
		};
		[from, to]
	}
}

#[derive(Clone)]
struct Sealing {
	size: u64,
	way: Way,
	/// The CPU the sealing process was pinned to.
	cpu: usize,
	samples: Vec<Sample>,
}

#[derive(Clone, Copy)]
struct Sample {
	done: Done,
	/// How far the memory the process held rose above its level before, seen from outside while it sealed, in bytes.
	rise: u64,
}

impl Sealing {
	/// One record per figure; none when nothing was sealed.
	fn keep(&self, run: &mut Run) -> Result {
		let gb = self.size as f64 / f64::from(1 << 30);
		let of = |get: &dyn Fn(&Sample) -> f64| self.samples.iter().map(get).collect::<Vec<f64>>();
		let mut figures = vec![
			(TIME, "s/GB", of(&|sample| sample.done.seconds / gb)),
			(CPU, "s/GB", of(&|sample| sample.done.cpu / gb)),
		];
		if self.way.seals() {
			let sealed = |get: fn(&Sealed) -> f64| of(&|sample| sample.done.sealed.as_ref().map_or(0.0, get));
			figures.extend([
				(EXTRA_REPORTED, "bytes", sealed(|sealed| sealed.peak_extra_bytes as f64)),
				(EXTRA_SEEN, "bytes", of(&|sample| sample.rise as f64)),
				(HUGE_FRACTION, "ratio", sealed(Sealed::huge_fraction)),
			]);
		}
		let (method, pages) = self.way.key();
		figures.into_iter().try_for_each(|(measure, unit, samples)| {
			let row = Row::of(method, unit, json!({ "measure": measure, "size": self.size, "pages": pages }));
			run.keep(row.beside(json!({ "affinity": format!("cpu {}", self.cpu) })), samples)
		})
	}
}

/// Measures sealing for every planned size up to 1 GB, in all ways in turn, each time in a fresh process.
pub fn measure(plan: &Plan, run: &mut Run) -> Result {
	let mut ways = Way::VARIANTS.to_vec();
	let small = Spec { size: 4096, way: Way::Tmpfs, cpu: plan.cpu };
	if let Err(why) = Worker::<SealingSubject>::start("mounting a tmpfs", &small) {
		run.leave_out("a tmpfs beside the seals", why.to_string());
		ways.retain(|way| way.seals());
	}
	let sizes: Vec<u64> = plan.sizes.iter().copied().filter(|size| (1..=LARGEST).contains(size)).collect();
	for (index, &size) in sizes.iter().enumerate() {
		let deadline = run.deadline().part(1.0 / (sizes.len() - index) as f64);
		run.begin(&format!("{}: sealing", Size(size)), (ways.len() * plan.seals) as u64);
		let mut all: Vec<Sealing> =
			ways.iter().map(|&way| Sealing { size, way, cpu: plan.cpu, samples: Vec::new() }).collect();
		for order in shuffled_rounds(plan.seals, all.len(), size) {
			if run.interrupted() || (deadline.passed() && !all[0].samples.is_empty()) {
				break;
			}
			for index in order {
				let sealing = &mut all[index];
				match sample(size, sealing.way, plan.cpu) {
					Ok(sample) => sealing.samples.push(sample),
					Err(error) => {
						all.iter().try_for_each(|sealing| sealing.keep(run))?;
						return Err(error);
					}
				}
				run.step();
			}
		}
		all.iter().try_for_each(|sealing| sealing.keep(run))?;
	}
	Ok(())
}

/// The record of one figure of sealing `size` bytes.
pub fn find<'a>(document: &'a Document, figure: &str, size: u64, way: Way) -> Option<&'a Record> {
	let (method, pages) = way.key();
	document.find(EXPERIMENT, method, json!({ "measure": figure, "size": size, "pages": pages }))
}

fn sample(size: u64, way: Way, cpu: usize) -> Result<Sample> {
	let mut worker = Worker::<SealingSubject>::start(format!("sealing {}", Size(size)), &Spec { size, way, cpu })?;
	let pid = worker.pid();
	let before = held(pid)?;
	let mut peak = before;
	worker.send(&Ask::Seal)?;
	while !worker.answered_within(LOOK)? {
		peak = peak.max(held(pid)?);
	}
	let done = worker.receive()?.ok_or_else(|| unable!("a worker did not say what it sealed"))?;
	// Reads everything: a seal that loses bytes is not worth timing.
	worker.ask(&Ask::Verify)?;
	Ok(Sample { done, rise: peak - before })
}

/// The worker that seals once.
pub struct SealingSubject {
	way: Way,
	region: Region,
	tmpfs: Option<Tmpfs>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Spec {
	size: u64,
	way: Way,
	cpu: usize,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Ask {
	Seal,
	/// Check every byte.
	Verify,
}

/// What sealing came to.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Done {
	seconds: f64,
	/// Seconds of the CPU.
	cpu: f64,
	sealed: Option<Sealed>,
}

impl Subject for SealingSubject {
	const NAME: &'static str = "sealing";
	type Spec = Spec;
	type Ready = ();
	type Ask = Ask;
	type Reply = Option<Done>;

	fn prepare(spec: Spec) -> Result<(Self, ())> {
		pin::pin(spec.cpu)?;
		let warm = Warm::hold(spec.size)?;
		let region = Region::filled(spec.way.source(), spec.size)?;
		drop(warm);
		let tmpfs = if spec.way.seals() { None } else { Some(Tmpfs::mount()?) };
		Ok((Self { way: spec.way, region, tmpfs }, ()))
	}

	fn answer(&mut self, ask: Ask) -> Result<Option<Done>> {
		match ask {
			Ask::Seal => self.seal().map(Some),
			Ask::Verify => self.region.verify().map(|()| None),
		}
	}
}

impl SealingSubject {
	fn seal(&self) -> Result<Done> {
		let (begin, cpu) = (Instant::now(), cpu_seconds());
		let sealed = match &self.tmpfs {
			Some(tmpfs) => tmpfs.replace(&self.region).map(|()| None),
			None => engine::seal(self.way.key().1, self.region.bytes()).map(Some),
		}?;
		let seconds = sealed.map_or_else(|| begin.elapsed().as_secs_f64(), |sealed| sealed.seconds);
		Ok(Done { seconds, cpu: cpu_seconds() - cpu, sealed })
	}
}

/// Of this process, its threads' included.
fn cpu_seconds() -> f64 {
	nanoseconds(ClockId::ProcessCPUTime) as f64 / 1e9
}
