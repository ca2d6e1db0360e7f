//! What a shell asks of the kernel, seen by ptrace: nothing that creates in a claim, and everything in its order.

mod common;
#[path = "common/shell.rs"]
mod shell_client;

use common::{guest_code, kvm, shape};
use flashfork_proto::shell::{FromShell, ToShell};
use nix::{
	sys::{
		ptrace,
		signal::Signal,
		wait::{WaitPidFlag, WaitStatus, waitpid},
	},
	unistd::Pid,
};
use shell_client::{Shell, Template, command};
use std::{
	os::unix::process::CommandExt,
	sync::{Mutex, mpsc},
	thread,
};

const CREATE_VM: u64 = 0xae01;
const CHECK_EXTENSION: u64 = 0xae03;
const CREATE_VCPU: u64 = 0xae41;
const SET_USER_MEMORY_REGION: u64 = 0x4020_ae46;
const CREATE_IRQCHIP: u64 = 0xae60;
const IRQ_LINE: u64 = 0x4008_ae61;
const SET_IRQCHIP: u64 = 0x8208_ae63;
const IRQFD: u64 = 0x4020_ae76;
const CREATE_PIT2: u64 = 0x4040_ae77;
const IOEVENTFD: u64 = 0x4040_ae79;
const SET_CLOCK: u64 = 0x4030_ae7b;
const RUN: u64 = 0xae80;
const SET_REGS: u64 = 0x4090_ae82;
const SET_SREGS: u64 = 0x4138_ae84;
const GET_MSRS: u64 = 0xc008_ae88;
const SET_MSRS: u64 = 0x4008_ae89;
const SET_LAPIC: u64 = 0x4400_ae8f;
const SET_CPUID2: u64 = 0x4008_ae90;
const SET_PIT2: u64 = 0x4070_aea0;
const CREATE_DEVICE: u64 = 0xc00c_aee0;
/// The offset of the TSC.
const SET_DEVICE_ATTR: u64 = 0x4018_aee1;

/// A test waits for every process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// One system call, as it begins.
#[derive(Debug, Clone, Copy)]
struct Call {
	thread: i32,
	number: i64,
	arguments: [u64; 6],
}

impl Call {
	fn ioctl(&self) -> Option<u64> {
		// The kernel takes 32 bits of it.
		(self.number == libc::SYS_ioctl).then_some(self.arguments[1] & 0xffff_ffff)
	}
}

/// Starts a shell traced from its first instruction, and gives every call of its main thread and the others when it has
/// ended.
fn traced(vcpus: u8) -> (Shell, thread::JoinHandle<Vec<Call>>) {
	let (sender, started) = mpsc::channel();
	let tracer = thread::spawn(move || {
		let (mut command, channel) = command();
		// SAFETY: one system call.
		unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
		let child = command.spawn().unwrap();
		let main = Pid::from_raw(child.id() as i32);
		assert!(matches!(waitpid(main, None).unwrap(), WaitStatus::Stopped(_, Signal::SIGTRAP)));
		use ptrace::Options;
		let children = Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACEVFORK;
		ptrace::setoptions(main, children | Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL).unwrap();
		sender.send((channel, child)).unwrap();
		ptrace::syscall(main, None).unwrap();
		let mut calls = Vec::new();
		while let Ok(status) = waitpid(None, Some(WaitPidFlag::__WALL)) {
			let (thread, signal) = match status {
				WaitStatus::PtraceSyscall(thread) => {
					// It may be gone by now, with its process.
					let info = match ptrace::syscall_info(thread) {
						Err(nix::errno::Errno::ESRCH) => continue,
						info => info.unwrap(),
					};
					if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
						// SAFETY: the union holds what `op` says.
						let entry = unsafe { info.u.entry };
						let (number, arguments) = (entry.nr as i64, entry.args);
						calls.push(Call { thread: thread.as_raw(), number, arguments });
					}
					(thread, None)
				}
				WaitStatus::Stopped(thread, Signal::SIGSTOP) => (thread, None),
				WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
				WaitStatus::PtraceEvent(thread, ..) => (thread, None),
				WaitStatus::Exited(..) | WaitStatus::Signaled(..) => continue,
				other => panic!("{other:?}"),
			};
			// As above.
			let _ = ptrace::syscall(thread, signal);
		}
		calls
	});
	let (channel, child) = started.recv().unwrap();
	(Shell { channel, child, shape: shape(16, vcpus), console: Vec::new() }, tracer)
}

