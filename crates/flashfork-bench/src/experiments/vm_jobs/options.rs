//! The flags of `bench vm-jobs`.

use super::found::Work;

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-jobs --jobs java --quick; where KVM boots no Linux guests: \
                        scripts/bench-vm-lab vm-jobs --quick")]
pub struct VmJobsOptions {
    /// Which jobs: a compilation, a Java program's, or both in turn
    #[arg(long, value_delimiter = ',', value_enum, value_name = "JOB,...", default_values_t = Work::ALL)]
    pub jobs: Vec<Work>,

    /// Rounds of interleaved batches; more rounds, tighter intervals [default: 8, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,

    /// Fewer rounds
    #[arg(long)]
    pub quick: bool,
}

impl VmJobsOptions {
    /// Each once, in table order.
    pub(super) fn works(&self) -> Vec<Work> {
        Work::ALL.into_iter().filter(|work| self.jobs.contains(work)).collect()
    }

    /// How many rounds are made.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 2 } else { 8 }) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_a_list_of_what_there_is() {
        let parse = |args: &[&str]| crate::flags::parse::<VmJobsOptions>(args);
        let options = parse(&["--jobs", "mixed,gcc,mixed", "--quick"]).unwrap();
        assert_eq!((options.works(), options.rounds()), (vec![Work::Gcc, Work::Mixed], 2));
        assert_eq!(parse(&[]).unwrap().works(), Work::ALL);
        for args in [["--jobs", "spark"], ["--rounds", "0"]] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
