//! Options of `bench pytest`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use super::suite::Suite;
use flashfork_measure::sampling::Effort;
use flashfork_terminal::size::Size;

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench pytest --python venv/bin/python --suites small\n\
                  scripts/python-bench, in the source, makes environments for --python and --forked-python and brings a --real suite.")]
pub struct PytestOptions {
    /// The Python to run tests with: it has pytest, pytest-xdist, numpy, pandas and flashfork
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub python: PathBuf,

    /// Another Python, with pytest-forked and a pytest that it works with
    #[arg(long, value_name = "PYTHON")]
    pub forked_python: Option<PathBuf>,

    /// The directory of a real suite of tests, in which pytest is run without further arguments
    #[arg(long, value_name = "DIR")]
    pub real: Option<PathBuf>,

    /// A wheel of the package, to time its installation until the first clone
    #[arg(long, value_name = "FILE")]
    pub wheel: Option<PathBuf>,

    /// The suites [default: all that can be run]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub suites: Option<Vec<Suite>>,

    /// Workers of xdist, and of --clones
    #[arg(long, value_name = "N", default_value = "2")]
    pub workers: NonZeroU32,

    /// What the session fixture holds
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub size: Size,

    /// Fewer runs and smaller suites
    #[arg(long)]
    pub quick: bool,
}

impl PytestOptions {
    /// The suites, each once.
    pub(super) fn suites(&self) -> Vec<Suite> {
        let wanted = |suite: &Suite| self.suites.as_ref().is_none_or(|asked| asked.contains(suite));
        Suite::ALL.into_iter().filter(wanted).collect()
    }

    pub(super) fn effort(&self) -> Effort {
        if self.quick {
            Effort { warm_up: 1, ..Effort::rounds(1) }
        } else {
            Effort { warm_up: 1, least: 6, most: 12, precision: 0.03, cap: Duration::from_secs(900) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_named_once_each_or_all() {
        let parse = crate::flags::parse::<PytestOptions>;
        assert_eq!(parse(&[]).unwrap().suites(), Suite::ALL);
        assert_eq!(parse(&["--suites", "fixture,small,fixture"]).unwrap().suites(), [Suite::Small, Suite::Fixture]);
        assert!(parse(&["--workers", "0"]).is_err() && parse(&["--suites", "none"]).is_err());
    }
}
