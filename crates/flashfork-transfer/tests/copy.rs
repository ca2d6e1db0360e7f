//! Copies: what is sent arrives as it was, and what a hostile sender sends arrives nowhere else.

use flashfork_proto::{
	agent::{MAX_FRAME, Piece},
	frame,
};
use flashfork_transfer::{Destination, MOST_NESTED, Receiver, Sender, Source, name_of};
use serde_bytes::ByteBuf;
use std::{
	fs::{self, Permissions},
	io,
	os::unix::{
		fs::{FileTypeExt, PermissionsExt, symlink},
		net::UnixListener,
	},
	path::Path,
};

/// Copies as `sender` does, and returns what was said; through the messages' encoding, as between machines.
fn copy(from: &Path, to: &Path, sender: Sender) -> io::Result<Vec<String>> {
	let mut receiver = Receiver::new(Destination::find(to, name_of(from))?, sender);
	let mut said = Vec::new();
	Source::open(from)?.send(&mut |piece| {
		let mut stream = Vec::new();
		frame::write(&mut stream, &piece, MAX_FRAME).unwrap();
		let piece = frame::read(&mut stream.as_slice(), MAX_FRAME).unwrap().unwrap();
		said.extend(receiver.take(piece).map_err(io::Error::other)?);
		Ok::<_, io::Error>(())
	})?;
	assert!(receiver.has_ended());
	Ok(said)
}

fn receiver(to: &Path) -> Receiver {
	Receiver::new(Destination::find(to, None).unwrap(), Sender::Guest)
}

fn named(name: &str) -> ByteBuf {
	ByteBuf::from(name)
}

fn directory(name: &str) -> Piece {
	Piece::Directory { name: named(name), mode: 0o755 }
}

fn file(name: &str) -> Piece {
	Piece::File { name: named(name), mode: 0o644 }
}

fn link(name: &str, target: &str) -> Piece {
	Piece::Link { name: named(name), target: named(target) }
}

fn content(text: &str) -> Piece {
	Piece::Bytes(ByteBuf::from(text))
}

fn mode(path: &Path) -> u32 {
	fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Names below `path`, links with what they lead to.
fn tree(path: &Path) -> Vec<String> {
	let mut found = Vec::new();
	for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
		let name = entry.file_name().into_string().unwrap();
		let kind = entry.file_type().unwrap();
		if kind.is_symlink() {
			found.push(format!("{name} -> {}", fs::read_link(entry.path()).unwrap().display()));
		} else if kind.is_dir() {
			found.push(format!("{name}/"));
			found.extend(tree(&entry.path()).into_iter().map(|below| format!("{name}/{below}")));
		} else {
			found.push(name);
		}
	}
	found.sort();
	found
}

