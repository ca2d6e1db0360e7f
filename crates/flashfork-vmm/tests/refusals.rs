//! What the daemon refuses, what it runs out of, and who may run it: one line each, and nothing left behind.

#[path = "common/daemon.rs"]
mod client;
mod common;

use client::{Daemon, command, eventually, idler, tiny};
use flashfork_proto::api::{self};
use rustix::{
	mount::{MountFlags, MountPropagationFlags, mount, mount_change},
	process::{Gid, Resource, Rlimit, Uid, geteuid, setrlimit},
	thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use serde_json::{Value, json};
use std::{
	os::unix::{fs::MetadataExt, net::UnixStream, process::CommandExt},
	path::PathBuf,
};

#[test]
fn refusals_say_what_and_what_to_do() {
	let Some(daemon) = Daemon::with_idler() else { return };
	daemon.refuses_template(&tiny("t", idler()), "choose another name");
	daemon.refuses_template(&tiny("../x", idler()), "is no name");
	daemon.refuses_clones("u", &json!({}), "flashfork vm template ls");
	daemon.refuses_clones("t", &json!({ "count": 0 }), "ask for 1 to");
	daemon.refuses_clones("t", &json!({ "cuont": 1 }), "cuont");
	daemon.refused("DELETE", "/v1/clones/nobody", &Value::Null, "no clone nobody");
	daemon.refused("GET", "/v2", &Value::Null, "version 1");
	let mut huge = tiny("big", idler());
	huge["shape"]["memory_mib"] = json!(1 << 20);
	daemon.refuses_template(&huge, "give less");
	let mut missing = tiny("k", idler());
	missing["tiny"] = Value::Null;
	missing["kernel"] = json!("/no/such/kernel");
	daemon.refuses_template(&missing, "/no/such/kernel");
	let mut diskless = tiny("d", idler());
	diskless["disk_read_only"] = json!(true);
	daemon.refuses_template(&diskless, "needs an image");
	diskless["disk"] = json!("/dev/null");
	daemon.refuses_template(&diskless, "a shape with a disk");
	diskless["shape"]["disk"] = json!(true);
	daemon.refuses_template(&diskless, "neither a file nor a block device");
	let empty = tempfile::NamedTempFile::new().unwrap();
	diskless["disk"] = json!(empty.path());
	daemon.refuses_template(&diskless, "0 bytes");
	diskless["disk_serial"] = json!("a serial number that is too long");
	daemon.refuses_template(&diskless, "no serial number");
	daemon.clones("t", &json!({ "wait": false, "name": "c" }));
	daemon.refuses_clones("t", &json!({ "wait": false, "name": "c" }), "already");
	daemon.refused("DELETE", "/v1/templates/t", &Value::Null, "has 1 clone,");
	daemon.limited("l", idler(), 1);
	let nothing_made = json!({ "wait": false, "name": "c" });
	daemon.refuses_clones("l", &nothing_made, "already");
	daemon.clone_of("l");
	daemon.refuses_clones("l", &json!({ "wait": false }), "make a new one");
	daemon.remove_clone("c");
	// At once, whether its process has ended or not.
	daemon.remove_template("t");
}

#[test]
fn without_kvm_the_daemon_says_so() {
	let dir = tempfile::tempdir().unwrap();
	let socket = dir.path().join("vmd.sock");
	let mut command = command(&socket);
	// SAFETY: between fork and exec, system calls only: what is open or may be opened by name is no /dev/kvm.
	unsafe {
		command.pre_exec(|| {
			rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
			Ok(mount("none", "/dev", "tmpfs", MountFlags::empty(), None)?)
		});
	}
	let Ok(child) = command.spawn() else { return eprintln!("skipped: no user namespaces") };
	let daemon = Daemon { child, socket, dir };
	eventually(|| UnixStream::connect(&daemon.socket).is_ok());
	let host: api::Host = daemon.post("/v1/host", &Value::Null);
	assert!(host.kvm == api::HostKvm::None && host.detail.contains("modprobe"), "{host:?}");
	daemon.refuses_template(&tiny("t", idler()), "cannot open /dev/kvm");
	assert!(daemon.templates().is_empty());
}

#[test]
fn what_a_host_can_do_is_answered_without_a_download() {
	let mut cache = PathBuf::new();
	let daemon = Daemon::start_with(|command, dir| {
		cache = dir.join("cache");
		command.arg("--cache").arg(&cache);
	});
	let Some(daemon) = daemon else { return };
	let host: api::Host = daemon.post("/v1/host", &Value::Null);
	assert!(host.kvm == api::HostKvm::Untried && host.detail.contains("flashfork vm run"), "{host:?}");
	assert!(!cache.exists());
}

#[test]
fn what_linux_guests_lack_says_nothing_of_kvm() {
	let daemon = Daemon::start_with(|command, dir| {
		let kernel = dir.join("cache/kernels/6.12.1/boot/vmlinuz-6.12.1");
		std::fs::create_dir_all(kernel.parent().unwrap()).and_then(|()| std::fs::write(kernel, "")).unwrap();
		command.arg("--cache").arg(dir.join("cache")).arg("--agent").arg(dir.join("agent"));
	});
	let Some(daemon) = daemon else { return };
	let host: api::Host = daemon.post("/v1/host", &Value::Null);
	assert!(host.kvm == api::HostKvm::Untried && host.detail.contains("scripts/build-agent"), "{host:?}");
}

#[test]
fn a_full_disk_is_one_line_and_leaves_nothing_behind() {
	if !geteuid().is_root() {
		return eprintln!("skipped: mounting a small file system needs root");
	}
	let mut small = PathBuf::new();
	let daemon = Daemon::start_with(|command, dir| {
		small = dir.join("small");
		std::fs::create_dir(&small).unwrap();
		let place = small.clone();
		// SAFETY: between fork and exec, system calls only.
		unsafe {
			command.pre_exec(move || {
				rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)?;
				mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
				Ok(mount("none", &place, "tmpfs", MountFlags::empty(), Some(c"size=8k"))?)
			});
		}
	});
	let Some(daemon) = daemon else { return };
	daemon.template("t", idler());
	let saved = small.join("t");
	daemon.refused("POST", "/v1/templates/t/save", &json!({ "directory": saved }), "No space left on device");
	// As the daemon sees it.
	let root = PathBuf::from(format!("/proc/{}/root", daemon.child.id()));
	let left = std::fs::read_dir(root.join(small.strip_prefix("/").unwrap())).unwrap().count();
	assert_eq!(left, 0, "a draft was left behind");
	let elsewhere = daemon.dir.path().join("saved");
	daemon.save("t", &elsewhere);
	daemon.clone_of("t");
}

