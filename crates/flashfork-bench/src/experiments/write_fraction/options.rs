//! The flags of `bench write-fraction`.

use std::ffi::OsString;

/// Options of the experiment.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(override_usage = "flashfork bench write-fraction [OPTIONS] [-- <COMMAND>...]")]
#[command(after_help = "Example: flashfork bench write-fraction --after 2 --for 5 -- python3 server.py\n\n\
                  Without a command or a process the ready runs are measured: CPython, Emacs Lisp's Towers of Hanoi, SQLite \
                  and redis-server, as far as they are installed.")]
pub struct WriteFractionOptions {
    /// A running process to look at instead of a command; it is stopped (SIGSTOP) for each of the two looks
    #[arg(long, value_name = "PID", conflicts_with = "command", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,

    /// Only these ready runs
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...", conflicts_with_all = ["pid", "command"])]
    pub ready: Option<Vec<Ready>>,

    /// Seconds from the start until the first look
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub after: f64,

    /// Seconds from the first look until the second
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub during: f64,

    /// How many times a command or ready run is run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,

    /// The command and its arguments. A command that stops itself (SIGSTOP) sets the two moments itself, and --after
    /// and --for are the longest it is waited for
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// A ready run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Ready {
    /// CPython keeps the names of one in ten of the records it made before.
    Cpython,
    /// Emacs Lisp's Towers of Hanoi, ten rings, as in the paper.
    Emacs,
    /// SQLite updates one row in a hundred of a table in memory.
    Sqlite,
    /// redis-server takes writes to one key in a hundred.
    Redis,
}

impl Ready {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cpython, Self::Emacs, Self::Sqlite, Self::Redis];
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds, at most a day".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<WriteFractionOptions, clap::Error> {
        crate::flags::parse(args)
    }

    #[test]
    fn a_command_stands_behind_two_dashes() {
        let options = parse(&["--after", "0.5", "--for", "2", "--", "python3", "-c", "pass"]).unwrap();
        assert_eq!((options.after, options.during), (0.5, 2.0));
        assert_eq!(options.command, ["python3", "-c", "pass"]);
        assert_eq!(parse(&["--ready", "redis,emacs"]).unwrap().ready, Some(vec![Ready::Redis, Ready::Emacs]));
    }

    #[test]
    fn one_target_at_a_time() {
        for args in [
            &["--pid", "0"][..],
            &["--pid", "-4"],
            &["--pid", "1", "--", "true"],
            &["--ready", "redis", "--pid", "1"],
            &["--for", "-1"],
            &["--for", "soon"],
            &["--runs", "0"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }
}
