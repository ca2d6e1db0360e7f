//! How much memory is left: on the machine and in every ancestor of the process's memory cgroup, versions 1 and 2.
//!
//! A cgroup over its limit kills instead of failing the copy, so this is asked before each chunk.

use super::text::{Lines, decimal, field, read_file, words};
use crate::sys::Result;
use core::ffi::CStr;

/// The directory of the process's memory cgroup and how deep its hierarchy is mounted.
#[derive(Clone, Copy)]
struct Hierarchy {
	version: u8,
	path: [u8; PATH],
	/// Length of the path, and of the mount point within it.
	len: usize,
	mount: usize,
}

const PATH: usize = 1024;

/// Where to look; found once a seal.
pub struct Limits {
	hierarchies: [Option<Hierarchy>; 2],
	never_overcommit: bool,
}

impl Limits {
	/// Finds the cgroups of this process. Where there are none, only the machine's memory counts.
	pub fn find(buf: &mut [u8], small: &mut [u8]) -> Result<Limits> {
		let mut hierarchies = [None, None];
		let mut lines = Lines::open(c"/proc/thread-self/mountinfo", buf)?;
		while let Some(line) = lines.next()? {
			let Some((mut h, root)) = parse_mount(line) else { continue };
			let cgroups = read_file(c"/proc/thread-self/cgroup", small)?;
			let place = &mut hierarchies[usize::from(h.version) - 1];
			match append_own_path(&mut h, root, cgroups) {
				Some(Place::Own) => *place = Some((h, Place::Own)),
				// Of mounts that show another part of the tree, the first; any mount that shows our own is better.
				Some(Place::Elsewhere) if place.is_none() => *place = Some((h, Place::Elsewhere)),
				_ => {}
			}
		}
		let never_overcommit = decimal(read_file(c"/proc/sys/vm/overcommit_memory", small)?) == Some(2);
		let hierarchies = hierarchies.map(|h| h.map(|(h, _)| h));
		Ok(Limits { hierarchies, never_overcommit })
	}

	/// Bytes that can still be taken before something gives way.
	pub fn headroom(&self, buf: &mut [u8]) -> Result<u64> {
		let mut left = u64::MAX;
		self.each(buf, |bytes, _| left = left.min(bytes))?;
		Ok(left)
	}

	/// Tells of every limit how many bytes can still be taken, and what sets it: a field of `/proc/meminfo`, or the
	/// directory of a cgroup and the file there.
	pub fn each(&self, buf: &mut [u8], mut tell: impl FnMut(u64, [&[u8]; 2])) -> Result<()> {
		let meminfo = read_file(c"/proc/meminfo", buf)?;
		let kilobytes = |key| field(meminfo, key).unwrap_or(0) * 1024;
		tell(kilobytes(b"MemAvailable"), [b"MemAvailable", b""]);
		if self.never_overcommit {
			tell(kilobytes(b"CommitLimit").saturating_sub(kilobytes(b"Committed_AS")), [b"CommitLimit", b""]);
		}
		self.hierarchies.iter().flatten().for_each(|h| h.each(buf, &mut tell));
		Ok(())
	}
}

/// One line of `mountinfo`: a cgroup v2 mount, or v1's memory controller; with the mount's root.
fn parse_mount(line: &[u8]) -> Option<(Hierarchy, &[u8])> {
	let mut w = words(line);
	let root = w.nth(3)?;
	let point = w.next()?;
	let mut w = w.skip_while(|word| *word != b"-").skip(1);
	let kind = w.next()?;
	let options = w.nth(1)?;
	let version = match kind {
		b"cgroup2" => 2,
		b"cgroup" if options.split(|b| *b == b',').any(|o| o == b"memory") => 1,
		_ => return None,
	};
	let mut path = [0; PATH];
	path.get_mut(..point.len())?.copy_from_slice(point);
	Some((Hierarchy { version, path, len: point.len(), mount: point.len() }, root))
}

/// What a mount shows of the tree of cgroups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
	/// The process's own cgroup.
	Own,
	Elsewhere,
}

/// Adds the process's own place in the hierarchy to the mount point. `None` when it has none there.
fn append_own_path(h: &mut Hierarchy, root: &[u8], cgroups: &[u8]) -> Option<Place> {
	let own = cgroups.split(|b| *b == b'\n').find_map(|line| {
		let mut parts = line.splitn(3, |b| *b == b':');
		let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
		let ours = match h.version {
			2 => controllers.is_empty(),
			_ => controllers.split(|b| *b == b',').any(|c| c == b"memory"),
		};
		ours.then_some(path)
	});
	let own = own?;
	// Inside a container the mount may show only part of the tree. A path above the namespace's root ("/..") is nothing
	// we can look at: then the mount point itself is the nearest ancestor.
	let below = match root {
		b"/" => Some(own),
		_ => own.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with(b"/")),
	};
	let place = if below.is_some() { Place::Own } else { Place::Elsewhere };
	let below = below.filter(|path| !path.starts_with(b"/..") && *path != b"/").unwrap_or(b"");
	h.path.get_mut(h.len..h.len + below.len())?.copy_from_slice(below);
	h.len += below.len();
	Some(place)
}

