//! The flags of `bench cow-model`.

use std::time::Duration;

use super::Grid;
use flashfork_measure::sampling::Effort;

/// Options of the experiment.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench cow-model --grid paper")]
pub struct CowModelOptions {
    /// Which sizes of memory: those of the paper, 0 to 316,228 bytes, or today's, 1 MB to 256 MB
    #[arg(long, value_enum, default_value_t = Grid::Modern)]
    pub grid: Grid,

    /// Fewer cells and samples: half a minute instead of three
    #[arg(long)]
    pub quick: bool,
}

impl CowModelOptions {
    /// How much is measured of the grid, all sizes and shares together.
    pub(super) fn effort(&self) -> Effort {
        if self.quick {
            Effort { warm_up: 1, least: 6, most: 12, precision: 0.05, cap: Duration::from_secs(20) }
        } else {
            Effort { warm_up: 1, least: 8, most: 60, precision: 0.02, cap: Duration::from_secs(120) }
        }
    }

    /// How much is measured of other things: the copy rate, real against system time.
    pub(super) fn side_effort(&self) -> Effort {
        let seconds = if self.quick { 5 } else { 30 };
        Effort { warm_up: 1, least: 6, most: 30, precision: 0.02, cap: Duration::from_secs(seconds) }
    }
}
