//! What the program has open, and what of it clones must have for themselves.
//!
//! An eventfd, an epoll set or a pipe that several clones share would wake one of them for what another did: whatever
//! the program talks to itself by is made anew in each clone.

use super::{
	deleted,
	fdinfo::Info,
	frozen::{DESCRIPTORS, Entry, Files, Frozen, Kind, NONE, Streams},
	open::{duplicate_to, open_again},
	pairs,
	raw::{call, into, numeric},
	sockets,
	unfit::{Fit, Unfit, What},
};
use crate::{
	kernel_writers,
	outcome::Purpose,
	proc::{
		directory::for_each_entry,
		text::{ProcPath, decimal},
	},
	sys::{self, Errno, Result},
};
use linux_raw_sys::general as k;
use syscalls::Sysno;

impl Entry {
	pub fn close_on_exec(&self) -> usize {
		(self.info.flags & k::O_CLOEXEC) as usize
	}
}

/// Opens them all here, by their own numbers, and looks at each.
/// The maker's `own` descriptors get out of their way.
pub fn look(frozen: &mut Frozen, own: &mut [&mut i32]) -> Fit {
	let Frozen { text, list, small, pid, files, streams, one_output, hidden, .. } = frozen;
	(files.count, files.item_count) = (0, 0);
	numbers(files, *pid, list)?;
	leave_out(files, *pid, *hidden)?;
	// As many as there may be.
	if let Ok([_, hard]) = sys::getrlimit(sys::RLIMIT_NOFILE) {
		let _ = sys::setrlimit(sys::RLIMIT_NOFILE, [hard, hard]);
	}
	let above = files.all[..files.count].iter().map(|entry| entry.number).fold(2, i32::max) + 1;
	let no_number = |error| match error {
		Errno::EINVAL | Errno::EMFILE => {
			Unfit::named(What::Descriptor, above - 1, b"above which the limit of open files leaves no number")
		}
		error => error.into(),
	};
	for own in own {
		let moved = sys::duplicate_above(**own, above).map_err(no_number)?;
		sys::close(**own);
		**own = moved;
	}
	take(files, *pid, above).map_err(no_number)?;
	if let Some(reason) = kernel_writers::descriptors(Purpose::Seal, small)? {
		return Err(Unfit::new(What::Writer, reason as i32));
	}
	for i in 0..files.count {
		one(files, i, *pid, text, streams, *one_output)?;
	}
	ends(files, text)?;
	deleted::look(files, *pid, small)?;
	items_are_open(files)
}

fn numbers(files: &mut Files, pid: i32, list: &mut [u8]) -> Fit {
	let mut many = false;
	for_each_entry(ProcPath::of(pid).push(b"/fd").as_c(), list, |name| {
		let number = decimal(name)? as i32;
		match files.all.get_mut(files.count) {
			Some(place) => {
				place.number = number;
				files.count += 1;
			}
			None => many = true,
		}
		None::<()>
	})?;
	if many {
		return Err(Unfit::new(What::ManyDescriptors, DESCRIPTORS as i32));
	}
	files.all[..files.count].sort_unstable_by_key(|entry| entry.number);
	Ok(())
}

/// Copies the descriptors of the program into the maker's table, whose own have higher numbers.
fn take(files: &Files, pid: i32, above: i32) -> Result<()> {
	let program = sys::pidfd_open(pid, pid)?;
	let moved = sys::duplicate_above(program, above);
	sys::close(program);
	let program = moved?;
	let done = files.all[..files.count].iter().try_for_each(|entry| {
		let copy = sys::pidfd_getfd(program, entry.number)?;
		if copy != entry.number {
			let placed = duplicate_to(copy, entry.number, 0);
			sys::close(copy);
			placed?;
		}
		Ok(())
	});
	sys::close(program);
	done
}

