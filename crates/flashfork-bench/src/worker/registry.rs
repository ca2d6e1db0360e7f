//! Which subjects a worker process can be started for.

use super::serve::{Serve, entry};
use crate::fork::{ForkSubject, SealingSubject};

/// The server of the subject `name`.
pub(super) fn find(name: &str) -> Option<Serve> {
    let subjects = [entry::<ForkSubject>(), entry::<SealingSubject>()];
    subjects.into_iter().find(|&(known, _)| known == name).map(|(_, serve)| serve)
}
