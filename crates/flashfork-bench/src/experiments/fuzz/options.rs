//! The flags of `bench fuzz`.

use std::path::PathBuf;

use flashfork_terminal::size::Size;

use super::targets::Target;

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench fuzz --size 256M --seconds 30")]
pub struct FuzzOptions {
    /// Size of the database, in bytes or with K, M, G
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub size: Size,

    /// Fuzz these libraries instead, with and without AddressSanitizer, by forks and in loops [default without a value:
    /// all]
    #[arg(
        long,
        value_name = "TARGETS",
        value_delimiter = ',',
        num_args = 0..=1,
        default_missing_values = ["libpng", "libxml2", "sqlite", "cjson"],
        conflicts_with = "size"
    )]
    pub targets: Vec<Target>,

    /// Seconds of fuzzing per method, loading and sealing not counted
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,

    /// Into how many slices each method's time is cut; the methods take turns. Each slice starts from the seeds again
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub slices: u32,

    /// The shim, libflashfork_preload.so [default: the one installed with this command]
    #[arg(long, value_name = "FILE")]
    pub preload: Option<PathBuf>,

    /// Where the database image and the fuzz target are kept between runs [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<FuzzOptions, clap::Error> {
        crate::flags::parse(args)
    }

    #[test]
    fn the_paper_s_size_and_a_minute_per_method_are_the_default() {
        let options = parse(&[]).unwrap();
        assert_eq!((options.size, options.seconds, options.slices), (Size(1 << 30), 60, 3));
        assert_eq!(parse(&["--seconds", "5", "--slices", "2"]).unwrap().seconds, 5);
    }

    #[test]
    fn targets_are_all_of_them_unless_named() {
        let targets = |args: &[&str]| parse(args).unwrap().targets;
        assert_eq!(targets(&[]), []);
        assert_eq!(targets(&["--targets"]), [Target::Libpng, Target::Libxml2, Target::Sqlite, Target::Cjson]);
        assert_eq!(targets(&["--targets", "cjson,libpng", "--seconds", "5"]), [Target::Cjson, Target::Libpng]);
        assert!(parse(&["--targets", "--size", "4M"]).is_err());
    }

    #[test]
    fn wrong_usage_is_refused_by_the_parser() {
        for args in [["--size", "1GB"], ["--seconds", "0"], ["--slices", "1"], ["--seconds", "1.5"]] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
