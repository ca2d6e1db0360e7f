//! Starts QEMU with the guest's serial lines on pipes.
//!
//! Everything QEMU opens it inherits as a descriptor: no line, disk or image has a name, so runs
//! can't meet and nothing is left behind, however a run ends.

use std::{
	arch::x86_64::_rdtsc,
	fs::File,
	io::{self, PipeReader, Write},
	os::{
		fd::{AsRawFd, OwnedFd},
		unix::process::CommandExt,
	},
	process::{Child, ChildStderr, ChildStdin, Command, Stdio},
	thread,
	time::{Duration, Instant},
};

use flashfork_image::{KernelFiles, Program};
use rustix::{
	io::FdFlags,
	process::{Signal, set_parent_process_death_signal},
};

use crate::{Accel, LabError, Options};

const QEMU: Program = Program { name: "qemu-system-x86_64", package: "qemu-system-x86" };

/// The AMD model has SVM for nested KVM, and all that today's user space asks of a CPU.
const TCG_CPU: &str = "EPYC";

/// Serial lines of the guest, as (I/O port, interrupt): the usual ports, but an interrupt for each.
/// Two lines can't share an edge-triggered one, and 5, 9, 10 and 11 belong to PCI.
const LINES: [(u16, u8); 4] = [(0x3f8, 4), (0x2f8, 3), (0x3e8, 6), (0x2e8, 7)];

/// A running QEMU and the host's ends of its serial lines. Dropping it kills the guest.
pub(crate) struct Qemu {
	pub child: Child,
	monitor: ChildStdin,
	/// QEMU's own messages.
	pub messages: ChildStderr,
	/// ttyS0.
	pub console: PipeReader,
	/// ttyS1.
	pub stdout: PipeReader,
	/// ttyS2.
	pub stderr: PipeReader,
	/// ttyS3.
	pub control: PipeReader,
}

impl Drop for Qemu {
	fn drop(&mut self) {
		// Both fail only when the child is gone already, which is what is wanted.
		let _ = self.child.kill();
		let _ = self.child.wait();
	}
}

impl Qemu {
	/// Boots `kernel` with `root` as its initramfs and `swap` as its disk.
	pub fn start(
		options: &Options,
		accel: Accel,
		kernel: &KernelFiles,
		root: File,
		swap: Option<File>,
	) -> Result<Self, LabError> {
		// Pipes, not sockets: QEMU writes byte by byte, and a socket is full after some hundred
		// writes however short.
		let pipe = || io::pipe().map_err(|error| QEMU.not_started(error));
		let (console, console_guest) = pipe()?;
		let (stdout, stdout_guest) = pipe()?;
		let (stderr, stderr_guest) = pipe()?;
		let (control, control_guest) = pipe()?;
		let lines = [console_guest, stdout_guest, stderr_guest, control_guest];

		let mut command = QEMU.command();
		command
			.args(["-M", "q35", "-nodefaults", "-display", "none", "-no-reboot", "-monitor", "stdio"])
			.args(["-m", &options.memory_mib.to_string()])
			.args(["-smp", &options.cpus.to_string()])
			.args(accel_arguments(accel, options))
			.arg("-kernel")
			.arg(&kernel.image)
			.args(["-initrd", &path_of(root.as_raw_fd())])
			.args(["-append", &kernel_command_line(accel, options)]);
		for (index, (line, (port, interrupt))) in lines.iter().zip(LINES).enumerate() {
			let path = path_of(line.as_raw_fd());
			command
				.args(["-chardev", &format!("file,id=line{index},path={path}")])
				.arg("-device")
				.arg(format!("isa-serial,chardev=line{index},index={index},iobase={port:#x},irq={interrupt}"));
		}
		if let Some(swap) = &swap {
			let file = path_of(swap.as_raw_fd());
			command.args(["-drive", &format!("file={file},format=raw,if=virtio,cache=unsafe")]);
		}

		let mut inherited: Vec<OwnedFd> = lines.into_iter().map(OwnedFd::from).collect();
		inherited.push(root.into());
		inherited.extend(swap.map(OwnedFd::from));
		inherit(&mut command, inherited);
		let mut child = command
			.stdin(Stdio::piped())
			.stdout(Stdio::null())
			.stderr(Stdio::piped())
			.spawn()
			.map_err(|error| QEMU.not_started(error))?;
		let messages = child.stderr.take().expect("standard error is piped");
		let monitor = child.stdin.take().expect("standard input is piped");
		// The command owns the guest's ends; while one is open here, a line never ends.
		drop(command);
		Ok(Self { child, monitor, messages, console, stdout, stderr, control })
	}

	/// Interrupts every CPU of the guest, whatever it does: its kernel says where it was, and panics.
	pub fn interrupt(&mut self) {
		// One that is gone has nothing to say.
		let _ = self.monitor.write_all(b"nmi\n");
	}
}

fn path_of(fd: i32) -> String {
	format!("/proc/self/fd/{fd}")
}

