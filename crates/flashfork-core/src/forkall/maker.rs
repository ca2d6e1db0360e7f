//! The process that makes the clones, and what it keeps.

use super::{
	alike, attributes, descriptors,
	frozen::{Frozen, STACK},
	generators, held, look, memory, pairs, pending,
	raw::behind_number,
	rest, settings, signalled, stop, timers,
	trampoline::Trampoline,
	unfit::Fit,
};
use crate::{
	outcome::Pages,
	proc::{
		text::{decimal, read_file},
		vma,
	},
	range::Range,
	report::Sealed,
	scratch,
	sys::{self, Result},
};
use linux_raw_sys::general as k;

/// Prepares what the maker of this process's clones will be made by: gives the address of a [`Trampoline`]. To be
/// called before the program's own code runs. The maker runs `run`, in this process's memory and with its signal
/// handlers, with all signals blocked and the main thread's thread pointer: it calls nothing of libc.
pub fn prepare(run: fn(&'static mut Frozen) -> !) -> Result<usize> {
	let at = scratch::map(size_of::<Frozen>())?;
	// SAFETY: a fresh mapping of the right size, whose zeros are a valid `Frozen` (integers, empty tables, None).
	// Nobody else knows of it.
	let frozen = unsafe { &mut *(at as *mut Frozen) };
	frozen.run = Some(run);
	frozen.pid = sys::getpid();
	frozen.streams = descriptors::streams();
	frozen.one_output = descriptors::is_one_file(1, 2);
	// For the trampoline, which takes it from there.
	let (word, stack) = (STACK - size_of::<usize>(), (&raw mut frozen.stack) as usize);
	frozen.stack[word..].copy_from_slice(&at.to_ne_bytes());
	frozen.trampoline = Trampoline::new(
		behind_number(bounce as *const () as usize),
		stack + word,
		(&raw const frozen.answers) as usize,
	);
	Ok((&raw const frozen.trampoline) as usize)
}

/// Begins [`behind_number`]. Executed by the main thread for each call that it is made to make, and left there; and by
/// what it makes, whose stack holds the address of [`super::Frozen`].
#[unsafe(naked)]
unsafe extern "C" fn bounce() -> ! {
	core::arch::naked_asm!(
		"mov eax, 39",
		"syscall",
		"test rax, rax",
		"jnz 2f",
		"xor ebp, ebp",
		"pop rdi",
		"call {begin}",
		"2:",
		"ud2",
		begin = sym begin,
	)
}

extern "C" fn begin(frozen: *mut Frozen) -> ! {
	// SAFETY: `prepare` has put its mapping where the trampoline takes it from; there is one maker, and nobody else
	// uses it.
	let frozen = unsafe { &mut *frozen };
	match frozen.run {
		Some(run) => run(frozen),
		None => sys::exit(1),
	}
}

impl Frozen {
	/// The maker's socket, of the pair made by an injected call.
	pub fn line(&self) -> i32 {
		(self.answers[0] >> 32) as i32
	}

	/// Whether it has a library whose file's name begins so.
	pub fn has_library(&mut self, name: &[u8]) -> Result<bool> {
		let mut has = false;
		vma::for_each_mapping(&mut self.text, |_, path| {
			has |= path.rsplit(|b| *b == b'/').next().is_some_and(|file| file.starts_with(name));
			Ok(())
		})?;
		Ok(has)
	}

	/// How many threads it has.
	pub fn threads(&self) -> usize {
		self.count
	}

	/// Numbers of which none of its threads has one, for clones' processes: above the first, and up to the second. The
	/// longest such row.
	pub fn free_numbers(&self) -> [i32; 2] {
		let mut text = [0; 64];
		let most = read_file(c"/proc/sys/kernel/pid_max", &mut text).ok().and_then(|text| decimal(text.trim_ascii()));
		// What a namespace's own processes have are below.
		let (low, end) = (300, most.unwrap_or(32768) as i32);
		longest_row(low, end, self.threads[..self.count].iter().map(|thread| thread.tid))
	}

	/// `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` when the program stood still, in nanoseconds.
	pub fn clocks(&self) -> [u64; 2] {
		[self.monotonic, self.boottime]
	}

	/// Before anything else: whether the maker can do its work.
	pub fn before() -> Fit {
		attributes::before()
	}

	/// Clones don't have this descriptor, if the program has it still: it is the engine's own, and no program's. The
	/// identity is its device and inode.
	pub fn hide(&mut self, number: i32, [device, inode]: [u64; 2]) {
		self.hidden = [number as u64, device, inode];
	}

	/// Stops all threads, looks at everything that clones are to have, and ends the program. On an error they stand
	/// still all the same, until the maker ends, which ends the program.
	///
	/// The `own` descriptors of the maker get numbers that the program has none of. `in_child`: addresses of what was
	/// registered to run in children (`pthread_atfork(3)`). `renews`: the program has functions that renew in clones
	/// what must not be alike.
	pub fn freeze(&mut self, own: &mut [&mut i32], in_child: impl Iterator<Item = usize> + Clone, renews: bool) -> Fit {
		stop::stop(self)?;
		look::threads(self)?;
		self.monotonic = clock(k::CLOCK_MONOTONIC);
		self.boottime = clock(k::CLOCK_BOOTTIME);
		timers::look(self)?;
		pending::look(self)?;
		signalled::look(self)?;
		alike::check(self)?;
		attributes::check(self)?;
		self.drops = alike::drops_capabilities(self.pid, &mut self.small)?;
		descriptors::look(self, own)?;
		rest::look(self)?;
		for (next, thread) in self.next.iter_mut().zip(&self.threads[..self.count]) {
			*next = thread.next;
		}
		memory::look(self)?;
		held::check(self)?;
		generators::look(self, in_child, renews)?;
		settings::look(self)?;
		self.leave()?;
		pairs::end_connections(&mut self.files)
	}

	/// Has Java's archives of classes sealed, too. To be called between the two.
	pub fn hold_archives(&mut self) -> Result<()> {
		memory::hold_archives(self)
	}

	/// Seals the program's memory. To be called after [`Frozen::freeze`].
	pub fn seal(&'static self, pages: Pages) -> Sealed {
		let at = &raw const *self as usize;
		let own = Range::new(at, at + size_of::<Frozen>());
		crate::seal::seal_frozen(pages, [own, self.frames_range()], &self.next[..self.count])
	}
}

fn clock(which: u32) -> u64 {
	let mut t = [0u64; 2];
	// SAFETY: the kernel writes one struct timespec to a local.
	let _ = unsafe { super::raw::call(syscalls::Sysno::clock_gettime, [which as usize, (&raw mut t) as usize]) };
	t[0] * 1_000_000_000 + t[1]
}

/// The longest row of numbers above `low` and below `end` that are none of these.
fn longest_row(low: i32, end: i32, taken: impl Iterator<Item = i32> + Clone) -> [i32; 2] {
	let above = |low: i32| [low, taken.clone().filter(|number| *number > low).fold(end, i32::min) - 1];
	let rows = taken.clone().map(|number| above(number.max(low)));
	rows.fold(above(low), |best, row| if row[1] - row[0] > best[1] - best[0] { row } else { best })
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn clones_have_numbers_though_the_highest_is_taken() {
		assert_eq!(longest_row(300, 32768, [32767, 2].into_iter()), [300, 32766]);
		assert_eq!(longest_row(300, 32768, [32767, 5000].into_iter()), [5000, 32766]);
		assert_eq!(longest_row(300, 32768, [30000, 31000].into_iter()), [300, 29999]);
		assert_eq!(longest_row(300, 32768, [500].into_iter()), [500, 32767]);
	}
}
