//! Objects through which the kernel or a device writes this process's memory later. A process that holds one is
//! refused, with the reason.
//!
//! What of this is harmless is listed ([`known`]), not what does harm: a device or kind of object that nobody has
//! judged yet counts as harmful. Files, pipes, sockets but for a few, and the objects there only write memory while a
//! thread of the process waits in a call.

pub(crate) mod known;

use crate::{
	name::DEVICE,
	never_seal::Reason,
	outcome::Purpose,
	proc::{
		directory::for_each_entry,
		text::{ProcPath, decimal, field, read_file},
		vma::{Kind, Vma},
	},
	region::watch,
	state::STATE,
	sys::{self, Errno, Result},
};
use known::{HARMLESS_MAPPINGS, of_device, of_family, of_target};

/// Whose descriptors are looked at.
pub enum Process {
	/// The calling process's own.
	Own,
	/// Those of another process, which the caller may trace, as its thread `tid` has them: a thread that has ended has
	/// none.
	Other { pid: i32, tid: i32, pidfd: i32 },
}

impl Process {
	/// `/proc/…` of a thread that has memory: one that has ended, the main thread perhaps, tells of none.
	fn place(&self) -> ProcPath {
		match self {
			Process::Own => ProcPath::of_this_thread(),
			Process::Other { pid, tid, .. } => ProcPath::of(*pid).push(b"/task/").number(*tid),
		}
	}

	/// Its id.
	pub fn pid(&self) -> i32 {
		match self {
			Process::Own => sys::getpid(),
			Process::Other { pid, .. } => *pid,
		}
	}

	/// A thread of it that has memory.
	pub fn thread(&self) -> i32 {
		match self {
			Process::Own => sys::gettid(),
			Process::Other { tid, .. } => *tid,
		}
	}

	fn descriptors(&self) -> ProcPath {
		self.place().push(b"/fd")
	}

	fn socket_domain(&self, fd: i32) -> Result<i32> {
		match self {
			Process::Own => sys::socket_domain(fd),
			Process::Other { pidfd, .. } => {
				let copy = sys::pidfd_getfd(*pidfd, fd)?;
				let domain = sys::socket_domain(copy);
				sys::close(copy);
				domain
			}
		}
	}
}

const DEVICES: &[u8] = b"/dev/";

/// Whether a descriptor is a character device that isn't known to be harmless. Before such a device is asked for
/// anything (`ioctl(2)`) all memory becomes anonymous: it may be told of memory that it is to write to.
pub fn is_device_to_mind(fd: i32) -> bool {
	matches!(sys::device_of(fd), Ok(Some(number)) if of_device(number).is_some())
}

/// Whether sockets of a family are such that memory is registered with them. Before there is one all memory becomes
/// anonymous.
pub fn is_family_to_mind(family: i32) -> bool {
	of_family(family).is_some()
}

/// The first reason among the calling process's descriptors not to touch its memory, if any.
pub fn descriptors(purpose: Purpose, buf: &mut [u8]) -> Result<Option<Reason>> {
	descriptors_of(&Process::Own, purpose, buf)
}

/// As [`descriptors`], for any process.
pub fn descriptors_of(process: &Process, purpose: Purpose, buf: &mut [u8]) -> Result<Option<Reason>> {
	if let Some(reason) = unseen(process, purpose, buf)? {
		return Ok(Some(reason));
	}
	let mut any = false;
	let found = for_each_entry(process.descriptors().as_c(), buf, |name| {
		any = true;
		descriptor(process, purpose, name)
	});
	let found = match found {
		// Not even its owner may list them after setuid(2). What matters has come since the seal, and then all memory
		// was made anonymous first; nothing stands against that now.
		Err(Errno::EACCES) if purpose == Purpose::Unseal => return Ok(None),
		found => found?,
	};
	match process {
		// Not even the one it is read through: the list is not ours.
		Process::Own if !any => Err(Errno::ESRCH),
		_ => Ok(found),
	}
}

/// What a mapping says of objects that need no descriptor: AIO's never has one, others may have been closed.
pub fn of_mapping(v: &Vma) -> Option<Reason> {
	match v.kind {
		Kind::AioRing => Some(Reason::AsyncIo),
		Kind::File if v.name().starts_with(b"/dev/") => {
			let harmless = HARMLESS_MAPPINGS.iter().any(|start| v.name().starts_with(start));
			if harmless { None } else { named(of_target(v.name()).or(Some(Reason::Driver)), v.name()) }
		}
		Kind::File => named(of_target(v.name()), v.name()),
		_ => None,
	}
}

/// Keeps the name of what is refused as [`Reason::Driver`], which says little by itself.
fn named(reason: Option<Reason>, name: &[u8]) -> Option<Reason> {
	if reason == Some(Reason::Driver) {
		DEVICE.set(name);
	}
	reason
}

/// Memory that a device or the kernel holds for good, by whatever object (`VmPin` in proc_pid_status(5)); and what
/// nothing else shows: an io_uring, pages in pipes.
fn unseen(process: &Process, purpose: Purpose, buf: &mut [u8]) -> Result<Option<Reason>> {
	if STATE.hidden_ring() {
		return Ok(Some(Reason::IoUring));
	}
	if purpose == Purpose::Seal && STATE.spliced() {
		return Ok(Some(Reason::PagesInPipes));
	}
	let pinned = field(read_file(process.place().push(b"/status").as_c(), buf)?, b"VmPin");
	Ok(named(pinned.filter(|kilobytes| *kilobytes > 0).map(|_| Reason::Driver), b"VmPin in /proc/PID/status"))
}

/// What stands in the way of sealing while descriptor `name` is open.
fn descriptor(process: &Process, purpose: Purpose, name: &[u8]) -> Option<Reason> {
	let path = process.descriptors().push(b"/").push(name);
	let mut target = [0u8; 128];
	let n = sys::readlink(path.as_c(), &mut target).ok()?;
	let target = &target[..n];
	if target.starts_with(b"socket:") {
		let fd = decimal(name)? as i32;
		return match process.socket_domain(fd) {
			// We may not ask: then nothing may be done.
			Err(_) if matches!(process, Process::Other { .. }) => Some(Reason::ThreadTraced),
			Err(_) => None,
			Ok(family) => of_family(family),
		};
	}
	if purpose == Purpose::Unseal && target.starts_with(DEVICES) {
		return None;
	}
	let reason = of_target(target);
	if reason == Some(Reason::Userfaultfd) {
		let mut info = [0; 512];
		let path = process.place().push(b"/fdinfo/").push(name);
		let is_own = read_file(path.as_c(), &mut info).is_ok_and(watch::is_watch);
		return if is_own { None } else { reason };
	}
	if reason.is_some() || !target.starts_with(b"/") {
		return named(reason, target);
	}
	let reason = match sys::character_device(path.as_c()) {
		Ok(Some(number)) => of_device(number),
		Ok(None) | Err(Errno::ENOENT) => None,
		// What it is can't be told.
		Err(_) => Some(Reason::Driver),
	};
	named(reason, target)
}
