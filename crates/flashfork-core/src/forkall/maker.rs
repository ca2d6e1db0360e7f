//! The process that makes the clones, and what it keeps.

use super::frozen::{Frozen, STACK};
use super::unfit::Unfit;
use super::{alike, attributes, descriptors, look, memory, pairs, pending, rest, settings, stop, timers};
use crate::outcome::Pages;
use crate::proc::text::{decimal, read_file};
use crate::range::Range;
use crate::report::Sealed;
use crate::scratch;
use crate::sys::{self, Result};
use linux_raw_sys::general as k;

/// Starts the maker, which runs `run` in this process's memory and with its signal handlers, and with a copy of its
/// descriptors. It is a child of this process's parent, blocks all signals, and must not use thread-local storage: so
/// it calls nothing of libc. Gives its process.
pub fn start(run: fn(&'static mut Frozen) -> !) -> Result<i32> {
    const FLAGS: u32 = k::CLONE_VM | k::CLONE_SIGHAND | k::CLONE_PARENT | k::CLONE_UNTRACED;
    let at = scratch::map(size_of::<Frozen>())?;
    let mask = sys::block_signals()?;
    // SAFETY: a fresh mapping of the right size, whose zeros are a valid `Frozen` (integers, empty tables, None); the
    // caller hands it to the maker and touches it no more.
    let started = unsafe {
        let frozen = &mut *(at as *mut Frozen);
        frozen.run = Some(run);
        frozen.pid = sys::getpid();
        frozen.streams = descriptors::streams();
        frozen.one_output = descriptors::is_one_file(1, 2);
        let top = (&raw mut frozen.stack) as usize + STACK;
        crate::stack::clone_on(top, FLAGS as usize, &frozen.alive, begin, at as *mut u8)
    };
    sys::restore_signals(mask);
    if started.is_err() {
        // SAFETY: nobody uses it.
        let _ = unsafe { sys::munmap(at, size_of::<Frozen>()) };
    }
    started
}

extern "C" fn begin(frozen: *mut u8) -> ! {
    // SAFETY: `start` passes its mapping and leaves it alone from then on.
    let frozen = unsafe { &mut *frozen.cast::<Frozen>() };
    match frozen.run {
        Some(run) => run(frozen),
        None => sys::exit(1),
    }
}

impl Frozen {
    /// The program's process, as the maker sees it.
    pub fn pid(&self) -> i32 {
        self.pid
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

    /// Stops all threads, looks at everything that clones are to have, and ends the program. On an error they stand
    /// still all the same, until the maker ends, which ends the program.
    ///
    /// The `own` descriptors of the maker get numbers that the program has none of.
    pub fn freeze(&mut self, own: &mut [&mut i32]) -> core::result::Result<(), Unfit> {
        alike::before(self)?;
        stop::stop(self)?;
        look::threads(self)?;
        self.monotonic = clock(k::CLOCK_MONOTONIC);
        self.boottime = clock(k::CLOCK_BOOTTIME);
        timers::look(self)?;
        pending::look(self)?;
        alike::check(self)?;
        attributes::check(self)?;
        self.drops = alike::drops_capabilities(self.pid, &mut self.small)?;
        descriptors::look(self, own)?;
        rest::look(self)?;
        for (next, thread) in self.next.iter_mut().zip(&self.threads[..self.count]) {
            *next = thread.next;
        }
        memory::look(self)?;
        settings::look(self)?;
        self.leave()?;
        pairs::end_connections(&mut self.files)
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
