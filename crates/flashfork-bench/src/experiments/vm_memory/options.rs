//! The flags of `bench vm-memory`.

use flashfork_terminal::size::{Size, SizeError};

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-memory --size 1G")]
pub struct VmMemoryOptions {
    /// The guests' memory, of which all but the first 2 MB is touched: a multiple of 2M up to 3G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = touched)]
    pub size: Size,

    /// Rounds; in each, every kind of guest is booted and cloned once
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
}

/// A size whose memory lies in one piece.
fn touched(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    match size.0 {
        bytes if bytes.is_multiple_of(2 << 20) && ((4 << 20)..=(3 << 30)).contains(&bytes) => Ok(size),
        _ => Err(format!("{size} is no multiple of 2M between 4M and 3G")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_out_of_range_are_refused_by_the_parser() {
        let options: VmMemoryOptions = crate::flags::parse(&["--size", "64M", "--rounds", "2"]).unwrap();
        assert_eq!((options.size, options.rounds), (Size(64 << 20), 2));
        for args in [["--size", "2M"], ["--size", "4G"], ["--size", "5M"], ["--rounds", "0"]] {
            assert!(crate::flags::parse::<VmMemoryOptions>(&args).is_err(), "{args:?}");
        }
    }
}
