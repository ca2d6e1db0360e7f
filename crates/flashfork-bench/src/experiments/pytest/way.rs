//! Ways to run a suite.

/// How tests are run.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Way {
	/// By pytest alone, in one process.
	Plain,
	/// By workers of xdist, which are started anew and collect anew.
	Xdist,
	/// Each in a fork by pytest-forked, which sets up all its fixtures there.
	#[strum(serialize = "pytest-forked")]
	Forked,
	/// In as many clones as xdist has workers.
	Clones,
	/// Each in a clone, made where its function scope begins; large memory is sealed.
	#[strum(serialize = "clone-each")]
	Each,
	/// The same by plain forks.
	#[strum(serialize = "clone-each-fork")]
	EachByFork,
	/// The same by plain forks, and memory on transparent huge pages.
	#[strum(serialize = "clone-each-thp")]
	EachOnThp,
}

impl Way {
	/// For people.
	pub fn title(self) -> &'static str {
		match self {
			Self::Plain => "pytest",
			Self::Xdist => "xdist: -n",
			Self::Forked => "pytest-forked: --forked",
			Self::Clones => "--clones",
			Self::Each => "--clone-each",
			Self::EachByFork => "--clone-each, plain forks",
			Self::EachOnThp => "--clone-each, plain forks, THP",
		}
	}

	/// What pytest is told.
	pub fn arguments(self, workers: &str) -> Vec<&str> {
		match self {
			Self::Plain => vec![],
			Self::Xdist => vec!["-n", workers],
			Self::Forked => vec!["--forked"],
			Self::Clones => vec!["--clones", workers],
			Self::Each | Self::EachByFork | Self::EachOnThp => vec!["--clone-each"],
		}
	}

	/// What the suite with the large fixture is told about its memory.
	pub fn forks(self) -> &'static str {
		match self {
			Self::Each => "sealed",
			Self::EachOnThp => "thp",
			_ => "plain",
		}
	}
}
