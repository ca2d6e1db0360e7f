//! The flags of `bench policy`.

use crate::once::each_once;
use flashfork_terminal::size::Size;

const SIZES: [u64; 4] = [64 << 20, 256 << 20, 1 << 30, 4 << 30];
const DIRTY: [f64; 4] = [0.0, 0.1, 1.0, 10.0];
const FORKS: [usize; 4] = [10, 50, 200, 1000];

/// Options of the experiment.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(
    after_help = "Example: flashfork bench policy --sizes 256M --dirty 0,1 --records policy.json && flashfork bench figure policy.json policy.svg"
)]
pub struct PolicyOptions {
    /// Sizes of the parent's memory [default: 64M,256M,1G,4G; with --quick 64M,256M]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...")]
    pub sizes: Option<Vec<Size>>,

    /// Percent of its pages that the parent writes before each fork, at random [default: 0,0.1,1,10]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,...", value_parser = percent)]
    pub dirty: Option<Vec<f64>>,

    /// The pages that the parent writes lie in a row, always the same
    #[arg(long)]
    pub in_a_row: bool,

    /// After how many forks to look [default: 10,50,200,1000; with --quick 10,50,200]
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = clap::value_parser!(u32).range(1..))]
    pub forks: Option<Vec<u32>>,

    /// Runs of each kind; medians are shown [default: 3; with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,

    /// Fewer sizes, forks and runs: about a minute instead of half an hour
    #[arg(long)]
    pub quick: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err("a number from 0 to 100".to_owned()),
    }
}

impl PolicyOptions {
    pub(super) fn sizes(&self) -> Vec<u64> {
        let default = if self.quick { &SIZES[..2] } else { &SIZES[..] };
        self.sizes.as_ref().map_or_else(|| default.to_vec(), |sizes| each_once(sizes.iter().map(|size| size.0)))
    }

    pub(super) fn dirty(&self) -> Vec<f64> {
        self.dirty.as_ref().map_or_else(|| DIRTY.to_vec(), |dirty| each_once(dirty.iter().copied()))
    }

    /// Ascending.
    pub(super) fn forks(&self) -> Vec<usize> {
        let default = if self.quick { &FORKS[..3] } else { &FORKS[..] };
        let mut forks =
            self.forks.as_ref().map_or_else(|| default.to_vec(), |n| n.iter().map(|&n| n as usize).collect());
        forks.sort_unstable();
        forks.dedup();
        forks
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds.map_or(if self.quick { 1 } else { 3 }, |n| n as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<PolicyOptions, clap::Error> {
        crate::flags::parse(args)
    }

    #[test]
    fn defaults_and_what_is_asked_for() {
        let o = parse(&[]).unwrap();
        assert_eq!((o.sizes(), o.dirty(), o.forks(), o.rounds()), (SIZES.to_vec(), DIRTY.to_vec(), FORKS.to_vec(), 3));
        assert!(!o.in_a_row && parse(&["--in-a-row"]).unwrap().in_a_row);
        let o = parse(&["--quick", "--dirty", "5,5", "--forks", "30,7,30"]).unwrap();
        assert_eq!((o.sizes().len(), o.dirty(), o.forks(), o.rounds()), (2, vec![5.0], vec![7, 30], 1));
        for wrong in [["--dirty", "101"], ["--dirty", "x"], ["--forks", "0"], ["--rounds", "0"]] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