#[test]
fn too_little_memory_is_one_line_and_leaves_nothing_behind() {
	// The host has it, the shells may not take it.
	let daemon = Daemon::start_with(|command, _| {
		// SAFETY: a system call.
		unsafe {
			command.pre_exec(|| {
				let limit = Rlimit { current: Some(1 << 30), maximum: Some(1 << 30) };
				Ok(setrlimit(Resource::As, limit)?)
			});
		}
	});
	let Some(daemon) = daemon else { return };
	let mut request = tiny("t", idler());
	request["shape"]["memory_mib"] = json!(1500);
	daemon.refuses_template(&request, "out of memory");
	assert!(daemon.templates().is_empty());
	eventually(|| daemon.shells().is_empty());
	// The name is free, and what fits is made.
	daemon.template("t", idler());
	daemon.clone_of("t");
}

#[test]
fn an_ordinary_user_of_the_group_of_kvm_has_all_of_it() {
	const USER: u32 = 65534;
	if !geteuid().is_root() {
		return eprintln!("skipped: becoming an ordinary user needs root; without it the other tests are this one");
	}
	let group = match std::fs::metadata("/dev/kvm") {
		Ok(kvm) if kvm.mode() & 0o060 == 0o060 => Gid::from_raw(kvm.gid()),
		_ => return eprintln!("skipped: the group of /dev/kvm may not use it"),
	};
	let daemon = Daemon::start_with(|command, dir| {
		std::os::unix::fs::chown(dir, Some(USER), Some(USER)).unwrap();
		// SAFETY: system calls only.
		unsafe {
			command.pre_exec(move || {
				set_thread_groups(&[group])?;
				set_thread_res_gid(Gid::from_raw(USER), Gid::from_raw(USER), Gid::from_raw(USER))?;
				Ok(set_thread_res_uid(Uid::from_raw(USER), Uid::from_raw(USER), Uid::from_raw(USER))?)
			});
		}
	});
	let Some(daemon) = daemon else { return };
	let (status, body) = daemon.ask("POST", "/v1/templates", &tiny("t", idler()));
	if body.contains("user namespaces") {
		return eprintln!("skipped: {body}");
	}
	assert_eq!(status, 200, "{body}");
	let clone = daemon.clone_of("t");
	let of_shell = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", clone.pid)).unwrap();
	let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
	assert_eq!(words(&of_shell("uid_map")), ["65534", "65534", "1"], "a user namespace of its own");
	let status = of_shell("status");
	let line = |name: &str| words(status.lines().find_map(|line| line.strip_prefix(name)).unwrap());
	assert_eq!(line("CapPrm:"), ["0000000000000000"]);
	assert_eq!(line("Seccomp:"), ["2"]);
	let rolled = daemon.roll_back("t-1");
	assert!(rolled.generation != clone.generation && rolled.memory_bytes.is_some(), "{rolled:?}");
	let directory = daemon.dir.path().join("saved");
	daemon.save("t", &directory);
	daemon.load("u", &directory);
	daemon.clone_of("u");
	// Whoever else comes finds the socket closed to him.
	assert_eq!(std::fs::metadata(&daemon.socket).unwrap().mode() & 0o777, 0o600);
}
