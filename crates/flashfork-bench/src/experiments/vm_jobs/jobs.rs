//! Jobs, one machine for each CPU at a time.

use std::{
	collections::BTreeMap,
	sync::atomic::{AtomicU64, Ordering},
};

use flashfork_vmm::pool::Shell;
use procfs::process::Process;

use super::{
	found::{Cell, Measure, Method},
	guests::{Guests, Kind, Ready},
};
use crate::{
	prelude::*,
	subjects::{cpu::cpu_time, vm_host::vm},
};

/// Jobs of each CPU in a batch; even, so that mixed ones are as many of each kind. A boot takes long.
const JOBS: u64 = 4;
const JOBS_BOOTED: u64 = 2;

/// Each job is another one.
static NUMBER: AtomicU64 = AtomicU64::new(1);

struct Done {
	/// From the request until the machine waited for its job.
	ready: Duration,
	/// From then until its output was there.
	job: Duration,
}

type Alive = BTreeMap<Kind, Shell>;

/// Some jobs of a cell on each of `cpus` CPUs.
pub fn batch(guests: &Guests<'_>, cell: Cell, cpus: usize) -> Result<Visit<Measure>> {
	let mut alive: Vec<Alive> = Vec::new();
	for _ in 0..cpus {
		alive.push(if let Method::Rollback(_) = cell.method { to_roll_back(guests, cell)? } else { Alive::new() });
	}
	let earlier = alive.iter().flat_map(BTreeMap::values).map(system_time).sum::<Result<f64, _>>()?;
	let ((_, system), start) = (cpu_time(), Instant::now());
	// The machines that a thread begins end before it.
	let done = std::thread::scope(|scope| {
		let lanes: Vec<_> =
			(0..).zip(&mut alive).map(|(lane, alive)| scope.spawn(move || jobs(guests, cell, lane, alive))).collect();
		lanes.into_iter().map(|lane| lane.join().map_err(|_| vm("a thread panicked"))?).collect::<Result<Vec<_>, _>>()
	})?;
	let wall = start.elapsed();
	// What they used is counted with what has ended.
	drop(alive);
	let system = cpu_time().1 - system - earlier;
	let done: Vec<Done> = done.into_iter().flatten().collect();
	let us = |of: fn(&Done) -> Duration| done.iter().map(|done| of(done).as_secs_f64() * 1e6).collect::<Vec<_>>();
	let count = done.len() as f64;
	Ok(vec![
		(Measure::Latency, us(|done| done.ready + done.job)),
		(Measure::Ready, us(|done| done.ready)),
		(Measure::Job, us(|done| done.job)),
		(Measure::Throughput, vec![count / wall.as_secs_f64()]),
		(Measure::System, vec![system.max(0.0) / count]),
	])
}

/// The jobs of one CPU, one after another.
fn jobs(guests: &Guests<'_>, cell: Cell, lane: usize, alive: &mut Alive) -> Result<Vec<Done>> {
	let jobs = if cell.method == Method::Boot { JOBS_BOOTED } else { JOBS };
	let kinds = cell.work.kinds();
	let one = |kind: Kind| {
		let number = NUMBER.fetch_add(1, Ordering::Relaxed);
		let ready = match cell.method {
			Method::Boot => guests.boot(kind)?,
			Method::Clone(pages) => guests.clone(kind, pages, number)?,
			Method::Rollback(_) => {
				let shell = alive.remove(&kind).ok_or_else(|| vm("no clone to roll back"))?;
				Guests::roll_back(shell, number)?
			}
		};
		let (shell, done) = finish(ready, kind, number)?;
		if let Method::Rollback(_) = cell.method {
			alive.insert(kind, shell);
		}
		Ok(done)
	};
	(lane..).take(jobs as usize).map(|turn| kinds[turn % kinds.len()]).map(one).collect()
}

/// Clones that have done a job.
fn to_roll_back(guests: &Guests<'_>, cell: Cell) -> Result<Alive> {
	let pages = cell.method.template().ok_or_else(|| vm("no template"))?;
	let one = |&kind: &Kind| {
		let number = NUMBER.fetch_add(1, Ordering::Relaxed);
		Ok((kind, finish(guests.clone(kind, pages, number)?, kind, number)?.0))
	};
	cell.work.kinds().iter().map(one).collect()
}

fn finish(ready: Ready, kind: Kind, number: u64) -> Result<(Shell, Done)> {
	let Ready { shell, mut agent, took } = ready;
	let start = Instant::now();
	kind.work(&mut agent, number)?;
	Ok((shell, Done { ready: took, job: start.elapsed() }))
}

/// Microseconds that a shell has used in the kernel, in steps of some milliseconds.
fn system_time(shell: &Shell) -> Result<f64> {
	let stat = Process::new(shell.pid() as i32).and_then(|process| process.stat());
	let stat = stat.or_cant("read a shell's time")?;
	Ok(stat.stime as f64 * 1e6 / procfs::ticks_per_second() as f64)
}
