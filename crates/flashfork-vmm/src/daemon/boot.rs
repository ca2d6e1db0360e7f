//! From a guest's power-on to its template. The guest runs in a shell, like every other.

use super::{
	Settings,
	agent::{self, Line},
	clone::nanoseconds,
	console::Console,
	disks::SERIAL,
	error::DaemonError,
};
use crate::{
	devices::virtio::blk::{DiskState, FrozenDisk, Seen, overlay_bytes},
	files,
	machine::{Blank, Frozen},
	memory::{self, Layered},
	pool::{Pools, Shell, ShellFailure},
	state::MachineState,
};
use flashfork_image::guest::{CMDLINE, default_guest};
use flashfork_proto::{
	agent::{Client, Exit, PORT},
	api::{CreateTemplate, MAX_SERIAL, Ready},
	shell::{Boot, BootDisk, BootGuest, Channel, ChannelError, Ended, FromShell, ToShell},
};
use rustix::fs::SeekFrom;
use std::{
	fs::File,
	os::{
		fd::{AsFd, OwnedFd},
		unix::net::UnixStream,
	},
	path::Path,
	sync::{
		Arc, Weak,
		mpsc::{self, Receiver},
	},
	thread,
	time::{Duration, Instant},
};

/// How often the agent is called until it answers.
const CALL: Duration = Duration::from_millis(100);

/// How long a shell may take to freeze its guest, whatever else it says meanwhile.
const FREEZE: Duration = Duration::from_secs(30);

/// Output of the command that makes a guest ready, kept for messages.
const OUTPUT: usize = 1 << 20;

/// What goes along with a guest to its shell.
struct Source {
	guest: BootGuest,
	files: Vec<File>,
}

/// Boots what `request` says and freezes it when it is ready, unless `client` goes before; also gives the nanoseconds
/// that took.
pub(super) fn boot(
	settings: &Settings,
	pools: &Pools,
	request: &CreateTemplate,
	cid: u32,
	client: &Weak<()>,
) -> Result<(Frozen, u64), DaemonError> {
	let source = source(settings, request)?;
	let image = request.disk.as_deref().map(open).transpose()?;
	let disk = disk(request)?;
	let mut shell = pools.take(request.shape)?;
	let result = run(&shell, request, source, image, disk, cid, client);
	// What the channel says is that it closed; how the process ended says more.
	let result = result.map_err(|error| match error {
		DaemonError::Shell(ShellFailure::Channel(e)) if e.is_gone() => ShellFailure::Gone(shell.put_down()).into(),
		other => other,
	});
	pools.bury(shell);
	result
}

fn open(path: &Path) -> Result<File, DaemonError> {
	files::open(path).map_err(|cause| DaemonError::File { path: path.to_owned(), cause })
}

fn source(settings: &Settings, request: &CreateTemplate) -> Result<Source, DaemonError> {
	if let Some(code) = &request.tiny {
		if request.kernel.is_some() || request.initramfs.is_some() || !request.append.is_empty() {
			return Err(DaemonError::Invalid("a tiny guest has no kernel, initramfs or command line".into()));
		}
		return Ok(Source { guest: BootGuest::Tiny(code.clone()), files: Vec::new() });
	}
	let (kernel, initramfs) = match &request.kernel {
		Some(kernel) => (kernel.clone(), request.initramfs.clone()),
		None => {
			if !settings.agent.is_file() {
				return Err(DaemonError::Invalid(format!(
					"the default guest needs the agent at {}: build it with scripts/build-agent, or give --kernel",
					settings.agent.display()
				)));
			}
			let guest = default_guest(&settings.cache, &settings.agent, &mut |_| ())?;
			(guest.kernel, Some(request.initramfs.clone().unwrap_or(guest.initramfs)))
		}
	};
	let mut files = vec![open(&kernel)?];
	files.extend(initramfs.as_deref().map(open).transpose()?);
	let mut cmdline = CMDLINE.to_owned();
	if request.ready == Ready::Agent {
		cmdline += " flashfork.ready=fork";
	}
	if request.shape.disk {
		cmdline += " flashfork.root=/dev/vda";
	}
	if request.disk_read_only {
		cmdline += " flashfork.overlay";
	}
	if !request.append.is_empty() {
		cmdline = format!("{cmdline} {}", request.append);
	}
	Ok(Source { guest: BootGuest::Linux { cmdline, initramfs: initramfs.is_some() }, files })
}

