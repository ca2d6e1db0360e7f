//! On-demand fork from Rust, on whatever kernel runs the tests: granted and shared, or refused in words with forks as
//! before.

#[macro_use]
mod common;
use common::{Child, populated, wait};
use flashfork::{Forked, Host, OdfError, odf};

const SIZE: usize = 32 << 20;

fn fork_and_write(memory: &mut [u8], fork: impl Fn() -> Forked) {
	match fork() {
		Forked::Child => {
			memory[SIZE / 2] = 9;
			let right = memory.iter().step_by(4096).filter(|b| **b != 7).count() == 1;
			// SAFETY: ends the clone.
			unsafe { libc::_exit(i32::from(!right)) }
		}
		Forked::Parent(pid) => assert_eq!(wait(pid), 0),
	}
	assert!(memory.iter().step_by(4096).all(|b| *b == 7));
}

/// Tables shared since boot, or `None` where the kernel shares none.
fn shared() -> Option<u64> {
	let text = std::fs::read_to_string("/proc/vmstat").unwrap();
	text.lines().find_map(|line| line.strip_prefix("odf_share ")?.parse().ok())
}

#[test]
fn what_the_host_is_said_to_be_able_to_is_what_happens() {
	in_child!();
	let memory = populated(SIZE, libc::MADV_NOHUGEPAGE);
	let granted = odf::enable();
	let said = Host::probe().capability("on_demand_fork").unwrap().available;
	assert_eq!(granted.is_ok(), said, "{granted:?}");
	// SAFETY: one thread.
	let fork = || unsafe { flashfork::fork() }.unwrap();
	let before = shared();
	fork_and_write(memory, fork);
	let stats = flashfork::stats();
	match granted {
		Ok(()) => {
			assert_eq!((odf::is_enabled().unwrap(), stats.on_demand_forks, stats.plain_forks), (true, 1, 0));
			assert!(shared() > before, "no table was shared");
			odf::disable().unwrap();
			fork_and_write(memory, fork);
			assert_eq!((odf::is_enabled().unwrap(), flashfork::stats().plain_forks), (false, 1));
		}
		Err(why) => {
			assert!(matches!(why, OdfError::NoKernel | OdfError::SwitchedOff), "{why}");
			assert_eq!((stats.on_demand_forks, stats.plain_forks), (0, 1));
		}
	}
}

#[test]
fn one_fork_alone_can_be_on_demand() {
	in_child!();
	let memory = populated(SIZE, libc::MADV_NOHUGEPAGE);
	if let Err(why) = odf::enable() {
		// SAFETY: refused, so there is no clone.
		assert_eq!(unsafe { odf::clone() }.unwrap_err().to_string(), why.to_string());
		return;
	}
	odf::disable().unwrap();
	let before = shared();
	// SAFETY: the clone writes memory, compares it and ends.
	fork_and_write(memory, || unsafe { odf::clone() }.unwrap());
	assert!(shared() > before, "no table was shared");
	assert!(!odf::is_enabled().unwrap());
}
