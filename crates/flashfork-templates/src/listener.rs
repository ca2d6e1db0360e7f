//! Where a template's callers will come.

use crate::{
	directory::Directory,
	error::Error,
	link::{Found, Link},
	name::Name,
	recipe::Kept,
};
use flashfork_warm::WAITING;
use rustix::{
	fs::AtFlags,
	net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
};
use std::{
	os::fd::OwnedFd,
	path::PathBuf,
	sync::atomic::{AtomicU64, Ordering},
};

/// The template's socket, under a name that is not one until it is ready.
#[derive(Debug)]
pub struct Listener<'a> {
	names: &'a Directory,
	pub socket: OwnedFd,
	temporary: PathBuf,
}

impl Listener<'_> {
	pub fn bind(names: &Directory) -> Result<Listener<'_>, Error> {
		/// Tells the sockets of one process apart.
		static COUNT: AtomicU64 = AtomicU64::new(0);
		let _lock = names.lock()?;
		// Of processes that were killed.
		for name in names.temporary()? {
			if let Found::Dead = Link::find(names, &name)? {
				names.remove(&name)?;
			}
		}
		let count = COUNT.fetch_add(1, Ordering::Relaxed);
		let temporary = PathBuf::from(format!(".{}-{count}", std::process::id()));
		let made = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
		let socket = made.map_err(Error::socket)?;
		let failed = || Error::file("make a socket in", &names.path);
		let address = SocketAddrUnix::new(names.short(&temporary)).map_err(failed())?;
		bind(&socket, &address).map_err(failed())?;
		let listener = Listener { names, socket, temporary };
		listen(&listener.socket, WAITING).map_err(failed())?;
		Ok(listener)
	}

	/// Gives it its name, unless somebody who lives has it but the one that it replaces. Tells the inode that it is,
	/// and gives a connection to that one.
	pub fn name(&self, name: &Name, replaces: Option<&Kept>) -> Result<(u64, Option<Link>), Error> {
		let failed = || Error::file("make", self.names.path.join(name));
		let _lock = self.names.lock()?;
		let found = rustix::fs::statat(&self.names.open, &self.temporary, AtFlags::SYMLINK_NOFOLLOW);
		let socket = found.map_err(failed())?;
		match (Link::find(self.names, name)?, replaces) {
			(Found::Dead, _) => self.names.remove(name)?,
			(Found::Alive(old), Some(kept)) if old.recipe(name)?.is(kept) => {
				self.names.replace(&self.temporary, name).map_err(failed())?;
				return Ok((socket.st_ino, Some(old)));
			}
			// It was removed meanwhile, and is not to come back.
			(Found::Nobody, Some(_)) => return Err(Error::Nobody(name.clone())),
			_ => {}
		}
		let named = self.names.rename(&self.temporary, name).map_err(failed())?;
		if named { Ok((socket.st_ino, None)) } else { Err(Error::Taken(name.clone())) }
	}
}

impl Drop for Listener<'_> {
	fn drop(&mut self) {
		// There when the template isn't ready. It is no name and in nobody's way.
		let _ = self.names.remove(&self.temporary);
	}
}
