//! The program in a guest through which the host runs commands and makes a clone one of its own, and
//! the guest's first process where it has no other.
//!
//!     flashfork-agent serve PLACE [--system]    answer on unix:PATH, vsock, or a serial line's device
//!     flashfork-agent signal fork|done|reset    speak to the monitor (done [STATUS [RESULT]])
//!     flashfork-agent function DIR              run a function's package for `flashfork serve`
//!
//! As process 1 it needs no arguments: see `init/`. Nothing the host sends can make it panic: that
//! would take the guest down.

mod clock;
mod conn;
mod dial;
mod disks;
mod entropy;
mod exec;
mod files;
mod freeze;
mod function;
mod hooks;
mod hostname;
mod init;
mod log;
mod machine_id;
mod pipes;
mod ports;
mod power;
mod reaper;
mod renew;
mod serve;
mod session;
mod signal;
mod users;

use std::process::ExitCode;

use serve::Place;
use session::Rights;

const USAGE: &str = "usage: flashfork-agent serve unix:PATH|vsock|/dev/LINE [--system]\n       \
                     flashfork-agent signal fork | done [STATUS [RESULT]] | reset\n       \
                     flashfork-agent function DIR";

fn main() -> ExitCode {
	if rustix::process::getpid().is_init() {
		init::run();
	}
	let arguments: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
	let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
	let done = match arguments.as_slice() {
		["serve", place] => serve_at(place, Rights::Process),
		["serve", place, "--system"] => serve_at(place, Rights::System),
		["signal", command, rest @ ..] => signal::run(command, rest),
		["function", root] => function::run(root.as_ref()),
		_ => {
			log::line(USAGE);
			return ExitCode::from(2);
		}
	};
	match done {
		Ok(()) => ExitCode::SUCCESS,
		Err(message) => {
			log::line(&message);
			ExitCode::FAILURE
		}
	}
}

fn serve_at(place: &str, rights: Rights) -> Result<(), String> {
	serve::run(&Place::parse(place)?, rights).map_err(|error| format!("cannot serve on {place}: {error}"))
}
