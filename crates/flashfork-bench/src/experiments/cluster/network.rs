//! A network of machines that are network namespaces: each has a link to one switch, in a namespace of its own. None
//! has a name, so all is gone with the processes in it and the descriptors of this one.

use std::{
	fs::File,
	io::Write,
	os::fd::{AsFd, AsRawFd},
	thread,
};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::{prelude::*, subjects::command::last_line};

/// Where the namespace of a thread is found.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace.
pub struct Space(File);

/// As long as this is there its thread is in another namespace.
pub struct Inside(Space);

/// The machines, and the switch between them.
pub struct Network {
	switch: Space,
	pub machines: Vec<Space>,
}

impl Space {
	/// A new one, with its loopback device.
	pub fn new() -> Result<Self> {
		let made = thread::spawn(|| {
			// SAFETY: this leaves the thread's network namespace alone, of which nothing in memory depends.
			unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
			File::open(OWN)
		});
		let made = made.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread has ended")));
		let space = Self(made.map_err(|error| {
			unable!(
				"can't make a network namespace ({error}): bench cluster gives each server and node one, as root; \
				 flashfork bench serve measures one server, as any user"
			)
		})?);
		space.ip("link set lo up\n")?;
		Ok(space)
	}

	/// Has this thread be there.
	pub fn enter(&self) -> Result<Inside> {
		let back = Space(File::open(OWN).or_cant("open a network namespace")?);
		self.go()?;
		Ok(Inside(back))
	}

	/// Does something there. What it makes, processes and sockets, stays there.
	pub fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
		let _inside = self.enter()?;
		work()
	}

	fn go(&self) -> Result {
		let moved = move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network));
		moved.or_cant("enter a network namespace")
	}

	/// What `ip` calls it, as long as this process has it open.
	fn path(&self) -> String {
		format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
	}

	fn ip(&self, commands: &str) -> Result {
		let done = self.within(|| {
			let mut ip = Command::new("ip");
			ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
			let mut ip = ip.spawn().or_cant("run ip (apt-get install iproute2)")?;
			let told = ip.stdin.take().map(|mut pipe| pipe.write_all(commands.as_bytes()));
			told.transpose().and_then(|_| ip.wait_with_output()).or_cant("run ip")
		})?;
		if done.status.success() { Ok(()) } else { Err(unable!("ip: {}", last_line(&done.stderr, "it fails"))) }
	}
}

impl Drop for Inside {
	fn drop(&mut self) {
		self.0.go().expect("a thread may go back to where it was");
	}
}

impl Network {
	/// Of so many machines.
	pub fn new(machines: usize) -> Result<Self> {
		let switch = Space::new()?;
		let machines = (0..machines).map(|_| Space::new()).collect::<Result<Vec<_>>>()?;
		let mut links = "link add switch type bridge\nlink set switch up\n".to_owned();
		for (i, machine) in machines.iter().enumerate() {
			links += &format!("link add port{i} type veth peer name eth0 netns {}\n", machine.path());
			links += &format!("link set port{i} master switch up\n");
		}
		switch.ip(&links)?;
		for (i, machine) in machines.iter().enumerate() {
			machine.ip(&format!("address add {}/24 dev eth0\nlink set eth0 up\n", Self::address(i)))?;
		}
		Ok(Self { switch, machines })
	}

	/// Of a machine, in this network.
	pub fn address(machine: usize) -> String {
		format!("10.0.0.{}", machine + 1)
	}

	/// Cuts a machine's link at the switch, or mends it.
	pub fn link(&self, machine: usize, up: bool) -> Result {
		self.switch.ip(&format!("link set port{machine} {}\n", if up { "up" } else { "down" }))
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::net::{TcpListener, TcpStream};

	/// Of who isn't root the refusal is asked for; of root, whether machines hear each other, and none of this one.
	#[test]
	fn machines_hear_each_other_alone() {
		let network = match Network::new(2) {
			Err(refused) => {
				assert!(
					!rustix::process::geteuid().is_root() && refused.to_string().contains("bench serve"),
					"{refused}"
				);
				return;
			}
			Ok(network) => network,
		};
		let own = || std::fs::read_link(OWN).unwrap();
		let before = own();
		let [one, two] = &network.machines[..] else { panic!("two machines") };
		let place = (Network::address(0), 1);
		let listener = one.within(|| TcpListener::bind(&place).or_cant("listen")).unwrap();
		let connect = || TcpStream::connect(&place).or_cant("connect");
		two.within(connect).unwrap();
		listener.accept().unwrap();
		assert!(Space::new().unwrap().within(connect).is_err());
		assert_eq!(own(), before);
	}
}
