//! The flags of `bench vm-fork`.

use crate::subjects::vm_host::size;
use flashfork_terminal::size::Size;

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-fork --sizes 256M,1G --written 5")]
pub struct VmForkOptions {
    /// Sizes of the guests' memory: multiples of 2M from 16M to 3G; clones of clones have the smallest
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", default_value = "256M,1G,2G", value_parser = size)]
    pub sizes: Vec<Size>,

    /// What a guest that is forked writes of its memory, in percent a second: 0.1 to 50
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub written: f64,

    /// Pages that each level of clones of clones writes: even numbers up to 512
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = pages)]
    pub pages: u32,

    /// Rounds of interleaved forks, and as many of claims; more rounds, tighter intervals [default: 20, with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,

    /// Fewer rounds
    #[arg(long)]
    pub quick: bool,
}

impl VmForkOptions {
    /// Ascending, each once, in bytes.
    pub(super) fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.sizes.iter().map(|size| size.0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// How many rounds are made.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 5 } else { 20 }) as usize
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.1..=50.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text} is no number from 0.1 to 50")),
    }
}

fn pages(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pages) if (2..=512).contains(&pages) && pages % 2 == 0 => Ok(pages),
        _ => Err(format!("{text} is no even number from 2 to 512")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_guest_can_do_is_refused_by_the_parser() {
        let options: VmForkOptions =
            crate::flags::parse(&["--sizes", "64M,16M,64M", "--written", "0.5", "--pages", "512", "--quick"]).unwrap();
        assert_eq!((options.sizes(), options.written, options.pages), (vec![16 << 20, 64 << 20], 0.5, 512));
        assert_eq!(options.rounds(), 5);
        for args in [
            ["--sizes", "8M"],
            ["--sizes", "4G"],
            ["--sizes", "17M"],
            ["--written", "0"],
            ["--written", "51"],
            ["--written", "NaN"],
            ["--pages", "0"],
            ["--pages", "3"],
            ["--pages", "514"],
            ["--rounds", "0"],
        ] {
            assert!(crate::flags::parse::<VmForkOptions>(&args).is_err(), "{args:?}");
        }
    }
}
