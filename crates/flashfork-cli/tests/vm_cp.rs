//! `flashfork vm cp` as users meet it, and as a hostile guest does.

mod common;
#[path = "common/guest.rs"]
mod guest;

use flashfork_proto::{
	Preamble, Protocol,
	agent::{Hello, MAX_FRAME, Piece, Reply, Request, Stamp},
	frame,
};
use guest::Guest;
use serde_bytes::ByteBuf;
use std::{
	fs,
	os::unix::{
		fs::{PermissionsExt, symlink},
		net::UnixListener,
	},
	path::{Path, PathBuf},
	process::{Command, Output},
};

fn cp(guest: &Guest, here: &Path, words: [&str; 2]) -> Output {
	guest.vm().current_dir(here).arg("cp").args(words).output().unwrap()
}

#[track_caller]
fn done(output: &Output) {
	assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

/// The lines that were said, at exit status 1.
#[track_caller]
fn failed(output: &Output) -> Vec<String> {
	assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
	String::from_utf8(output.stderr.clone()).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn files_and_directories_go_both_ways() {
	let guest = Guest::start();
	let dir = tempfile::tempdir().unwrap();
	let (here, there) = (dir.path().join("here"), dir.path().join("there"));
	fs::create_dir_all(here.join("app/sub")).unwrap();
	fs::create_dir(&there).unwrap();
	let large: Vec<u8> = (0..20_000_003_u32).map(|i| (i ^ (i >> 8)) as u8).collect();
	fs::write(here.join("app/sub/large"), &large).unwrap();
	fs::write(here.join("app/run"), "#!/bin/sh\n").unwrap();
	fs::set_permissions(here.join("app/run"), fs::Permissions::from_mode(0o750)).unwrap();
	symlink("run", here.join("app/link")).unwrap();
	let in_guest = |path: &str| format!("clone:{}", there.join(path).display());
	// Into a directory that is there, then as what it is named.
	done(&cp(&guest, &here, ["app", &in_guest("")]));
	done(&cp(&guest, &here, [&in_guest("app"), "back"]));
	for copied in [there.join("app"), here.join("back")] {
		assert!(fs::read(copied.join("sub/large")).unwrap() == large);
		assert_eq!(fs::metadata(copied.join("run")).unwrap().permissions().mode() & 0o777, 0o750);
		assert_eq!(fs::read_link(copied.join("link")).unwrap(), Path::new("run"));
	}
	done(&cp(&guest, &here, [&in_guest("app/run"), "."]));
	done(&cp(&guest, &here, ["./run", &in_guest("walk")]));
	done(&cp(&guest, &here, [&in_guest("app/."), "back/sub"]));
	assert_eq!(fs::read_to_string(there.join("walk")).unwrap(), "#!/bin/sh\n");
	assert!(here.join("run").exists() && here.join("back/sub/sub/large").exists());
}

#[test]
fn what_can_not_be_copied_is_said_in_one_line_each_and_the_rest_is_copied() {
	let guest = Guest::start();
	let dir = tempfile::tempdir().unwrap();
	let (here, there) = (dir.path().join("here"), dir.path().join("there"));
	fs::create_dir_all(here.join("app")).unwrap();
	fs::create_dir_all(there.join("app/b")).unwrap();
	for name in ["a", "b", "c"] {
		fs::write(here.join("app").join(name), name).unwrap();
	}
	let _socket = UnixListener::bind(here.join("app/socket")).unwrap();
	let in_guest = |path: &str| format!("clone:{}", there.join(path).display());
	// Here a socket can't be read, there a directory is in the way.
	let mut said = failed(&cp(&guest, &here, ["app", &in_guest("")]));
	said.sort();
	assert_eq!(said.len(), 2, "{said:?}");
	assert!(said[0].contains("there/app/b: is there already and is a directory"), "{said:?}");
	assert!(said[1].contains("app/socket: is neither a file nor"), "{said:?}");
	assert_eq!(fs::read_to_string(there.join("app/c")).unwrap(), "c");
	// A link of the guest's that leads away.
	symlink("/etc/passwd", there.join("app/bad")).unwrap();
	let said = failed(&cp(&guest, &here, [&in_guest("app"), "back"]));
	assert!(said.len() == 1 && said[0].contains("back/bad: a link that leads out of the copy"), "{said:?}");
	assert_eq!(fs::read_to_string(here.join("back/a")).unwrap(), "a");
	for (from, to, says) in [
		(in_guest("none"), "x".to_owned(), "clone clone: the guest has no "),
		(in_guest("app"), "none/x".to_owned(), "can't copy to none/x: "),
		("none".to_owned(), in_guest(""), "can't copy none: "),
		("app".to_owned(), in_guest("none/x"), "clone clone: the guest has no "),
		("/dev/null".to_owned(), in_guest(""), "it is neither a file nor a directory"),
	] {
		let said = failed(&cp(&guest, &here, [&from, &to]));
		assert!(said.len() == 1 && said[0].starts_with("flashfork: ") && said[0].contains(says), "{said:?}");
	}
}

#[test]
fn a_guest_that_is_gone_in_the_middle_leaves_no_half_of_a_file() {
	let dir = tempfile::tempdir().unwrap();
	let file = Piece::File { name: ByteBuf::from("x"), mode: 0o644 };
	let guest = hostile(vec![file, Piece::Bytes(ByteBuf::from("half"))]);
	let said = failed(&cp(&guest, dir.path(), ["clone:/x", "."]));
	assert!(said.len() == 1 && said[0].contains("closed the connection"), "{said:?}");
	assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_hostile_guest_writes_nowhere_but_into_the_copy() {
	let directory = |name: &str| Piece::Directory { name: ByteBuf::from(name), mode: 0o777 };
	let file = |name: &str| Piece::File { name: ByteBuf::from(name), mode: 0o6777 };
	let link = |name: &str, target: &str| Piece::Link { name: ByteBuf::from(name), target: ByteBuf::from(target) };
	let bad = || Piece::Bytes(ByteBuf::from("bad"));
	let dir = tempfile::tempdir().unwrap();
	let (here, outside) = (dir.path().join("here"), dir.path().join("outside"));
	fs::create_dir(&outside).unwrap();
	for pieces in [
		vec![directory("x"), file("../bad"), bad(), Piece::FileEnd],
		vec![directory("x"), file("/tmp/bad"), bad(), Piece::FileEnd],
		vec![directory("x"), directory(".."), file("bad"), bad(), Piece::FileEnd],
		// By a link that came before, of each kind.
		vec![directory("x"), link("l", "../outside"), directory("l"), file("bad"), bad(), Piece::FileEnd],
		vec![directory("x"), link("l", "/"), directory("l"), file("bad"), bad(), Piece::FileEnd],
		vec![directory("x"), link("s", "."), link("l", "s/../../outside"), directory("l"), file("bad"), bad()],
		vec![link("l", "outside"), file("l"), bad(), Piece::FileEnd],
		// Its name is not the guest's to choose.
		vec![file("../../bad"), bad(), Piece::FileEnd, file("bad")],
		// Messages of no kind, and lines that would be a terminal's.
		vec![directory("x"), Piece::Trouble("\x1b]0;x\x07\n\nflashfork: all is well".into()), Piece::Leave, Piece::End],
		vec![Piece::End],
		vec![directory("x"), Piece::Leave, Piece::Leave],
	] {
		fs::create_dir(&here).unwrap();
		let guest = hostile(pieces.clone());
		let said = failed(&cp(&guest, &here, ["clone:/asked", "."]));
		assert!(
			said.iter().all(|line| line.starts_with("flashfork: ") && !line.contains(char::is_control)),
			"{said:?}"
		);
		assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{pieces:?}");
		let mut found: Vec<PathBuf> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
		found.sort();
		assert_eq!(found, [here.as_path(), &outside], "{pieces:?}");
		// At most what was asked for.
		let found: Vec<_> = fs::read_dir(&here).unwrap().map(|entry| entry.unwrap().file_name()).collect();
		assert!(found.is_empty() || found == ["asked"], "{pieces:?}: {found:?}");
		fs::remove_dir_all(&here).unwrap();
	}
	assert!(!Path::new("/tmp/bad").exists());
}

/// A guest whose agent answers whatever is asked with `pieces`, and hangs up.
fn hostile(pieces: Vec<Piece>) -> Guest {
	let dir = tempfile::tempdir().unwrap();
	let listener = UnixListener::bind(dir.path().join("agent.sock")).unwrap();
	std::thread::spawn(move || {
		for socket in listener.incoming() {
			let mut socket = socket.unwrap();
			let now = Stamp { seconds: 0, nanoseconds: 0 };
			let hello = Hello { agent: "0".into(), boot_id: [0; 16], monotonic_ns: 0, realtime: now };
			let greeted = Preamble(Protocol::Agent).send(&mut socket).is_ok()
				&& frame::write(&mut socket, &Reply::Hello(hello), MAX_FRAME).is_ok()
				&& Preamble(Protocol::Agent).expect(&mut socket).is_ok()
				&& frame::read::<Request>(&mut socket, MAX_FRAME).is_ok_and(|request| request.is_some());
			if greeted {
				for piece in &pieces {
					let _ = frame::write(&mut socket, &Reply::Piece(piece.clone()), MAX_FRAME);
				}
			}
		}
	});
	// In place of an agent's process.
	Guest::with(dir, Command::new("sleep").arg("1000").spawn().unwrap())
}
