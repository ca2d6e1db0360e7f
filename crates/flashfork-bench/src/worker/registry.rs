//! Which subjects a worker process can be started for.

use super::serve::Serve;

/// The server of the subject `name`.
pub(super) fn find(name: &str) -> Option<Serve> {
    let subjects: &[(&str, Serve)] = &[];
    subjects
        .iter()
        .find(|&&(known, _)| known == name)
        .map(|&(_, serve)| serve)
}
