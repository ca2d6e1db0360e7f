//! A process in which programs are run one after another.

use std::{
	io::{BufRead, BufReader},
	process::ChildStdout,
};

use super::{program::Server, runs};
use crate::{prelude::*, subjects::guard::Guard};

/// One that runs. The guard ends it.
pub struct Running {
	ask: Vec<String>,
	/// Open while it may print.
	_output: BufReader<ChildStdout>,
}

impl Running {
	/// Starts it, and waits for the line with its port.
	pub fn start(server: &Server, work: &Path, guard: &mut Guard) -> Result<Self> {
		let failed = |error| BenchError::system(format!("start {}", server.start.join(" ")), error);
		let mut command = runs::command(Path::new(&server.start[0]), work);
		let child = command.args(&server.start[1..]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
		let child = child.map_err(failed)?;
		guard.watch(child.id())?;
		let no_port = || failed(std::io::Error::other("it doesn't say its port"));
		let mut output = BufReader::new(child.stdout.ok_or_else(no_port)?);
		let mut line = String::new();
		output.read_line(&mut line).map_err(failed)?;
		let port = line.trim_end().trim_end_matches('.').rsplit(' ').next().and_then(|port| port.parse::<u16>().ok());
		let [before, after] = &server.ask;
		let port = port.ok_or_else(no_port)?.to_string();
		Ok(Self { ask: [before, std::slice::from_ref(&port), after].concat(), _output: output })
	}

	/// The command that has it run the program.
	pub fn ask(&self) -> &Vec<String> {
		&self.ask
	}
}
