//! Seals of so much memory that it lies in its own tmpfs, by who may mount.

#[macro_use]
mod common;
use common::{
	Child, auto_seals, forked, holds_in_fork, intact, is_linux, maps, maps_line,
	memory::{BOTH, PAGE, advised, file, map, protect, unmap},
	pattern, patterned, until, wait,
};
use flashfork_core::{Pages, has_sealed, seal, unseal};
use std::{
	fs,
	io::{ErrorKind, Read, Write},
	os::{
		fd::AsRawFd,
		unix::fs::{FileExt, MetadataExt},
	},
};

const LEN: usize = (40 << 20) + 12 * 4096;
const HUGE: usize = 2 << 20;

/// Whether this host lets such a mount be made, by what it says of itself; else why not.
fn host_mounts() -> Result<(), String> {
	let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
	let status = read("/proc/self/status");
	let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
	match () {
		() if !is_linux(6, 12) => Err(format!("Linux {}", read("/proc/sys/kernel/osrelease"))),
		() if read("/sys/kernel/mm/transparent_hugepage/shmem_enabled").contains("[deny]") => {
			Err("2 MB pages of tmpfs are forbidden".into())
		}
		() if field("Seccomp:") != "0" => Err("there is a filter of system calls".into()),
		// CAP_SYS_ADMIN
		() if !u64::from_str_radix(field("CapEff:"), 16).is_ok_and(|caps| caps & 1 << 21 != 0) => {
			Err("mounting takes CAP_SYS_ADMIN".into())
		}
		() => Ok(()),
	}
}

/// Goes on where the host lets such a mount be made.
macro_rules! on_hosts_that_mount {
	() => {
		if let Err(why) = host_mounts() {
			return println!("left out: {why}");
		}
		in_child!();
	};
}

/// The device that a mapping's file lies on, as the list of mappings has it: "00:01" for every memfd.
fn device<T>(at: *const T) -> String {
	let mapping = maps::mapping(at).unwrap();
	assert!(mapping.name.starts_with("/memfd:flashfork:"), "{}", mapping.line);
	mapping.device
}

fn memfds_device() -> String {
	device(map(PAGE, libc::PROT_READ, libc::MAP_PRIVATE, file(c"flashfork:0000000000", PAGE)))
}

fn is_mounted(at: *const u64) -> bool {
	device(at) != memfds_device()
}

/// Where the first whole 2 MB block begins: of those that follow some may be in the memfd, on a busy host.
fn block(words: &[u64]) -> usize {
	let start = words.as_ptr() as usize;
	(start.next_multiple_of(HUGE) - start) / 8
}

/// A part that begins and ends in the middle of a block, with nothing mapped at either side.
fn odd(words: &'static mut [u64]) -> &'static mut [u64] {
	let (start, end) = (words.as_ptr() as usize, words.as_ptr_range().end as usize);
	let (from, to) = (start.next_multiple_of(HUGE) + 5 * 4096, (end & !(HUGE - 1)) - 7 * 4096);
	unmap(start as *const u8, from - start);
	unmap(to as *const u8, end - to);
	&mut words[(from - start) / 8..(to - start) / 8]
}

fn sealed(pages: Pages) -> flashfork_core::Outcome {
	seal(pages).outcome.expect("seal")
}

#[test]
fn much_memory_lies_in_a_mount_of_its_own_and_the_odd_ends_in_a_memfd() {
	on_hosts_that_mount!();
	let before = (process(), fs::read_link("/proc/self/ns/user").unwrap());
	let words = patterned(LEN, 1);
	let begin = words.as_ptr() as usize;
	let words = odd(words);
	let first = (words.as_ptr() as usize - begin) / 8;
	let outcome = sealed(Pages::Auto);
	assert!(outcome.write_sealed);
	assert_eq!((process(), fs::read_link("/proc/self/ns/user").unwrap()), before);
	assert!(is_mounted(&words[block(words)]), "{}", maps_line(&words[block(words)]));
	for end in [words.first().unwrap(), words.last().unwrap()] {
		assert!(!is_mounted(end), "{}", maps_line(end));
	}
	let same = |words: &[u64]| words.iter().zip(first..).all(|(word, i)| *word == pattern(i, 1));
	assert!(same(words));
	let at = block(words);
	holds_in_fork("it has the bytes and its writes, and may discard a page", || {
		let same = same(words);
		words[at] = 7;
		let page = (&raw const words[at + HUGE / 8] as usize & !(PAGE - 1)) as *const u8;
		same && advised(page, PAGE, libc::MADV_DONTNEED) == 0 && words[at] == 7
	});
	assert!(same(words), "what the clone did came through");
}

/// What a seal has to leave as it is: whether others may look at the process, its descriptors, its user.
fn process() -> (i32, usize, u32, String) {
	let fds = fs::read_dir("/proc/self/fd").unwrap().count();
	let status = fs::read_to_string("/proc/self/status").unwrap();
	let of_user = status.lines().filter(|line| ["Uid:", "Gid:", "Cap"].iter().any(|name| line.starts_with(name)));
	// SAFETY: no memory is passed.
	unsafe { (libc::prctl(libc::PR_GET_DUMPABLE), fds, libc::geteuid(), of_user.collect::<Vec<_>>().join(";")) }
}

#[test]
fn nobody_can_write_to_a_file_in_a_mount() {
	on_hosts_that_mount!();
	let words = patterned(LEN, 2);
	sealed(Pages::Auto);
	assert!(is_mounted(&words[block(words)]));
	let path = maps::mapping(&raw const words[block(words)]).unwrap().file();
	for result in [
		fs::OpenOptions::new().read(true).write(true).open(&path).map(drop),
		fs::OpenOptions::new().write(true).truncate(true).open(&path).map(drop),
		fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)),
	] {
		assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
	}
	assert!(fs::File::open(&path).is_ok(), "it can be read");
	assert!(intact(words, 2));
}

