//! One command, timed as a shell sees it.

use std::io::Read;

use super::program::Program;
use crate::{
	prelude::*,
	subjects::command::{self, Printed, last_line, printed},
};

/// What every script prints.
pub const LINE: &[u8] = b"1\n";

/// How a program is run.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Way {
	/// Started anew.
	Cold,
	/// A clone, its template having had time before.
	Clone,
	/// Clones one by one.
	#[strum(serialize = "clone-busy")]
	Busy,
}

/// What one run took.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
	/// Microseconds from the start until the command had ended and was waited for.
	pub whole: f64,
	/// Microseconds until its first line was there; none for a program that prints nothing.
	pub line: Option<f64>,
	/// Page faults of the command itself.
	pub faults: f64,
}

/// The commands of one program.
#[derive(Clone)]
pub struct Runs {
	program: Program,
	flashfork: PathBuf,
	names: PathBuf,
	script: Option<PathBuf>,
	anew: PathBuf,
}

impl Runs {
	/// Writes the program's script into the directory `place`, which also holds the names, or compiles it there.
	pub fn new(program: Program, flashfork: &Path, place: &Path) -> Result<Self> {
		let script = program.script().map(|text| (place.join(program.as_ref()), text));
		if let Some((path, text)) = &script {
			std::fs::write(path, text).or_cant("write a script")?;
		}
		let script = script.map(|(path, _)| path);
		let anew = program.anew().map_or_else(|| place.join(program.as_ref()), PathBuf::from);
		if let Some(flags) = program.flags() {
			compile(flags, &anew)?;
		}
		Ok(Self { program, flashfork: flashfork.to_owned(), names: place.to_owned(), script, anew })
	}

	/// The command `flashfork` with the names of this experiment.
	pub fn flashfork(&self) -> Command {
		command::flashfork(&self.flashfork, &self.names)
	}

	fn command(&self, way: Way) -> Command {
		let mut command = match way {
			Way::Cold => command::apart(&self.anew),
			Way::Clone | Way::Busy => {
				let mut command = self.flashfork();
				command.args(["clone", self.program.as_ref()]);
				command
			}
		};
		command.args(&self.script).stdout(Stdio::piped()).stderr(Stdio::piped());
		command
	}

	/// Runs it once; a wrong exit status or output voids the experiment.
	pub fn once(&self, way: Way) -> Result<Taken> {
		let mut command = self.command(way);
		let what = || format!("{} {}", self.program.as_ref(), way.as_ref());
		let faults = faults_of_children()?;
		let begin = Instant::now();
		let mut child = command.spawn().or_cant(format_args!("start {}", what()))?;
		let read = |error| BenchError::system(format!("read from {}", what()), error);
		let Printed { output, line } = printed(&mut child, LINE, begin).map_err(read)?;
		let status = child.wait().or_cant(format_args!("wait for {}", what()))?;
		let whole = micros(begin);
		let faults = faults_of_children()? - faults;
		if !status.success() || output != if self.program.prints() { LINE } else { b"" } {
			let mut said = Vec::new();
			if let Some(pipe) = &mut child.stderr {
				// Only to say more about the failure.
				let _ = pipe.read_to_end(&mut said);
			}
			let last = last_line(&said, "it printed the wrong thing");
			return Err(BenchError::Clone { what: format!("running {}", what()), status: format!("{status}: {last}") });
		}
		Ok(Taken { whole, line, faults })
	}
}

/// Compiles a C program that does nothing. Where there is no compiler there is no program afterwards.
fn compile(flags: &[&str], program: &Path) -> Result {
	let source = program.with_extension("c");
	std::fs::write(&source, "int main(void) { return 0; }\n").or_cant("write a C program")?;
	let _ = command::cc(flags, &source, program);
	Ok(())
}

/// Page faults of the children waited for, without those that read from a disk. `getrusage(2)`.
fn faults_of_children() -> Result<f64> {
	// SAFETY: all zeros are a value of this plain C structure, which is writable.
	let (done, usage) = unsafe {
		let mut usage: libc::rusage = std::mem::zeroed();
		(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), usage)
	};
	if done != 0 {
		return Err(BenchError::system("read what children used", std::io::Error::last_os_error()));
	}
	Ok(usage.ru_minflt as f64)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_program_is_timed_and_what_it_does_is_checked() {
		let place = tempfile::tempdir().unwrap();
		let runs = Runs::new(Program::True, Path::new("/bin/false"), place.path()).unwrap();
		let taken = runs.once(Way::Cold).unwrap();
		assert!(taken.whole > 0.0 && taken.line.is_none() && taken.faults > 0.0);
		let wrong = runs.once(Way::Clone).unwrap_err();
		assert!(wrong.voids() && wrong.to_string().contains("exit status: 1"), "{wrong}");
	}

	#[test]
	fn a_program_that_does_nothing_is_compiled() {
		let place = tempfile::tempdir().unwrap();
		let faults = [Program::CDynamic, Program::CStatic].map(|program| {
			let runs = Runs::new(program, Path::new("/bin/false"), place.path()).unwrap();
			runs.once(Way::Cold).unwrap().faults
		});
		assert!(faults[1] < faults[0], "{faults:?}");
	}

	#[test]
	fn the_first_line_comes_before_the_end() {
		let place = tempfile::tempdir().unwrap();
		let taken = Runs::new(Program::Perl, Path::new("/bin/false"), place.path()).unwrap().once(Way::Cold).unwrap();
		assert!(taken.line.unwrap() <= taken.whole, "{taken:?}");
	}
}
