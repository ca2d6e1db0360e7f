//! Which system calls can fail, and how: what their man pages list, what memory pressure and sandboxes do, and what
//! kernels before 6.12 did.

use libc::{c_int, user_regs_struct};

/// One thing that goes wrong with one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
	/// It does nothing and gives this error.
	Errno(c_int),
	/// It does its work and gives this error (`close`).
	Late(c_int),
	/// It writes less than it was asked to.
	Short,
	/// Before Linux 6.12 a fixed mapping that failed could leave a hole: the target is unmapped, the error is ENOMEM.
	Hole,
}

/// A fixed `mmap` or `mremap`, and the range it puts something at.
pub fn target(regs: &user_regs_struct) -> Option<(u64, u64)> {
	match regs.orig_rax as i64 {
		libc::SYS_mmap if regs.r10 & libc::MAP_FIXED as u64 != 0 => Some((regs.rdi, regs.rsi)),
		libc::SYS_mremap if regs.r10 & libc::MREMAP_FIXED as u64 != 0 => Some((regs.r8, regs.rdx)),
		_ => None,
	}
}

pub fn faults(regs: &user_regs_struct) -> Vec<Fault> {
	let mut out: Vec<Fault> = errors(regs).iter().map(|e| Fault::Errno(*e)).collect();
	match regs.orig_rax as i64 {
		libc::SYS_pwrite64 => out.push(Fault::Short),
		libc::SYS_close => out.push(Fault::Late(libc::EINTR)),
		_ if target(regs).is_some() => out.push(Fault::Hole),
		_ => {}
	}
	out
}

/// Whether a call looks at the process and changes nothing.
pub fn only_looks(regs: &user_regs_struct) -> bool {
	let numbers = [
		libc::SYS_openat,
		libc::SYS_read,
		libc::SYS_close,
		libc::SYS_getdents64,
		libc::SYS_readlink,
		libc::SYS_process_vm_writev,
	];
	numbers.contains(&(regs.orig_rax as i64))
}

fn errors(regs: &user_regs_struct) -> &'static [c_int] {
	match regs.orig_rax as i64 {
		libc::SYS_openat => &[libc::EMFILE, libc::ENOMEM, libc::EPERM],
		libc::SYS_read | libc::SYS_pread64 => &[libc::EINTR, libc::ENOMEM],
		libc::SYS_getdents64 => &[libc::ENOMEM, libc::EINTR],
		libc::SYS_readlink => &[libc::ENOMEM, libc::EPERM],
		libc::SYS_mmap => &[libc::ENOMEM, libc::EAGAIN, libc::EPERM],
		libc::SYS_mremap => &[libc::ENOMEM, libc::EAGAIN, libc::EFAULT],
		libc::SYS_mprotect => &[libc::ENOMEM, libc::EACCES],
		libc::SYS_munmap => &[libc::ENOMEM],
		libc::SYS_madvise => &[libc::ENOMEM, libc::EAGAIN, libc::EBUSY, libc::EINVAL, libc::EINTR, libc::EFAULT],
		libc::SYS_process_vm_writev => &[libc::EPERM, libc::ENOMEM, libc::EFAULT],
		libc::SYS_clone => &[libc::EAGAIN, libc::ENOMEM, libc::EPERM],
		libc::SYS_memfd_create => &[libc::EMFILE, libc::ENOMEM, libc::EPERM, libc::EINVAL],
		libc::SYS_ftruncate => &[libc::EFBIG, libc::EPERM, libc::EINTR],
		libc::SYS_pwrite64 => &[libc::EFBIG, libc::ENOSPC, libc::ENOMEM, libc::EINTR, libc::EFAULT, libc::EPERM],
		libc::SYS_fcntl => &[libc::EBUSY, libc::EPERM, libc::EINVAL],
		libc::SYS_fallocate => &[libc::ENOSPC, libc::EINTR, libc::EPERM],
		libc::SYS_prlimit64 | libc::SYS_prctl => &[libc::EPERM, libc::EINVAL],
		// The raw call gives the break that holds now; anything else but what was asked for is a failure.
		libc::SYS_brk if regs.rdi != 0 => &[libc::ENOMEM],
		libc::SYS_lseek => &[libc::EINVAL],
		// ENOSYS: kernels without it.
		libc::SYS_userfaultfd => &[libc::EPERM, libc::ENOSYS, libc::EMFILE],
		libc::SYS_fstat => &[libc::ENOMEM],
		libc::SYS_newfstatat => &[libc::ENOENT, libc::ENOMEM],
		libc::SYS_unshare => &[libc::EPERM],
		// ENODEV, ENOSYS: kernels without tmpfs, or before 5.2.
		libc::SYS_fsopen => &[libc::EPERM, libc::ENODEV, libc::ENOSYS, libc::EMFILE],
		libc::SYS_fsconfig | libc::SYS_fsmount => &[libc::EINVAL, libc::EPERM, libc::ENOMEM],
		libc::SYS_mount_setattr => &[libc::EBUSY, libc::EPERM, libc::ENOSYS],
		libc::SYS_unlinkat => &[libc::EACCES, libc::ENOMEM],
		libc::SYS_mlock | libc::SYS_mlock2 => &[libc::EPERM, libc::ENOMEM],
		// ENOTTY and EINVAL: kernels before 6.7.
		libc::SYS_ioctl => &[libc::ENOTTY, libc::EINVAL, libc::EINTR, libc::ENOMEM, libc::EFAULT],
		libc::SYS_write => &[libc::EPERM, libc::ENOSPC, libc::EINTR],
		// What sandboxes forbid.
		libc::SYS_getsockopt
		| libc::SYS_sigaltstack
		| libc::SYS_get_robust_list
		| libc::SYS_arch_prctl
		| libc::SYS_get_mempolicy => &[libc::EPERM, libc::ENOSYS],
		// Blocking signals could be forbidden as well. Then so could putting the mask back, which must not fail.
		libc::SYS_rt_sigprocmask if regs.rdx != 0 => &[libc::EPERM],
		// Can't fail with valid arguments: clock_gettime, getpid, msync on a mapped range, nanosleep.
		_ => &[],
	}
}
