//! What calls of a function would share: connections that it has opened by its ready point are cut in its clones, files
//! that it reads are opened again there, and a function with what else would lead from one call to another can't be a
//! template.

use core::{
	ffi::{CStr, c_char, c_int},
	mem::MaybeUninit,
	ptr::null_mut,
};
use flashfork_core::survey;

use super::template::Single;

/// Most connections and files that are each clone's own.
const MOST: usize = 256;

/// What is open in the template.
#[derive(Clone, Copy)]
struct Open {
	fd: c_int,
	inode: libc::ino_t,
	/// An earlier one that was duplicated: it has the same position.
	same: c_int,
}

static OPEN: Single<[Open; MOST]> = Single::new([Open { fd: -1, inode: 0, same: -1 }; MOST]);

/// Both ends of the runtime client's pair of sockets; -1 for none.
static PAIR: Single<[c_int; 2]> = Single::new([-1; 2]);

/// Of message queues (`mq_overview(7)`).
const MQUEUE_MAGIC: libc::__fsword_t = 0x1980_0202;

/// In the process that becomes a template: notes its connections and files, and ends it with a line where it has what
/// clones can't have for themselves. Descriptors in `ours` are not the program's; `blocked` are signals that it blocks.
///
/// # Safety
/// The process has one thread.
pub unsafe fn note(ours: &[c_int], blocked: &libc::sigset_t) {
	let (mut count, mut pairs) = (0, 0);
	// SAFETY: as the caller says; structures are locals.
	unsafe {
		if libc::waitid(libc::P_ALL, 0, null_mut(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL) == 0 {
			refuse(
				c"a child process, which its calls would not have: wait for its end before, or start it in the handler",
				-1,
			);
		}
		if has_timers() {
			refuse(c"a timer that is set, which its calls would not have: set it in the handler", -1);
		}
		let mut pending = MaybeUninit::zeroed().assume_init();
		libc::sigpending(&raw mut pending);
		if (1..=64).any(|signal| libc::sigismember(&pending, signal) == 1 && libc::sigismember(blocked, signal) == 1) {
			refuse(c"a signal that it blocks, which its calls would not have: send it in the handler", -1);
		}
		if !crate::atfork::settle() {
			refuse(c"more than 64 handlers of pthread_atfork", -1);
		}
		// Without /proc nobody can tell.
		if survey::shares_memory(&mut [0; 8192]) != Ok(false) {
			refuse(c"memory that is mapped shared, which all calls would share: map it in the handler", -1);
		}
		each(|fd, facts| {
			let flags = libc::fcntl(fd, libc::F_GETFL);
			let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
			let (is_ours, kind) = (ours.contains(&fd) || flags & libc::O_PATH != 0, facts.st_mode & libc::S_IFMT);
			let target = target(fd);
			match kind {
				libc::S_IFSOCK if is_own(fd) => {
					let mut waiting: c_int = 0;
					libc::ioctl(fd, libc::FIONREAD, &raw mut waiting);
					// One pair may be the runtime client's own: each clone has another.
					match PAIR.get().get_mut(pairs) {
						Some(end) if waiting == 0 => *end = fd,
						_ => refuse(SHARED[0], fd),
					}
					pairs += 1;
					return;
				}
				libc::S_IFSOCK => {}
				libc::S_IFIFO if fd > 2 && leads_on(fd, facts.st_ino) => refuse(SHARED[1], fd),
				libc::S_IFCHR if fd > 2 && !is_harmless(facts.st_rdev) => refuse(SHARED[3], fd),
				_ if is_ours || fd <= 2 => return,
				_ if target.starts_with(b"anon_inode:[eventpoll]") => refuse(SHARED[2], fd),
				_ if [&b"anon_inode:[signalfd]"[..], b"anon_inode:[pidfd]"]
					.iter()
					.any(|one| target.starts_with(one)) =>
				{
					return;
				}
				_ if target.starts_with(b"anon_inode:") => refuse(SHARED[4], fd),
				libc::S_IFREG if is_queue(fd) => refuse(SHARED[5], fd),
				libc::S_IFREG
					if [&b"/memfd:"[..], b"/secretmem"].iter().any(|one| target.starts_with(one)) && !reads =>
				{
					refuse(SHARED[6], fd)
				}
				libc::S_IFREG | libc::S_IFDIR if reads => {}
				_ => return,
			}
			let (known, free) = OPEN.get().split_at_mut(count);
			let is_same = |one: &&Open| one.inode == facts.st_ino && is_same(one.fd, fd);
			match free.first_mut() {
				Some(place) => {
					let same = known.iter().find(is_same).map_or(-1, |one| one.fd);
					*place = Open { fd, inode: facts.st_ino, same };
					count += 1;
				}
				None => refuse(c"more than 256 files and connections: open them in the handler", fd),
			}
		});
	}
}

/// What all calls would share, in words.
const SHARED: [&CStr; 7] = [
	c"a pair of sockets, which all calls would share: make it in the handler, as also event loops",
	c"a pipe, which all calls would share: make it in the handler, as also queues and event loops",
	c"an epoll instance, which all calls would share: make it in the handler, as also event loops",
	c"a terminal or device, which all calls would share: open it in the handler",
	c"a counter, timer or watch of the kernel's, which all calls would share: make it in the handler",
	c"a message queue, which all calls would share: open it in the handler",
	c"a file in memory, which all calls would share: make it in the handler",
];

/// In a clone: from each of these connections nothing comes any more, and nothing gets through. Sockets without any are
/// new ones, and files have a position of their own, which is that of the template's.
///
/// # Safety
/// The process has one thread.
pub unsafe fn cut() {
	// SAFETY: takes numbers and structures that are locals; the descriptors are still those that were noted.
	unsafe {
		let pair = *PAIR.get();
		if pair[0] >= 0 {
			let mut ends = [-1; 2];
			let kind = option(pair[0], libc::SO_TYPE).unwrap_or(libc::SOCK_STREAM) | libc::SOCK_CLOEXEC;
			let made = libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr());
			for (own, fd) in ends.into_iter().zip(pair).filter(|(_, fd)| *fd >= 0) {
				if made != 0 || super::runtime::put_in_place(own, fd) != 0 {
					libc::perror(c"flashfork: a call can't have a pair of sockets for itself".as_ptr());
					libc::_exit(126);
				}
			}
			libc::close(ends[0]);
			libc::close(ends[1]);
		}
		for Open { fd, inode, same } in OPEN.get().iter().copied().take_while(|open| open.fd >= 0) {
			let mut facts = MaybeUninit::<libc::stat>::zeroed().assume_init();
			// The engine's own are closed by now, or others.
			if libc::fstat(fd, &raw mut facts) != 0 || facts.st_ino != inode {
				continue;
			}
			let own = match facts.st_mode & libc::S_IFMT {
				_ if same >= 0 => libc::fcntl(same, libc::F_DUPFD_CLOEXEC, 3),
				libc::S_IFSOCK => unused(fd).unwrap_or_else(|| broken()),
				_ => opened_again(fd),
			};
			if own < 0 || super::runtime::put_in_place(own, fd) != 0 {
				libc::perror(
					c"flashfork: a call can't have a file or connection of the template's for itself".as_ptr(),
				);
				libc::_exit(126);
			}
			libc::close(own);
		}
	}
}

