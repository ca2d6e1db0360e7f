//! The tree of templates, and a template for each application.

use std::time::Instant;

use flashfork_proto::api::{Clone, Forked, Template};
use serde_json::{Value, json};

use super::daemon::Daemon;
use super::found::{Found, Node, What};
use super::guest::{self, greeting};
use super::{APPS, MEMORY_MIB, Setup};
use crate::subjects::held::mapped;
use flashfork_measure::BenchError;

/// One kernel, one database.
pub(super) fn tree(setup: &Setup<'_>, found: &mut Found) -> Result<(), BenchError> {
    all(setup, found, |daemon, found| {
        kernel(daemon, "kernel", found)?;
        database(setup, daemon, "kernel", "database", found)?;
        APPS.iter().map(|app| application(setup, daemon, "database", app, found)).collect()
    })
}

/// A kernel and a database for each application.
pub(super) fn separate(setup: &Setup<'_>, found: &mut Found) -> Result<(), BenchError> {
    all(setup, found, |daemon, found| {
        let one = |app: &&str| {
            let [kernel_, database_] = ["kernel", "database"].map(|what| format!("{what}-of-{app}"));
            kernel(daemon, &kernel_, found)?;
            database(setup, daemon, &kernel_, &database_, found)?;
            // Nothing else is made of it.
            daemon.delete(&format!("/v1/templates/{kernel_}"))?;
            application(setup, daemon, &database_, app, found)
        };
        APPS.iter().map(one).collect()
    })
}

/// Applications with a daemon of their own, and what all of it took. Each is looked at when all are alive.
fn all(
    setup: &Setup<'_>,
    found: &mut Found,
    make: impl FnOnce(&Daemon, &mut Found) -> Result<Vec<Clone>, BenchError>,
) -> Result<(), BenchError> {
    let before = setup.used()?;
    let daemon = Daemon::start(setup.here)?;
    let begun = Instant::now();
    let applications = make(&daemon, found)?;
    found.took(Node::All, begun.elapsed());
    for Clone { name, template, pid, .. } in applications {
        let of: Template = daemon.ask("GET", &format!("/v1/templates/{template}"), &Value::Null)?;
        let now: Clone = daemon.ask("GET", &format!("/v1/clones/{name}"), &Value::Null)?;
        found.add(Node::Application, What::Own, now.memory_bytes.unwrap_or_default() as f64);
        found.add(Node::Application, What::Shared, of.resident_bytes as f64);
        found.add(Node::Application, What::Mapped, mapped(pid)? as f64);
    }
    found.add(Node::All, What::Own, setup.used()? - before);
    Ok(())
}

fn kernel(daemon: &Daemon, name: &str, found: &mut Found) -> Result<(), BenchError> {
    let shape = json!({ "memory_mib": MEMORY_MIB, "vcpus": 1, "pages": "small", "disk": false, "disk_slots": 2 });
    let start = Instant::now();
    let request = json!({ "name": name, "shape": shape, "timeout_s": 600 });
    let made: Template = daemon.ask("POST", "/v1/templates", &request).map_err(|why| {
        BenchError::Unable(format!("{why}; where KVM boots no Linux guests: scripts/bench-vm-lab vm-tree"))
    })?;
    found.took(Node::Kernel, start.elapsed());
    memory(&made, Node::Kernel, found);
    Ok(())
}

/// A clone of a kernel starts it, and is forked to be a template.
fn database(setup: &Setup<'_>, daemon: &Daemon, kernel: &str, name: &str, found: &mut Found) -> Result<(), BenchError> {
    let start = Instant::now();
    let machine = clone(setup, daemon, kernel, &format!("starts-{name}"), "database", "/db")?.name;
    guest::run(&mut daemon.agent(&machine)?, guest::START_DATABASE, "")?;
    let forked: Forked =
        daemon.ask("POST", &format!("/v1/clones/{machine}/fork"), &json!({ "count": 0, "template": name }))?;
    found.took(Node::Database, start.elapsed());
    daemon.delete(&format!("/v1/clones/{machine}"))?;
    forked.template.iter().for_each(|made| memory(made, Node::Database, found));
    Ok(())
}

fn application(
    setup: &Setup<'_>,
    daemon: &Daemon,
    database: &str,
    app: &str,
    found: &mut Found,
) -> Result<Clone, BenchError> {
    let start = Instant::now();
    let clone = clone(setup, daemon, database, app, app, "/app")?;
    guest::run(&mut daemon.agent(app)?, guest::RUN_APPLICATION, &greeting(app))?;
    found.took(Node::Application, start.elapsed());
    Ok(clone)
}

/// A clone that is ready, with a disk.
fn clone(
    setup: &Setup<'_>,
    daemon: &Daemon,
    template: &str,
    name: &str,
    disk: &str,
    mount: &str,
) -> Result<Clone, BenchError> {
    let disk = json!({ "image": setup.disks.join(disk), "mount": mount });
    let request = json!({ "name": name, "disks": [disk] });
    let mut made: Vec<Clone> = daemon.ask("POST", &format!("/v1/templates/{template}/clones"), &request)?;
    made.pop().ok_or_else(|| BenchError::Unable("the VM daemon made no clone".into()))
}

/// What a template takes, and what of it others have, too.
fn memory(template: &Template, node: Node, found: &mut Found) {
    found.add(node, What::Own, (template.resident_bytes - template.shared_bytes) as f64);
    found.add(node, What::Shared, template.shared_bytes as f64);
}