impl Hierarchy {
	/// Tells of its own group and those above it.
	fn each(&self, buf: &mut [u8], tell: &mut impl FnMut(u64, [&[u8]; 2])) {
		let mut len = self.len;
		while len >= self.mount {
			if let Some((left, file)) = self.headroom_at(len, buf) {
				tell(left, [&self.path[..len], file]);
			}
			match self.path[..len].iter().rposition(|b| *b == b'/') {
				Some(slash) if len > self.mount => len = slash.max(self.mount),
				_ => break,
			}
		}
	}

	/// Limit less use, plus the file cache the kernel would reclaim first; and the file of the limit. None without a
	/// limit, or such a file.
	fn headroom_at(&self, len: usize, buf: &mut [u8]) -> Option<(u64, &'static [u8])> {
		let (limits, usage, reclaimable): (&[&'static [u8]], &[u8], [&[u8]; 2]) = match self.version {
			2 => (&[b"/memory.max", b"/memory.high"], b"/memory.current", [b"inactive_file", b"active_file"]),
			_ => (
				&[b"/memory.limit_in_bytes"],
				b"/memory.usage_in_bytes",
				[b"total_inactive_file", b"total_active_file"],
			),
		};
		let (limit, file) =
			limits.iter().filter_map(|name| Some((decimal(self.read(len, name, buf)?)?, *name))).min()?;
		let used = self.read(len, usage, buf).and_then(decimal)?;
		let cache = self
			.read(len, b"/memory.stat", buf)
			.map_or(0, |stat| reclaimable.iter().filter_map(|key| field(stat, key)).sum::<u64>());
		Some((limit.saturating_sub(used.saturating_sub(cache)), file))
	}

	fn read<'b>(&self, len: usize, name: &[u8], buf: &'b mut [u8]) -> Option<&'b [u8]> {
		let mut path = [0; PATH + 64];
		path[..len].copy_from_slice(&self.path[..len]);
		path[len..len + name.len()].copy_from_slice(name);
		let path = CStr::from_bytes_until_nul(&path).ok()?;
		read_file(path, buf).ok()
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	fn place(mount: &[u8], cgroups: &[u8]) -> Option<(u8, String)> {
		let (mut h, root) = parse_mount(mount)?;
		append_own_path(&mut h, root, cgroups)?;
		Some((h.version, String::from_utf8(h.path[..h.len].to_vec()).unwrap()))
	}

	#[test]
	fn finds_its_place_in_every_kind_of_mount() {
		let v2 = b"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
		assert_eq!(place(v2, b"0::/a/b\n"), Some((2, "/sys/fs/cgroup/a/b".into())));
		assert_eq!(place(v2, b"0::/\n"), Some((2, "/sys/fs/cgroup".into())));
		assert_eq!(place(v2, b"0::/../x\n"), Some((2, "/sys/fs/cgroup".into())));
		assert_eq!(place(v2, b"4:memory:/a\n"), None);
		let v1 = b"31 23 0:27 /box /cg/memory rw - cgroup cgroup rw,memory";
		assert_eq!(place(v1, b"4:memory:/box/in\n"), Some((1, "/cg/memory/in".into())));
		assert_eq!(place(v1, b"4:cpu,memory:/else\n"), Some((1, "/cg/memory".into())));
		assert_eq!(place(v1, b"4:memory:/boxer\n"), Some((1, "/cg/memory".into())), "another group");
		let cpu = b"31 23 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu";
		assert_eq!(place(cpu, b"4:cpu:/\n"), None);
		let none = b"31 23 0:27 / / rw - ext4 /dev/vda rw";
		assert_eq!(place(none, b"0::/\n"), None);
	}

	#[test]
	fn the_limits_of_every_group_count_and_cache_is_free() {
		let mount = std::env::temp_dir().join(format!("flashfork-groups-{}", std::process::id()));
		let own = mount.join("a/b");
		std::fs::create_dir_all(&own).unwrap();
		let write = |name: &str, text: &str| std::fs::write(own.join(name), text).unwrap();
		let line = format!("30 23 0:26 / {} rw shared:9 - cgroup2 cgroup2 rw", mount.display());
		let (mut h, root) = parse_mount(line.as_bytes()).unwrap();
		append_own_path(&mut h, root, b"0::/a/b\n").unwrap();
		let told = || {
			let mut told = Vec::new();
			let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
			h.each(&mut [0; 4096], &mut |left, [at, file]| told.push((left, text(at), text(file))));
			told
		};
		assert_eq!(told(), []);
		write("memory.max", "max\n");
		write("memory.current", "600\n");
		assert_eq!(told(), [], "no limit");
		write("memory.max", "2000\n");
		write("memory.high", "1000\n");
		write("memory.stat", "anon 350\ninactive_file_x 9\ninactive_file 50\nactive_file 100\n");
		std::fs::write(mount.join("memory.max"), "700\n").unwrap();
		std::fs::write(mount.join("memory.current"), "9000\n").unwrap();
		let at = |path: &std::path::Path| path.display().to_string();
		let expected = [(550, at(&own), "/memory.high".into()), (0, at(&mount), "/memory.max".into())];
		assert_eq!(told(), expected);
		std::fs::remove_dir_all(&mount).unwrap();
	}

	#[test]
	fn there_is_memory_left_here() {
		let (mut a, mut b) = (vec![0; 64 << 10], vec![0; 16 << 10]);
		let limits = Limits::find(&mut a, &mut b).unwrap();
		let left = limits.headroom(&mut a).unwrap();
		assert!(left > 1 << 20, "{left}");
		assert!(left < 1 << 50, "{left}");
	}
}