/// How the guest sees its disk.
fn disk(request: &CreateTemplate) -> Result<Option<BootDisk>, DaemonError> {
	if !request.shape.disk && (request.disk_serial.is_some() || request.disk_read_only) {
		return Err(DaemonError::Invalid("a disk that is read-only or has a serial number needs an image".into()));
	}
	let serial = request.disk_serial.as_deref().unwrap_or(SERIAL);
	if serial.len() > MAX_SERIAL || !serial.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
		return Err(DaemonError::Invalid(format!(
			"{serial:?} is no serial number: use up to {MAX_SERIAL} printable ASCII characters"
		)));
	}
	let limit = request.disk_limit_mib.saturating_mul(1 << 20);
	let disk = BootDisk { limit, serial: serial.to_owned(), read_only: request.disk_read_only };
	Ok(request.shape.disk.then_some(disk))
}

fn run(
	shell: &Shell,
	request: &CreateTemplate,
	source: Source,
	image: Option<File>,
	disk: Option<BootDisk>,
	cid: u32,
	client: &Weak<()>,
) -> Result<(Frozen, u64), DaemonError> {
	let seen = match request.disk.as_deref().zip(image.as_ref()) {
		Some((path, image)) => Some(Arc::new(Seen::now(path, image)?)),
		None => None,
	};
	let start = Instant::now();
	let deadline = start + Duration::from_secs(request.timeout_s.into());
	shell.promise(disk.as_ref().map_or(0, |disk| disk.limit))?;
	let blank = Blank::new(&request.shape, image.as_ref()).map_err(|e| ShellFailure::Said(e.to_string()))?;
	let memory = [Some(&blank.ram), blank.overlay.as_ref()].into_iter().flatten().map(AsFd::as_fd);
	let fds: Vec<_> = memory.chain(source.files.iter().chain(&image).map(AsFd::as_fd)).collect();
	shell.send(&ToShell::Boot(Box::new(Boot { cid, guest: source.guest, disk: disk.clone() })), &fds)?;
	// Else the memory files would have no end before this request has.
	drop(fds);
	drop(blank);
	let command = match &request.ready {
		Ready::Command(argv) => Some(warm_up(shell.channel(), argv.clone(), deadline, client.clone())?),
		Ready::Agent | Ready::Signal => None,
	};
	let console = Console::default();
	until_forked(shell, &console, command.as_ref(), deadline, request.timeout_s, client)?;
	let boot_ns = nanoseconds(start.elapsed());
	shell.send(&ToShell::Freeze, &[])?;
	let frozen_by = Instant::now() + FREEZE;
	loop {
		let left = frozen_by.saturating_duration_since(Instant::now());
		match shell.receive(left).map_err(|failure| failure.after(FREEZE))? {
			(FromShell::Frozen { state }, descriptors) => {
				let frozen = frozen(request, &state, descriptors, image.zip(disk), seen)?;
				frozen.check_images()?;
				return Ok((frozen, boot_ns));
			}
			(FromShell::Failed(why), _) => return Err(ShellFailure::Said(why).into()),
			(FromShell::Ended(ended), _) => return Err(DaemonError::Guest(format!("the guest {ended}"))),
			(_, descriptors) if descriptors.is_empty() => {}
			_ => return Err(ShellFailure::from(ChannelError::Descriptors).into()),
		}
	}
}

/// What a shell sent is checked like what anybody sends: its guest may have taken it over.
fn frozen(
	request: &CreateTemplate,
	state: &[u8],
	descriptors: Vec<OwnedFd>,
	disk: Option<(File, BootDisk)>,
	seen: Option<Arc<Seen>>,
) -> Result<Frozen, DaemonError> {
	let mut descriptors = descriptors.into_iter();
	let ram = descriptors.next().ok_or(ShellFailure::Unexpected)?;
	memory::check(&ram, request.shape.memory_bytes()).map_err(|e| ShellFailure::Said(e.to_string()))?;
	let state = MachineState::decode(state)?;
	if state.shape != request.shape {
		return Err(ShellFailure::Unexpected.into());
	}
	let disks = match (disk, descriptors.next()) {
		(Some((image, BootDisk { limit, serial, read_only })), Some(overlay)) => {
			let length = rustix::fs::seek(&image, SeekFrom::End(0));
			let length = length.map_err(|e| DaemonError::System("find the length of the disk's image", e.into()))?;
			// What clones may write, above all.
			if state.disks() != [DiskState::new(length, read_only, &serial, limit)] {
				return Err(ShellFailure::Unexpected.into());
			}
			memory::check(&overlay, overlay_bytes(length)).map_err(|e| ShellFailure::Said(e.to_string()))?;
			let overlay = Layered::single(overlay, overlay_bytes(length));
			vec![FrozenDisk { image: image.into(), overlay, attached: None, seen }]
		}
		(None, None) if state.disks().is_empty() => Vec::new(),
		_ => return Err(ShellFailure::Unexpected.into()),
	};
	Ok(Frozen { ram: Layered::single(ram, request.shape.memory_bytes()), disks, state: Arc::new(state) })
}

