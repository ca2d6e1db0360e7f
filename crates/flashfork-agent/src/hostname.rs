//! The host name: every clone has its own.

use std::{
	fs,
	io::{self, ErrorKind},
	path::Path,
};

use rustix::system::{sethostname, uname};

use crate::log;

/// Where programs look a name up before they ask anybody.
const HOSTS: &str = "/etc/hosts";

/// Makes `new` the guest's host name. What [`HOSTS`] says of the old one holds for the new one too: a name that
/// resolved goes on resolving.
pub fn set(new: &str) -> Result<(), String> {
	let old = uname().nodename().to_string_lossy().into_owned();
	sethostname(new.as_bytes()).map_err(|errno| format!("the host name can't be set to {new}: {errno}"))?;
	if let Err(error) = add_to(Path::new(HOSTS), &old, new) {
		// On a root that is only read it stays as it was.
		log::line(&format!("cannot add {new} to {HOSTS}: {error}"));
	}
	Ok(())
}

fn add_to(hosts: &Path, old: &str, new: &str) -> io::Result<()> {
	let text = match fs::read_to_string(hosts) {
		Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
		text => text?,
	};
	let added = added(&text, old, new);
	if added == text { Ok(()) } else { fs::write(hosts, added) }
}

/// hosts(5): an address and its names in each line.
fn added(text: &str, old: &str, new: &str) -> String {
	let line = |line: &str| {
		let names: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().skip(1).collect();
		if names.contains(&old) && !names.contains(&new) {
			let end = line.find('#').unwrap_or(line.len());
			format!(
				"{} {new}{}\n",
				line[..end].trim_end(),
				if end < line.len() { format!(" {}", &line[end..]) } else { String::new() }
			)
		} else {
			format!("{line}\n")
		}
	};
	text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_new_name_stands_where_the_old_one_did() {
		let text = "127.0.0.1 localhost flashfork\n# flashfork\n::1 localhost\n10.0.0.1\tflashfork # it\n";
		let expected =
			"127.0.0.1 localhost flashfork web-1\n# flashfork\n::1 localhost\n10.0.0.1\tflashfork web-1 # it\n";
		assert_eq!(added(text, "flashfork", "web-1"), expected);
		assert_eq!(added(expected, "flashfork", "web-1"), expected);
		assert_eq!(added(text, "other", "web-1"), text);
	}

	#[test]
	fn a_guest_without_hosts_has_none_afterwards() {
		let dir = tempfile::tempdir().unwrap();
		add_to(&dir.path().join("hosts"), "a", "b").unwrap();
		assert!(!dir.path().join("hosts").exists());
	}
}
