//! The cost model against this machine.

#[macro_use]
mod common;
use common::{Child, in_child, populated, wait};
use flashfork::{
	CostError, CostModel, Pages, Reason, SealOptions,
	cost::{Engine, Memory, Writes},
};
use std::{
	io::{Read, Write},
	time::{Duration, Instant},
};

const SIZE: usize = 64 << 20;

fn median_fork() -> Duration {
	let mut took: Vec<_> = (0..25)
		.map(|_| {
			let start = Instant::now();
			// SAFETY: the clone only ends.
			let pid = unsafe { libc::fork() };
			if pid == 0 {
				// SAFETY: ends the clone.
				unsafe { libc::_exit(0) };
			}
			let took = start.elapsed();
			assert_eq!(wait(pid), 0);
			took
		})
		.collect();
	took.sort_unstable();
	took[12]
}

fn pin() {
	// SAFETY: an all-zero set is valid; the calls write and read that local.
	unsafe {
		let mut set: libc::cpu_set_t = std::mem::zeroed();
		let size = size_of_val(&set);
		assert_eq!(libc::sched_getaffinity(0, size, &raw mut set), 0);
		let last = (0..libc::CPU_SETSIZE as usize).rev().find(|cpu| libc::CPU_ISSET(*cpu, &set)).unwrap();
		libc::CPU_ZERO(&mut set);
		libc::CPU_SET(last, &mut set);
		assert_eq!(libc::sched_setaffinity(0, size, &raw const set), 0);
	}
}

/// The fork call with 64 MB of it, measured in its own process.
fn measured(engine: Engine) -> Duration {
	let (mut receive, mut send) = std::io::pipe().unwrap();
	in_child(|| {
		pin();
		let advice = if engine == Engine::Fork { libc::MADV_NOHUGEPAGE } else { libc::MADV_NORMAL };
		populated(SIZE, advice);
		if engine == Engine::Seal {
			assert!(flashfork::seal(&SealOptions::default()).unwrap().sealed_bytes >= SIZE as u64 / 2);
		}
		let ns = u64::try_from(median_fork().as_nanos()).unwrap();
		send.write_all(&ns.to_ne_bytes()).unwrap();
	});
	let mut ns = [0; 8];
	receive.read_exact(&mut ns).unwrap();
	Duration::from_nanos(u64::from_ne_bytes(ns))
}

/// Other programs may keep the machine busy while one of the two is measured: up to three attempts, and in `make
/// test-all` only, since it compares times.
#[test]
#[ignore = "compares times: make test-all"]
fn predictions_are_near_what_is_measured() {
	let mut seen = String::new();
	let near = (0..3).any(|_| {
		let model = CostModel::calibrate().unwrap();
		println!("calibrated in {} s", model.calibration_seconds);
		[Engine::Fork, Engine::Seal].into_iter().all(|engine| {
			let predicted = model.fork_time(engine, Memory::clean(SIZE as u64)).unwrap();
			let measured = measured(engine);
			seen += &format!("{engine:?}: predicted {predicted:?}, measured {measured:?}\n");
			(1.0 / 3.0..3.0).contains(&(predicted.as_secs_f64() / measured.as_secs_f64()))
		})
	});
	assert!(near, "{seen}");
}

/// What a machine can only be if the prices are wrong: they compare times, too.
#[test]
#[ignore = "compares times: make test-all"]
fn the_prices_make_sense() {
	let model = CostModel::calibrate().unwrap();
	for p in [model.fork, model.cycle] {
		assert!((1e3..1e8).contains(&p.process), "{model:#?}");
		assert!(p.page > 0.0 && p.vma > 0.0 && p.dirty_page + p.dirty_region > 0.0, "{model:#?}");
		assert!(p.huge_page < 512.0 * p.page, "{model:#?}");
	}
	assert!(model.fork.process < model.cycle.process);
	assert!(model.write_fork.page > 0.0 && model.write_seal.page > 0.0, "{model:#?}");
	let gb = Memory::clean(1 << 30);
	let written = Writes { pages: 25, regions: 25 };
	assert!(model.break_even_forks(Engine::Fork, gb, written).is_some_and(|n| n < 100_000), "{model:#?}");
	for pages in [Pages::Auto, Pages::Small] {
		let took = model.seal_time(pages, 1 << 30);
		assert!((0.01..100.0).contains(&took.as_secs_f64()), "{model:#?}");
	}
}

#[test]
fn every_price_is_measured() {
	let model = CostModel::calibrate().unwrap();
	let writes = [Some(model.write_fork), Some(model.write_seal), model.write_fork_thp, model.write_odf];
	let writes = writes.into_iter().flatten().flat_map(|w| [w.region, w.page, w.residual]);
	let forks = [model.fork, model.cycle].into_iter().flat_map(|p| {
		[p.process, p.page, p.huge_page, p.vma, p.dirty_region, p.dirty_page, p.shared_table, p.residual]
	});
	let seals = [model.seal, model.seal_small].into_iter().flat_map(|s| [s.look, s.gb, s.residual]);
	let all: Vec<f64> = writes.chain(forks).chain(seals).chain([model.calibration_seconds]).collect();
	assert!(all.iter().all(|price| price.is_finite() && *price >= 0.0), "{model:#?}");
	assert!(model.fork.process > 0.0 && model.cycle.process > 0.0, "{model:#?}");
}

#[test]
fn where_nothing_can_be_sealed_calibrating_says_why() {
	in_child!();
	let lowered = libc::rlimit { rlim_cur: 1 << 40, rlim_max: 1 << 40 };
	// SAFETY: the struct is valid.
	assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const lowered) }, 0);
	let error = CostModel::calibrate().unwrap_err();
	assert!(matches!(error, CostError::Refused(Reason::FileSizeLimit)), "{error}");
}

#[test]
fn the_caller_stays_unsealed_and_unpinned() {
	in_child!();
	// SAFETY: an all-zero set is valid; the call writes that local.
	let allowed = || unsafe {
		let mut set: libc::cpu_set_t = std::mem::zeroed();
		assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
		libc::CPU_COUNT(&set)
	};
	let memory = populated(SIZE, libc::MADV_NORMAL);
	let before = allowed();
	CostModel::calibrate().unwrap();
	assert_eq!(allowed(), before);
	assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("flashfork:"));
	assert_eq!(flashfork::stats(), flashfork::Stats::default());
	assert!(memory.iter().step_by(4096).all(|b| *b == 7));
}
