//! Disks that clones are given at their claim: there for their guests, their forks and rollbacks, and refused when they
//! can't be what was asked for.

#[path = "common/daemon.rs"]
mod client;
mod common;

use client::{Daemon, idler, restart, teller, tiny, told};
use flashfork_proto::{
	api::Template,
	signal::{self, AttachedDisk},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
	fs::{self, File},
	path::{Path, PathBuf},
	time::{Duration, SystemTime},
};
use vm_memory::{Bytes, FileOffset, VolatileMemory, mmap::MmapRegion};

const BYTES: u64 = 1 << 20;

fn image(directory: &Path, name: &str) -> PathBuf {
	let path = directory.join(name);
	File::create(&path).unwrap().set_len(BYTES).unwrap();
	path
}

/// A template with so many slots.
fn slots(daemon: &Daemon, name: &str, code: Vec<u8>, slots: u8) {
	let mut request = tiny(name, code);
	request["shape"]["disk_slots"] = json!(slots);
	let template: Template = daemon.post("/v1/templates", &request);
	assert_eq!(template.shape.disk_slots, slots);
}

fn with(disks: Value) -> Value {
	json!({ "wait": false, "disks": disks })
}

/// What the guest of a clone is told of disks that it didn't have.
fn news(daemon: &Daemon, clone: &str, count: usize, paths: usize) -> Vec<AttachedDisk> {
	signal::Forked::decode(&told(daemon, clone)[..136 + 12 * count + paths]).unwrap().disks
}

#[test]
fn clones_and_forks_are_given_disks_one_after_the_other_and_keep_them() {
	let Some(mut daemon) = Daemon::start() else { return };
	let [first, second] = ["a", "b"].map(|name| image(daemon.dir.path(), name));
	slots(&daemon, "t", teller(), 2);
	daemon.clones("t", &with(json!([{ "image": first, "mount": "/srv", "read_only": true }])));
	let disk = AttachedDisk { number: 0, read_only: true, sectors: BYTES / 512, mount: "/srv".into() };
	assert_eq!(news(&daemon, "t-1", 1, 4), [disk]);
	// The tree grows: a template of it has the first disk, and its clones get the second.
	let request = json!({ "now": true, "count": 0, "template": "warm" });
	daemon.fork("t-1", &request);
	daemon.refuses_clones("warm", &with(json!([{ "image": first }, { "image": second }])), "1 empty slots");
	daemon.clones("warm", &with(json!([{ "image": second }])));
	// So do those who were left by another daemon.
	restart(&mut daemon, Signal::KILL);
	let request = json!({ "now": true, "count": 0, "template": "full" });
	daemon.fork("warm-2", &request);
	daemon.refuses_clones("full", &with(json!([{ "image": second }])), "0 empty slots");
	// Saved and loaded it has both.
	let directory = daemon.dir.path().join("saved");
	daemon.save("full", &directory);
	assert_eq!(fs::metadata(directory.join("disk-1")).unwrap().len(), BYTES);
	daemon.load("again", &directory);
	let clone = daemon.clone_of("again");
	daemon.refuses_fork(&clone.name, &json!({ "now": true, "disks": [{ "image": first }] }), "0 empty slots");
	daemon.roll_back(&clone.name);
	restart(&mut daemon, Signal::KILL);
	daemon.roll_back("t-1");
	assert_eq!(news(&daemon, "t-1", 1, 4)[0].mount, "/srv");
	// A fork is given its own, and its parent is not.
	let request = json!({ "now": true, "disks": [{ "image": second }] });
	let forked = daemon.fork("t-1", &request);
	assert_eq!(forked.clones.len(), 1);
}

/// A shell that is primed has no room for a disk: another is claimed, and the primed one is there for the next.
#[test]
fn disks_take_no_primed_shell() {
	let Some(daemon) = Daemon::start() else { return };
	let image = image(daemon.dir.path(), "a");
	slots(&daemon, "t", idler(), 1);
	let primed = |body: &Value| {
		let clone = daemon.clones("t", body).remove(0);
		daemon.settle_with(clone.name[2..].parse().unwrap());
		clone.claim.map == 0
	};
	let (with, without) = (with(json!([{ "image": image }])), json!({ "wait": false }));
	assert_eq!([&without, &with, &without].map(primed), [false, false, true]);
}