/// What a shell did between one message and the next.
struct Life {
	/// Before it was ready.
	preparation: Vec<Call>,
	/// From then until it was primed; nothing if it never was.
	priming: Vec<Call>,
	/// From then until it reported that it was claimed.
	claim: Vec<Call>,
}

/// Prepares a traced shell, primes it or doesn't, claims it and lets it end.
fn life(vcpus: u8, template: &Template, primed: bool) -> Life {
	let (mut shell, tracer) = traced(vcpus);
	shell.channel.greet().unwrap();
	shell.send(ToShell::Prepare(shape(16, vcpus)));
	shell.channel.expect_greeting().unwrap();
	assert_eq!(shell.next(), FromShell::Ready);
	if primed {
		shell.prime(template);
		shell.go(1);
	} else {
		shell.claim(template, 1);
	}
	assert!(matches!(shell.next(), FromShell::Ended(_)));
	let calls = tracer.join().unwrap();
	// Greeting, Ready, Primed, Claimed.
	let sent: Vec<usize> = (0..calls.len()).filter(|i| calls[*i].number == libc::SYS_sendmsg).collect();
	let between = |from: usize, to: usize| calls[sent[from] + 1..sent[to]].to_vec();
	let ready = 1;
	let preparation = calls[..sent[ready]].to_vec();
	if primed {
		Life { preparation, priming: between(ready, ready + 1), claim: between(ready + 1, ready + 2) }
	} else {
		Life { preparation, priming: Vec::new(), claim: between(ready, ready + 1) }
	}
}

fn ioctls(calls: &[Call]) -> Vec<u64> {
	calls.iter().filter_map(Call::ioctl).collect()
}

/// Where `request` is first, and last.
fn place(ioctls: &[u64], request: u64) -> (usize, usize) {
	let of = |at: Option<usize>| at.unwrap_or_else(|| panic!("no ioctl {request:#x} in {ioctls:#x?}"));
	(of(ioctls.iter().position(|r| *r == request)), of(ioctls.iter().rposition(|r| *r == request)))
}

fn in_order(ioctls: &[u64], requests: &[u64]) {
	for pair in requests.windows(2) {
		let (before, after) = (place(ioctls, pair[0]), place(ioctls, pair[1]));
		assert!(before.1 < after.0, "{:#x} is not before {:#x} in {ioctls:#x?}", pair[0], pair[1]);
	}
}

