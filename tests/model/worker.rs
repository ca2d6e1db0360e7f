//! The tested process.

use crate::{
	content::PAGE,
	journal::{Journal, Places},
	leaderless,
	mode::{Allocator, Mode},
	rollback,
	seeds::Seed,
	template::{Library, Template},
	threads,
	world::{
		World,
		space::{self, Space},
	},
	writer::Writer,
};
use flashfork_core::odf;
use flashfork_tests::{
	Result, past,
	route::{Route, Via},
};
use std::{
	fs::File,
	os::unix::fs::OpenOptionsExt,
	path::{Path, PathBuf},
	process::ExitCode,
};

/// What a tested process is given.
pub struct Job {
	pub seed: Seed,
	/// Others act on its memory too, which is small; from this disk among other places.
	pub company: Option<PathBuf>,
	/// Where the objects lie that call past the shim.
	pub objects: Option<PathBuf>,
	/// The turn taken on plain memory, with rollbacks.
	pub turn: u64,
	/// Whether restores copy back what was written.
	pub copies: bool,
}

/// Runs a seed in this process and prints how much the engine did: the most pages sealed at once, of libraries where
/// there are any, or page tables shared.
pub fn run(job: &Job, places: &Places) -> ExitCode {
	match prepare(job, places) {
		Ok((mut world, shared)) => {
			let result = live(&mut world, job, places);
			if result.is_ok() && job.seed.mode == Mode::Leaderless {
				let rest = job.seed.steps - before_the_end(job);
				leaderless::go_on(move || {
					let result = world.walk(rest);
					conclude(&world, result, None)
				});
			}
			ExitCode::from(conclude(&world, result, shared) as u8)
		}
		Err(message) => {
			eprintln!("model: {message}");
			ExitCode::FAILURE
		}
	}
}

/// Prints what was counted, or what went wrong; the exit status.
fn conclude(world: &World, result: Result, shared: Option<Shared>) -> i32 {
	match result.and_then(|()| shared.map(Shared::since).transpose()) {
		Ok(shared) => {
			let sealed = if world.mode == Mode::Libraries { world.most_of_libraries } else { world.most_sealed };
			println!("{}", shared.unwrap_or(sealed as u64));
			0
		}
		Err(message) => world.end(Err(message)),
	}
}

/// Steps that the main thread takes before it ends.
fn before_the_end(job: &Job) -> usize {
	job.seed.steps / 2
}

/// Takes all steps, with what the mode surrounds them with.
fn live(world: &mut World, job: &Job, places: &Places) -> Result {
	let Seed { seed, steps, .. } = job.seed;
	match job.seed.mode {
		Mode::Alone | Mode::Heap => world.walk(steps),
		Mode::PastShim | Mode::Flags => {
			let objects = objects(job)?;
			past::load(Via::Handle, objects)?;
			past::load(Via::Bound, objects)?;
			world.walk(steps)
		}
		Mode::Raw => {
			// Late enough for seals to come first.
			let before = world.rng.between(steps / 3, steps - 1);
			world.take(before)?;
			past::load(Via::Raw, objects(job)?)?;
			world.table.grow_old();
			world.walk(steps / 2)
		}
		Mode::Libraries => {
			let path = objects(job)?.join("library");
			world.mapped = Some(Library::open(&path).map_err(|e| format!("{}: {e}", path.display()))?);
			world.walk(steps)
		}
		Mode::Writers => {
			world.writer = Some(Writer::start()?);
			world.walk(steps)
		}
		Mode::Threads => {
			let mut others = threads::prepare(world, job, places)?;
			threads::run(world, &mut others, steps)
		}
		// The rest is another thread's.
		Mode::Leaderless => world.take(before_the_end(job)),
		Mode::Rollback => rollback::run(world, seed, steps, job.turn, job.copies),
	}
}

fn objects(job: &Job) -> Result<&Path> {
	job.objects.as_deref().ok_or_else(|| "--objects is missing".into())
}

fn prepare(job: &Job, places: &Places) -> Result<(World, Option<Shared>)> {
	let Seed { seed, route, mode, allocator, .. } = job.seed;
	// On plain memory too.
	if job.company.is_some() || job.seed.is_small() {
		space::be_small();
	}
	let shared = match route {
		Route::Odf => {
			odf::enable().map_err(|why| format!("no forks on demand here: {why:?}"))?;
			Some(Shared::now()?)
		}
		_ => None,
	};
	let template = Template::new().map_err(|e| format!("no file to map: {e}"))?;
	let journal = Journal::open(places, "p")?;
	let space = match mode {
		// The allocator needs all the heap.
		Mode::Heap | Mode::PastShim | Mode::Raw | Mode::Threads => {
			if seed.is_multiple_of(2) && allocator == Allocator::Glibc {
				// SAFETY: one thread; a number. Otherwise it rises with what is freed.
				unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) };
			}
			Space::of_thread(0)
		}
		_ => Space::new(own_heap()?),
	};
	let mut world = World::new(seed, route, mode, journal, space, template);
	if let Some(disk) = &job.company {
		world.company = true;
		let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(disk);
		world.disk = match direct {
			Ok(disk) => Some(disk),
			// A file system without direct reads.
			Err(e) if e.raw_os_error() == Some(libc::EINVAL) => None,
			Err(e) => return Err(format!("{}: {e}", disk.display())),
		};
	}
	Ok((world, shared))
}

/// Counters of `/proc/vmstat`: page tables shared, and those found shared where none should be.
struct Shared {
	shared: u64,
	late: u64,
}

impl Shared {
	fn now() -> Result<Shared> {
		let text = std::fs::read_to_string("/proc/vmstat").map_err(|e| format!("/proc/vmstat: {e}"))?;
		let value = |name: &str| {
			let of_line = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
			text.lines().find_map(of_line).ok_or_else(|| format!("/proc/vmstat has no {name}"))
		};
		Ok(Shared { shared: value("odf_share ")?, late: value("odf_late ")? })
	}

	fn since(self) -> Result<u64> {
		let now = Shared::now()?;
		match now.late - self.late {
			0 => Ok(now.shared - self.shared),
			late => Err(format!("{late} page tables were found shared where none should be (odf_late)")),
		}
	}
}

/// Gives libc as much of the heap as it will need, so that it does not move the break itself any more; what lies behind
/// is under test. Returns where that starts.
fn own_heap() -> Result<usize> {
	const FOR_LIBC: i32 = 16 << 20;
	// SAFETY: one thread; the first allocation after the change makes room, and the rest goes to mmap.
	unsafe {
		libc::mallopt(libc::M_TOP_PAD, FOR_LIBC);
		libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
		libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
		// More than what is free now, less than what goes to mmap: the heap must grow.
		let blocks: Vec<_> = (0..4).map(|_| std::hint::black_box(libc::malloc(100 << 10))).collect();
		for block in blocks {
			libc::free(block);
		}
		let end = libc::sbrk(0) as usize;
		let aligned = end.next_multiple_of(PAGE);
		libc::sbrk((aligned - end) as isize);
		if libc::sbrk(0) as usize != aligned {
			return Err("the heap can't be extended".into());
		}
		Ok(aligned)
	}
}
