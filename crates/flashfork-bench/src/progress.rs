//! How an experiment tells its caller where it is; the caller decides what to show.

/// Receives an experiment's progress.
pub trait Progress {
    /// A new stage of `steps` steps begins; `what` names it ("1G: interleaved rounds").
    fn begin(&mut self, what: &str, steps: u64);
    /// One step of the current stage is done.
    fn step(&mut self);
    /// Something the user should read now: waiting for the machine-wide lock, a method left out and why.
    fn note(&mut self, line: &str);
    /// Whether the user wants to stop: what is measured so far is kept and written, the rest left out.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Shows nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _what: &str, _steps: u64) {}
    fn step(&mut self) {}
    fn note(&mut self, _line: &str) {}
}
