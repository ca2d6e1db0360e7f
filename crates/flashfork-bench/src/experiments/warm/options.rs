//! Options of `bench warm`.

use std::time::Duration;

use super::program::Program;
use flashfork_measure::sampling::Effort;

/// Options of the experiment.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench warm --programs true,numpy")]
pub struct WarmOptions {
    /// The programs [default: all that are installed]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub programs: Option<Vec<Program>>,

    /// Fewer samples
    #[arg(long)]
    pub quick: bool,
}

impl WarmOptions {
    /// The programs, each once.
    pub(super) fn programs(&self) -> Vec<Program> {
        let wanted = |program: &Program| self.programs.as_ref().is_none_or(|asked| asked.contains(program));
        Program::ALL.into_iter().filter(wanted).collect()
    }

    pub(super) fn effort(&self) -> Effort {
        if self.quick {
            Effort { warm_up: 1, least: 6, most: 12, precision: 0.05, cap: Duration::from_secs(20) }
        } else {
            Effort { warm_up: 2, least: 20, most: 60, precision: 0.02, cap: Duration::from_secs(150) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<WarmOptions, clap::Error> {
        crate::flags::parse(args)
    }

    #[test]
    fn programs_are_named_once_each_or_all() {
        assert_eq!(parse(&[]).unwrap().programs(), Program::ALL);
        let some = parse(&["--programs", "numpy,true,numpy"]).unwrap();
        assert_eq!(some.programs(), [Program::True, Program::Numpy]);
        assert!(parse(&["--programs", "fortran"]).is_err());
    }
}
