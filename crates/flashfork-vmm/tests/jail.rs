//! What a jailed process can't do. Each case is its own process: this program again, which in [`JAILED`] goes another
//! way.

use flashfork_proto::shape::{Pages, Shape};
use flashfork_vmm::{
	jail::{self, FIRST_USER, Isolation, JailError},
	memory::{self, Layered, Ram, Undo, Watch},
};
use std::{
	fs::File,
	io::ErrorKind,
	net::TcpStream,
	os::{
		fd::OwnedFd,
		unix::{
			net::UnixStream,
			process::{CommandExt, ExitStatusExt},
		},
	},
	process::{Command, ExitStatus, Stdio},
};
use vm_memory::{Bytes, GuestAddress};

const CASE: &str = "JAIL_TEST_CASE";
const NOBODY: u32 = 65534;

const SHAPE: Shape = Shape { memory_mib: 4, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 };

/// Exit status of a process that this host gives no namespaces.
const NO_NAMESPACES: i32 = 77;

/// None, and a line, where this host doesn't have what is needed.
fn run(case: &str, user: Option<u32>) -> Option<ExitStatus> {
	let mut command = Command::new(std::env::current_exe().unwrap());
	command.env(CASE, case).current_dir("/").stdin(Stdio::null());
	if let Some(user) = user {
		command.uid(user).gid(user);
	}
	match command.status() {
		Ok(status) if status.code() == Some(NO_NAMESPACES) => eprintln!("skipped: no namespaces for {user:?}"),
		Err(e) if user.is_some() && e.kind() == ErrorKind::PermissionDenied => {
			eprintln!("skipped: this program is where user {user:?} may not go");
		}
		status => return Some(status.unwrap()),
	}
	None
}

/// The case's end on both paths: as root, if this is root, and by a user namespace.
fn ends(case: &str) -> Vec<ExitStatus> {
	let users = if rustix::process::geteuid().is_root() { vec![None, Some(NOBODY)] } else { vec![None] };
	users.into_iter().filter_map(|user| run(case, user)).collect()
}

#[track_caller]
fn fine(case: &str) {
	for end in ends(case) {
		assert!(end.success(), "{case}: {end}");
	}
}

#[track_caller]
fn killed(case: &str) {
	for end in ends(case) {
		assert_eq!(end.signal(), Some(libc::SIGSYS), "{case}: {end}");
	}
}

/// Runs before `main`, when a process has a single thread, as a shell has at its start.
#[used]
#[unsafe(link_section = ".init_array")]
static JAILED: extern "C" fn() = jailed;

extern "C" fn jailed() {
	let Ok(case) = std::env::var(CASE) else { return };
	// What a shell has before it is jailed, or is given.
	let watch = Watch::find().unwrap();
	let file = memory::create("flashfork:test", SHAPE.memory_bytes(), SHAPE.pages).unwrap();
	let isolation = match jail::enter() {
		Err(JailError::Namespaces { .. }) => std::process::exit(NO_NAMESPACES),
		entered => entered.unwrap(),
	};
	match case.strip_prefix("entered ") {
		Some(case) => entered(case, isolation),
		None => {
			jail::lock().unwrap();
			match case.as_str() {
				"copy back" => copy_back(&watch, file),
				case => locked(case),
			}
		}
	}
	std::process::exit(0);
}

/// A rollback that keeps what was written, all of it behind the filter.
fn copy_back(watch: &Watch, file: OwnedFd) {
	let template = Layered::single(file, SHAPE.memory_bytes());
	let (mut ram, mut undo) = (Ram::reserve(&SHAPE).unwrap(), Undo::default());
	jail::promise(SHAPE.memory_bytes()).unwrap();
	ram.map_layers(&template).unwrap();
	for round in 1..4_u64 {
		ram.guest().write_obj(round, GuestAddress(0x1000)).unwrap();
		assert_eq!(ram.undo_writes(&mut undo, watch, &template).unwrap(), round > 1 && watch.scans());
		assert_eq!(ram.guest().read_obj::<u64>(GuestAddress(0x1000)).unwrap(), 0);
	}
}

/// Without the filter: what namespaces and users do by themselves.
fn entered(case: &str, isolation: Isolation) {
	match case {
		"files" => {
			assert_eq!(std::fs::read_dir("/").unwrap().count(), 0);
			for path in ["/etc/passwd", "/proc/self/maps", "/dev/kvm", "/../etc/passwd"] {
				assert_eq!(File::open(path).unwrap_err().kind(), std::io::ErrorKind::NotFound, "{path}");
			}
			File::create("/new").unwrap_err();
		}
		"network" => drop(TcpStream::connect("127.0.0.1:1").unwrap_err()),
		"privileges" => {
			let own = rustix::process::getuid().as_raw();
			assert_ne!(own, 0);
			if isolation != Isolation::UserNamespace {
				assert_eq!(isolation, Isolation::User(FIRST_USER + std::process::id()));
			}
			let capabilities = rustix::thread::capabilities(None).unwrap();
			assert!(capabilities.permitted.is_empty(), "{capabilities:?}");
			assert!(rustix::thread::no_new_privs().unwrap());
		}
		"parent's memory" => {
			let pid = rustix::process::getppid().unwrap().as_raw_nonzero().get();
			let mut byte = 0_u8;
			let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
			let remote = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
			// SAFETY: one byte of its own memory to be written to.
			let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
			let error = std::io::Error::last_os_error().raw_os_error();
			assert_eq!((read, error), (-1, Some(libc::EPERM)));
		}
		_ => panic!("no case {case}"),
	}
}

