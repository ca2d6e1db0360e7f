//! Finds a template by its name, as `Directory` and `Link` of flashfork-templates do, which say what each step is for.
//! One that they would have to say something about is none here.

use crate::{
	line::{Decimal, Line, Path},
	system::{self, Fd, at, call, into},
};
use linux_raw_sys::{general as sys, net};
use syscalls::Sysno;

/// A connection to a template that runs.
pub struct Template {
	pub socket: Fd,
	/// Its process; none where that can't be seen from here.
	pub pid: Option<u32>,
}

/// Longest path of the directory of the names.
const PATH: usize = 1024;

/// Of an address, with the path behind it (`unix(7)`).
#[repr(C)]
struct Address {
	family: u16,
	path: [u8; 108],
}

pub fn connect(line: &Line, name: &str) -> Option<Template> {
	let directory = names(line)?;
	let fd = Decimal::new(directory as u32);
	let path = Path::<108>::of(&[b"/proc/self/fd/", fd.as_bytes(), b"/", name.as_bytes()])?;
	let path = path.as_c().to_bytes_with_nul();
	let mut address = Address { family: net::AF_UNIX as u16, path: [0; 108] };
	address.path[..path.len()].copy_from_slice(path);
	// The flags of a socket have the values of those of a file (`socket(2)`).
	let kind = net::SOCK_SEQPACKET | sys::O_CLOEXEC | sys::O_NONBLOCK;
	let socket = system::ask(Sysno::socket, [net::AF_UNIX as usize, kind as usize, 0])?;
	let len = size_of::<u16>() + path.len();
	// SAFETY: the address is as long as said.
	unsafe { call(Sysno::connect, [socket, at(&address), len])? };
	let [pid, user, group] = peer(socket)?;
	let own = [Sysno::geteuid, Sysno::getegid].map(|which| system::ask(which, []));
	if own != [Some(user as usize), Some(group as usize)] {
		return None;
	}
	let pid = (pid > 1).then_some(pid);
	pid.is_none_or(runs).then_some(Template { socket: socket as Fd, pid })
}

/// The directory, open, if it is this user's alone.
fn names(line: &Line) -> Option<Fd> {
	let user = system::ask(Sysno::geteuid, [])? as u32;
	let number = Decimal::new(user);
	let runtime = line.variable(b"XDG_RUNTIME_DIR=").filter(|path| path.first() == Some(&b'/'));
	let above: [&[u8]; 2] = runtime.map_or([b"/tmp/flashfork-", number.as_bytes()], |path| [path, b"/flashfork"]);
	let [first, second] = above;
	let found = system::stat(sys::AT_FDCWD, Path::<PATH>::of(&above)?.as_c(), 0)?;
	if found.st_mode & sys::S_IFMT != sys::S_IFDIR || found.st_uid != user || found.st_mode & 0o022 != 0 {
		return None;
	}
	let path = Path::<PATH>::of(&[first, second, b"/templates"])?;
	let directory = system::open(path.as_c(), sys::O_DIRECTORY | sys::O_NOFOLLOW | sys::O_RDONLY)?;
	let found = system::stat(directory, c"", sys::AT_EMPTY_PATH)?;
	(found.st_uid == user && found.st_mode & 0o077 == 0).then_some(directory)
}

fn peer(socket: usize) -> Option<[u32; 3]> {
	let (mut peer, mut len) = ([0u32; 3], size_of::<[u32; 3]>() as u32);
	let (level, what) = (net::SOL_SOCKET as usize, net::SO_PEERCRED as usize);
	// SAFETY: the kernel writes as many bytes as said to a local.
	unsafe { call(Sysno::getsockopt, [socket, level, what, into(&mut peer), into(&mut len)])? };
	Some(peer)
}

/// Whether a process is neither stopped nor gone (`proc_pid_stat(5)`).
fn runs(pid: u32) -> bool {
	let mut buffer = [0; 512];
	let number = Decimal::new(pid);
	let path = Path::<32>::of(&[b"/proc/", number.as_bytes(), b"/stat"]);
	let Some(stat) = path.and_then(|path| system::read(path.as_c(), &mut buffer)) else { return false };
	let Some(name) = stat.windows(2).rposition(|two| two == b") ") else { return false };
	stat.get(name + 2).is_some_and(|state| !b"TtZX".contains(state))
}
