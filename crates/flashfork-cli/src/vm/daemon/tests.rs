use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn only_a_directory_that_is_the_user_s_alone_to_write_holds_the_socket() {
	let place = tempfile::tempdir().unwrap();
	let dir = place.path().join("dir");
	make_private(&dir).unwrap();
	assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
	for mode in [0o770, 0o777, 0o1777] {
		fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
		assert!(check_private(&dir).unwrap_err().to_string().contains("others may write"), "{mode:o}");
	}
	let link = place.path().join("link");
	symlink(place.path(), &link).unwrap();
	assert!(check_private(&link).unwrap_err().to_string().contains("no directory of yours"));
	let foreign = if geteuid().is_root() {
		std::os::unix::fs::chown(&dir, Some(1), None).unwrap();
		dir.as_path()
	} else {
		Path::new("/")
	};
	assert!(check_private(foreign).unwrap_err().to_string().contains("no directory of yours"));
}

#[test]
fn where_no_daemon_can_listen_nothing_is_made() {
	let place = tempfile::tempdir().unwrap();
	let file = place.path().join("passwd");
	fs::write(&file, "dear").unwrap();
	let long = place.path().join("new").join("x".repeat(200));
	let new = place.path().join("new/vmd.sock");
	for (path, why) in [
		(&file, "is no socket"),
		(&file.join("vmd.sock"), "look at"),
		(&long, "is too long"),
		(&new, "there is no directory"),
	] {
		assert!(connect(path).map(drop).unwrap_err().to_string().contains(why), "{}", path.display());
		assert!(command(path).unwrap_err().to_string().contains(why), "{}", path.display());
	}
	assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
}

#[test]
fn a_start_that_fails_leaves_nothing_and_an_older_log_as_it_was() {
	let place = tempfile::tempdir().unwrap();
	let socket = place.path().join("foo.log");
	let fails = || {
		let mut command = Command::new("sh");
		command.args(["-c", "echo flashfork-vmd: so it is >&2"]);
		command
	};
	assert!(start(&mut fails(), &socket).map(drop).unwrap_err().to_string().ends_with("did not start: so it is"));
	assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
	let log = place.path().join("foo.log.log");
	fs::write(&log, "before\n").unwrap();
	assert!(start(&mut fails(), &socket).map(drop).unwrap_err().to_string().ends_with("did not start: so it is"));
	assert_eq!(fs::read_to_string(&log).unwrap(), "before\nflashfork-vmd: so it is\n");
}
