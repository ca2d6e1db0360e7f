//! The jobs, as functions and as processes.

use std::{fs, rc::Rc};

use super::super::serve::{Called, MODULE, function_program};
use crate::{prelude::*, subjects::command::last_line};

/// The C program, and the Java program with the heavy start, of `bench vm-jobs`.
const PRIMES: &str = include_str!("../../../../../examples/vm-jobs/primes.c");
const PI: &str = include_str!("../../../../../examples/vm-jobs/Pi.java");
const JAVA: &str = include_str!("Job.java");
/// What a function in Python answers, which asks `total`.
const HANDLER: &str = include_str!("../serve/function.py");

#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Job {
	Gcc,
	Java,
	Python,
}

impl Job {
	pub fn title(self) -> &'static str {
		match self {
			Self::Gcc => "gcc compiles a program, which runs",
			Self::Java => "a Java program with a heavy start",
			Self::Python => "numpy adds numbers up",
		}
	}

	pub fn handler(self) -> &'static str {
		if self == Self::Java { "Job::handle" } else { "lambda_function.lambda_handler" }
	}

	/// Writes the function into a directory of its own below `place`.
	pub fn write(self, place: &Path, jars: &Path) -> Result<PathBuf> {
		let doing = "write a function";
		let dir = place.join(self.as_ref());
		fs::create_dir(&dir).or_cant(doing)?;
		let write = |name: &str, text: &str| fs::write(dir.join(name), text).or_cant(doing);
		match self {
			Self::Gcc => {
				write("primes.c", PRIMES)?;
				write(&format!("{MODULE}.py"), &[include_str!("gcc.py"), HANDLER].concat())?;
			}
			Self::Python => {
				let total = "import numpy\n\n\ndef total(number):\n    return int(numpy.arange(number).sum())\n\n\n";
				write(&format!("{MODULE}.py"), &[total, HANDLER].concat())?;
			}
			Self::Java => {
				write("Pi.java", PI)?;
				write("Job.java", JAVA)?;
				let mut compile = Command::new("javac");
				compile.args(["-cp"]).arg(jars.join("*")).args(["Pi.java", "Job.java"]).current_dir(&dir);
				let done = compile.output().or_cant("start javac (apt-get install openjdk-17-jdk-headless)")?;
				if !done.status.success() {
					return Err(unable!("{}", last_line(&done.stderr, "javac has failed")));
				}
			}
		}
		Ok(dir)
	}

	/// The same as a process for one event on its standard input. The compiler's is a shell, as people write it.
	pub fn called(self, python: &Path, place: &Path) -> Called {
		let (dir, python) = (place.join(self.as_ref()), python.to_path_buf());
		let program = move |each_line: bool| {
			let mut command;
			match self {
				Self::Gcc => {
					command = tokio::process::Command::new("sh");
					command.args(["-c", include_str!("gcc.sh")]);
				}
				Self::Python => {
					command = tokio::process::Command::new(&python);
					command.args(["-c", &function_program(each_line)]);
				}
				Self::Java => {
					command = tokio::process::Command::new("java");
					command.args(["-XX:+UseSerialGC", "-cp", ".", "Job"]);
				}
			}
			command.current_dir(&dir);
			command
		};
		Called { name: self.as_ref().to_owned(), program: Rc::new(program) }
	}
}
