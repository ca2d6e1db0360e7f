//! What ends a command with exit code 1 and one line.

use std::io::ErrorKind;
use std::path::PathBuf;

/// A failure in words: what, why, what to do.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// An experiment failed.
    #[error(transparent)]
    Bench(#[from] flashfork_measure::BenchError),
    /// The lab failed.
    #[error(transparent)]
    Lab(#[from] flashfork_lab::LabError),
    /// The cost model could not be made.
    #[error(transparent)]
    Seal(#[from] flashfork::SealError),
    /// Something with templates and their clones failed.
    #[error(transparent)]
    Templates(#[from] flashfork_templates::Error),
    /// A file operation failed.
    #[error("can't {what} {}: {source}", path.display())]
    File {
        /// The verb.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Anything else, already in words.
    #[error("{0}")]
    Unable(String),
}

impl CliError {
    /// For `map_err` on file operations.
    pub fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> CliError {
        let path = path.into();
        move |source| CliError::File { what, path, source }
    }

    /// Adds what to do where the system denies it.
    pub fn if_denied(self, cure: &str) -> CliError {
        match &self {
            CliError::File { source, .. }
                if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
            {
                CliError::Unable(format!("{self}; {cure}"))
            }
            _ => self,
        }
    }
}
