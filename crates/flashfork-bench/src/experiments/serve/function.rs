//! The functions, and what they answer.

use std::{fs, rc::Rc};

use clap::ValueEnum;

use super::client::Called;
use crate::prelude::*;

/// The handler, which asks `total` for the sum of the numbers below one.
const HANDLER: &str = include_str!("function.py");

/// Its module.
pub const MODULE: &str = "lambda_function";

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Function {
	/// A small one, with no more than Python has
	Small,
	/// One that has imported numpy
	Numpy,
}

/// What a function answers.
#[derive(Debug, Deserialize)]
pub struct Answer {
	number: u64,
	total: u64,
	/// How many calls its process has served, this one included.
	calls: u64,
	/// Nanoseconds on the clock of all processes, when the handler began.
	pub begun: u64,
	/// The same when it was done.
	pub ended: u64,
}

impl Function {
	/// What it is, for people.
	pub fn title(self) -> &'static str {
		match self {
			Self::Small => "small",
			Self::Numpy => "numpy imported",
		}
	}

	/// Writes it into a directory of its own below `place`.
	pub fn write(self, place: &Path) -> Result<PathBuf> {
		let total = match self {
			Self::Small => "def total(number):\n    return sum(range(number))\n\n\n",
			Self::Numpy => "import numpy\n\n\ndef total(number):\n    return int(numpy.arange(number).sum())\n\n\n",
		};
		let dir = place.join(self.as_ref());
		let written =
			fs::create_dir(&dir).and_then(|()| fs::write(dir.join(format!("{MODULE}.py")), [total, HANDLER].concat()));
		written.or_cant("write a function").map(|()| dir)
	}

	/// The same as a process, where it has been written below `place`.
	pub fn called(self, python: &Path, place: &Path) -> Called {
		let (python, code) = (python.to_path_buf(), place.join(self.as_ref()));
		let start = move |each_line| {
			let mut command = tokio::process::Command::new(&python);
			command.args(["-c", &program(each_line)]).current_dir(&code);
			command
		};
		Called { name: self.as_ref().to_owned(), program: Rc::new(start) }
	}
}

/// A program in Python that answers one event from standard input, or, after an empty line, one for each line.
pub fn program(each_line: bool) -> String {
	let head = format!("import json, sys\nfrom {MODULE} import lambda_handler\n");
	let rest = if each_line {
		"print(flush=True)\nfor line in sys.stdin:\n    print(json.dumps(lambda_handler(json.loads(line), None)), flush=True)\n"
	} else {
		"print(json.dumps(lambda_handler(json.load(sys.stdin), None)))\n"
	};
	head + rest
}

/// An event, as it is sent.
pub fn event(number: u64) -> String {
	json!({ "number": number }).to_string()
}

/// The answer to the event `number`; anything else is an error. In a process of its own it is the first.
pub fn answer(text: &[u8], number: u64, alone: bool) -> Result<Answer> {
	let told = || String::from_utf8_lossy(text).trim().chars().take(500).collect::<String>();
	let answer: Answer = serde_json::from_slice(text)
		.map_err(|_| BenchError::Void(format!("a function has answered call {number} by: {}", told())))?;
	let below = number % 100;
	let right = answer.number == number && answer.total == below * below.saturating_sub(1) / 2;
	if right && (answer.calls == 1 || !alone) && answer.begun <= answer.ended {
		return Ok(answer);
	}
	Err(BenchError::Void(format!("call {number} was answered by {}", told())))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn no_answer_but_that_to_its_own_call_is_taken() {
		let of = |number: u64, total: u64, calls: u64| {
			json!({ "number": number, "total": total, "calls": calls, "begun": 5, "ended": 9 }).to_string()
		};
		let is_taken = |text: String, alone| answer(text.as_bytes(), 203, alone).is_ok();
		assert!(is_taken(of(203, 3, 1), true) && is_taken(of(203, 3, 7), false));
		for wrong in [of(204, 6, 1), of(203, 4, 1), of(203, 3, 2), "{\"errorType\": \"KeyError\"}".to_owned()] {
			assert!(!is_taken(wrong.clone(), true), "{wrong}");
		}
		assert_eq!(answer(of(203, 3, 1).as_bytes(), 203, true).unwrap().ended, 9);
	}
}