#[test]
fn a_mount_is_sealed_anew_folded_and_made_anonymous() {
	on_hosts_that_mount!();
	let words = patterned(LEN, 3);
	let first = sealed(Pages::Auto);
	let at = block(words);
	words[at] ^= 5;
	let second = sealed(Pages::Auto);
	assert_eq!((second.sealed, second.generation), (HUGE as u64, first.generation + 1), "one block was written");
	assert!(!is_mounted(&words[at]), "a single block isn't worth a mount");
	words[at] ^= 5;
	assert!(intact(words, 3));
	for round in 0..12 {
		// All blocks.
		words.iter_mut().step_by(HUGE / 16).for_each(|word| *word ^= 9);
		sealed(Pages::Auto);
		words.iter_mut().step_by(HUGE / 16).for_each(|word| *word ^= 9);
		assert!(maps::sealed_files() <= 8, "{} after {round}", maps::sealed_files());
	}
	assert!(intact(words, 3));
	assert!(unseal(flashfork_core::Range::new(0, usize::MAX)).unwrap() >= (LEN - 2 * HUGE) as u64);
	assert!(intact(words, 3));
	assert!(maps::sealed().is_empty());
	assert!(has_sealed());
}

#[test]
fn little_memory_small_pages_and_code_need_no_mount() {
	on_hosts_that_mount!();
	let [little, code] = [8 << 20, LEN].map(|len| patterned(len, 4));
	protect(code.as_ptr(), LEN, BOTH | libc::PROT_EXEC);
	sealed(Pages::Auto);
	assert!(!is_mounted(&little[block(little)]) && !is_mounted(&code[block(code)]));
	let small = patterned(LEN, 5);
	sealed(Pages::Small);
	assert!(!is_mounted(&small[block(small)]));
	assert!(intact(little, 4) && intact(code, 4) && intact(small, 5));
}

/// What ends a program for a call that it never makes itself would end it for a mount.
#[test]
fn under_a_filter_nothing_is_mounted() {
	on_hosts_that_mount!();
	let mut allow_all = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
	let filter = libc::sock_fprog { len: 1, filter: &raw mut allow_all };
	// SAFETY: a program of one instruction, which lets everything be done.
	unsafe {
		assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
		assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
	}
	let words = patterned(LEN, 6);
	sealed(Pages::Auto);
	assert!(!is_mounted(&words[block(words)]));
	assert!(intact(words, 6));
}

/// A seal in which another process, which may do anything to this one, gets hold of the file while it is written.
#[test]
fn a_file_that_somebody_has_open_for_writing_is_sealed_once_more_into_a_memfd() {
	on_hosts_that_mount!();
	let words = patterned(LEN, 7);
	let watcher = Watcher::start();
	let theirs = loop {
		let outcome = sealed(Pages::Auto);
		assert!(outcome.write_sealed && outcome.sealed >= (LEN - 2 * HUGE) as u64);
		if let Some(device) = watcher.has_it_open() {
			break device;
		}
		// It was too late for this one.
		assert!(unseal(flashfork_core::Range::ALL).unwrap() > 0);
	};
	assert_no_part_on(&theirs);
	assert!(!is_mounted(&words[block(words)]), "{}", maps_line(&words[block(words)]));
	assert!(intact(words, 7));
}

