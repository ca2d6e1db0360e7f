//! The worker of `bench advise`: a process of one shape, which forks when asked.

use std::ptr::null_mut;

use rustix::{
	mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect},
	time::ClockId,
};

use crate::{
	prelude::*,
	subjects::{
		clock::nanoseconds,
		engine::{self, Side},
	},
};

const MB: usize = 1 << 20;
const PAGE: usize = 4096;
const MAPPINGS: usize = 1000;

/// What a process's memory looks like.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Shape {
	/// Nothing but the program.
	Small,
	#[strum(serialize = "64 MB on 4 KB pages")]
	Pages64,
	#[strum(serialize = "256 MB on 4 KB pages")]
	Pages256,
	#[strum(serialize = "256 MB on huge pages")]
	Huge256,
	/// A thousand mappings of a page.
	#[strum(serialize = "1000 mappings")]
	Mappings,
}

impl Shape {
	/// The memory it takes, in bytes.
	pub fn bytes(self) -> u64 {
		let bytes = match self {
			Self::Small => 0,
			Self::Pages64 => 64 * MB,
			Self::Pages256 | Self::Huge256 => 256 * MB,
			Self::Mappings => MAPPINGS * PAGE,
		};
		bytes as u64
	}

	/// Maps it, never to be unmapped.
	fn map(self) -> Result {
		let bytes = self.bytes() as usize;
		if bytes == 0 {
			return Ok(());
		}
		let doing = format!("map {}", self.as_ref());
		let advice = if self == Self::Huge256 { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
		// SAFETY: a new mapping, touched within its bounds; nothing is written to a page after it is made read-only.
		unsafe {
			let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
			let begin = mmap_anonymous(null_mut(), bytes + 2 * MB, prot, flags).or_cant(&doing)?;
			let begin = begin.map_addr(|address| address.next_multiple_of(2 * MB)).cast::<u8>();
			// Where the kernel knows no huge pages, pages are as they are.
			let _ = madvise(begin.cast(), bytes, advice);
			(0..bytes).step_by(PAGE).for_each(|at| begin.add(at).write_volatile(7));
			if self == Self::Mappings {
				for page in (1..MAPPINGS).step_by(2) {
					mprotect(begin.add(page * PAGE).cast(), PAGE, MprotectFlags::READ).or_cant(&doing)?;
				}
			}
		}
		Ok(())
	}
}

pub struct ShapeSubject;

impl Subject for ShapeSubject {
	const NAME: &'static str = "shape";
	type Spec = Shape;
	type Ready = ();
	/// How many forks.
	type Ask = u32;
	/// What each took, in microseconds of the processor.
	type Reply = Vec<f64>;

	fn prepare(shape: Shape) -> Result<(Self, ())> {
		shape.map()?;
		Ok((Self, ()))
	}

	fn answer(&mut self, forks: u32) -> Result<Vec<f64>> {
		(0..forks).map(|_| timed_fork()).collect()
	}
}

/// What the fork call takes, in microseconds.
fn timed_fork() -> Result<f64> {
	let begin = processor_time();
	// SAFETY: the child ends at once.
	let side = unsafe { engine::fork(Method::Fork4k) };
	let took = processor_time() - begin;
	match side.or_cant("fork")? {
		// SAFETY: ends the process.
		Side::Child => unsafe { libc::_exit(0) },
		Side::Parent(pid) => match engine::reap(pid)?.exit_status() {
			Some(0) => Ok(took),
			_ => Err(BenchError::Void("a child that had only to end ended otherwise".into())),
		},
	}
}

/// Time of the processor spent by this thread, in microseconds.
fn processor_time() -> f64 {
	nanoseconds(ClockId::ThreadCPUTime) as f64 / 1e3
}
