//! The flags of `bench vm-tree`.

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-tree --quick; where KVM boots no Linux guests: \
                        scripts/bench-vm-lab vm-tree --quick")]
pub struct VmTreeOptions {
    /// Rounds, each with all ways in turn; more rounds, tighter intervals [default: 6, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,

    /// Fewer rounds
    #[arg(long)]
    pub quick: bool,
}

impl VmTreeOptions {
    /// How many rounds are made.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 6 }) as usize
    }
}
