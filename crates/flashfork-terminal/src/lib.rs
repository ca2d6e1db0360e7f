//! What flashfork's programs share on a terminal. `flashfork` and `flashfork-bench` are one command to whoever types
//! it: they say the same things in the same way, complete and describe themselves alike, and find what is installed
//! with them.
//!
//! - [`error`], [`output`]: a failure is one line; a closed pipe is a quiet end.
//! - [`progress`], [`interrupt`]: bars where there is a terminal; the first Ctrl-C keeps what is measured.
//! - [`places`], [`place`]: where things lie, and how a file is written.
//! - [`help`]: completions and man pages, of the parser that `--help` is of.
//! - [`size`], [`table`]: figures as people write and read them.

pub mod error;
pub mod help;
pub mod interrupt;
pub mod output;
pub mod place;
pub mod places;
pub mod progress;
pub mod size;
pub mod table;

pub use error::CliError;
