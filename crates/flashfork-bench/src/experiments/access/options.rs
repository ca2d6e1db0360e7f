//! The flags of `bench fault` and `bench access-mix`.

use std::time::Duration;

use flashfork_measure::sampling::Effort;
use flashfork_terminal::size::Size;

/// Options of `bench fault`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench fault --size 256M")]
pub struct FaultOptions {
    /// Size of the parent's memory, at least 4M
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = some_tables)]
    pub size: Size,

    /// Fewer samples
    #[arg(long)]
    pub quick: bool,
}

/// Options of `bench access-mix`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench access-mix --size 512M")]
pub struct AccessMixOptions {
    /// Size of the parent's memory, at least 4M; all parents and one parent's copied pages must fit
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = some_tables)]
    pub size: Size,

    /// Fewer shares and samples: half a minute instead of four
    #[arg(long)]
    pub quick: bool,
}

impl FaultOptions {
    pub(super) fn effort(&self) -> Effort {
        if self.quick {
            Effort { warm_up: 1, least: 6, most: 30, precision: 0.05, cap: Duration::from_secs(8) }
        } else {
            Effort { warm_up: 1, least: 20, most: 200, precision: 0.02, cap: Duration::from_secs(60) }
        }
    }
}

impl AccessMixOptions {
    pub(super) fn effort(&self) -> Effort {
        if self.quick {
            Effort { warm_up: 0, least: 6, most: 8, precision: 0.05, cap: Duration::from_secs(25) }
        } else {
            Effort { warm_up: 1, least: 6, most: 30, precision: 0.03, cap: Duration::from_secs(240) }
        }
    }
}

/// At least two page tables' worth.
fn some_tables(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: flashfork_terminal::size::SizeError| error.to_string())?;
    if size.0 >= 4 << 20 && size.0.is_multiple_of(2 << 20) {
        Ok(size)
    } else {
        Err(format!("{size} is not a multiple of 2M from 4M on"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_page_tables() {
        let size = |text: &str| crate::flags::parse::<AccessMixOptions>(&["--size", text]).map(|options| options.size);
        assert_eq!(size("8M").unwrap(), Size(8 << 20));
        for text in ["2M", "5M", "0", "x"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(crate::flags::parse::<FaultOptions>(&[]).unwrap().size, Size(1 << 30));
    }
}
