//! The flags of `bench creation`.

use std::time::Duration;

use flashfork_measure::sampling::Effort;
use flashfork_terminal::size::Size;

/// Sizes of the parent's memory unless others are asked for: those of the book's table, then those of today.
const SIZES: [&str; 6] = ["1.7M", "2.7M", "11.7M", "64M", "256M", "1G"];
const QUICK: [&str; 3] = ["1.7M", "64M", "256M"];

/// Options of the experiment.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench creation --sizes 1.7M,64M,1G --fds 100")]
pub struct CreationOptions {
    /// Sizes of the parent's memory [default: 1.7M,2.7M,11.7M,64M,256M,1G; with --quick 1.7M,64M,256M]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...")]
    pub sizes: Option<Vec<Size>>,

    /// Whether the memory is written before; memory that never was costs a fork nothing, however much there is
    #[arg(long, value_enum, default_value_t = Touch::All)]
    pub touch: Touch,

    /// Open this many more files in the parent
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub fds: u32,

    /// Add this many mappings of one page each to the parent
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub vmas: u32,

    /// Fewer sizes and samples: under a minute instead of four
    #[arg(long)]
    pub quick: bool,
}

/// What the parent does with its memory before it makes processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Touch {
    /// Writes every page.
    #[default]
    All,
    /// Nothing.
    None,
}

impl CreationOptions {
    /// The sizes in bytes, ascending, each once.
    pub(super) fn bytes(&self) -> Vec<u64> {
        let default = || if self.quick { &QUICK[..] } else { &SIZES[..] };
        let mut sizes: Vec<u64> = match &self.sizes {
            Some(sizes) => sizes.iter().map(|size| size.0).collect(),
            None => default().iter().filter_map(|text| text.parse::<Size>().ok()).map(|size| size.0).collect(),
        };
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// How much is measured per size.
    pub(super) fn effort(&self) -> Effort {
        if self.quick {
            Effort { warm_up: 1, least: 6, most: 20, precision: 0.05, cap: Duration::from_secs(8) }
        } else {
            Effort { warm_up: 1, least: 8, most: 100, precision: 0.02, cap: Duration::from_secs(35) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<CreationOptions, clap::Error> {
        crate::flags::parse(args)
    }

    #[test]
    fn the_books_sizes_come_first() {
        let sizes = parse(&[]).unwrap().bytes();
        assert_eq!(sizes.len(), SIZES.len());
        assert_eq!(sizes.iter().map(|size| (size * 10) >> 20).take(3).collect::<Vec<_>>(), [16, 26, 116]);
        assert_eq!(sizes[3..], [64 << 20, 256 << 20, 1 << 30]);
        assert_eq!(parse(&["--quick"]).unwrap().bytes().len(), QUICK.len());
    }

    #[test]
    fn what_is_asked_for_is_sorted_and_wrong_usage_refused() {
        let options = parse(&["--sizes", "4M,1M,4M", "--touch", "none", "--fds", "7"]).unwrap();
        assert_eq!((options.bytes(), options.touch, options.fds), (vec![1 << 20, 4 << 20], Touch::None, 7));
        for args in [["--sizes", "big"], ["--touch", "some"], ["--fds", "-1"], ["--vmas", "x"]] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
