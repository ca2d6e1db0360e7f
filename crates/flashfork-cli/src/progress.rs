//! Progress bars on a terminal, nothing in a pipe; notes always.

use crate::interrupt;
use flashfork_bench::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Shows an experiment's stages on standard error.
#[derive(Default)]
pub struct Bars {
    bar: Option<ProgressBar>,
}

impl Bars {
    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bars {
    fn begin(&mut self, what: &str, steps: u64) {
        self.finish();
        if !std::io::stderr().is_terminal() {
            return;
        }
        let bar = ProgressBar::new(steps);
        let style = ProgressStyle::with_template("{elapsed:>4} {bar:30} {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_string());
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        self.bar = Some(bar);
    }

    fn step(&mut self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn note(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    fn interrupted(&self) -> bool {
        interrupt::caught()
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.finish();
    }
}
