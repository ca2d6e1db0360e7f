//! The system calls of a running shell: everything else kills it.
//!
//! What is missing on purpose: opening anything by name, memory files, shared memory, sockets, connections, new
//! processes and threads, other programs, other processes' memory, executable memory, and the KVM calls that make VMs,
//! vCPUs, memory slots, or devices. Those are for the time before; a claim needs none of them.

use super::JailError;
use crate::memory;
use kvm_bindings::{
	kvm_clock_data, kvm_cpuid2, kvm_debugregs, kvm_device_attr, kvm_irq_level, kvm_irqchip, kvm_lapic_state,
	kvm_mp_state, kvm_msrs, kvm_pit_state2, kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xcrs, kvm_xsave,
};
use rustix::ioctl::opcode::{none, read, read_write, write};
use seccompiler::{
	BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
	TargetArch, apply_filter_all_threads,
};
use std::collections::BTreeMap;

/// Allowed with any arguments.
const CALLS: [i64; 43] = [
	// Descriptors that are open.
	libc::SYS_read,
	libc::SYS_write,
	libc::SYS_readv,
	libc::SYS_writev,
	libc::SYS_pread64,
	libc::SYS_pwrite64,
	libc::SYS_preadv,
	libc::SYS_pwritev,
	libc::SYS_lseek,
	libc::SYS_fstat,
	libc::SYS_fdatasync,
	libc::SYS_recvmsg,
	libc::SYS_sendmsg,
	libc::SYS_recvfrom,
	libc::SYS_sendto,
	libc::SYS_shutdown,
	libc::SYS_poll,
	libc::SYS_ppoll,
	libc::SYS_epoll_wait,
	libc::SYS_epoll_pwait,
	libc::SYS_epoll_ctl,
	// Memory.
	libc::SYS_munmap,
	libc::SYS_mremap,
	libc::SYS_madvise,
	libc::SYS_brk,
	// Threads and signals.
	libc::SYS_futex,
	libc::SYS_gettid,
	libc::SYS_getpid,
	libc::SYS_sched_yield,
	libc::SYS_rt_sigprocmask,
	libc::SYS_rt_sigreturn,
	libc::SYS_rt_sigaction,
	libc::SYS_sigaltstack,
	libc::SYS_rseq,
	libc::SYS_set_robust_list,
	libc::SYS_restart_syscall,
	libc::SYS_exit,
	libc::SYS_exit_group,
	// Time and randomness.
	libc::SYS_clock_gettime,
	libc::SYS_clock_nanosleep,
	libc::SYS_nanosleep,
	libc::SYS_timerfd_settime,
	libc::SYS_getrandom,
];

/// `KVMIO` of linux/kvm.h.
const KVM: u8 = 0xae;

/// The ioctls, with what linux/kvm.h calls them; the one that matters for speed first.
fn ioctls() -> Vec<u32> {
	let mut allowed = vec![
		none(KVM, 0x80),                      // KVM_RUN
		read::<kvm_regs>(KVM, 0x81),          // KVM_GET_REGS
		write::<kvm_regs>(KVM, 0x82),         // KVM_SET_REGS
		read::<kvm_sregs>(KVM, 0x83),         // KVM_GET_SREGS
		write::<kvm_sregs>(KVM, 0x84),        // KVM_SET_SREGS
		read_write::<kvm_msrs>(KVM, 0x88),    // KVM_GET_MSRS
		write::<kvm_msrs>(KVM, 0x89),         // KVM_SET_MSRS
		read::<kvm_lapic_state>(KVM, 0x8e),   // KVM_GET_LAPIC
		write::<kvm_lapic_state>(KVM, 0x8f),  // KVM_SET_LAPIC
		read_write::<kvm_cpuid2>(KVM, 0x91),  // KVM_GET_CPUID2
		read::<kvm_mp_state>(KVM, 0x98),      // KVM_GET_MP_STATE
		write::<kvm_mp_state>(KVM, 0x99),     // KVM_SET_MP_STATE
		read::<kvm_vcpu_events>(KVM, 0x9f),   // KVM_GET_VCPU_EVENTS
		write::<kvm_vcpu_events>(KVM, 0xa0),  // KVM_SET_VCPU_EVENTS
		read::<kvm_debugregs>(KVM, 0xa1),     // KVM_GET_DEBUGREGS
		write::<kvm_debugregs>(KVM, 0xa2),    // KVM_SET_DEBUGREGS
		none(KVM, 0xa2),                      // KVM_SET_TSC_KHZ
		none(KVM, 0xa3),                      // KVM_GET_TSC_KHZ
		read::<kvm_xsave>(KVM, 0xa4),         // KVM_GET_XSAVE
		write::<kvm_xsave>(KVM, 0xa5),        // KVM_SET_XSAVE
		read::<kvm_xcrs>(KVM, 0xa6),          // KVM_GET_XCRS
		write::<kvm_xcrs>(KVM, 0xa7),         // KVM_SET_XCRS
		none(KVM, 0xad),                      // KVM_KVMCLOCK_CTRL
		read::<kvm_xsave>(KVM, 0xcf),         // KVM_GET_XSAVE2
		write::<kvm_device_attr>(KVM, 0xe1),  // KVM_SET_DEVICE_ATTR
		write::<kvm_device_attr>(KVM, 0xe2),  // KVM_GET_DEVICE_ATTR
		write::<kvm_device_attr>(KVM, 0xe3),  // KVM_HAS_DEVICE_ATTR
		none(KVM, 0x03),                      // KVM_CHECK_EXTENSION
		write::<kvm_irq_level>(KVM, 0x61),    // KVM_IRQ_LINE
		read_write::<kvm_irqchip>(KVM, 0x62), // KVM_GET_IRQCHIP
		read::<kvm_irqchip>(KVM, 0x63),       // KVM_SET_IRQCHIP
		write::<kvm_clock_data>(KVM, 0x7b),   // KVM_SET_CLOCK
		read::<kvm_clock_data>(KVM, 0x7c),    // KVM_GET_CLOCK
		read::<kvm_pit_state2>(KVM, 0x9f),    // KVM_GET_PIT2
		write::<kvm_pit_state2>(KVM, 0xa0),   // KVM_SET_PIT2
	];
	allowed.extend([libc::FIONBIO as u32, libc::FIONREAD as u32]);
	// Of its own page map, and what watches its own pages: what it could tell the guest, that can measure.
	allowed.push(memory::SCAN);
	allowed.extend(memory::WATCH_CALLS);
	allowed
}