fn until_forked(
	shell: &Shell,
	console: &Console,
	command: Option<&Receiver<String>>,
	deadline: Instant,
	seconds: u32,
	client: &Weak<()>,
) -> Result<(), DaemonError> {
	let failed = |how: &str| {
		let line = console.last_line().map_or(String::new(), |line| format!("; its console's last line: {line}"));
		DaemonError::Guest(format!("the guest {how}{line}"))
	};
	loop {
		if client.strong_count() == 0 {
			return Err(failed("was not ready when its client went"));
		}
		if let Some(Ok(why)) = command.map(Receiver::try_recv) {
			return Err(failed(&why));
		}
		match shell.hear(CALL) {
			Ok(FromShell::Forked) => return Ok(()),
			Ok(FromShell::Console(bytes)) => console.write(&bytes),
			Ok(FromShell::Ended(Ended::Kvm(why))) => return Err(DaemonError::Unrunnable(why)),
			Ok(FromShell::Ended(ended)) => return Err(failed(&ended.to_string())),
			Ok(FromShell::Failed(why)) => return Err(ShellFailure::Said(why).into()),
			Ok(_) => {}
			Err(ShellFailure::Silent(_)) => {}
			Err(other) => return Err(other.into()),
		}
		if Instant::now() >= deadline {
			return Err(failed(&format!(
				"was not ready within {seconds} s: `flashfork vm template create NAME --timeout SECONDS` gives it more"
			)));
		}
	}
}

/// Has the agent run `argv`, and then give the fork signal; what comes is why it failed.
fn warm_up(
	channel: Arc<Channel>,
	argv: Vec<String>,
	deadline: Instant,
	client: Weak<()>,
) -> Result<Receiver<String>, DaemonError> {
	let (sender, failure) = mpsc::channel();
	thread::Builder::new()
		.name("warm-up".into())
		.spawn(move || {
			if let Err(why) = command(&channel, &argv, deadline, &client) {
				// The request may be over.
				let _ = sender.send(why);
			}
		})
		.map_err(|e| DaemonError::System("start a thread", e))?;
	Ok(failure)
}

fn command(channel: &Channel, argv: &[String], deadline: Instant, client: &Weak<()>) -> Result<(), String> {
	let (_line, mut client) = loop {
		match call(channel) {
			Ok(called) => break called,
			Err(why) if Instant::now() >= deadline || client.strong_count() == 0 => {
				return Err(format!("has no agent that answers: {why}"));
			}
			Err(_) => thread::sleep(CALL),
		}
	};
	let run = client.run(&agent::command(argv), &[], OUTPUT);
	let output = run.map_err(|e| format!("could not run {:?}: {e}", argv.join(" ")))?;
	if output.exit != Exit::Code(0) {
		let text = String::from_utf8_lossy(&output.stderr);
		let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
		return Err(format!(
			"is not ready: {:?} ended with status {}: {line}",
			argv.join(" "),
			output.exit.shell_status()
		));
	}
	agent::signal_fork(client)
}

fn call(channel: &Channel) -> Result<(Line, Client<UnixStream, UnixStream>), String> {
	let (ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
	channel.try_send(&ToShell::Connect { port: PORT }, &[theirs.as_fd()]).map_err(|e| e.to_string())?;
	drop(theirs);
	let line = Line::new(ours);
	let client = line.greet()?;
	Ok((line, client))
}

#[cfg(test)]
mod tests {
	use super::{
		super::fork::tests::{SHAPE, asked, frozen as machine, others},
		*,
	};

	#[test]
	fn a_shell_that_says_that_its_guest_s_disk_is_another_makes_no_template() {
		if machine(asked(), 1 << 20).is_none() {
			return eprintln!("skipped: no /dev/kvm");
		}
		let request = serde_json::json!({ "name": "t", "shape": SHAPE, "disk": "/image" });
		let request = serde_json::from_value(request).unwrap();
		for (disk, taken) in others().into_iter().map(|disk| (disk, false)).chain([(asked(), true)]) {
			let (made, image) = machine(disk, 1 << 20).unwrap();
			let overlay = made.disks[0].overlay.files();
			let files = made.ram.files().iter().chain(overlay).map(|file| file.try_clone().unwrap()).collect();
			let state = made.state.encode().unwrap();
			assert_eq!(frozen(&request, &state, files, Some((image, asked())), None).is_ok(), taken);
		}
	}
}