/// Not the engine's own descriptor, unless the program has another file under its number.
fn leave_out(files: &mut Files, pid: i32, [number, device, inode]: [u64; 3]) -> Result<()> {
	let found = files.all[..files.count].iter().position(|entry| entry.number as u64 == number);
	let Some(i) = found.filter(|_| inode != 0) else { return Ok(()) };
	let file = sys::status(ProcPath::of(pid).push(b"/fd/").number(files.all[i].number).as_c())?;
	if (file.device, file.inode) == (device, inode) {
		files.all[i..files.count].rotate_left(1);
		files.count -= 1;
	}
	Ok(())
}

/// Those of this process.
pub fn streams() -> Streams {
	[0, 1, 2].map(|fd| identity(fd).map_or([0; 2], |(device, inode, _)| [device, inode]))
}

fn one(files: &mut Files, i: usize, pid: i32, text: &mut [u8], streams: &Streams, one_output: bool) -> Fit {
	let fd = files.all[i].number;
	let mut target = [0u8; 64];
	let len = sys::readlink(ProcPath::of(pid).push(b"/fd/").number(fd).as_c(), &mut target)?;
	let target = &target[..len];
	let unfit = |what| Unfit::named(what, fd, target);
	let Files { all, items, item_count, .. } = files;
	let first = *item_count;
	let mut info = Info::read(pid, fd, text, |item| {
		*items.get_mut(*item_count).ok_or(sys::Errno::E2BIG)? = item;
		*item_count += 1;
		Ok(())
	})?;
	let (device, inode, mode) = identity(fd)?;
	let count = *item_count - first;
	let mut entry = Entry {
		number: fd,
		kind: Kind::Shared,
		inode,
		device,
		info,
		other: NONE,
		first,
		count,
		socket: [0; 3],
		listens: false,
		semaphore: false,
	};
	let earlier = &all[..i];
	let same = earlier.iter().position(|e| e.kind != Kind::Same && is_same(e, &entry));
	let is_output = |same: usize| [1, 2].contains(&earlier[same].number);
	if one_output && fd > 2 && same.is_some_and(is_output) && earlier.iter().filter(|e| is_same(e, &entry)).count() > 1
	{
		return Err(unfit(What::OneOutput));
	}
	// The program may have made its errors go where its output goes.
	let is_copy = |same: &usize| fd > 2 || fd == 2 && !one_output && is_output(*same);
	if let Some(same) = same.filter(is_copy) {
		// What was found of its files is the other's.
		*item_count = first;
		(entry.kind, entry.other) = (Kind::Same, same);
		all[i] = entry;
		return Ok(());
	}
	if is_signalled(fd) || fd > 2 && info.flags & k::FASYNC != 0 {
		return Err(unfit(What::Signalled));
	}
	// One more open file of a stream would stay the template's; devices are shared in any case.
	let is_right = match usize::try_from(fd) {
		// One that is another's copy now, of which there may be more than it knows.
		Ok(1 | 2) if same.is_some_and(|same| !(one_output && is_output(same))) => false,
		Ok(fd @ 0..3) => streams[fd] == [device, inode],
		_ => mode >> 12 == CHARACTERS || !streams.contains(&[device, inode]),
	};
	if !is_right {
		return Err(unfit(What::Stream));
	}
	if info.locked {
		return Err(unfit(What::Lock));
	}
	entry.kind = match target {
		_ if fd <= 2 => Kind::Stream,
		b"anon_inode:[eventfd]" => {
			(entry.info.count, entry.semaphore) = event_count(fd, info)?;
			Kind::Event
		}
		b"anon_inode:[eventpoll]" => Kind::Epoll,
		b"anon_inode:[timerfd]" => {
			// A periodic one that has gone off and was not read stands still until somebody asks it.
			let mut left = [0u64; 4];
			// SAFETY: the kernel writes one struct itimerspec, a local.
			unsafe { call(Sysno::timerfd_gettime, [fd as usize, into(&mut left)]) }?;
			info = Info::read(pid, fd, text, |_| Ok(()))?;
			info.keep_moment();
			entry.info = info;
			Kind::Timer
		}
		b"anon_inode:[signalfd]" => Kind::Signal,
		// What has come and was not read would not be in clones.
		b"anon_inode:inotify" if !info.watches && pairs::waiting(fd)? == 0 => Kind::Inotify,
		b"anon_inode:inotify" => return Err(unfit(What::Watches)),
		_ if target.starts_with(b"socket:") => {
			let (kind, socket) = sockets::kind(fd).map_err(|_| unfit(What::Socket))?;
			entry.socket = socket;
			entry.listens = kind == Kind::Shared && sockets::is_unix(socket);
			kind
		}
		_ if target.starts_with(b"pipe:") => {
			entry.count = numeric(Sysno::fcntl, [fd as usize, pairs::F_GETPIPE_SZ])?;
			match info.flags & k::O_ACCMODE {
				k::O_RDONLY => Kind::Reads,
				k::O_WRONLY => Kind::Writes,
				_ => return Err(unfit(What::Descriptor)),
			}
		}
		_ if target.starts_with(b"/") => match file_system(fd)? {
			PROC if !is_of_system(target) => return Err(unfit(What::Process)),
			MESSAGE_QUEUES => return Err(unfit(What::Descriptor)),
			_ if MEMORY.iter().any(|name| target.starts_with(name)) => return Err(unfit(What::Mapping)),
			_ => named(&entry, mode).map_err(unfit)?,
		},
		_ => return Err(unfit(What::Descriptor)),
	};
	all[i] = entry;
	Ok(())
}

