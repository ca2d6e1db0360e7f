//! Disks that clones are given.

use clap::Args;
use flashfork_proto::api::AttachDisk;
use flashfork_terminal::{CliError, size::Size};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct DiskArgs {
	/// Give each clone a disk of this image, in an empty slot of its template; mounted at PATH, and with :ro read-only.
	/// May be repeated. What a clone writes is its own; the image must not change any more
	#[arg(long = "disk", value_name = "IMAGE[:PATH][:ro]", value_parser = disk)]
	pub disks: Vec<Disk>,
	/// What each clone may write to each of these disks: it is kept in memory
	#[arg(long, default_value = "1G", value_name = "SIZE", requires = "disks")]
	pub disk_limit: Size,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
	image: PathBuf,
	mount: Option<String>,
	read_only: bool,
}

fn disk(text: &str) -> Result<Disk, String> {
	let (rest, read_only) = text.strip_suffix(":ro").map_or((text, false), |rest| (rest, true));
	let (image, mount) = match rest.rfind(":/") {
		Some(at) => (&rest[..at], Some(rest[at + 1..].to_owned())),
		None if rest.contains(':') && !Path::new(rest).exists() => {
			return Err("the path in the guest begins with a slash, as in app.ext4:/srv/app".into());
		}
		None => (rest, None),
	};
	if mount.as_ref().is_some_and(|mount| mount.contains(':')) {
		return Err("a path in the guest has no colon, and only :ro may follow it".into());
	}
	if image.is_empty() {
		return Err("give the path of an image first".into());
	}
	Ok(Disk { image: image.into(), mount, read_only })
}

impl DiskArgs {
	/// For the daemon, whose directory is another.
	pub fn request(&self) -> Result<Vec<AttachDisk>, CliError> {
		let limit_mib = self.disk_limit.0.div_ceil(1 << 20);
		let one = |Disk { image, mount, read_only }: &Disk| {
			let (mount, read_only) = (mount.clone(), *read_only);
			Ok(AttachDisk { image: super::absolute(image)?, mount, read_only, limit_mib })
		};
		self.disks.iter().map(one).collect()
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn an_image_may_have_a_place_and_be_read_only() {
		let of = |text| disk(text).map(|disk| (disk.image.display().to_string(), disk.mount, disk.read_only));
		assert_eq!(of("app.ext4"), Ok(("app.ext4".into(), None, false)));
		assert_eq!(of("app:ro"), Ok(("app".into(), None, true)));
		assert_eq!(of("/a:b:/srv/app"), Ok(("/a:b".into(), Some("/srv/app".into()), false)));
		assert_eq!(of("app:/srv:ro"), Ok(("app".into(), Some("/srv".into()), true)));
		assert!(of(":/srv").is_err() && of("").is_err());
		assert!(of("app:srv").unwrap_err().contains("slash"));
		assert!(of("app:/srv:rw").unwrap_err().contains(":ro") && of("app:/srv:ro:ro").is_err());
	}

	#[test]
	fn a_limit_of_less_than_a_mebibyte_is_one() {
		let limits = [(0, 0), (1, 1), (1 << 20, 1), ((1 << 20) + 1, 2)];
		for (bytes, mebibytes) in limits {
			let disks = vec![disk("/app").unwrap()];
			let request = DiskArgs { disks, disk_limit: Size(bytes) }.request();
			assert_eq!(request.map(|disks| disks[0].limit_mib).map_err(|e| e.to_string()), Ok(mebibytes));
		}
	}
}
