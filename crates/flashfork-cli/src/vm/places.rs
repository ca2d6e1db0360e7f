//! What `vm port` and `vm cp` are told: ports, and places here or in a clone.

use flashfork_proto::api::{NAME_RULE, is_name};
use std::{
	ffi::{OsStr, OsString},
	net::{Ipv4Addr, SocketAddr},
	os::unix::ffi::OsStrExt,
	path::PathBuf,
	str::FromStr,
};

/// `[ADDRESS:]HOST:GUEST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
	/// Where connections are accepted; port 0 is any that is free.
	pub here: SocketAddr,
	/// Where they go to in the guest.
	pub guest: u16,
}

impl FromStr for Ports {
	type Err = String;

	fn from_str(text: &str) -> Result<Self, String> {
		let wrong =
			|| format!("{text:?} is no pair of ports: give [ADDRESS:]HOST:GUEST, such as 8080:80 or 0.0.0.0:8080:80");
		let (here, guest) = text.rsplit_once(':').ok_or_else(wrong)?;
		let guest = guest.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
		let port = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
		let here = here.parse().map(port).or_else(|_| here.parse::<SocketAddr>()).map_err(|_| wrong())?;
		Ok(Self { here, guest })
	}
}

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
	/// A path of this host.
	Here(PathBuf),
	/// An absolute path in a clone.
	Clone { name: String, path: PathBuf },
}

impl TryFrom<&OsStr> for Place {
	type Error = String;

	/// `NAME:PATH` is in a clone. A path of this host whose first name has a colon is given as `./NAME:…`.
	fn try_from(text: &OsStr) -> Result<Self, String> {
		let bytes = text.as_bytes();
		let colon = bytes.iter().position(|byte| matches!(byte, b':' | b'/')).filter(|at| bytes[*at] == b':');
		let Some(colon) = colon else {
			return if bytes.is_empty() { Err("no path".into()) } else { Ok(Self::Here(text.into())) };
		};
		let (name, path) =
			(String::from_utf8_lossy(&bytes[..colon]), PathBuf::from(OsStr::from_bytes(&bytes[colon + 1..])));
		if !is_name(&name) {
			return Err(format!("{name:?} is no name: {NAME_RULE}; a file here is given as ./{}", text.display()));
		}
		if !path.is_absolute() {
			return Err(format!("{:?} is no absolute path: give {name}:/PATH", path.as_os_str()));
		}
		Ok(Self::Clone { name: name.into_owned(), path })
	}
}

/// For the command line.
pub fn place(text: OsString) -> Result<Place, String> {
	Place::try_from(text.as_os_str())
}

/// A copy, by its two ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Copy<'a> {
	/// From the clone to here.
	FromGuest { clone: &'a str, from: &'a PathBuf, to: &'a PathBuf },
	/// From here to the clone.
	ToGuest { clone: &'a str, from: &'a PathBuf, to: &'a PathBuf },
}

impl<'a> Copy<'a> {
	/// None unless exactly one end is in a clone.
	pub fn between(source: &'a Place, destination: &'a Place) -> Option<Self> {
		match (source, destination) {
			(Place::Clone { name, path }, Place::Here(to)) => Some(Self::FromGuest { clone: name, from: path, to }),
			(Place::Here(from), Place::Clone { name, path }) => Some(Self::ToGuest { clone: name, from, to: path }),
			_ => None,
		}
	}

	/// The clone's name.
	pub fn clone_name(&self) -> &'a str {
		match self {
			Self::FromGuest { clone, .. } | Self::ToGuest { clone, .. } => clone,
		}
	}
}

#[cfg(test)]
mod tests;