/// Types of files (inode(7)): a pipe, a device of characters, and one with bytes.
pub const FIFO: u32 = 0o1;
const CHARACTERS: u32 = 0o2;
pub const FILE: u32 = 0o10;

/// Of a file with a name.
fn named(entry: &Entry, mode: u32) -> core::result::Result<Kind, What> {
	const DIRECTORY: u32 = 0o4;
	const BLOCKS: u32 = 0o6;
	let fd = entry.number;
	let again = || match open_again(entry) {
		Ok(again) => {
			sys::close(again);
			Ok(Kind::File)
		}
		// They would have one position together.
		Err(_) => Err(What::Descriptor),
	};
	match mode >> 12 {
		// It has no position.
		_ if entry.info.flags & k::O_PATH != 0 => again().or(Ok(Kind::Shared)),
		FILE if deleted::is_deleted(fd).unwrap_or(false) => Ok(Kind::Deleted),
		FILE | DIRECTORY | BLOCKS => again(),
		CHARACTERS if is_terminal(fd) => Err(What::Terminal),
		CHARACTERS if is_memory(fd) => again(),
		FIFO => Err(What::Descriptor),
		_ => Ok(Kind::Shared),
	}
}

fn is_terminal(fd: i32) -> bool {
	const TCGETS: usize = 0x5401;
	let mut told = [0u8; 64];
	// SAFETY: the kernel writes struct termios, 36 bytes, to a local.
	let told = unsafe { call(Sysno::ioctl, [fd as usize, TCGETS, into(&mut told)]) };
	// Of one that was hung up.
	told.is_ok() || told == Err(Errno::EIO)
}

/// Whether this is `/dev/null`, or a device whose reads a signal cuts short ([`is_source`]).
fn is_memory(fd: i32) -> bool {
	const NULL: u64 = 0x103;
	is_source(fd) || sys::device_of(fd) == Ok(Some(NULL))
}

/// Whether this is one of the devices of memory that have as many bytes as are asked for (mem(4), random(4)).
pub fn is_source(fd: i32) -> bool {
	const ZERO: u64 = 0x105;
	const FULL: u64 = 0x107;
	const RANDOM: u64 = 0x108;
	const URANDOM: u64 = 0x109;
	sys::device_of(fd).is_ok_and(|device| device.is_some_and(|d| [ZERO, FULL, RANDOM, URANDOM].contains(&d)))
}