/// With the filter.
fn locked(case: &str) {
	match case {
		"work" => {
			let big = vec![1_u8; 8 << 20];
			assert_eq!(big.iter().map(|b| u64::from(*b)).sum::<u64>(), 8 << 20);
		}
		"open" => drop(File::open("/etc/passwd")),
		"memory file" => drop(flashfork_vmm::memory::create("flashfork:test", 4096, Default::default())),
		"shared memory" => {
			let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
			// SAFETY: a new mapping where the kernel finds room.
			let _ = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0) };
		}
		"limits of others" => {
			// SAFETY: asks for nothing and sets nothing.
			let _ = unsafe { libc::prlimit(1, libc::RLIMIT_AS, std::ptr::null(), std::ptr::null_mut()) };
		}
		"limits" => {
			jail::promise(16 << 20).unwrap();
			// Which raises nothing.
			jail::promise(1 << 40).unwrap();
			let big = |bytes: usize| {
				let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
				// SAFETY: a new mapping where the kernel finds room.
				unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
			};
			assert_ne!(big(16 << 20), libc::MAP_FAILED);
			assert_eq!(big(256 << 20), libc::MAP_FAILED);
		}
		"socket" => drop(TcpStream::connect("127.0.0.1:1")),
		"unix socket" => drop(UnixStream::connect("/run/x")),
		"execve" => drop(Command::new("/bin/true").exec()),
		"fork" => drop(Command::new("/bin/true").status()),
		"thread" => drop(std::thread::Builder::new().spawn(|| ())),
		// SAFETY: none of these touches memory.
		"ptrace" => _ = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) },
		// SAFETY: as above.
		"kill" => _ = unsafe { libc::kill(libc::getppid(), 0) },
		// SAFETY: as above.
		"memory of others" => _ = unsafe { libc::process_vm_readv(1, std::ptr::null(), 0, std::ptr::null(), 0, 0) },
		// SAFETY: as above.
		"descriptor flags" => _ = unsafe { libc::fcntl(0, libc::F_SETFL, libc::O_DIRECT) },
		"code" => {
			let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
			// SAFETY: a new mapping where the kernel finds room.
			let _ = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_EXEC, flags, -1, 0) };
		}
		// SAFETY: none of these touches memory: the descriptor is none of KVM's.
		"KVM_CREATE_VM" => _ = unsafe { libc::ioctl(0, 0xae01, 0) },
		// SAFETY: as above.
		"KVM_CREATE_VCPU" => _ = unsafe { libc::ioctl(0, 0xae41, 0) },
		// SAFETY: as above.
		"KVM_SET_USER_MEMORY_REGION" => _ = unsafe { libc::ioctl(0, 0x4020_ae46, 0) },
		// SAFETY: as above.
		"KVM_CREATE_DEVICE" => _ = unsafe { libc::ioctl(0, 0xc00c_aee0, 0) },
		// SAFETY: as above.
		"io_uring" => _ = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, 0) },
		// SAFETY: as above.
		"bpf" => _ = unsafe { libc::syscall(libc::SYS_bpf, 0, 0, 0) },
		// SAFETY: as above.
		"unshare" => _ = unsafe { libc::unshare(libc::CLONE_NEWUSER) },
		_ => panic!("no case {case}"),
	}
}

#[test]
fn a_shell_finds_no_files() {
	fine("entered files");
	killed("open");
}

#[test]
fn a_shell_has_no_network_and_makes_no_sockets() {
	fine("entered network");
	killed("socket");
	killed("unix socket");
}

#[test]
fn a_shell_is_nobody() {
	fine("entered privileges");
	killed("unshare");
}

#[test]
fn a_shell_does_not_read_the_memory_of_others() {
	fine("entered parent's memory");
	killed("memory of others");
	killed("ptrace");
	killed("kill");
}

#[test]
fn a_locked_shell_starts_nothing() {
	for case in ["execve", "fork", "thread", "code", "io_uring", "bpf"] {
		killed(case);
	}
}

#[test]
fn a_locked_shell_makes_no_memory_that_is_not_its_own() {
	for case in ["memory file", "shared memory", "limits of others"] {
		killed(case);
	}
	fine("limits");
}

#[test]
fn a_locked_shell_makes_no_kvm_objects() {
	for case in ["KVM_CREATE_VM", "KVM_CREATE_VCPU", "KVM_SET_USER_MEMORY_REGION", "KVM_CREATE_DEVICE"] {
		killed(case);
	}
}

#[test]
fn a_locked_shell_changes_no_flags_of_what_it_shares() {
	killed("descriptor flags");
}

#[test]
fn a_locked_shell_still_works() {
	fine("work");
	fine("copy back");
}