/// A process that opens the file which this one seals into for writing, and keeps it open until it is killed.
struct Watcher {
	pid: i32,
	told: std::io::PipeReader,
}

impl Watcher {
	fn start() -> Watcher {
		let (told, mut tells) = std::io::pipe().unwrap();
		// SAFETY: no memory is passed.
		let program = unsafe { libc::getpid() };
		// SAFETY: one thread.
		let pid = unsafe { libc::fork() };
		if pid == 0 {
			let file = loop {
				if let Some(file) = opened_for_writing(program) {
					break file;
				}
			};
			tells.write_all(&file.metadata().unwrap().dev().to_ne_bytes()).unwrap();
			loop {
				// SAFETY: waits to be killed.
				unsafe { libc::pause() };
			}
		}
		Watcher { pid, told }
	}

	/// The file's device, as the list of mappings has it, once it is open.
	fn has_it_open(&self) -> Option<String> {
		let mut readable = libc::pollfd { fd: self.told.as_raw_fd(), events: libc::POLLIN, revents: 0 };
		// SAFETY: one struct pollfd.
		if unsafe { libc::poll(&raw mut readable, 1, 0) } != 1 {
			return None;
		}
		let mut device = [0; 8];
		(&self.told).read_exact(&mut device).unwrap();
		let device = u64::from_ne_bytes(device);
		Some(format!("{:02x}:{:02x}", libc::major(device), libc::minor(device)))
	}
}

/// That nothing is mapped of a device to which somebody may write.
fn assert_no_part_on(theirs: &str) {
	let mapping = maps::mappings().into_iter().find(|mapping| mapping.device == theirs);
	assert!(mapping.is_none(), "{theirs} may be written to: {}", mapping.unwrap().line);
}

impl Drop for Watcher {
	fn drop(&mut self) {
		// SAFETY: the child's number.
		assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
		assert_eq!(wait(self.pid), 128 + libc::SIGKILL);
	}
}

/// The file that a process seals into, if it is found and can be opened for writing.
fn opened_for_writing(program: i32) -> Option<fs::File> {
	// The threads of the engine's have tables of their own.
	let threads = fs::read_dir(format!("/proc/{program}/task")).ok()?;
	threads.flatten().find_map(|thread| {
		let files = fs::read_dir(thread.path().join("fd")).ok()?;
		files.flatten().find_map(|file| {
			let name = fs::read_link(file.path()).ok()?;
			// One on another device than memfds: its name is that, and a directory before it.
			let file = fs::OpenOptions::new().read(true).write(true).open(file.path()).ok()?;
			let mounted = name.to_str()?.starts_with("/memfd:flashfork:") && file.metadata().ok()?.blksize() > 4096;
			mounted.then_some(file)
		})
	})
}

const MILLISECOND: u64 = 1_000_000;

/// All of it but the ends, part by part, as forks that are long pay for it.
fn bought(words: &[u64], seed: u64) {
	until(500, || {
		forked(words, seed, 50 * MILLISECOND, false);
		let sealed = maps::sealed().iter().map(|mapping| mapping.range.len()).sum::<usize>();
		sealed >= size_of_val(words) - 2 * HUGE
	});
}

#[test]
fn nobody_can_write_to_the_parts_that_auto_buys() {
	on_hosts_that_mount!();
	let words = patterned(128 << 20, 8);
	if !auto_seals() {
		return;
	}
	bought(words, 8);
	for mapping in maps::sealed() {
		let opened = fs::OpenOptions::new().read(true).write(true).open(mapping.file());
		let (refused, expected) = match opened {
			// A memfd, which is sealed.
			Ok(file) => (file.write_at(&[1], 0).unwrap_err(), ErrorKind::PermissionDenied),
			Err(refused) => (refused, ErrorKind::ReadOnlyFilesystem),
		};
		assert_eq!(refused.kind(), expected, "{}", mapping.line);
	}
	assert!(intact(words, 8));
	forked(words, 8, MILLISECOND, true);
}

#[test]
fn a_part_whose_file_somebody_has_open_for_writing_is_sealed_once_more_into_a_memfd() {
	on_hosts_that_mount!();
	let words = patterned(128 << 20, 9);
	let watcher = Watcher::start();
	if !auto_seals() {
		return;
	}
	let theirs = loop {
		bought(words, 9);
		if let Some(device) = watcher.has_it_open() {
			break device;
		}
		assert!(unseal(flashfork_core::Range::ALL).unwrap() > 0);
	};
	assert_no_part_on(&theirs);
	assert!(intact(words, 9));
	forked(words, 9, MILLISECOND, true);
}
