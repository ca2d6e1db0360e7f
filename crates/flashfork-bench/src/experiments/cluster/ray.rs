//! Ray, in Python, on a machine of its own: tasks and calls of an actor that do nothing.

use std::{
	io::{BufRead, BufReader, Write},
	process::{ChildStdin, ChildStdout},
};

use super::{network::Space, site::Killed};
use crate::{
	prelude::*,
	subjects::command::{apart, last_line},
};

/// One that runs until this is dropped.
pub struct Ray {
	input: ChildStdin,
	output: BufReader<ChildStdout>,
	_driver: Killed,
	_machine: Space,
}

impl Ray {
	/// With an interpreter that has it; its files lie there.
	pub fn start(python: &Path, work: &Path) -> Result<Self> {
		let (machine, errors) = (Space::new()?, work.join("ray.log"));
		let log = std::fs::File::create(&errors).or_cant("write a log")?;
		let mut command = apart(python);
		command.args(["-c", include_str!("ray.py")]).arg(work.join("ray")).env("RAY_USAGE_STATS_ENABLED", "0");
		command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
		let mut driver = machine.within(|| Killed::start(&mut command))?;
		let (Some(input), Some(output)) = driver.streams() else { return Err(unable!("Ray has no streams")) };
		let mut ray = Self { input, output: BufReader::new(output), _driver: driver, _machine: machine };
		if ray.line()? != "ready" {
			let said = std::fs::read(errors).unwrap_or_default();
			return Err(unable!("{}", last_line(&said, "Ray does not start")));
		}
		Ok(ray)
	}

	/// So many calls in a way, with seconds between them: microseconds of each.
	pub fn calls(&mut self, way: &str, calls: usize, pause: Duration) -> Result<Vec<f64>> {
		writeln!(self.input, "{way} {calls} {}", pause.as_secs_f64()).or_cant("ask Ray")?;
		let taken: Vec<f64> = self.line()?.split_whitespace().filter_map(|time| time.parse().ok()).collect();
		if taken.len() == calls { Ok(taken) } else { Err(unable!("Ray has not answered all calls")) }
	}

	fn line(&mut self) -> Result<String> {
		let mut line = String::new();
		self.output.read_line(&mut line).or_cant("hear of Ray")?;
		Ok(line.trim_end().to_owned())
	}
}
