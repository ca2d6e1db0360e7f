//! Which subjects a worker process can be started for.

use super::serve::{Serve, entry};
use crate::access::AccessSubject;
use crate::clones::ClonesSubject;
use crate::cow_model::CowSubject;
use crate::creation::CreationSubject;
use crate::forecasts::ShapeSubject;
use crate::fork::{ForkSubject, SealingSubject};
use crate::policy::PolicySubject;
use crate::rollback::RollbackSubject;
use crate::seal_threads::SealThreadsSubject;
use crate::unit_test::UnitTestSubject;

/// The server of the subject `name`.
pub(super) fn find(name: &str) -> Option<Serve> {
    let subjects = [
        entry::<ForkSubject>(),
        entry::<SealingSubject>(),
        entry::<UnitTestSubject>(),
        entry::<CreationSubject>(),
        entry::<CowSubject>(),
        entry::<PolicySubject>(),
        entry::<AccessSubject>(),
        entry::<ClonesSubject>(),
        entry::<RollbackSubject>(),
        entry::<SealThreadsSubject>(),
        entry::<ShapeSubject>(),
    ];
    subjects.into_iter().find(|&(known, _)| known == name).map(|(_, serve)| serve)
}