/// Files that are memory, and have no name: clones would share them.
const MEMORY: [&[u8]; 3] = [b"/memfd:", b"/secretmem", b"/anon_hugepage"];

/// Types of file systems (statfs(2)).
const PROC: u64 = 0x9fa0;
const MESSAGE_QUEUES: u64 = 0x1980_0202;

fn file_system(fd: i32) -> Result<u64> {
	let mut told = [0u64; 15];
	// SAFETY: struct statfs is 15 words on this architecture, the type first.
	unsafe { call(Sysno::fstatfs, [fd as usize, into(&mut told)]) }.map(|_| told[0])
}

/// Whether a file of /proc is the same for all processes.
fn is_of_system(target: &[u8]) -> bool {
	target.strip_prefix(b"/proc/").is_some_and(|name| !name.is_empty() && !name[0].is_ascii_digit())
}

/// Whether what comes at a descriptor sends a signal to somebody (`F_SETOWN`), or another signal than others
/// (`F_SETSIG`). Those that only name a file send none.
fn is_signalled(fd: i32) -> bool {
	const F_GETSIG: usize = 11;
	const F_GETOWN_EX: usize = 16;
	// struct f_owner_ex: type, number.
	let mut owner = [0i32; 2];
	// SAFETY: the kernel writes a local of the right size.
	let (owned, signal) = unsafe {
		let owned = call(Sysno::fcntl, [fd as usize, F_GETOWN_EX, into(&mut owner)]);
		(owned, call(Sysno::fcntl, [fd as usize, F_GETSIG, 0]))
	};
	owned.is_ok() && owner[1] != 0 || signal.is_ok_and(|signal| signal != 0)
}

/// Device, inode and mode.
pub fn identity(fd: i32) -> Result<(u64, u64, u32)> {
	let mut stat = [0u64; 18];
	// SAFETY: struct stat is 18 words on this architecture: st_dev, st_ino, st_nlink, st_mode and st_uid.
	unsafe { call(Sysno::fstat, [fd as usize, stat.as_mut_ptr() as usize]) }?;
	Ok((stat[0], stat[1], stat[3] as u32))
}

fn is_same(one: &Entry, other: &Entry) -> bool {
	(one.device, one.inode) == (other.device, other.inode) && is_one_file(one.number, other.number)
}

/// Whether two descriptors of this process's are one open file (`kcmp(2)`).
pub fn is_one_file(one: i32, other: i32) -> bool {
	const KCMP_FILE: usize = 0;
	let me = sys::getpid() as usize;
	// SAFETY: takes numbers.
	unsafe { call(Sysno::kcmp, [me, me, KCMP_FILE, one as usize, other as usize]) == Ok(0) }
}

/// Whether a set holds the file that a descriptor of this process's is by now; of several that came by its number the
/// one with so many before it.
fn is_in_set(set: i32, fd: i32, before: usize) -> bool {
	const KCMP_EPOLL_TFD: usize = 7;
	let me = sys::getpid() as usize;
	// struct kcmp_epoll_slot.
	let slot = [set as u32, fd as u32, before as u32];
	// SAFETY: the kernel reads one structure, a local.
	unsafe { call(Sysno::kcmp, [me, me, KCMP_EPOLL_TFD, fd as usize, slot.as_ptr() as usize]) == Ok(0) }
}

/// The count of an eventfd, and whether it counts down by ones, which older kernels don't tell: it is tried, and put
/// back. Who waits for it stands still.
fn event_count(fd: i32, info: Info) -> Result<(u64, bool)> {
	const TRIED: u64 = 2;
	let count = info.count;
	let write = |value: u64| unsafe {
		// SAFETY: writes 8 bytes, a local.
		call(Sysno::write, [fd as usize, (&raw const value) as usize, 8])
	};
	let read = || {
		let mut value = 0u64;
		// SAFETY: reads 8 bytes, a local.
		unsafe { call(Sysno::read, [fd as usize, into(&mut value), 8]) }.map(|_| value)
	};
	// There may be no room for more.
	let added = if count < TRIED { TRIED } else { 0 };
	if added > 0 {
		write(added)?;
	}
	let semaphore = read()? == 1;
	match (semaphore, added) {
		(true, 0) => drop(write(1)?),
		(true, _) => drop(read()?),
		(false, _) if count > 0 => drop(write(count)?),
		(false, _) => {}
	}
	Ok((count, semaphore))
}