#[test]
fn a_tree_arrives_as_it_was() {
	let dir = tempfile::tempdir().unwrap();
	let (from, to) = (dir.path().join("from"), dir.path().join("to"));
	fs::create_dir_all(from.join("sub/empty")).unwrap();
	fs::create_dir(&to).unwrap();
	let large: Vec<u8> = (0..1_000_003_u32).map(|i| (i ^ (i >> 8)) as u8).collect();
	fs::write(from.join("large"), &large).unwrap();
	fs::write(from.join("sub/none"), "").unwrap();
	fs::write(from.join("sub/line\nbreak"), "odd").unwrap();
	symlink("../large", from.join("sub/link")).unwrap();
	for (name, bits) in [("large", 0o640), ("sub/none", 0o755), ("sub/empty", 0o700), ("sub", 0o500)] {
		fs::set_permissions(from.join(name), Permissions::from_mode(bits)).unwrap();
	}
	for sender in [Sender::Host, Sender::Guest] {
		let to = to.join(format!("{sender:?}"));
		fs::create_dir(&to).unwrap();
		assert_eq!(copy(&from, &to, sender).unwrap(), [""; 0]);
		let copied = to.join("from");
		assert_eq!(tree(&copied), tree(&from));
		assert!(fs::read(copied.join("large")).unwrap() == large);
		for name in ["large", "sub/none", "sub/empty", "sub"] {
			assert_eq!(mode(&copied.join(name)), mode(&from.join(name)), "{name}");
		}
		// Again, over what is there.
		if rustix::process::geteuid().is_root() {
			assert_eq!(copy(&from, &to, sender).unwrap(), [""; 0]);
		}
		fs::set_permissions(copied.join("sub"), Permissions::from_mode(0o700)).unwrap();
	}
	fs::set_permissions(from.join("sub"), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_copy_goes_into_a_directory_or_becomes_what_it_is_named() {
	let dir = tempfile::tempdir().unwrap();
	let at = |name: &str| dir.path().join(name);
	fs::create_dir_all(at("from/below")).unwrap();
	fs::create_dir(at("to")).unwrap();
	fs::write(at("one"), "one").unwrap();
	// A file.
	copy(&at("one"), &at("to"), Sender::Host).unwrap();
	copy(&at("one"), &at("to/two"), Sender::Host).unwrap();
	// A directory, under its name and another; its content alone.
	copy(&at("from"), &at("to"), Sender::Host).unwrap();
	copy(&at("from"), &at("to/other"), Sender::Host).unwrap();
	copy(&at("from/."), &at("to"), Sender::Host).unwrap();
	assert_eq!(tree(&at("to")), ["below/", "from/", "from/below/", "one", "other/", "other/below/", "two"]);
	// A link that is named is what it leads to.
	symlink("one", at("link")).unwrap();
	copy(&at("link"), &at("to/three"), Sender::Host).unwrap();
	assert_eq!(fs::read_to_string(at("to/three")).unwrap(), "one");
	// Into a directory by a link: the user's own word.
	symlink("to", at("by-link")).unwrap();
	copy(&at("one"), &at("by-link"), Sender::Host).unwrap();
	for nowhere in ["none/one", "none/", "one/", "one/two"] {
		let error = copy(&at("one"), &at(nowhere), Sender::Host).unwrap_err();
		assert!(matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory), "{nowhere}: {error}");
	}
	for (from, to, says) in [("from", "one", "is no directory"), ("one", "to/from/..", ""), ("one", "to", "")] {
		let said = copy(&at(from), &at(to), Sender::Host).unwrap();
		assert_eq!(said.len(), usize::from(!says.is_empty()), "{said:?}");
		assert!(said.iter().all(|line| line.contains(says)), "{said:?}");
	}
	fs::create_dir(at("to/one-d")).unwrap();
	fs::create_dir(at("d")).unwrap();
	fs::write(at("d/one-d"), "a file").unwrap();
	let said = copy(&at("d/."), &at("to"), Sender::Host).unwrap();
	assert!(said.len() == 1 && said[0].contains("to/one-d: is there already and is a directory"), "{said:?}");
}

#[test]
fn what_can_not_be_copied_is_said_and_the_rest_is_copied() {
	let dir = tempfile::tempdir().unwrap();
	let (from, to) = (dir.path().join("from"), dir.path().join("to"));
	fs::create_dir_all(&from).unwrap();
	fs::create_dir(&to).unwrap();
	fs::write(from.join("a"), "a").unwrap();
	fs::write(from.join("z"), "z").unwrap();
	let _socket = UnixListener::bind(from.join("socket")).unwrap();
	rustix::fs::mknodat(rustix::fs::CWD, from.join("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
		.unwrap();
	let said = copy(&from, &to, Sender::Host).unwrap();
	assert_eq!(tree(&to), ["from/", "from/a", "from/z"]);
	assert!(said.len() == 2 && said[0].contains("from/pipe: is neither"), "{said:?}");
	assert!(said[1].contains("from/socket: is neither"), "{said:?}");
	assert!(Source::open(&from.join("pipe")).unwrap_err().to_string().contains("neither a file nor a directory"));
	// What is no file isn't replaced by one.
	fs::write(from.join("b"), "b").unwrap();
	let pipe = to.join("b");
	rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
	let said = copy(&from.join("b"), &to, Sender::Guest).unwrap();
	assert!(said.len() == 1 && said[0].contains("is no file"), "{said:?}");
	assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn directories_in_one_another_are_copied_up_to_a_limit() {
	let dir = tempfile::tempdir().unwrap();
	let mut deep = dir.path().join("from");
	for _ in 0..MOST_NESTED + 5 {
		deep.push("d");
	}
	fs::create_dir_all(&deep).unwrap();
	let to = dir.path().join("to");
	let said = copy(&dir.path().join("from"), &to, Sender::Guest).unwrap();
	assert!(said.len() == 1 && said[0].contains("as deep as can be copied"), "{said:?}");
	assert_eq!(tree(&to).len(), MOST_NESTED - 1);
	// One who doesn't keep to it.
	let mut receiver = receiver(dir.path());
	let mut taken = 0;
	let refused = loop {
		match receiver.take(directory("x")) {
			Ok(said) => assert_eq!(said, None),
			Err(nonsense) => break nonsense.to_string(),
		}
		taken += 1;
	};
	assert!(refused.contains("too many directories") && taken <= MOST_NESTED + 1, "{taken}: {refused}");
}

/// What a hostile guest may send after the directory that it was asked for, and whether the end of its copy is reached.
#[test]
fn names_that_lead_elsewhere_end_the_copy() {
	let dir = tempfile::tempdir().unwrap();
	let to = dir.path().join("to");
	fs::create_dir(&to).unwrap();
	for name in ["", ".", "..", "/", "/etc", "a/b", "../a", "a/..", "nul\0inside", "./a"] {
		for piece in [directory(name), file(name), link(name, "a")] {
			let mut receiver = receiver(&to);
			receiver.take(directory("asked")).unwrap();
			let refused = receiver.take(piece).unwrap_err().to_string();
			assert!(refused.contains("a name that is none"), "{name:?}: {refused}");
		}
	}
	assert_eq!(tree(dir.path()), ["to/"]);
}

#[test]
fn links_of_a_guest_lead_into_its_copy_only_and_none_is_followed() {
	let dir = tempfile::tempdir().unwrap();
	let (to, outside) = (dir.path().join("to"), dir.path().join("outside"));
	fs::create_dir(&to).unwrap();
	fs::create_dir(&outside).unwrap();
	let mut receiver = receiver(&to);
	let mut take = |piece| receiver.take(piece).unwrap();
	take(directory(""));
	for target in ["/etc/passwd", "..", "../outside", "a/../../outside", "a/..", "./../x"] {
		let said = take(link("bad", target)).unwrap();
		assert!(said.contains("leads out of the copy"), "{target}: {said}");
	}
	// To itself, and then through it: as deep as it looks, it isn't.
	assert_eq!(take(link("self", ".")), None);
	assert!(take(link("up", "self/../outside")).is_some());
	assert_eq!(take(link("good", "sub/file")), None);
	take(directory("sub"));
	assert_eq!(take(link("good", "../good")), None);
	assert!(take(link("bad", "../../outside")).is_some());
	take(Piece::Leave);
	// A link where a directory or file comes next: the first is not entered, the second not written through.
	symlink(&outside, to.join("trap")).unwrap();
	let said = take(directory("trap")).unwrap();
	assert!(said.contains("is there already and is no directory"), "{said}");
	assert_eq!(
		[take(file("file")), take(content("bad")), take(Piece::FileEnd), take(Piece::Leave)],
		[const { None }; 4]
	);
	fs::write(outside.join("dear"), "dear").unwrap();
	symlink(outside.join("dear"), to.join("alias")).unwrap();
	assert_eq!([take(file("alias")), take(content("new")), take(Piece::FileEnd)], [const { None }; 3]);
	take(Piece::Leave);
	take(Piece::End);
	assert_eq!(tree(&outside), ["dear"]);
	assert_eq!(fs::read_to_string(outside.join("dear")).unwrap(), "dear");
	assert_eq!(fs::read_to_string(to.join("alias")).unwrap(), "new");
	let trap = format!("trap -> {}", outside.display());
	assert_eq!(tree(&to), ["alias", "good -> sub/file", "self -> .", "sub/", "sub/good -> ../good", &trap]);
}

#[test]
fn a_guest_s_files_are_nobody_else_s() {
	let dir = tempfile::tempdir().unwrap();
	for (sender, file_mode, directory_mode) in [(Sender::Guest, 0o755, 0o777), (Sender::Host, 0o6755, 0o1777)] {
		let to = dir.path().join(format!("{sender:?}"));
		let mut receiver = Receiver::new(Destination::find(&to, None).unwrap(), sender);
		for piece in [
			Piece::Directory { name: named("x"), mode: 0o1777 | 0o100_000 },
			Piece::File { name: named("su"), mode: 0o6755 },
			Piece::FileEnd,
			Piece::Leave,
			Piece::End,
		] {
			assert_eq!(receiver.take(piece).unwrap(), None);
		}
		assert_eq!((mode(&to.join("su")), mode(&to)), (file_mode, directory_mode));
	}
}

#[test]
fn messages_out_of_turn_end_the_copy() {
	let dir = tempfile::tempdir().unwrap();
	let orders: [&[Piece]; 16] = [
		&[Piece::End],
		&[Piece::Leave],
		&[content("x")],
		&[Piece::FileEnd],
		&[link("a", "b")],
		&[file("a")],
		&[directory("a"), Piece::End],
		&[directory("a"), Piece::Leave, Piece::Leave],
		&[directory("a"), Piece::Leave, directory("b")],
		&[directory("a"), Piece::Leave, file("b")],
		&[directory("a"), Piece::Leave, link("b", "c")],
		&[directory("a"), Piece::Leave, Piece::End, Piece::End],
		&[directory("a"), Piece::Leave, Piece::End, Piece::Trouble("late".into())],
		&[directory("a"), content("x")],
		&[directory("a"), file("b"), file("c")],
		&[directory("a"), file("b"), Piece::Leave],
	];
	for order in orders {
		let mut receiver = receiver(dir.path());
		let (last, before) = order.split_last().unwrap();
		for piece in before {
			assert_eq!(receiver.take(piece.clone()).unwrap(), None, "{order:?}");
		}
		assert!(receiver.take(last.clone()).is_err(), "{order:?}");
	}
	assert_eq!(tree(dir.path()), [""; 0]);
}

#[test]
fn half_a_file_is_none() {
	let dir = tempfile::tempdir().unwrap();
	// Its sender can't read the rest; nobody sends the rest.
	let mut receiver = receiver(dir.path());
	for piece in [directory(""), file("a"), content("half")] {
		receiver.take(piece).unwrap();
	}
	assert_eq!(tree(dir.path()), ["a"]);
	assert_eq!(receiver.take(Piece::Trouble("a:\x1b[2J bad\n".into())).unwrap().unwrap(), "a:\\u{1b}[2J bad\\n");
	assert_eq!(tree(dir.path()), [""; 0]);
	for piece in [file("b"), content("half")] {
		receiver.take(piece).unwrap();
	}
	drop(receiver);
	assert_eq!(tree(dir.path()), [""; 0]);
}

#[test]
fn any_pieces_do_no_harm() {
	let dir = tempfile::tempdir().unwrap();
	let (to, outside) = (dir.path().join("to"), dir.path().join("outside"));
	fs::create_dir(&outside).unwrap();
	// xorshift64, so that a failure repeats.
	let mut state = 0x9e37_79b9_7f4a_7c15_u64;
	let mut random = move |below: usize| {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		(state % below as u64) as usize
	};
	let names = ["a", "b", "a", "b", "c", "c", "..", "a/b"];
	let targets = ["a", "..", "../outside", "b/../..", "/", ".", "../a", "c"];
	for _ in 0..300 {
		fs::create_dir(&to).unwrap();
		let mut receiver = receiver(&to);
		receiver.take(directory("")).unwrap();
		for _ in 0..40 {
			let among = if random(8) == 0 { names.len() } else { 6 };
			let name = names[random(among)];
			let piece = match random(9) {
				0 | 1 => directory(name),
				2 | 3 => file(name),
				4 => link(name, targets[random(targets.len())]),
				5 => content("x"),
				6 => Piece::FileEnd,
				7 => Piece::Leave,
				_ => Piece::Trouble("t".into()),
			};
			if receiver.take(piece).is_err() {
				break;
			}
		}
		drop(receiver);
		assert_eq!(tree(dir.path()).iter().filter(|name| !name.starts_with("to/")).collect::<Vec<_>>(), ["outside/"]);
		for found in tree(&to) {
			let Some((at, _)) = found.split_once(" -> ") else { continue };
			// Where it leads to is in the copy, if it is there.
			let real = to.join(at).canonicalize();
			assert!(real.map_or(true, |real| real.starts_with(to.canonicalize().unwrap())), "{found}");
		}
		fs::remove_dir_all(&to).unwrap();
	}
}
