use super::*;
use std::os::unix::fs::symlink;

#[test]
fn a_file_lies_at_one_place_by_whatever_path() {
	for (path, expected) in [
		("/bin/sh", "usr/bin/sh"),
		("/usr/bin/sh", "usr/bin/sh"),
		("/usr/sbin/mkswap", "usr/bin/mkswap"),
		("/lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2"),
		("/a/../lib/./x.so", "usr/lib/x.so"),
		("/lib", "usr/lib"),
		("/library/x", "library/x"),
		("/../etc", "etc"),
	] {
		assert_eq!(place(Path::new(path)), Path::new(expected), "{path}");
	}
}

#[test]
fn parents_come_first_and_directories_keep_their_files() {
	let mut tree = Tree::new();
	tree.add_text("/a/b/c", String::new());
	tree.add_dir("/a/b", 0o700);
	let paths: Vec<_> = tree.entries().map(|(path, _)| path.to_owned()).collect();
	let at = |path: &str| paths.iter().position(|p| p == Path::new(path)).unwrap();
	assert!(at("a") < at("a/b") && at("a/b") < at("a/b/c"));
}

#[test]
fn directories_are_taken_whole_and_links_stay_links() {
	let dir = tempfile::tempdir().unwrap();
	fs::create_dir(dir.path().join("sub")).unwrap();
	fs::write(dir.path().join("sub/file"), "12345").unwrap();
	symlink("file", dir.path().join("sub/link")).unwrap();
	let mut tree = Tree::new();
	let file = |guest: &str| GuestFile { host: dir.path().to_owned(), guest: guest.into() };
	tree.add_from_host(&file("/data")).unwrap();
	assert!(tree.contains(Path::new("/data/sub/file")));
	assert!(tree.is_link(Path::new("/data/sub/link")));
	assert_eq!(tree.size().unwrap(), 5);
	assert!(matches!(tree.add_from_host(&file("data")), Err(ImageError::Unfit { .. })));
}

#[test]
fn special_files_and_hidden_places_are_refused() {
	let file = |host: &str, guest: &str| GuestFile { host: host.into(), guest: guest.into() };
	for file in [file("/dev/null", "/null"), file("/bin/bash", "/dev/shm/bash")] {
		assert!(matches!(Tree::new().add_from_host(&file), Err(ImageError::Unfit { .. })));
	}
}
