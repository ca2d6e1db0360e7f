//! Progress bars on a terminal, nothing in a pipe; notes always.

use crate::interrupt;
use flashfork_measure::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

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
        let style = ProgressStyle::with_template("{elapsed:>4} {bar:30} {pos}/{len} {msg}{prefix}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_string());
        bar.enable_steady_tick(Duration::from_millis(500));
        self.bar = Some(bar);
    }

    fn step(&mut self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn remaining(&mut self, time: Duration) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(format!(" (at most {} left)", left(time)));
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

/// "38 min", in the end "50 s".
fn left(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..90 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.finish();
    }
}
