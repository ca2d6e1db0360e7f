//! The flags of `bench vm-fuzz`.

use super::code::MOST;
use crate::subjects::vm_host::size;
use flashfork_terminal::size::Size;

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-fuzz --size 256M --pages 200")]
pub struct VmFuzzOptions {
    /// The guest's memory: a multiple of 2M from 16M to 3G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub size: Size,

    /// Pages that an execution writes: even numbers up to 2000
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_values_t = [20, 200, 2000], value_parser = pages)]
    pub pages: Vec<u32>,

    /// Rounds of interleaved executions; more rounds, tighter intervals [default: 20, with --quick 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,

    /// Fewer rounds
    #[arg(long)]
    pub quick: bool,
}

impl VmFuzzOptions {
    /// How many rounds are made.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 6 } else { 20 }) as usize
    }
}

/// So many can be written.
fn pages(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pages) if (2..=MOST).contains(&pages) && pages % 2 == 0 => Ok(pages),
        _ => Err(format!("{text} is no even number from 2 to {MOST}")),
    }
}