fn accel_arguments(accel: Accel, options: &Options) -> Vec<&'static str> {
	match accel {
		Accel::Kvm => vec!["-accel", "kvm", "-cpu", "host"],
		Accel::Tcg => {
			// One thread for all CPUs unless asked: with a thread each, nested guests hang now and then (see below).
			let tcg = if options.threads { "tcg,thread=multi" } else { "tcg,thread=single" };
			let mut arguments = vec!["-accel", tcg, "-cpu", TCG_CPU];
			if options.icount {
				arguments.extend(["-icount", "shift=0,sleep=off"]);
			}
			arguments
		}
	}
}

/// Everything on the console; a panic ends QEMU at once, because it may not reboot. An NMI is one, see
/// [`Qemu::interrupt`].
fn kernel_command_line(accel: Accel, options: &Options) -> String {
	let mut line = "console=ttyS0 loglevel=7 panic=-1 unknown_nmi_panic".to_owned();
	if accel == Accel::Tcg {
		// On a busy host an emulated CPU is often stopped for longer than the kernel's lockup and stall detectors
		// allow, and reads its timers so slowly that the kernel may find its TSC unstable (clocksource_watchdog()):
		// at some moment, and from then on KVM in the guest keeps nobody's TSC.
		line += " nowatchdog tsc=reliable rcupdate.rcu_cpu_stall_suppress=1";
		// For the same reason the kernel may find its TSC many times too slow when it boots: its clock, and all that
		// has a deadline, is too fast from then on. QEMU's TSC is the host's, unless it counts instructions.
		if !options.icount {
			line += &format!(" tsc_early_khz={}", tsc_khz());
		}
		// QEMU's VMRUN notes a virtual interrupt without a lock (`interrupt_request`, as of 7.2), so that an interrupt
		// of the host's kernel may be lost at the same moment. If it is that of a timer which fires once, the kernel
		// sets no other, and sleeps for ever; one that fires again and again makes up for it.
		if options.nested_kvm {
			line += " nohz=off highres=off";
		}
	}
	format!("{line} {}", options.kernel_parameters).trim_end().to_owned()
}

/// How often the host's TSC ticks in a millisecond.
fn tsc_khz() -> u64 {
	// Both at one moment: not one before, and the other after this thread had to wait for a CPU.
	let now = || loop {
		let now = Instant::now();
		// SAFETY: every x86-64 CPU has the instruction.
		let tsc = unsafe { _rdtsc() };
		if now.elapsed() < Duration::from_micros(50) {
			return (now, tsc);
		}
	};
	let (start, first) = now();
	thread::sleep(Duration::from_millis(20));
	let (end, last) = now();
	u64::try_from(u128::from(last - first) * 1_000_000 / (end - start).as_nanos()).expect("it is less than that")
}

/// Lets the child keep `descriptors`, under their numbers, and makes it die with the calling thread.
fn inherit(command: &mut Command, descriptors: Vec<OwnedFd>) {
	let prepare = move || -> io::Result<()> {
		set_parent_process_death_signal(Some(Signal::KILL))?;
		for descriptor in &descriptors {
			rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
		}
		Ok(())
	};
	// SAFETY: between fork and exec the closure makes two kinds of plain system calls; it does not
	// allocate, lock or touch anything but the descriptors it owns.
	unsafe {
		command.pre_exec(prepare);
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn counting_instructions_and_threads_are_asked_of_the_emulator_only() {
		let icount = Options { icount: true, ..Options::default() };
		assert!(accel_arguments(Accel::Tcg, &icount).contains(&"-icount"));
		assert!(!accel_arguments(Accel::Tcg, &Options::default()).contains(&"-icount"));
		assert!(!accel_arguments(Accel::Kvm, &icount).contains(&"-icount"));
		let threads = Options { threads: true, ..Options::default() };
		assert!(accel_arguments(Accel::Tcg, &threads).contains(&"tcg,thread=multi"));
		assert!(accel_arguments(Accel::Tcg, &Options::default()).contains(&"tcg,thread=single"));
		assert!(!accel_arguments(Accel::Kvm, &threads).contains(&"tcg,thread=multi"));
	}

	#[test]
	fn an_emulated_kernel_is_told_how_fast_its_clock_ticks() {
		let told = |accel, options: &Options| kernel_command_line(accel, options).contains(" tsc_early_khz=");
		assert!(told(Accel::Tcg, &Options::default()) && !told(Accel::Kvm, &Options::default()));
		assert!(!told(Accel::Tcg, &Options { icount: true, ..Options::default() }));
		assert!((100_000..100_000_000).contains(&tsc_khz()));
	}

	#[test]
	fn a_lost_timer_interrupt_does_not_stop_an_emulated_host_of_guests() {
		let periodic = |accel, options: &Options| kernel_command_line(accel, options).contains("nohz=off highres=off");
		let nested = Options { nested_kvm: true, ..Options::default() };
		assert!(periodic(Accel::Tcg, &nested));
		assert!(!periodic(Accel::Tcg, &Options::default()) && !periodic(Accel::Kvm, &nested));
	}
}
