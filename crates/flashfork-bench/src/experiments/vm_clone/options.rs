//! The flags of `bench vm-clone`.

use flashfork_terminal::size::{Size, SizeError};

/// What runs in the virtual machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum GuestKind {
    /// A few bytes of code, which run on any `/dev/kvm`.
    Tiny,
    /// Debian's cloud kernel with the agent.
    Linux,
}

impl GuestKind {
    /// As records name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Linux => "linux",
        }
    }
}

/// Options of the experiment.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-clone --guests tiny --sizes 128M,1G")]
pub struct VmCloneOptions {
    /// Sizes of the guests' memory: multiples of 2M; a size that doesn't fit is refused. Without this flag: 128M, 256M,
    /// 512M, 1G, 2G, 4G and 8G as far as they fit together, Linux guests 128M and 1G
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = guest_memory)]
    pub sizes: Option<Vec<Size>>,

    /// What runs in the guests; Linux needs a KVM that boots it, in the lab if not here
    #[arg(long, value_delimiter = ',', value_enum, value_name = "GUEST,...", default_values_t = [GuestKind::Tiny])]
    pub guests: Vec<GuestKind>,

    /// Rounds of interleaved batches; more rounds, tighter intervals [default: 40, with --quick 5; Linux guests 5 and
    /// 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,

    /// Fewer rounds and sizes up to 512M: less than a minute with tiny guests
    #[arg(long)]
    pub quick: bool,
}

/// A size that guests can have on pages of every kind.
pub(crate) fn guest_memory(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    if size.0 > 0 && size.0.is_multiple_of(2 << 20) {
        Ok(size)
    } else {
        Err(format!("{size} is no multiple of 2M above zero"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<VmCloneOptions, clap::Error> {
        crate::flags::parse(args)
    }

    #[test]
    fn sizes_and_guests_are_lists() {
        let options = parse(&["--sizes", "128M,1G", "--guests", "tiny,linux", "--rounds", "3"]).unwrap();
        assert_eq!(options.sizes, Some(vec![Size(128 << 20), Size(1 << 30)]));
        assert_eq!((options.guests, options.rounds), (vec![GuestKind::Tiny, GuestKind::Linux], Some(3)));
        assert_eq!(parse(&[]).unwrap().guests, [GuestKind::Tiny]);
    }

    #[test]
    fn wrong_usage_is_refused_by_the_parser() {
        for args in [["--sizes", "0"], ["--sizes", "3M"], ["--guests", "windows"], ["--rounds", "0"]] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
