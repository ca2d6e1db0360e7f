//! Machines that boot, and start the database, each for one application.

use std::fs::File;
use std::time::{Duration, Instant};

use flashfork_proto::shape::Shape;

use super::found::{Found, Node, What};
use super::guest::{self, greeting};
use super::{APPS, MEMORY_MIB, Setup};
use crate::subjects::held::mapped;
use crate::subjects::vm_host::{MemoryPages, linux, shape};
use flashfork_measure::BenchError;

pub(super) fn boots(setup: &Setup<'_>, found: &mut Found) -> Result<(), BenchError> {
    let whole = setup.disks.join("whole");
    let disk = File::open(&whole).map_err(|error| BenchError::system(format!("open {}", whole.display()), error))?;
    let shape = Shape { disk: true, ..shape(u64::from(MEMORY_MIB) << 20, MemoryPages::Small.of_shape()) };
    let before = setup.used()?;
    let mut all = Duration::ZERO;
    let mut alive = Vec::new();
    for app in APPS {
        let held = setup.used()?;
        let start = Instant::now();
        let shell = setup.host.shell(shape)?;
        linux::boot(&shell, shape, &setup.guest, "", Some(&disk))?;
        let mut agent = linux::until_answers(&shell)?;
        guest::run(&mut agent, &guest::mount_whole(app), "")?;
        guest::run(&mut agent, guest::START_DATABASE, "")?;
        guest::run(&mut agent, guest::RUN_APPLICATION, &greeting(app))?;
        found.took(Node::Application, start.elapsed());
        all += start.elapsed();
        found.add(Node::Application, What::Own, setup.used()? - held);
        found.add(Node::Application, What::Mapped, mapped(shell.pid())? as f64);
        alive.push(shell);
    }
    found.took(Node::All, all);
    found.add(Node::All, What::Own, setup.used()? - before);
    Ok(())
}
