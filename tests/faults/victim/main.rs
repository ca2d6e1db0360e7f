//! The program whose system calls are made to fail: it fills memory, makes one call of the engine between two marks,
//! and then looks whether anything is other than it should be. Exit status 0: all is well; 1: not, with the reason on
//! standard error.

mod memory;
mod process;
mod region;
mod scene;
mod snapshot;
mod verify;

use flashfork_tests::route::Route;
use std::process::ExitCode;

fn main() -> ExitCode {
	let mut args = std::env::args().skip(1);
	let (Some(route), Some(scene)) = (args.next(), args.next()) else {
		eprintln!("usage: victim ROUTE SCENE [leak-allowed]");
		return ExitCode::from(2);
	};
	let leak_allowed = args.next().is_some();
	match route.parse::<Route>().and_then(|route| verify::run(route, &scene, leak_allowed)) {
		Ok(()) => ExitCode::SUCCESS,
		Err(message) => {
			eprintln!("victim: {scene} by way of {route}: {message}");
			ExitCode::FAILURE
		}
	}
}
