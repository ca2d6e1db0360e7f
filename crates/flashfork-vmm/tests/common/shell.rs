//! The daemon's side of shells.
#![allow(dead_code)]

use crate::common::renewal;
use flashfork_proto::{
	shape::Shape,
	shell::{Boot, BootGuest, Channel, Claim, ClaimTimes, Ended, Extent, FromShell, Go, Origin, ToShell},
};
use flashfork_vmm::machine::Blank;
use rustix::{
	fs::{Mode, OFlags, open},
	net::sockopt::{Timeout, set_socket_timeout},
};
use std::{
	os::fd::{AsFd, OwnedFd},
	process::{Child, Command, ExitStatus},
	time::Duration,
};

/// A shell that does nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// What clones are made of.
pub struct Template {
	pub ram: OwnedFd,
	pub state: Vec<u8>,
}

/// A shell and the daemon's end of its channel.
pub struct Shell {
	pub channel: Channel,
	pub child: Child,
	pub shape: Shape,
	/// Bytes of console that came while something else was waited for.
	pub console: Vec<u8>,
}

/// The program, to be started with these ends of its channel; the caller may change the command.
pub fn command() -> (Command, Channel) {
	let (daemon, shell) = Channel::pair().unwrap();
	set_socket_timeout(&daemon, Timeout::Recv, Some(PATIENCE)).unwrap();
	let kvm = open("/dev/kvm", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
	let mut command = Command::new(env!("CARGO_BIN_EXE_flashfork-shell"));
	command.stdin(shell.into_descriptor()).stdout(kvm).env_clear();
	(command, daemon)
}

impl Shell {
	pub fn prepare(shape: Shape) -> Self {
		let mut shell = Self::begin(shape);
		assert_eq!(shell.next(), FromShell::Ready);
		shell
	}

	/// One that is a clone.
	#[track_caller]
	pub fn claimed(shape: Shape, template: &Template, index: u64) -> Self {
		let mut shell = Self::prepare(shape);
		shell.claim(template, index);
		shell
	}

	pub fn prepare_many(shape: Shape, count: usize) -> Vec<Self> {
		let mut shells: Vec<_> = (0..count).map(|_| Self::begin(shape)).collect();
		shells.iter_mut().for_each(|shell| assert_eq!(shell.next(), FromShell::Ready));
		shells
	}

	fn begin(shape: Shape) -> Self {
		let (mut command, channel) = command();
		let child = command.spawn().unwrap();
		let shell = Self { channel, child, shape, console: Vec::new() };
		shell.channel.greet().unwrap();
		shell.send(ToShell::Prepare(shape));
		shell.channel.expect_greeting().unwrap();
		shell
	}

	pub fn send(&self, message: ToShell) {
		self.channel.send(&message, &[]).unwrap();
	}

	/// The next message that is not the console's.
	pub fn next(&mut self) -> FromShell {
		self.next_with_descriptors().0
	}

	pub fn next_with_descriptors(&mut self) -> (FromShell, Vec<OwnedFd>) {
		loop {
			match self.channel.receive().unwrap() {
				(FromShell::Console(bytes), _) => self.console.extend(bytes),
				other => return other,
			}
		}
	}

	#[track_caller]
	pub fn claim(&mut self, template: &Template, index: u64) -> ClaimTimes {
		self.send_claim(template, index);
		match self.next() {
			FromShell::Claimed(times) => times,
			other => panic!("{other:?}"),
		}
	}

	fn origin(&self, template: &Template) -> Origin {
		let ram = vec![Extent { pages: self.shape.memory_mib << 8, file: 0 }];
		Origin { state: template.state.clone(), ram, disks: Vec::new() }
	}

	pub fn send_claim(&self, template: &Template, index: u64) {
		let claim = Claim { renewal: renewal(index), cid: 3, origin: self.origin(template), attach: Vec::new() };
		self.channel.send(&ToShell::Claim(Box::new(claim)), &[template.ram.as_fd()]).unwrap();
	}

	pub fn prime(&mut self, template: &Template) {
		self.send_prime(template);
		assert_eq!(self.next(), FromShell::Primed);
	}

	pub fn send_prime(&self, template: &Template) {
		self.channel.send(&ToShell::Prime(Box::new(self.origin(template))), &[template.ram.as_fd()]).unwrap();
	}

	pub fn go(&mut self, index: u64) -> ClaimTimes {
		self.send(ToShell::Go(Box::new(Go { renewal: renewal(index), cid: 3 })));
		match self.next() {
			FromShell::Claimed(times) => times,
			other => panic!("{other:?}"),
		}
	}

	pub fn boot(&mut self, code: &[u8]) {
		let blank = Blank::new(&self.shape, None).unwrap();
		let boot = Boot { cid: 3, guest: BootGuest::Tiny(code.to_vec()), disk: None };
		self.channel.send(&ToShell::Boot(Box::new(boot)), &[blank.ram.as_fd()]).unwrap();
		assert_eq!(self.next(), FromShell::Done);
	}

	pub fn freeze(&mut self) -> Template {
		self.send(ToShell::Freeze);
		let (message, descriptors) = self.next_with_descriptors();
		let (FromShell::Frozen { state }, Ok([ram])) = (message, <[OwnedFd; 1]>::try_from(descriptors)) else {
			panic!("no template")
		};
		Template { ram, state }
	}

	/// Does what is to be acknowledged.
	#[track_caller]
	pub fn does(&mut self, message: ToShell) {
		self.send(message);
		assert_eq!(self.next(), FromShell::Done);
	}

	#[track_caller]
	pub fn stops(&mut self) {
		self.send(ToShell::Stop);
		assert_eq!(self.ended().0, Ended::Stopped);
	}

	/// It says in one line why it won't, and ends.
	#[track_caller]
	pub fn refuses(&mut self, why: &str) {
		let FromShell::Failed(line) = self.next() else { panic!("not refused") };
		assert!(line.contains(why) && !line.contains('\n'), "{line}");
		assert!(!self.child.wait().unwrap().success());
	}

	/// The machine's end, and the process's.
	pub fn ended(&mut self) -> (Ended, ExitStatus) {
		match self.next() {
			FromShell::Ended(ended) => (ended, self.child.wait().unwrap()),
			other => panic!("{other:?}"),
		}
	}
}

impl Drop for Shell {
	fn drop(&mut self) {
		// It may have ended.
		let _ = self.child.kill();
		let _ = self.child.wait();
	}
}

/// A template of a guest that signals FORK.
pub fn template(shape: Shape, code: &[u8]) -> Template {
	let mut shell = Shell::prepare(shape);
	shell.boot(code);
	assert_eq!(shell.next(), FromShell::Forked);
	shell.freeze()
}
