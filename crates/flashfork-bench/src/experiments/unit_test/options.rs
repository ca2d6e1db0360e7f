//! The flags of `bench unit-test`.

use std::path::PathBuf;

use flashfork_terminal::size::Size;

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench unit-test --size 256M --jobs 2")]
pub struct UnitTestOptions {
    /// Size of the database, in bytes or with K, M, G
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub size: Size,

    /// How many test harnesses run at the same time, each with a database of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: u32,

    /// Rounds of interleaved batches of clones; more rounds, tighter intervals
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,

    /// Where the database image is kept between runs [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<UnitTestOptions, clap::Error> {
        crate::flags::parse(args)
    }

    #[test]
    fn the_paper_s_size_is_the_default() {
        let options = parse(&[]).unwrap();
        assert_eq!((options.size, options.jobs, options.cache), (Size(1 << 30), 1, None));
        assert_eq!(parse(&["--size", "256M"]).unwrap().size, Size(256 << 20));
    }

    #[test]
    fn wrong_usage_is_refused_by_the_parser() {
        for args in [["--size", "1GB"], ["--jobs", "0"], ["--rounds", "0"], ["--rounds", "x"]] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