/// A socket like one that is neither bound nor connected; `None` for others.
unsafe fn unused(socket: c_int) -> Option<c_int> {
	// SAFETY: the kernel writes locals, as long as said.
	unsafe {
		let mut address = MaybeUninit::<libc::sockaddr_in6>::zeroed().assume_init();
		let mut name = |get: unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int| {
			let mut len = size_of_val(&address) as libc::socklen_t;
			(get(socket, (&raw mut address).cast(), &raw mut len) == 0).then_some((len, address.sin6_port))
		};
		if name(libc::getpeername).is_some() {
			return None;
		}
		let (len, port) = name(libc::getsockname)?;
		let [domain, kind, protocol] =
			[libc::SO_DOMAIN, libc::SO_TYPE, libc::SO_PROTOCOL].map(|what| option(socket, what));
		let is_bound = match domain? {
			libc::AF_INET | libc::AF_INET6 => port != 0,
			libc::AF_UNIX => len as usize > size_of::<libc::sa_family_t>(),
			_ => true,
		};
		if is_bound { None } else { Some(libc::socket(domain?, kind? | libc::SOCK_CLOEXEC, protocol?)) }
	}
}

/// A socket of which the other end has gone.
unsafe fn broken() -> c_int {
	let mut ends = [-1; 2];
	// SAFETY: the kernel writes a local; both are this function's own.
	unsafe {
		libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr());
		libc::close(ends[1]);
	}
	ends[0]
}

/// The same file once more, at the same position.
unsafe fn opened_again(file: c_int) -> c_int {
	let mut path = [0 as c_char; 32];
	// SAFETY: a buffer as long as said, and a format of one number; else takes numbers.
	unsafe {
		libc::snprintf(path.as_mut_ptr(), path.len(), c"/proc/self/fd/%d".as_ptr(), file);
		let again = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY);
		let at = libc::lseek(file, 0, libc::SEEK_CUR);
		// What has no position needs none.
		if again >= 0 && at > 0 && libc::lseek(again, at, libc::SEEK_SET) != at {
			return -1;
		}
		again
	}
}

/// A number that the kernel knows of a socket.
unsafe fn option(socket: c_int, which: c_int) -> Option<c_int> {
	let (mut value, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
	// SAFETY: the kernel writes locals, as long as said.
	let got = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, which, (&raw mut value).cast(), &raw mut len) };
	(got == 0).then_some(value)
}