fn ends(files: &mut Files, text: &mut [u8]) -> Fit {
	for i in 0..files.count {
		let entry = files.all[i];
		let find = |files: &Files, kind, inode| {
			files.all[..files.count].iter().position(|e| e.kind == kind && e.inode == inode).unwrap_or(NONE)
		};
		match entry.kind {
			Kind::Reads | Kind::Writes => {
				// One more open file of the same end has flags of its own.
				let first = find(files, entry.kind, entry.inode);
				let other = if entry.kind == Kind::Reads { Kind::Writes } else { Kind::Reads };
				if first != i {
					return Err(Unfit::named(What::Descriptor, entry.number, b"one more open file of a pipe"));
				}
				files.all[i].other = find(files, other, entry.inode);
			}
			Kind::Pair => {
				let peer = sockets::peer(entry.inode)?;
				let other = find(files, Kind::Pair, peer);
				files.all[i].other = other;
				let own = peer != 0 && files.all[..files.count].iter().any(|e| e.inode == peer);
				if other == i || own && other == NONE {
					return Err(Unfit::new(What::Socket, entry.number));
				}
				if other == NONE {
					let closed = peer == 0 && sockets::is_hung_up(entry.number, entry.socket);
					// It may wait to be accepted by the program itself.
					if peer == 0 && !closed && files.all[..files.count].iter().any(|e| e.listens) {
						let reason = b"of which nobody has accepted the other end";
						return Err(Unfit::named(What::Socket, entry.number, reason));
					}
					files.all[i].kind = if closed { Kind::Closed } else { Kind::Outside };
				}
				if !sockets::can_be_copied(entry.number, entry.socket) {
					return Err(Unfit::new(What::Unread, entry.number));
				}
				sockets::options_can_be_copied(entry, text).map_err(|_| Unfit::new(What::Options, entry.number))?;
			}
			Kind::Outside if !sockets::can_be_copied(entry.number, entry.socket) => {
				return Err(Unfit::new(What::Unread, entry.number));
			}
			Kind::Fresh => {
				if !sockets::can_be_copied(entry.number, entry.socket) {
					return Err(Unfit::new(What::Unread, entry.number));
				}
				sockets::options_can_be_copied(entry, text).map_err(|_| Unfit::new(What::Options, entry.number))?;
			}
			_ => {}
		}
	}
	// Where only one of them is connected to the other.
	for i in 0..files.count {
		let entry = files.all[i];
		if entry.kind == Kind::Pair && files.all[entry.other].other != i {
			return Err(Unfit::new(What::Socket, entry.number));
		}
	}
	Ok(())
}

/// A set may hold a file whose descriptor was closed, or is another's now: then nobody knows which. A standard stream
/// may be a file in a clone, which no set can hold.
fn items_are_open(files: &Files) -> Fit {
	for set in files.all[..files.count].iter().filter(|e| e.kind == Kind::Epoll) {
		let items = &files.items[set.first..set.first + set.count];
		for (i, item) in items.iter().enumerate() {
			let twin = items[..i].iter().filter(|other| other.number == item.number).count();
			let is_stream = |e: &Entry| e.kind == Kind::Stream;
			let open = files.all[..files.count].iter().any(|e| {
				let stream = is_stream(e) || e.kind == Kind::Same && is_stream(&files.all[e.other]);
				e.number == item.number && e.inode == item.inode && !stream
			});
			let open = open && is_in_set(set.number, item.number, twin);
			if !open {
				return Err(Unfit::new(What::Epoll, item.number));
			}
		}
	}
	Ok(())
}
