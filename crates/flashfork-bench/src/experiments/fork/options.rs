//! The flags of `bench fork`.

use flashfork_terminal::size::{Size, SizeError};

/// Options of the experiment.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench fork --sizes 0,256M,1G --concurrent 3")]
pub struct ForkOptions {
    /// Sizes of the parent's memory: 0 or multiples of 2M (whole huge pages); a size that doesn't fit is refused.
    /// Without this flag: 0, 64M, 256M, 1G, 4G and 8G as far as they fit
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = whole_huge_pages)]
    pub sizes: Option<Vec<Size>>,

    /// Sizes from 512M to this one in steps of 512M, as in the figures of on-demand-fork
    #[arg(long, value_name = "SIZE", conflicts_with = "sizes", value_parser = steps)]
    pub up_to: Option<Size>,

    /// Also measure this many processes of each size that clone themselves at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=256))]
    pub concurrent: Option<u32>,

    /// Rounds of interleaved batches; more rounds, tighter intervals [default: 20, with --quick 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,

    /// Fewer rounds, sizes up to 1G and fewer states of the parent: about a minute instead of ten
    #[arg(long)]
    pub quick: bool,
}

/// From one step to the next.
const STEP: u64 = 512 << 20;

impl ForkOptions {
    /// The sizes that were asked for, in whichever way.
    pub(super) fn asked(&self) -> Option<Vec<u64>> {
        let listed = self.sizes.as_ref().map(|sizes| sizes.iter().map(|size| size.0).collect());
        listed.or_else(|| self.up_to.map(|last| (1..=last.0 / STEP).map(|step| step * STEP).collect()))
    }
}

/// At least one step.
fn steps(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    if size.0 >= STEP { Ok(size) } else { Err(format!("{size} is less than one step of 512M")) }
}

/// A size that all methods can hold in the same way.
fn whole_huge_pages(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    if size.0.is_multiple_of(2 << 20) { Ok(size) } else { Err(format!("{size} is not a multiple of 2M")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<ForkOptions, clap::Error> {
        crate::flags::parse(args)
    }

    #[test]
    fn sizes_are_a_list() {
        let options = parse(&["--sizes", "0,64M,1G", "--concurrent", "3"]).unwrap();
        assert_eq!(options.sizes, Some(vec![Size(0), Size(64 << 20), Size(1 << 30)]));
        assert_eq!(parse(&["--up-to", "1.6G"]).unwrap().asked(), Some(vec![512 << 20, 1 << 30, 3 << 29]));
        assert_eq!(parse(&[]).unwrap().asked(), None);
        assert_eq!(options.concurrent, Some(3));
    }

    #[test]
    fn wrong_usage_is_refused_by_the_parser() {
        for args in [
            ["--up-to", "64M"],
            ["--sizes", "1GB"],
            ["--sizes", "64M,1M"],
            ["--sizes", ""],
            ["--concurrent", "1"],
            ["--rounds", "0"],
        ] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
