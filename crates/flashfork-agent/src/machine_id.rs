//! The machine id, machine-id(5): a guest with one has another in each clone.

use std::{
	fs,
	io::{self, ErrorKind},
	path::Path,
};

use crate::log;

/// Where it is. The second is what programs read. On a root that is only read, systemd has it in the first, and mounts
/// that over the second. The third is D-Bus's own copy, mostly a link to the second.
const FILES: [&str; 3] = ["/run/machine-id", "/etc/machine-id", "/var/lib/dbus/machine-id"];

/// A random id of the form that systemd gives, from the kernel.
const UUID: &str = "/proc/sys/kernel/random/uuid";

/// Puts a new id in place of the old one, wherever that is. What has none, or has it made at its next boot, is left as
/// it is. After the reseed: else siblings would have the same.
pub fn renew() {
	let renewed = fs::read_to_string(UUID).and_then(|uuid| renew_in(&FILES.map(Path::new), &uuid));
	if let Err(error) = renewed {
		log::line(&format!("cannot renew the machine id: {error}"));
	}
}

fn renew_in(files: &[&Path], uuid: &str) -> io::Result<()> {
	let mut new: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
	new.push('\n');
	for file in files {
		match fs::read_to_string(file) {
			// Written in place: what is mounted can't be replaced.
			Ok(old) if is_id(old.trim_end()) && old != new => fs::write(file, &new)?,
			Ok(_) => {}
			Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {}
			Err(error) => return Err(error),
		}
	}
	Ok(())
}

/// An empty file, and the word `uninitialized`, are no ids.
fn is_id(text: &str) -> bool {
	text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
	use super::*;

	const OLD: &str = "0123456789abcdef0123456789abcdef\n";
	const NEW: &str = "00112233445546778899aabbccddeeff\n";

	#[test]
	fn every_file_with_an_id_has_the_new_one_and_no_other_is_touched() {
		let dir = tempfile::tempdir().unwrap();
		let [etc, run, link, empty, later, none] =
			["etc", "run", "link", "empty", "later", "none"].map(|name| dir.path().join(name));
		fs::write(&etc, OLD).unwrap();
		fs::write(&run, OLD).unwrap();
		std::os::unix::fs::symlink("etc", &link).unwrap();
		fs::write(&empty, "").unwrap();
		fs::write(&later, "uninitialized\n").unwrap();
		let files = [&etc, &run, &link, &empty, &later, &none].map(|path| path.as_path());
		renew_in(&files, "00112233-4455-4677-8899-aabbccddeeff\n").unwrap();
		let content = |path: &Path| fs::read_to_string(path).unwrap();
		assert_eq!([content(&etc), content(&run), content(&link)], [NEW; 3]);
		assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && !none.exists());
		assert_eq!([content(&empty), content(&later)], ["", "uninitialized\n"]);
	}

	#[test]
	fn the_kernel_gives_an_id_and_each_time_another() {
		let uuid = || fs::read_to_string(UUID).unwrap().replace('-', "");
		assert!(is_id(uuid().trim_end()) && uuid() != uuid());
	}
}
