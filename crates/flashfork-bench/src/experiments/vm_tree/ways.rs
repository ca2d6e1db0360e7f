//! The tree of templates, a template for each application, and a boot for each.

use std::fs::File;

use flashfork_proto::{
	api::{Clone, Forked, Template},
	shape::Shape,
};

use super::{
	APPS, MEMORY_MIB, Setup,
	daemon::Daemon,
	found::{ALL, APPLICATION, DATABASE, Found, KERNEL, MAPPED, OWN, SHARED, START},
};
use crate::{
	prelude::*,
	subjects::{
		held::mapped,
		vm_host::{
			MemoryPages,
			linux::{self, run},
			shape,
		},
	},
};

/// Ends when the database has loaded its keys.
const START_DATABASE: &str = "sh /db/start";
/// The application asks the database, and says its name and the answer.
const RUN_APPLICATION: &str = "sh /app/run";

fn greeting(app: &str) -> String {
	format!("{app}: hello\n")
}

/// One kernel, one database.
pub fn tree(setup: &Setup<'_>, found: &mut Found) -> Result {
	all(setup, found, |trees| {
		trees.kernel("kernel")?;
		trees.database("kernel", "database")?;
		APPS.iter().map(|app| trees.application("database", app)).collect()
	})
}

/// A kernel and a database for each application.
pub fn separate(setup: &Setup<'_>, found: &mut Found) -> Result {
	all(setup, found, |trees| {
		let one = |app: &&str| {
			let [kernel, database] = ["kernel", "database"].map(|what| format!("{what}-of-{app}"));
			trees.kernel(&kernel)?;
			trees.database(&kernel, &database)?;
			// Nothing else is made of it.
			trees.daemon.ask::<()>(&format!("DELETE /v1/templates/{kernel}"), &Value::Null)?;
			trees.application(&database, app)
		};
		APPS.iter().map(one).collect()
	})
}

/// A boot for each application, and the start of the database.
pub fn boots(setup: &Setup<'_>, found: &mut Found) -> Result {
	let disk = File::open(setup.disks.join("whole")).or_cant("open the disk of machines that boot")?;
	let shape = Shape { disk: true, ..shape(u64::from(MEMORY_MIB) << 20, MemoryPages::Small.of_shape()) };
	let before = setup.used()?;
	let (mut all, mut alive) = (0.0, Vec::new());
	for app in APPS {
		let held = setup.used()?;
		let start = Instant::now();
		let shell = setup.host.shell(shape)?;
		linux::boot(&shell, shape, &setup.guest, "", Some(&disk))?;
		let mut agent = linux::until_answers(&shell)?;
		// Everything where the others have it.
		let mount =
			format!("mkdir /whole && mount -t ext4 /dev/vda /whole && ln -s /whole/db /db && ln -s /whole/{app} /app");
		run(&mut agent, &mount, str::is_empty)?;
		run(&mut agent, START_DATABASE, str::is_empty)?;
		run(&mut agent, RUN_APPLICATION, |said| said == greeting(app))?;
		let took = micros(start);
		all += took;
		found.add(APPLICATION, START, took);
		found.add(APPLICATION, OWN, setup.used()? - held);
		found.add(APPLICATION, MAPPED, mapped(shell.pid())? as f64);
		alive.push(shell);
	}
	found.add(ALL, START, all);
	found.add(ALL, OWN, setup.used()? - before);
	Ok(())
}

struct Trees<'a> {
	setup: &'a Setup<'a>,
	daemon: Daemon,
	found: &'a mut Found,
}

/// Makes applications, and finds what all of it took. Each is looked at when all are alive.
fn all<'a>(
	setup: &'a Setup<'a>,
	found: &'a mut Found,
	make: impl FnOnce(&mut Trees<'a>) -> Result<Vec<Clone>>,
) -> Result {
	let before = setup.used()?;
	let mut trees = Trees { setup, daemon: Daemon::start(setup.here)?, found };
	let begun = Instant::now();
	let applications = make(&mut trees)?;
	let Trees { daemon, found, .. } = trees;
	found.add(ALL, START, micros(begun));
	for Clone { name, template, pid, .. } in applications {
		let of: Template = daemon.ask(&format!("GET /v1/templates/{template}"), &Value::Null)?;
		let now: Clone = daemon.ask(&format!("GET /v1/clones/{name}"), &Value::Null)?;
		found.add(APPLICATION, OWN, now.memory_bytes.unwrap_or_default() as f64);
		found.add(APPLICATION, SHARED, of.resident_bytes as f64);
		found.add(APPLICATION, MAPPED, mapped(pid)? as f64);
	}
	found.add(ALL, OWN, setup.used()? - before);
	Ok(())
}

impl Trees<'_> {
	fn kernel(&mut self, name: &str) -> Result {
		let shape = json!({ "memory_mib": MEMORY_MIB, "vcpus": 1, "pages": "small", "disk": false, "disk_slots": 2 });
		let start = Instant::now();
		let request = json!({ "name": name, "shape": shape, "timeout_s": 600 });
		let made = self
			.daemon
			.ask("POST /v1/templates", &request)
			.map_err(|why| unable!("{why}; where KVM boots no Linux guests: scripts/bench-vm-lab vm-tree"))?;
		self.made(KERNEL, start, &made);
		Ok(())
	}

	/// A clone of a kernel starts it, and is forked to be a template.
	fn database(&mut self, kernel: &str, name: &str) -> Result {
		let start = Instant::now();
		let Clone { name: machine, .. } = self.clone(kernel, &format!("starts-{name}"), "database", "/db")?;
		run(&mut self.daemon.agent(&machine)?, START_DATABASE, str::is_empty)?;
		let fork = json!({ "count": 0, "template": name });
		let forked: Forked = self.daemon.ask(&format!("POST /v1/clones/{machine}/fork"), &fork)?;
		forked.template.iter().for_each(|made| self.made(DATABASE, start, made));
		self.daemon.ask(&format!("DELETE /v1/clones/{machine}"), &Value::Null)
	}

	/// What a template took, its memory, and what of it others have, too.
	fn made(&mut self, node: &'static str, start: Instant, template: &Template) {
		self.found.add(node, START, micros(start));
		self.found.add(node, OWN, (template.resident_bytes - template.shared_bytes) as f64);
		self.found.add(node, SHARED, template.shared_bytes as f64);
	}

	fn application(&mut self, database: &str, app: &str) -> Result<Clone> {
		let start = Instant::now();
		let clone = self.clone(database, app, app, "/app")?;
		run(&mut self.daemon.agent(app)?, RUN_APPLICATION, |said| said == greeting(app))?;
		self.found.add(APPLICATION, START, micros(start));
		Ok(clone)
	}

	fn clone(&self, template: &str, name: &str, disk: &str, mount: &str) -> Result<Clone> {
		let disk = json!({ "image": self.setup.disks.join(disk), "mount": mount });
		let request = json!({ "name": name, "disks": [disk] });
		let mut made: Vec<Clone> = self.daemon.ask(&format!("POST /v1/templates/{template}/clones"), &request)?;
		made.pop().ok_or_else(|| unable!("the VM daemon made no clone"))
	}
}