/// Whether it is one of a pair that this process has made.
unsafe fn is_own(socket: c_int) -> bool {
	// SAFETY: the kernel writes locals, as long as said.
	unsafe {
		let mut peer = MaybeUninit::<libc::ucred>::zeroed().assume_init();
		let mut len = size_of_val(&peer) as libc::socklen_t;
		option(socket, libc::SO_DOMAIN) == Some(libc::AF_UNIX)
			&& option(socket, libc::SO_ACCEPTCONN) == Some(0)
			&& libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len) == 0
			&& peer.pid == libc::getpid()
	}
}

/// Whether both ends of this pipe are here, or bytes are in it.
unsafe fn leads_on(pipe: c_int, inode: libc::ino_t) -> bool {
	let mut has = false;
	// SAFETY: as `note`.
	unsafe {
		let mode = libc::fcntl(pipe, libc::F_GETFL) & libc::O_ACCMODE;
		let mut waiting: c_int = 0;
		libc::ioctl(pipe, libc::FIONREAD, &raw mut waiting);
		has |= mode == libc::O_RDWR || waiting > 0;
		each(|fd, facts| {
			has |= facts.st_mode & libc::S_IFMT == libc::S_IFIFO
				&& facts.st_ino == inode
				&& libc::fcntl(fd, libc::F_GETFL) & libc::O_ACCMODE != mode;
		});
	}
	has
}

/// Whether this process has timers, which a fork has not: intervals, or those of `timer_create(2)`.
unsafe fn has_timers() -> bool {
	// SAFETY: the kernel writes locals, as long as said; the descriptor is this function's own.
	unsafe {
		let is_set = |which| {
			let mut left = MaybeUninit::<libc::itimerval>::zeroed().assume_init();
			libc::getitimer(which, &raw mut left);
			left.it_value.tv_sec != 0 || left.it_value.tv_usec != 0
		};
		let (list, mut byte) = (libc::open(c"/proc/self/timers".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC), 0u8);
		let any = libc::read(list, (&raw mut byte).cast(), 1) == 1;
		libc::close(list);
		any || [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF].into_iter().any(is_set)
	}
}

/// Whether both descriptors are of one opening (`kcmp(2)`).
unsafe fn is_same(one: c_int, other: c_int) -> bool {
	const KCMP_FILE: c_int = 0;
	// SAFETY: takes numbers.
	unsafe { libc::syscall(libc::SYS_kcmp, libc::getpid(), libc::getpid(), KCMP_FILE, one, other) == 0 }
}

/// Whether nothing that is written to this device can be read there: null, zero, full, random, urandom (`mem(4)`).
fn is_harmless(device: libc::dev_t) -> bool {
	[3, 5, 7, 8, 9].iter().any(|minor| device == libc::makedev(1, *minor))
}

unsafe fn is_queue(fd: c_int) -> bool {
	// SAFETY: the kernel writes a local.
	unsafe {
		let mut facts = MaybeUninit::<libc::statfs>::zeroed().assume_init();
		libc::fstatfs(fd, &raw mut facts) == 0 && facts.f_type == MQUEUE_MAGIC
	}
}

/// What a descriptor is of, as `/proc` says it: its beginning.
unsafe fn target(fd: c_int) -> [u8; 32] {
	let (mut path, mut name) = ([0 as c_char; 32], [0u8; 32]);
	// SAFETY: buffers as long as said; a format of one number.
	unsafe {
		libc::snprintf(path.as_mut_ptr(), path.len(), c"/proc/self/fd/%d".as_ptr(), fd);
		libc::readlink(path.as_ptr(), name.as_mut_ptr().cast(), name.len());
	}
	name
}

/// All descriptors of this process, and what they are of.
unsafe fn each(mut with: impl FnMut(c_int, &libc::stat)) {
	// SAFETY: libc's calls on a directory of its own, and structures that are locals.
	unsafe {
		let directory = libc::opendir(c"/proc/self/fd".as_ptr());
		if directory.is_null() {
			libc::perror(c"flashfork: /proc/self/fd".as_ptr());
			libc::_exit(1);
		}
		loop {
			let entry = libc::readdir(directory);
			if entry.is_null() {
				break;
			}
			let name = (&raw const (*entry).d_name).cast::<c_char>();
			let mut facts = MaybeUninit::<libc::stat>::zeroed().assume_init();
			let fd = libc::atoi(name);
			if *name != b'.' as c_char && fd != libc::dirfd(directory) && libc::fstat(fd, &raw mut facts) == 0 {
				with(fd, &facts);
			}
		}
		libc::closedir(directory);
	}
}

/// Ends this process with a line.
unsafe fn refuse(what: &CStr, fd: c_int) -> ! {
	let mut line = [0; 256];
	// SAFETY: strings with their NUL, the first a format of a string and a number; a buffer as long as said.
	unsafe {
		let format = c"flashfork: when it is warm, the function has %s (descriptor %d)\n";
		let format = if fd < 0 { c"flashfork: when it is warm, the function has %s\n" } else { format };
		let len = libc::snprintf(line.as_mut_ptr(), line.len(), format.as_ptr(), what.as_ptr(), fd);
		libc::write(2, line.as_ptr().cast(), (len as usize).min(line.len()));
		libc::_exit(1)
	}
}
