//! A template made anew lets go of the ports on which its program listens, so that the new one can have them.
//!
//! From then on it makes no clones, whatever becomes of the new one: they would listen nowhere.

use crate::{
	message, moment,
	serve::{Keeper, facts},
};
use flashfork_warm::{Order, PORTS, Tell, Why};
use std::{
	collections::HashSet,
	os::fd::{AsFd, OwnedFd},
};

/// How far it is with that.
#[derive(Debug)]
pub struct LetGo {
	/// Inodes of the sockets that it had, which clones share.
	sockets: HashSet<u64>,
	/// Whether the maker has closed its own.
	done: bool,
	/// Connections of those who wait for that.
	waiting: Vec<u64>,
}

impl Keeper {
	/// Asked for by a connection.
	pub fn let_go(&mut self, id: u64) {
		match &mut self.gone {
			Some(LetGo { done: false, waiting, .. }) => waiting.push(id),
			Some(LetGo { sockets, .. }) => {
				let ports = taken(sockets);
				self.connections[&id].tell(ports);
			}
			None if self.listeners.is_empty() || !tell_maker(&self.line) => {
				let facts = facts(&self.facts, &self.files, None);
				self.connections[&id].tell(Tell::Facts(facts));
			}
			None => {
				let sockets = self.listeners.drain(..);
				let inodes = sockets.filter_map(|(_, socket)| Some(rustix::fs::fstat(socket).ok()?.st_ino));
				self.gone = Some(LetGo { sockets: inodes.collect(), done: false, waiting: vec![id] });
				for id in std::mem::take(&mut self.wanted) {
					if let Some(connection) = self.connections.get_mut(&id) {
						connection.request = None;
						connection.tell(told(self.told.renews));
					}
				}
			}
		}
	}

	/// The maker has done so; false if it was not told to.
	pub fn has_let_go(&mut self) -> bool {
		let Some(LetGo { sockets, done, waiting }) = &mut self.gone else { return false };
		*done = true;
		let ports = taken(sockets);
		for connection in waiting.drain(..).filter_map(|id| self.connections.get(&id)) {
			connection.tell(ports);
		}
		true
	}
}

/// It lets go after it has made the clone ordered before.
fn tell_maker(line: &OwnedFd) -> bool {
	message::send(line.as_fd(), &Order::LetGo.encode(), &[]).is_ok()
}

/// What a caller is told in place of a clone.
pub fn told(renews: bool) -> Tell {
	Tell::stale(Why::LetGo, renews, 1, b"")
}

/// On which ports others listen by these sockets.
fn taken(sockets: &HashSet<u64>) -> Tell {
	let mut ports = [0; PORTS];
	ports.iter_mut().zip(moment::ports(sockets, "self")).for_each(|(place, port)| *place = port);
	Tell::Ports { ports }
}
