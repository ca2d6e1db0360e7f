//! The guest's first process: makes a usable system of an initramfs or a disk, serves the host, and
//! says when the guest is ready. What it does is set on the kernel's command line; see `options.rs`.

mod modules;
mod mounts;
mod network;
mod options;
mod root;
mod shell;

use std::{fs, thread};

use flashfork_proto::{
	Preamble, Protocol,
	agent::{MAX_FRAME, Reply},
	frame,
};

use crate::{log, power, reaper::Reaper, serve, session, session::Rights, signal};
use options::{Options, Ready};

/// What people and tests wait for on the console.
const READY_LINE: &str = "ready";

/// Never returns: the kernel panics when its first process ends.
pub fn run() -> ! {
	if let Err(message) = start() {
		// Nothing that could be waited for will happen any more.
		log::line(&format!("the guest can't be set up: {message}"));
		log::line(&power::off());
	}
	loop {
		thread::park();
	}
}

fn start() -> Result<(), String> {
	mounts::early().map_err(|error| error.to_string())?;
	let command_line = fs::read_to_string("/proc/cmdline").map_err(|error| format!("/proc/cmdline: {error}"))?;
	let options = Options::parse(&command_line)?;
	modules::load_all()?;
	root::keep_agent();
	if let Some(root) = &options.root {
		root::switch_to(root)?;
	}
	mounts::late();
	network::bring_up();

	let reaper = Reaper::start().map_err(|error| format!("cannot start a thread: {error}"))?;
	if options.shell {
		shell::keep_running(&reaper).map_err(|error| format!("cannot start a thread: {error}"))?;
	}
	if let Some(place) = &options.serve {
		// Open before the guest is reported ready: it can be connected to from then on.
		let server = serve::open(place).map_err(|error| format!("cannot serve on {place:?}: {error}"))?;
		let reaper = reaper.clone();
		let serve = move || {
			if let Err(error) = server.serve(&reaper, Rights::System) {
				log::line(&format!("serves no more: {error}"));
			}
		};
		thread::Builder::new().spawn(serve).map_err(|error| format!("cannot start a thread: {error}"))?;
	}
	log::line(READY_LINE);
	report(options.ready, &reaper)
}

/// Says that the guest is ready, in the way asked for.
fn report(ready: Option<Ready>, reaper: &Reaper) -> Result<(), String> {
	match ready {
		None => Ok(()),
		Some(Ready::Fork) => signal::fork(reaper).map(drop),
		Some(Ready::Vsock) => report_by_vsock().map_err(|error| format!("cannot report to the host: {error}")),
	}
}

fn report_by_vsock() -> std::io::Result<()> {
	let mut host = serve::connect_to_host()?;
	Preamble(Protocol::Agent).send(&mut host)?;
	frame::write(&mut host, &Reply::Hello(session::hello()), MAX_FRAME).map_err(std::io::Error::other)
}
