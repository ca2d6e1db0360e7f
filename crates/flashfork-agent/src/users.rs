//! Users and groups of the guest: /etc/passwd and /etc/group, read directly, since a static program
//! can't load the C library's name service modules.

use std::fs;

use rustix::process::{Gid, Uid};

/// Who a command runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
	/// User id.
	pub uid: Uid,
	/// Primary group.
	pub gid: Gid,
	/// Supplementary groups.
	pub groups: Vec<Gid>,
	/// Name, or the number if it has none.
	pub name: String,
	/// Home directory.
	pub home: String,
	/// Login shell.
	pub shell: String,
}

/// The user that `USER` or `USER:GROUP` names, by the guest's files; `None` if there is none.
/// A number without an entry is a user with the group of the same number and the home `/`.
pub fn find(text: &str) -> Option<User> {
	// A root without these files still has root.
	let read = |path| fs::read_to_string(path).unwrap_or_default();
	find_in(text, &read("/etc/passwd"), &read("/etc/group"))
}

fn find_in(text: &str, passwd: &str, group: &str) -> Option<User> {
	let (name, wanted_group) = match text.split_once(':') {
		Some((name, group)) => (name, Some(group)),
		None => (text, None),
	};
	let number = name.parse().ok().filter(|id| *id != u32::MAX);
	let entry = lines(passwd).find(|fields| {
		fields.len() >= 7 && (fields[0] == name || (number.is_some() && fields[2].parse().ok() == number))
	});
	let (name, uid, mut gid, home, shell) = match entry {
		Some(fields) => (fields[0], fields[2].parse().ok()?, fields[3].parse().ok()?, fields[5], fields[6]),
		None if name == "root" || number == Some(0) => ("root", 0, 0, "/", "/bin/sh"),
		None => (name, number?, number?, "/", "/bin/sh"),
	};
	if let Some(wanted) = wanted_group {
		let entry = lines(group).find(|fields| fields.len() >= 3 && fields[0] == wanted);
		gid = match entry {
			Some(fields) => fields[2].parse().ok()?,
			None => wanted.parse().ok().filter(|id| *id != u32::MAX)?,
		};
	}
	let groups = lines(group)
		.filter(|fields| fields.len() >= 4 && fields[3].split(',').any(|member| member == name))
		.filter_map(|fields| fields[2].parse().ok())
		.filter(|id| *id != u32::MAX && *id != gid)
		.map(Gid::from_raw);
	Some(User {
		uid: Uid::from_raw(uid),
		gid: Gid::from_raw(gid),
		groups: groups.collect(),
		name: name.to_owned(),
		home: home.to_owned(),
		shell: if shell.is_empty() { "/bin/sh" } else { shell }.to_owned(),
	})
}

fn lines(file: &str) -> impl Iterator<Item = Vec<&str>> {
	file.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
	use super::*;

	const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nweb:x:33:34:web:/srv:\nbroken\n";
	const GROUP: &str = "root:x:0:\nweb:x:34:\ndisk:x:6:root,web\n";

	fn ids(text: &str) -> Option<(u32, u32, usize, String)> {
		let user = find_in(text, PASSWD, GROUP)?;
		Some((user.uid.as_raw(), user.gid.as_raw(), user.groups.len(), user.home))
	}

	#[test]
	fn users_are_found_by_name_and_number() {
		assert_eq!(ids("web"), Some((33, 34, 1, "/srv".into())));
		assert_eq!(ids("33"), ids("web"));
		assert_eq!(ids("web:disk"), Some((33, 6, 0, "/srv".into())));
		assert_eq!(ids("1000"), Some((1000, 1000, 0, "/".into())));
		assert_eq!(ids("1000:5"), Some((1000, 5, 0, "/".into())));
	}

	#[test]
	fn who_is_not_there_is_nobody() {
		for text in ["nobody", "", "web:nogroup", "-1", "4294967295", "broken"] {
			assert_eq!(ids(text), None, "{text}");
		}
	}

	#[test]
	fn root_needs_no_file() {
		assert_eq!(find_in("root", "", "").unwrap().uid, Uid::ROOT);
	}
}