#[test]
fn a_claim_creates_nothing_and_both_preparation_and_claim_keep_their_order() {
	let Some(_) = kvm() else { return };
	let _alone = ALONE.lock().unwrap();
	for vcpus in [1, 2] {
		// In its own process, made before any is traced.
		let template = shell_client::template(shape(16, vcpus), &guest_code());
		let Life { preparation, claim, .. } = life(vcpus, &template, false);

		let prepared = ioctls(&preparation);
		in_order(&prepared, &[CREATE_VM, CREATE_IRQCHIP, CREATE_PIT2, SET_USER_MEMORY_REGION, CREATE_VCPU]);
		assert!(
			place(&prepared, SET_CPUID2).0 < place(&prepared, GET_MSRS).0,
			"MSRs that CPUID doesn't announce read as 0"
		);
		for request in [CREATE_VCPU, SET_CPUID2] {
			assert_eq!(prepared.iter().filter(|r| **r == request).count(), usize::from(vcpus));
		}

		let claimed = ioctls(&claim);
		for request in CREATING {
			assert!(!claimed.contains(&request), "{request:#x} in {claimed:#x?}");
		}
		// Every vCPU runs; the one whose thread restores the machine is meant.
		let main = claim.iter().find(|call| call.ioctl() == Some(SET_PIT2)).unwrap().thread;
		let own: Vec<Call> = claim.iter().filter(|call| call.thread == main).copied().collect();
		in_order(&ioctls(&own), &[SET_LAPIC, SET_DEVICE_ATTR, SET_PIT2, SET_CLOCK, SET_IRQCHIP, IRQ_LINE, RUN]);
		// Nothing is asked for twice, and registers go with RUN where KVM takes them from the shared page.
		for (request, most) in [
			(SET_REGS, 1),
			(SET_SREGS, 1),
			(SET_LAPIC, 1),
			(SET_DEVICE_ATTR, 1),
			(SET_MSRS, 1),
			(SET_IRQCHIP, 3),
			(IRQ_LINE, 2),
		] {
			let found = ioctls(&own).iter().filter(|r| **r == request).count();
			assert!(found <= most, "{request:#x} {found} times in {claimed:#x?}");
		}
		// Memory is there before anything of KVM's may write to it.
		let mapped =
			own.iter().position(|call| call.number == libc::SYS_mmap && call.arguments[1] == 16 << 20).unwrap();
		let first = own.iter().position(|call| call.ioctl().is_some()).unwrap();
		assert!(mapped < first);
		assert_eq!(ioctls(&own).iter().filter(|r| **r == RUN).count(), 1);
		opens_nothing(&claim);
	}
}

/// What makes something of KVM's, or asks what it can.
const CREATING: [u64; 10] = [
	CREATE_VM,
	CREATE_VCPU,
	SET_USER_MEMORY_REGION,
	CREATE_IRQCHIP,
	CREATE_PIT2,
	CREATE_DEVICE,
	IRQFD,
	IOEVENTFD,
	SET_CPUID2,
	CHECK_EXTENSION,
];

/// Neither a file is opened or made nor a thread.
fn opens_nothing(calls: &[Call]) {
	for call in calls {
		let forbidden = [
			libc::SYS_open,
			libc::SYS_openat,
			libc::SYS_clone,
			libc::SYS_clone3,
			libc::SYS_socket,
			libc::SYS_execve,
			libc::SYS_memfd_create,
		];
		assert!(!forbidden.contains(&call.number), "{call:?}");
	}
}

/// Whether memory is mapped.
fn maps(calls: &[Call]) -> bool {
	calls.iter().any(|call| call.number == libc::SYS_mmap && call.arguments[1] == 16 << 20)
}

#[test]
fn nothing_ticks_in_a_primed_shell_and_its_claim_maps_nothing() {
	let Some(_) = kvm() else { return };
	let _alone = ALONE.lock().unwrap();
	for vcpus in [1, 2] {
		let template = shell_client::template(shape(16, vcpus), &guest_code());
		let Life { priming, claim, .. } = life(vcpus, &template, true);
		opens_nothing(&priming);
		opens_nothing(&claim);
		assert!(maps(&priming) && !maps(&claim));
		let (before, claimed) = (ioctls(&priming), ioctls(&claim));
		// What starts a clock or timer, gives an interrupt, or runs the guest.
		let timed = [SET_LAPIC, SET_DEVICE_ATTR, SET_PIT2, SET_CLOCK, SET_IRQCHIP, IRQ_LINE, RUN];
		for request in CREATING.iter().chain(&timed) {
			assert!(!before.contains(request), "{request:#x} in {before:#x?}");
		}
		for request in CREATING {
			assert!(!claimed.contains(&request), "{request:#x} in {claimed:#x?}");
		}
		let main = claim.iter().find(|call| call.ioctl() == Some(SET_PIT2)).unwrap().thread;
		let own: Vec<Call> = claim.iter().filter(|call| call.thread == main).copied().collect();
		in_order(&ioctls(&own), &timed);
		// Nothing else, but for the TSC deadline of a guest with one.
		assert_eq!(ioctls(&own).len(), timed.len() + 3, "{claimed:#x?}");
	}
}
