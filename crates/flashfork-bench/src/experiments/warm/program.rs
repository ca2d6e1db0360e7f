//! The programs: how each is warmed, and the script it runs then.

use clap::ValueEnum;

/// The interpreter that the packages belong to; what is first in PATH may be another, or a script that finds one.
const PYTHON: &str = "/usr/bin/python3";

/// A program of the experiment.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Program {
	/// A dynamic C program that does nothing, which is only started anew: what a process costs
	#[value(name = "c-dynamic")]
	CDynamic,
	/// The same, linked statically
	#[value(name = "c-static")]
	CStatic,
	/// `/bin/true`
	True,
	/// CPython with nothing imported
	Python,
	/// CPython with numpy and pandas
	Numpy,
	/// Perl with a module
	Perl,
	/// Ruby with a library
	Ruby,
}

impl Program {
	/// What it is, for people.
	pub fn title(self) -> &'static str {
		match self {
			Self::CDynamic => "C, does nothing: dynamic",
			Self::CStatic => "C, does nothing: static",
			Self::True => "/bin/true",
			Self::Python => "CPython",
			Self::Numpy => "CPython, numpy, pandas",
			Self::Perl => "Perl, POSIX, Data::Dumper",
			Self::Ruby => "Ruby, json, set",
		}
	}

	/// With which flags it is compiled here, of a program that is; it is not warmed then.
	pub fn flags(self) -> Option<&'static [&'static str]> {
		match self {
			Self::CDynamic => Some(&["-O2"]),
			Self::CStatic => Some(&["-O2", "-static"]),
			_ => None,
		}
	}

	/// The command that is warmed.
	pub fn warmed(self) -> &'static [&'static str] {
		match self {
			Self::CDynamic | Self::CStatic => &[],
			Self::True => &["/bin/true"],
			Self::Python => &[PYTHON, "-c", "pass"],
			Self::Numpy => &[PYTHON, "-c", "import numpy, pandas"],
			Self::Perl => &["perl", "-MPOSIX", "-MData::Dumper", "-e", "1"],
			Self::Ruby => &["ruby", "-rjson", "-rset", "-e", ""],
		}
	}

	/// The program started anew, with a script, if any; none for what is compiled here.
	pub fn anew(self) -> Option<&'static str> {
		self.warmed().first().copied()
	}

	/// A script that prints one line, [`LINE`](super::command::LINE), after loading what is warmed; started anew and in
	/// a clone alike. None: the program prints nothing.
	pub fn script(self) -> Option<&'static str> {
		Some(match self {
			Self::CDynamic | Self::CStatic | Self::True => return None,
			Self::Python => "print(1)\n",
			Self::Numpy => "import numpy, pandas\nprint(1)\n",
			Self::Perl => "use POSIX; use Data::Dumper;\nprint \"1\\n\";\n",
			Self::Ruby => "require 'json'; require 'set'\nputs 1\n",
		})
	}

	/// Debian's packages it needs.
	pub fn packages(self) -> &'static str {
		match self {
			Self::CDynamic | Self::CStatic => "gcc libc6-dev",
			Self::True => "coreutils",
			Self::Python => "python3",
			Self::Numpy => "python3-numpy python3-pandas",
			Self::Perl => "perl",
			Self::Ruby => "ruby",
		}
	}

	/// Whether it prints [`LINE`](super::command::LINE).
	pub fn prints(self) -> bool {
		self.script().is_some()
	}
}
