//! Ports of the caller's in place of those on which a template listens.

use crate::{error::Error, link::Link, name::Name};
use flashfork_core::forkall;
use flashfork_warm::LISTENERS;
use std::{
	collections::BTreeSet,
	os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// A port for a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
	/// The port on which the template listens; `None` where that is one only.
	pub instead_of: Option<u16>,
	/// The port on which the clone is to listen.
	pub port: u16,
}

/// A socket made for one of them, and the program's descriptor in whose place it comes.
pub type Socket = (i32, OwnedFd);

/// Asks the template on which sockets it listens, and makes those that listen on the other ports, as these do. They are
/// bound with the rights of this process, in its network.
pub fn sockets(link: &Link, name: &Name, wanted: &[Listen]) -> Result<Vec<Socket>, Error> {
	if wanted.is_empty() {
		return Ok(Vec::new());
	}
	let there = link.listeners(name)?.into_iter().map(|(number, socket)| {
		let port = forkall::port(socket.as_raw_fd()).map_err(|e| Error::socket_of(name, e.into_raw()))?;
		Ok((number, port, socket))
	});
	let there = there.collect::<Result<Vec<_>, Error>>()?;
	let ports: BTreeSet<u16> = there.iter().map(|(_, port, _)| *port).collect();
	let mut made = Vec::new();
	for Listen { instead_of, port } in wanted {
		let only = ports.first().filter(|_| ports.len() == 1);
		let Some(old) = instead_of.as_ref().or(only).filter(|port| ports.contains(port)) else {
			let ports = ports.into_iter().collect();
			return Err(Error::Listens { name: name.clone(), asked: *instead_of, ports });
		};
		for (number, _, socket) in there.iter().filter(|(_, port, _)| port == old) {
			let new = forkall::listen_alike(socket.as_raw_fd(), *port)
				.map_err(|e| Error::Port { port: *port, source: std::io::Error::from_raw_os_error(e.into_raw()) })?;
			// SAFETY: a new descriptor, nobody else's.
			made.push((*number, unsafe { OwnedFd::from_raw_fd(new) }));
		}
	}
	if made.len() > LISTENERS {
		return Err(Error::ManyPorts(made.len()));
	}
	Ok(made)
}
