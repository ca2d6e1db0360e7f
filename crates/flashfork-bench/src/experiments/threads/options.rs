//! Options of `bench threads`.

use std::path::PathBuf;
use std::time::Duration;

use super::program::Family;
use flashfork_measure::sampling::Effort;
use flashfork_terminal::size::Size;

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench threads --programs java --heaps 600M")]
pub struct ThreadsOptions {
    /// The programs [default: all that are installed]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub programs: Option<Vec<Family>>,

    /// Live heaps of the Java program with sixteen threads
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "50M,600M,2G")]
    pub heaps: Vec<Size>,

    /// A Python with numpy, grpcio and pyarrow, whose program with these is measured, too
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,

    /// Numbers of threads of a Python program, for the price of a thread
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,16,64,256",
          value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub threads: Vec<u32>,

    /// Clones that are alive at a time, for the memory of each
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,8,64",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub alive: Vec<u32>,

    /// Fewer samples
    #[arg(long)]
    pub quick: bool,
}

impl ThreadsOptions {
    pub(super) fn wants(&self, family: Family) -> bool {
        self.programs.as_ref().is_none_or(|asked| asked.contains(&family))
    }

    pub(super) fn effort(&self) -> Effort {
        if self.quick {
            Effort { warm_up: 0, least: 3, most: 6, precision: 0.1, cap: Duration::from_secs(60) }
        } else {
            Effort { warm_up: 1, least: 10, most: 40, precision: 0.03, cap: Duration::from_secs(900) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_named_or_all() {
        let parse = |args: &[&str]| crate::flags::parse::<ThreadsOptions>(args).unwrap();
        assert!(parse(&[]).wants(Family::Java) && parse(&[]).wants(Family::Node));
        let some = parse(&["--programs", "python,node", "--heaps", "100M"]);
        assert!(some.wants(Family::Python) && !some.wants(Family::Java));
        assert!(crate::flags::parse::<ThreadsOptions>(&["--threads", "0"]).is_err());
    }
}
