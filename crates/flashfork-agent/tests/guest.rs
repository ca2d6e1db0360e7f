//! The agent as init of the default guest under QEMU: what an ordinary process may not do, and vsock
//! through the kernel's loopback. A serial line stands in for the host's side of vsock, which emulation
//! without vhost does not have.

mod common;
mod vm;

use std::{io::Read, net::Shutdown};

use flashfork_proto::agent::{Client, ClientError, CloneIdentity, ErrorKind, Exec, Exit, PORT, Reply, Request, Stamp};
use serde_bytes::ByteBuf;
use vm::Vm;

const LIMIT: usize = 1 << 20;

fn shell(script: &str) -> Exec {
	Exec { argv: ["sh", "-c", script].map(ByteBuf::from).into(), ..Exec::default() }
}

fn text(client: &mut Client<impl Read, impl std::io::Write>, script: &str) -> String {
	let output = client.run(&shell(script), b"", LIMIT).unwrap();
	assert_eq!(output.exit, Exit::Code(0), "{script}: {}", String::from_utf8_lossy(&output.stderr));
	String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_default_guest_boots_serves_renews_itself_and_powers_off() {
	let mut vm = Vm::boot("flashfork.serve=/dev/ttyS1 flashfork.shell", None);
	let mut client = vm.agent();
	assert_eq!(text(&mut client, "cat /proc/1/comm; hostname"), "init\nflashfork\n");
	let modules = text(&mut client, "cut -d' ' -f1 /proc/modules");
	for module in ["virtio_mmio", "vmw_vsock_virtio_transport", "overlay"] {
		assert!(modules.contains(module), "{modules}");
	}
	text(&mut client, "grep /dev/pts /proc/mounts && grep cgroup2 /proc/mounts && ping -c1 127.0.0.1");

	// Orphans are reaped.
	text(&mut client, "sh -c 'sleep 0.1 &'; while ps -o stat,comm | grep -qE 'Z|sleep'; do sleep 0.1; done");

	// Entropy and clock.
	assert_eq!(client.call(&Request::Reseed(ByteBuf::from(vec![7; 32]))).unwrap(), Reply::Reseeded);
	let then = Stamp { seconds: 2_000_000_000, nanoseconds: 5 };
	let Reply::ClockSet { step_ns } = client.call(&Request::SetClock(then)).unwrap() else { panic!("not set") };
	assert!(step_ns > 0);
	assert!(text(&mut client, "date +%s").trim().parse::<i64>().unwrap() - then.seconds < 3600);

	// Hooks, in one trip with the rest.
	text(
		&mut client,
		"printf '#!/bin/sh\necho $FLASHFORK_CLONE $FLASHFORK_INDEX >/tmp/hook\n' >/etc/flashfork/clone.d/1; \
         chmod +x /etc/flashfork/clone.d/1",
	);
	let identity = CloneIdentity { name: "clone-7".into(), index: 7, generation: [1; 16], job: vec![] };
	let runs = client.renew(&[9; 32], then, &identity).unwrap();
	assert!(runs.len() == 1 && runs[0].succeeded(), "{runs:?}");
	assert_eq!(text(&mut client, "cat /tmp/hook"), "clone-7 7\n");

	// No monitor listens on QEMU's ports.
	let output = client.run(&shell("/run/flashfork/agent signal fork"), b"", LIMIT).unwrap();
	assert_eq!(output.exit, Exit::Code(1));
	assert!(String::from_utf8_lossy(&output.stderr).contains("no monitor"), "{output:?}");

	vsock_works_in_this_guest(&mut client);

	// A shell waits on the console, and is there again after its end.
	vm.wait_for("/ # ");
	text(&mut client, "kill -9 $(pidof -s sh) || true; until ps -o tty,comm | grep -q '4,64.*sh'; do sleep 0.1; done");

	assert_eq!(client.call(&Request::PowerOff).unwrap(), Reply::PoweringOff);
	vm.wait_for_end();
}

#[test]
fn a_disk_of_a_directory_becomes_the_root() {
	let dir = tempfile::tempdir().unwrap();
	let root = dir.path().join("root");
	for sub in ["bin", "etc"] {
		std::fs::create_dir_all(root.join(sub)).unwrap();
	}
	for applet in ["busybox", "sh", "cat", "touch", "df", "awk", "ls"] {
		std::fs::copy("/usr/bin/busybox", root.join("bin").join(applet)).unwrap();
	}
	std::fs::write(root.join("etc/motto"), "from a directory").unwrap();
	let image = dir.path().join("image");
	flashfork_image::disk::from_dir(&root, &image, None).unwrap();
	for (overlay, kind) in [("", "/dev/vda"), ("flashfork.overlay", "overlay")] {
		let mut vm = Vm::boot(&format!("flashfork.serve=/dev/ttyS1 flashfork.root=/dev/vda {overlay}"), Some(&image));
		let mut client = vm.agent();
		assert_eq!(text(&mut client, "cat /etc/motto; touch /etc/new; ls /etc"), "from a directorymotto\nnew\n");
		assert_eq!(text(&mut client, "awk '$2==\"/\" {print $1}' /proc/mounts").lines().last(), Some(kind));
		assert_eq!(text(&mut client, "ls /run/flashfork"), "agent\n");
		client.call(&Request::PowerOff).unwrap();
		vm.wait_for_end();
		// Only without the overlay is the disk written to.
		let written =
			std::process::Command::new("/usr/sbin/debugfs").args(["-R", "stat /etc/new"]).arg(&image).output();
		let there = String::from_utf8_lossy(&written.unwrap().stdout).contains("Inode");
		assert_eq!(there, overlay.is_empty(), "{overlay}");
		if there {
			let mut debugfs = std::process::Command::new("/usr/sbin/debugfs");
			debugfs.args(["-w", "-R", "rm /etc/new"]).arg(&image);
			assert!(debugfs.status().unwrap().success());
		}
	}
}

#[test]
fn a_guest_that_can_not_be_set_up_says_why_and_goes_down() {
	for (words, reason) in
		[("flashfork.raedy=fork", "means nothing"), ("flashfork.root=/dev/vdz", "/dev/vdz does not appear")]
	{
		let mut vm = Vm::boot(words, None);
		vm.wait_for_end();
		assert!(vm.console().contains(reason), "{}", vm.console());
	}
}

/// Runs `in_the_guest` there, through the agent.
fn vsock_works_in_this_guest(client: &mut Client<impl Read, impl std::io::Write>) {
	let script = format!(
		"insmod /test/modules/vsock_loopback.ko; /run/flashfork/agent serve vsock --system & \
         FLASHFORK_IN_GUEST=1 exec {} --exact in_the_guest --ignored --nocapture",
		vm::TEST_PROGRAM
	);
	let output = client.run(&shell(&script), b"", LIMIT).unwrap();
	let said = String::from_utf8_lossy(&output.stdout);
	assert!(output.exit == Exit::Code(0) && said.contains("1 passed"), "{said}{output:?}");
}

/// The other half of the test above: over vsock's loopback to an agent.
#[test]
#[ignore = "runs in the guest"]
fn in_the_guest() {
	assert!(std::env::var_os("FLASHFORK_IN_GUEST").is_some());
	let socket = vm::connect_loopback(PORT);
	let mut client = Client::connect(socket.try_clone().unwrap(), socket.try_clone().unwrap()).unwrap();
	let input = vec![5; 3 << 20];
	let output = client.run(&shell("cat"), &input, 4 << 20).unwrap();
	assert!(output.stdout == input);
	assert_eq!(client.call(&Request::Reseed(ByteBuf::from(vec![7; 32]))).unwrap(), Reply::Reseeded);
	let denied = client.call(&Request::PowerOff);
	assert!(matches!(denied, Err(ClientError::Agent(error)) if error.kind == ErrorKind::Denied));
	// A lost connection leaves the listener alive, as after a clone.
	socket.shutdown(Shutdown::Both).unwrap();
	let socket = vm::connect_loopback(PORT);
	Client::connect(socket.try_clone().unwrap(), socket).unwrap().call(&Request::Ping).unwrap();
}
