//! Linux in shells: Debian's cloud kernel with the agent, with a disk or without.

use std::{
	fs::File,
	io::{Read, Write},
	os::{fd::AsFd, unix::net::UnixStream},
};

use flashfork_image::guest::{CMDLINE, Guest, default_guest};
use flashfork_proto::{
	agent::{self, Client, Exec, Exit},
	shape::Shape,
	shell::{Boot, BootDisk, BootGuest, FromShell, ToShell},
};
use flashfork_vmm::{devices::virtio::blk::DEFAULT_LIMIT, machine::Blank, pool::Shell};

use super::{CID, PATIENCE, until, vm};
use crate::prelude::*;

/// How long one call of a guest that boots may take. It waits for the guest's driver, which refuses it until the agent
/// listens.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a guest that boots is called until its agent answers; under this the first reply is rounded up.
pub const CALL: Duration = Duration::from_millis(5);

const OUTPUT: usize = 1 << 16;

/// A connection to an agent.
pub type Agent = Client<UnixStream, UnixStream>;

/// The kernel and initramfs of every guest.
pub fn guest(run: &mut Run) -> Result<Guest> {
	let agent = run.here.agent()?;
	if !agent.is_file() {
		let agent = agent.display();
		return Err(unable!("Linux guests need the guest agent at {agent}: build it with scripts/build-agent"));
	}
	run.begin("the guests' kernel and initramfs", 1);
	let guest = default_guest(&run.here.cache("lab")?, &agent, &mut |line| run.progress.note(line)).map_err(vm)?;
	run.step();
	Ok(guest)
}

/// Starts Linux in a shell. `append` goes to its command line; `disk` is the image that becomes its root, if its shape
/// has one.
pub fn boot(shell: &Shell, shape: Shape, guest: &Guest, append: &str, disk: Option<&File>) -> Result {
	let open = |path: &Path| File::open(path).or_cant(format_args!("open {}", path.display()));
	let (kernel, initramfs) = (open(&guest.kernel)?, open(&guest.initramfs)?);
	let linux = BootGuest::Linux { cmdline: format!("{CMDLINE}{append}"), initramfs: true };
	let blank = Blank::new(&shape, disk).map_err(vm)?;
	let as_disk = |_| BootDisk { limit: DEFAULT_LIMIT, serial: "bench".into(), read_only: false };
	let request = ToShell::Boot(Box::new(Boot { cid: CID, guest: linux, disk: disk.map(as_disk) }));
	let memory = [Some(&blank.ram), blank.overlay.as_ref()].into_iter().flatten().map(AsFd::as_fd);
	let files: Vec<_> = memory.chain([&kernel, &initramfs].into_iter().chain(disk).map(AsFd::as_fd)).collect();
	shell.send(&request, &files).map_err(vm)?;
	until(shell, |message| matches!(message, FromShell::Done), "start")
}

/// Waits until a clone is one of its own.
pub fn until_alive(shell: &Shell) -> Result {
	until(shell, |message| matches!(message, FromShell::Alive(_)), "become a clone of its own")
}

/// Calls a guest that boots until its agent answers.
pub fn until_answers(shell: &Shell) -> Result<Agent> {
	let start = Instant::now();
	loop {
		match connect(shell, CONNECT) {
			Ok(agent) => return Ok(agent),
			Err(why) if start.elapsed() > PATIENCE => return Err(why),
			Err(_) => std::thread::sleep(CALL),
		}
	}
}

/// Calls the agent, and waits for its hello, which has `patience`.
pub fn connect(shell: &Shell, patience: Duration) -> Result<Agent> {
	let doing = "talk to a guest's agent";
	let (ours, theirs) = UnixStream::pair().or_cant(doing)?;
	shell.send(&ToShell::Connect { port: agent::PORT }, &[theirs.as_fd()]).map_err(vm)?;
	drop(theirs);
	ours.set_read_timeout(Some(patience)).or_cant(doing)?;
	let [reader, both] = [ours.try_clone().or_cant(doing)?, ours.try_clone().or_cant(doing)?];
	let agent = Client::connect(reader, ours).map_err(vm)?;
	// What it is asked next may take longer.
	both.set_read_timeout(Some(PATIENCE)).or_cant(doing)?;
	Ok(agent)
}

/// Runs a command of the guest's shell, for which what it says must be `right`.
pub fn run<R: Read, W: Write>(agent: &mut Client<R, W>, command: &str, right: impl Fn(&str) -> bool) -> Result {
	let output = agent.run(&exec(&["sh", "-c", command]), &[], OUTPUT).map_err(vm)?;
	let said = String::from_utf8_lossy(&output.stdout);
	if output.exit == Exit::Code(0) && right(&said) {
		return Ok(());
	}
	let status = format!("{:?}: {said}{}", output.exit, String::from_utf8_lossy(&output.stderr));
	Err(BenchError::Clone { what: format!("running {command:?}"), status })
}

/// For an agent to run a program that needs nothing.
pub fn exec(argv: &[&str]) -> Exec {
	Exec { argv: argv.iter().map(|word| word.as_bytes().to_vec().into()).collect(), survives: true, ..Exec::default() }
}
