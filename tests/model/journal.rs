//! The journal of one process: every call and what it gave. A run on plain memory comes first; the journal of the run
//! with the engine must read the same, call by call.

use flashfork_tests::{Result, route::Outcome};
use std::{
	fs::{self, File},
	io::Write,
	path::PathBuf,
};

#[derive(Clone, Copy, Debug)]
pub enum Expect {
	/// The model knows it.
	Exactly(Outcome),
	/// The model knows it if the kernel has this feature; one that has not answers EINVAL or EOPNOTSUPP and does
	/// nothing.
	IfSupported(Outcome),
	/// The kernel knows it: whatever plain memory gave.
	AsPlain,
	/// As plain memory, but where that answered EFAULT the call is left out: the kernel promises nothing for a range of
	/// more than one VMA, and how many there are is not for the program to know.
	AsPlainUnlessFault,
	/// Advice that may or may not be taken.
	Anything,
}

#[derive(Clone)]
pub struct Places {
	pub own: PathBuf,
	/// Journals of the run on plain memory, if this isn't it.
	pub plain: Option<PathBuf>,
}

pub struct Journal {
	places: Places,
	out: File,
	plain: Option<Vec<String>>,
	line: usize,
}

impl Journal {
	pub fn open(places: &Places, name: &str) -> Result<Journal> {
		let path = |dir: &PathBuf| dir.join(format!("{name}.log"));
		let out = File::create(path(&places.own)).map_err(|e| format!("{}: {e}", path(&places.own).display()))?;
		let plain = match &places.plain {
			None => None,
			Some(dir) => {
				let text = fs::read_to_string(path(dir)).map_err(|e| format!("{}: {e}", path(dir).display()))?;
				Some(text.lines().map(str::to_string).collect())
			}
		};
		Ok(Journal { places: places.clone(), out, plain, line: 0 })
	}

	pub fn places(&self) -> &Places {
		&self.places
	}

	/// Notes a call, makes it, compares what it gave. `None`: it was left out.
	pub fn call(&mut self, text: &str, expect: Expect, make: impl FnOnce() -> Outcome) -> Result<Option<Outcome>> {
		self.write(text)?;
		let plain = self.plain_outcome(text)?;
		if matches!(expect, Expect::AsPlainUnlessFault) && plain == Some(Err(libc::EFAULT)) {
			self.write(&format!("{}\n", show(Err(libc::EFAULT))))?;
			return Ok(None);
		}
		let got = make();
		self.write(&format!("{}\n", show(got)))?;
		if matches!(expect, Expect::Anything) {
			return Ok(Some(got));
		}
		if let Some(plain) = plain
			&& plain != got
		{
			return Err(format!("{text} gave {}, plain memory gives {}", word(got), word(plain)));
		}
		match expect {
			Expect::Exactly(expected) if expected != got => {
				Err(format!("{text} gave {}, the model expects {}", word(got), word(expected)))
			}
			Expect::IfSupported(expected) if expected != got => match got {
				Err(libc::EINVAL | libc::EOPNOTSUPP) => Ok(None),
				_ => Err(format!("{text} gave {}, the model expects {}", word(got), word(expected))),
			},
			Expect::AsPlainUnlessFault if got == Err(libc::EFAULT) => Ok(None),
			_ => Ok(Some(got)),
		}
	}

	pub fn note(&mut self, text: &str) -> Result {
		self.call(text, Expect::Exactly(Ok(0)), || Ok(0)).map(drop)
	}

	fn write(&mut self, text: &str) -> Result {
		self.out.write_all(text.as_bytes()).map_err(|e| format!("journal: {e}"))
	}

	fn plain_outcome(&mut self, text: &str) -> Result<Option<Outcome>> {
		let Some(lines) = &self.plain else { return Ok(None) };
		let line = lines.get(self.line).ok_or("the run on plain memory ended here")?;
		self.line += 1;
		let (call, outcome) = line.split_once(" = ").ok_or_else(|| format!("journal of plain memory: {line}"))?;
		if call != text {
			return Err(format!("out of step: {text}, on plain memory {call}"));
		}
		parse(outcome).map(Some)
	}
}

fn word(outcome: Outcome) -> String {
	show(outcome).trim_start_matches(" = ").to_string()
}

fn show(outcome: Outcome) -> String {
	match outcome {
		Ok(value) => format!(" = {value}"),
		Err(errno) => format!(" = errno {errno} {}", std::io::Error::from_raw_os_error(errno)),
	}
}

fn parse(text: &str) -> Result<Outcome> {
	let bad = || format!("journal of plain memory: {text}");
	match text.strip_prefix("errno ") {
		Some(rest) => rest.split(' ').next().and_then(|n| n.parse().ok()).map(Err).ok_or_else(bad),
		None => text.parse().map(Ok).map_err(|_| bad()),
	}
}