#[test]
fn disks_that_can_not_be_given_are_told_in_a_line() {
	let Some(daemon) = Daemon::start() else { return };
	let (good, odd) = (image(daemon.dir.path(), "a"), image(daemon.dir.path(), "odd"));
	File::options().write(true).open(&odd).unwrap().set_len(BYTES + 1).unwrap();
	slots(&daemon, "t", idler(), 1);
	daemon.template("none", idler());
	let path = "/v1/templates/t/clones";
	let refused = |disk: Value, why| daemon.refused("POST", path, &with(json!([disk])), why);
	refused(json!({ "image": "/nowhere/x" }), "/nowhere/x");
	refused(json!({ "image": odd }), "512-byte sectors");
	refused(json!({ "image": daemon.dir.path() }), "neither a file nor a block device");
	for mount in ["srv", "/", "", "/a\nb", &format!("/{}", "x".repeat(255))] {
		refused(json!({ "image": good, "mount": mount }), "is no place for a disk");
	}
	let long = json!({ "wait": false, "job": "x".repeat(3950), "disks": [{ "image": good }] });
	daemon.refused("POST", path, &long, "a job of 3950 bytes: 3948 fit");
	daemon.refuses_clones("none", &with(json!([{ "image": good }])), "0 empty slots");
	assert_eq!(daemon.clone_of("t").name, "t-1", "none of that took a number");
	let fork = json!({ "now": true, "disks": [{ "image": good, "mount": "/srv" }] });
	daemon.refuses_fork("t-1", &fork, "leave out --now");
}

/// Whoever wrote to an image, and set its times back, changed the disks of clones without a word.
#[test]
fn an_image_that_has_changed_is_refused_by_its_name() {
	let Some(daemon) = Daemon::start() else { return };
	let [own, given] = ["own", "given"].map(|name| image(daemon.dir.path(), name));
	let mut request = tiny("t", idler());
	request["shape"]["disk"] = json!(true);
	request["shape"]["disk_slots"] = json!(1);
	request["disk"] = json!(own);
	daemon.post::<Template>("/v1/templates", &request);
	daemon.clones("t", &with(json!([{ "image": given }])));
	let change = |path: &Path| {
		let before = fs::metadata(path).unwrap().modified().unwrap();
		// The kernel's clock for files goes by ticks.
		while SystemTime::now().duration_since(before).unwrap() < Duration::from_millis(20) {}
		let file = File::options().write(true).open(path).unwrap();
		std::os::unix::fs::FileExt::write_all_at(&file, b"changed", 0).unwrap();
		file.set_modified(before).unwrap();
	};
	change(&given);
	let why = format!("{} has changed", given.display());
	daemon.refuses_rollback("t-1", &why);
	daemon.refuses_fork("t-1", &json!({ "now": true }), &why);
	// Those that come now see it as it is.
	daemon.clones("t", &with(json!([{ "image": given }])));
	change(&own);
	let why = format!("{} has changed", own.display());
	daemon.refuses_clones("t", &json!({ "wait": false }), &why);
	daemon.refuses_rollback("t-2", &why);
	let directory = daemon.dir.path().join("saved");
	daemon.refused("POST", "/v1/templates/t/save", &json!({ "directory": directory }), &why);
	assert!(!directory.exists());
}

/// A page that is dirty is written on without a fault, and so without the file's times.
#[test]
fn an_image_that_changes_through_a_mapping_that_was_written_to_is_found_out() {
	let Some(daemon) = Daemon::start() else { return };
	slots(&daemon, "t", idler(), 1);
	// Not in /tmp, which may be a tmpfs: that doesn't notice.
	let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
	let image = image(dir.path(), "image");
	let file = File::options().read(true).write(true).open(&image).unwrap();
	let mapped = MmapRegion::<()>::from_file(FileOffset::new(file, 0), BYTES as usize).unwrap();
	mapped.as_volatile_slice().write_slice(b"before", 0).unwrap();
	daemon.clones("t", &with(json!([{ "image": image }])));
	let seen = SystemTime::now();
	while SystemTime::now().duration_since(seen).unwrap() < Duration::from_millis(20) {}
	mapped.as_volatile_slice().write_slice(b"behind", 0).unwrap();
	let why = format!("{} has changed", image.display());
	daemon.refuses_rollback("t-1", &why);
}