pub(super) fn install() -> Result<(), JailError> {
	let program = program().map_err(|e| JailError::Filter(e.to_string()))?;
	apply_filter_all_threads(&program).map_err(|e| JailError::Filter(e.to_string()))
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
	let equal = |argument, value: u64| -> Result<SeccompRule, seccompiler::BackendError> {
		SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?])
	};
	let clear = |argument, bits: i32| -> Result<SeccompRule, seccompiler::BackendError> {
		let bits = SeccompCmpOp::MaskedEq(bits as u64);
		SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, bits, 0)?])
	};
	let both = |one: (u8, i32), other: (u8, i32)| -> Result<SeccompRule, seccompiler::BackendError> {
		let condition = |(argument, bits): (u8, i32)| {
			SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits as u64), 0)
		};
		SeccompRule::new(vec![condition(one)?, condition(other)?])
	};
	let mut rules: BTreeMap<i64, Vec<SeccompRule>> = CALLS.iter().map(|call| (*call, Vec::new())).collect();
	let ioctls: Result<_, _> = ioctls().into_iter().map(|request| equal(1, request.into())).collect();
	rules.insert(libc::SYS_ioctl, ioctls?);
	// Neither code, nor memory that is shared and no file's: it would be charged to nobody's limit.
	let (no_code, shared, anonymous) = (libc::PROT_EXEC, libc::MAP_SHARED, libc::MAP_ANONYMOUS);
	rules.insert(libc::SYS_mmap, vec![both((2, no_code), (3, shared))?, both((2, no_code), (3, anonymous))?]);
	rules.insert(libc::SYS_mprotect, vec![clear(2, libc::PROT_EXEC)?]);
	// All but the leash, which it dies by.
	let leash = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, libc::STDERR_FILENO as u64)?;
	rules.insert(libc::SYS_close, vec![SeccompRule::new(vec![leash])?]);
	// The metadata of a descriptor; a path finds nothing in an empty root.
	let of_descriptor = libc::AT_EMPTY_PATH as u64;
	rules.insert(libc::SYS_newfstatat, vec![equal(3, of_descriptor)?]);
	let statx = SeccompCmpOp::MaskedEq(of_descriptor);
	rules.insert(
		libc::SYS_statx,
		vec![SeccompRule::new(vec![SeccompCondition::new(2, SeccompCmpArgLen::Dword, statx, of_descriptor)?])?],
	);
	// Not F_SETFL: shells share a disk image's open file description, so O_DIRECT for one would be O_DIRECT for all.
	let requests = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC];
	let requests = requests.into_iter().chain([libc::F_ADD_SEALS, libc::F_GET_SEALS]);
	rules.insert(libc::SYS_fcntl, requests.map(|request| equal(1, request as u64)).collect::<Result<_, _>>()?);
	// Its own limits, which it can only lower.
	rules.insert(libc::SYS_prlimit64, vec![equal(0, 0)?]);
	// A thread of its own is kicked out of the guest; nobody else can be signalled.
	rules.insert(libc::SYS_tgkill, vec![equal(0, std::process::id().into())?]);
	let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, TargetArch::x86_64)?;
	filter.try_into()
}
