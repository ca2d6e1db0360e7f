//! Which objects and devices write memory, by name and number, and which are known not to.

use crate::never_seal::Reason;

const AF_XDP: i32 = 44;
/// Its peers write registered memory (`RDS_GET_MR`).
const AF_RDS: i32 = 21;

/// Beginnings of what `/proc/self/fd/N` points to.
const DESCRIPTORS: &[(&[u8], Reason)] = &[
	(b"anon_inode:[io_uring]", Reason::IoUring),
	(b"anon_inode:kvm-", Reason::Kvm),
	(b"/dev/kvm", Reason::Kvm),
	(b"/dev/mshv", Reason::Kvm),
	(b"/dev/vhost-", Reason::Vhost),
	(b"/dev/vfio/", Reason::Vfio),
	(b"anon_inode:[vfio", Reason::Vfio),
	(b"/dev/iommu", Reason::Vfio),
	(b"/dev/infiniband/", Reason::Rdma),
	(b"anon_inode:[userfaultfd]", Reason::Userfaultfd),
	(b"/dev/userfaultfd", Reason::Userfaultfd),
	(b"/dev/dri/", Reason::Gpu),
	(b"/dev/nvidia", Reason::Gpu),
	(b"/dev/kfd", Reason::Gpu),
	(b"/dev/accel/", Reason::Gpu),
	(b"/dev/video", Reason::Gpu),
	(b"/dmabuf:", Reason::Gpu),
	(b"/drm mm object", Reason::Gpu),
];

const ANONYMOUS: &[u8] = b"anon_inode:";

/// Objects without a file that are harmless, as `/proc/self/fd` and maps name them behind `anon_inode:`. What perf and
/// BPF write is memory of their own; a BPF program writes the program's only while one of its threads is in the kernel.
const HARMLESS_OBJECTS: &[&[u8]] = &[
	b"[eventfd]",
	b"[eventpoll]",
	b"[timerfd]",
	b"[signalfd]",
	b"[pidfd]",
	b"inotify",
	b"[fanotify]",
	b"[perf_event]",
	b"bpf-map",
	b"bpf-prog",
	b"bpf_link",
	b"bpf_iter",
	b"bpf-link",
	b"btf",
	b"[fscontext]",
	b"[landlock-ruleset]",
	b"seccomp notify",
];

/// Character devices that are harmless, by number (Documentation/admin-guide/devices.txt): major, first and last minor.
const HARMLESS_DEVICES: &[(u64, u64, u64)] = &[
	// null, zero, full, random, urandom, kmsg
	(1, 3, 3),
	(1, 5, 5),
	(1, 7, 9),
	(1, 11, 11),
	// Terminals: virtual, serial, tty, console, ptmx, pts.
	(4, 0, 255),
	(5, 0, 2),
	(136, 0, u64::MAX),
	(137, 0, u64::MAX),
	(138, 0, u64::MAX),
	(139, 0, u64::MAX),
	(140, 0, u64::MAX),
	(141, 0, u64::MAX),
	(142, 0, u64::MAX),
	(143, 0, u64::MAX),
	// fuse, net/tun
	(10, 229, 229),
	(10, 200, 200),
];

/// Beginnings of paths under /dev that are no devices, or harmless ones, where they are mapped.
pub const HARMLESS_MAPPINGS: &[&[u8]] =
	&[b"/dev/zero", b"/dev/null", b"/dev/shm/", b"/dev/mqueue/", b"/dev/hugepages/"];

/// What memory is registered with that sockets of a family write, or their peers.
pub fn of_family(family: i32) -> Option<Reason> {
	match family {
		AF_XDP => Some(Reason::Xdp),
		AF_RDS => Some(Reason::Rdma),
		_ => None,
	}
}

/// What stands in the way of sealing while a descriptor points to `target`, as far as its name tells.
pub fn of_target(target: &[u8]) -> Option<Reason> {
	let named = DESCRIPTORS.iter().find(|(start, _)| target.starts_with(start)).map(|(_, reason)| *reason);
	let unknown =
		|| target.strip_prefix(ANONYMOUS).is_some_and(|name| !HARMLESS_OBJECTS.iter().any(|o| name.starts_with(o)));
	named.or_else(|| unknown().then_some(Reason::Driver))
}

/// What stands in the way of sealing while a character device of this number (`st_rdev`) is open.
pub fn of_device(number: u64) -> Option<Reason> {
	let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff_ff00);
	let harmless = HARMLESS_DEVICES.iter().any(|(m, first, last)| *m == major && (*first..=*last).contains(&minor));
	if harmless { None } else { Some(Reason::Driver) }
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::sys;

	#[test]
	fn devices_and_objects_that_nobody_has_judged_are_harmful() {
		for harmless in ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"]
		{
			let path = std::ffi::CString::new(harmless).unwrap();
			let number = sys::character_device(&path).unwrap().unwrap();
			assert_eq!(of_device(number), None, "{harmless}");
		}
		assert_eq!(sys::character_device(c"/proc/self/exe"), Ok(None));
		assert_eq!(of_device(0x10_882c), None, "pts/300");
		assert_eq!(of_device(1 << 8 | 1), Some(Reason::Driver), "mem");
		assert_eq!(of_device(10 << 8 | 125), Some(Reason::Driver), "udmabuf, as any misc device");
		assert_eq!(of_device(511 << 8), Some(Reason::Driver));
		for harmless in ["anon_inode:[eventfd]", "anon_inode:inotify", "pipe:[1]", "/tmp/a", "anon_inode:bpf-map"] {
			assert_eq!(of_target(harmless.as_bytes()), None, "{harmless}");
		}
		assert_eq!(of_target(b"anon_inode:[made-up]"), Some(Reason::Driver));
		assert_eq!(of_target(b"/dmabuf:"), Some(Reason::Gpu));
	}
}
