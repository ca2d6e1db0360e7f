//! The suites of tests.

use std::{fmt::Write, fs};

use clap::ValueEnum;

use super::{PytestOptions, way::Way};
use crate::prelude::*;

const FIXTURE: &str = include_str!("fixture_suite.py");

/// A suite.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Suite {
	/// 2,000 small tests in 40 files that import numpy and pandas
	Small,
	/// A package's own tests
	Real,
	/// 200 tests with a session fixture that holds a lot of memory
	Fixture,
	/// No tests, but a program that imports numpy, cloned from Python
	Program,
}

impl Suite {
	/// The ways to run it that are compared.
	pub fn ways(self) -> &'static [Way] {
		match self {
			Self::Small | Self::Real => &[Way::Plain, Way::Xdist, Way::Forked, Way::Clones, Way::Each],
			Self::Program => &[],
			Self::Fixture => &[Way::Plain, Way::Forked, Way::EachByFork, Way::EachOnThp, Way::Each],
		}
	}

	/// How many files of how many tests it has, of those written here; a tenth of them in a quick run.
	fn shape(self, quick: bool) -> (usize, usize) {
		let (files, tests) = if self == Self::Small { (40, 50) } else { (1, 200) };
		(files, if quick { tests / 10 } else { tests })
	}

	/// Writes it into `place`, and returns the directory to run pytest in; or the reason why there is none.
	pub fn write(self, options: &PytestOptions, place: &Path) -> Result<Result<PathBuf, String>> {
		let dir = place.join(self.as_ref());
		let doing = "write a suite of tests";
		let (files, tests) = self.shape(options.quick);
		match (self, &options.real) {
			(Self::Program, _) => return Ok(Err("it has no tests".to_owned())),
			(Self::Real, None) => return Ok(Err("--real says where one is".to_owned())),
			(Self::Real, Some(real)) => {
				let real = real.canonicalize();
				return Ok(real.map_err(|error| format!("{error}: see --real")));
			}
			(Self::Small, _) => {
				fs::create_dir(&dir).or_cant(doing)?;
				for file in 0..files {
					fs::write(dir.join(format!("test_{file}.py")), small(tests)).or_cant(doing)?;
				}
			}
			(Self::Fixture, _) => {
				fs::create_dir(&dir).or_cant(doing)?;
				let text = FIXTURE.replace("TESTS = 0", &format!("TESTS = {tests}"));
				let text = text.replace("BYTES = 0", &format!("BYTES = {}", options.size.0));
				fs::write(dir.join("test_fixture.py"), text).or_cant(doing)?;
			}
		}
		// The root of the suite, whatever lies above.
		fs::write(dir.join("pytest.ini"), "[pytest]\n").or_cant(doing)?;
		Ok(Ok(dir))
	}
}

fn small(tests: usize) -> String {
	let mut text = "import numpy\nimport pandas\n".to_owned();
	for number in 0..tests {
		let sum = number * number.saturating_sub(1) / 2;
		// A string takes it all.
		let _ = write!(text, "\n\ndef test_{number}():\n    assert numpy.arange({number}).sum() == {sum}\n");
	}
	text
}
