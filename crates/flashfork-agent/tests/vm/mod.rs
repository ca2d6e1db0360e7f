//! QEMU with the default guest, its console in a file and its second serial line on a socket.

use std::{
	fs::{self, File},
	io::{Cursor, Read, Write},
	os::unix::net::UnixStream,
	path::Path,
	process::{Child, Command, Stdio},
	thread::sleep,
	time::{Duration, Instant},
};

use crate::common::{cache, guest};
use flashfork_image::{GuestFile, KernelFiles, Tree, guest::SERIES};
use flashfork_proto::{PREAMBLE_LEN, agent::Client};
use rustix::net::{
	AddressFamily, SocketType,
	addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque},
	connect, socket,
};

/// This very test program, in the guest.
pub const TEST_PROGRAM: &str = "/test/program";

/// Time a guest has to boot, emulated on a busy machine.
const BOOT: Duration = Duration::from_secs(600);

pub struct Vm {
	qemu: Child,
	directory: tempfile::TempDir,
}

type Line = std::io::Chain<Cursor<[u8; PREAMBLE_LEN]>, UnixStream>;

impl Vm {
	pub fn boot(words: &str, disk: Option<&Path>) -> Self {
		let directory = tempfile::tempdir().unwrap();
		let path = |name: &str| directory.path().join(name);
		let guest = guest();
		// The kernel unpacks archives that follow each other.
		let mut initramfs = File::create(path("initramfs")).unwrap();
		initramfs.write_all(&fs::read(&guest.initramfs).unwrap()).unwrap();
		fs::write(path("tests.cpio"), []).unwrap();
		let mut tests = File::options().read(true).write(true).open(path("tests.cpio")).unwrap();
		test_files().write(&mut tests).unwrap();
		initramfs.write_all(&fs::read(path("tests.cpio")).unwrap()).unwrap();

		let mut command = Command::new("qemu-system-x86_64");
		command
			.args(["-M", "q35", "-accel", "tcg,thread=single", "-cpu", "EPYC", "-m", "512"])
			.args(["-nodefaults", "-display", "none", "-no-reboot"])
			.arg("-kernel")
			.arg(&guest.kernel)
			.arg("-initrd")
			.arg(path("initramfs"))
			.args(["-append", &format!("console=ttyS0 quiet panic=-1 nowatchdog {words}")])
			.args(["-chardev", &format!("file,id=console,path={}", path("console").display())])
			.args(["-device", "isa-serial,chardev=console,index=0"])
			.args(["-chardev", &format!("socket,id=line,server=on,wait=off,path={}", path("line").display())])
			.args(["-device", "isa-serial,chardev=line,index=1"]);
		if let Some(disk) = disk {
			command.args(["-drive", &format!("file={},format=raw,if=virtio", disk.display())]);
		}
		let qemu = command
			.stdin(Stdio::null())
			.stdout(Stdio::null())
			.stderr(File::create(path("messages")).unwrap())
			.spawn()
			.expect("needs qemu-system-x86");
		Self { qemu, directory }
	}

	pub fn agent(&mut self) -> Client<Line, UnixStream> {
		let path = self.directory.path().join("line");
		let start = Instant::now();
		let mut socket = loop {
			match UnixStream::connect(&path) {
				Ok(socket) => break socket,
				Err(_) if start.elapsed() < BOOT => sleep(Duration::from_millis(10)),
				Err(error) => panic!("{error}"),
			}
		};
		socket.set_read_timeout(Some(BOOT)).unwrap();
		// What is sent before the guest has opened its line is lost, so the guest greets first.
		let mut greeting = [0; PREAMBLE_LEN];
		if let Err(error) = socket.read_exact(&mut greeting) {
			panic!("{error}: {}", self.console());
		}
		Client::connect(Cursor::new(greeting).chain(socket.try_clone().unwrap()), socket).unwrap()
	}

	pub fn console(&self) -> String {
		String::from_utf8_lossy(&fs::read(self.directory.path().join("console")).unwrap_or_default()).into_owned()
	}

	pub fn wait_for(&self, text: &str) {
		let start = Instant::now();
		while !self.console().contains(text) {
			assert!(start.elapsed() < BOOT, "it never says {text:?}: {}", self.console());
			sleep(Duration::from_millis(50));
		}
	}

	pub fn wait_for_end(&mut self) {
		let start = Instant::now();
		while self.qemu.try_wait().unwrap().is_none() {
			assert!(start.elapsed() < BOOT, "the guest goes on: {}", self.console());
			sleep(Duration::from_millis(50));
		}
	}
}

impl Drop for Vm {
	fn drop(&mut self) {
		let _ = self.qemu.kill();
		let _ = self.qemu.wait();
	}
}

fn test_files() -> Tree {
	let mut tree = Tree::new();
	let program = GuestFile { host: std::env::current_exe().unwrap(), guest: TEST_PROGRAM.into() };
	tree.add_from_host(&program).unwrap();
	tree.add_libraries().unwrap();
	let kernel = KernelFiles::debian(SERIES, &cache(), &mut |_| ()).unwrap();
	for module in kernel.load_order(&["vsock_loopback"]).unwrap() {
		tree.add_bytes(&format!("/test/modules/{}.ko", module.name), module.content, 0o644);
	}
	tree
}

pub fn connect_loopback(port: u32) -> UnixStream {
	let start = Instant::now();
	loop {
		let socket = socket(AddressFamily::VSOCK, SocketType::STREAM, None).unwrap();
		match connect(&socket, &Loopback(port)) {
			Ok(()) => return socket.into(),
			// The agent has not opened its port yet.
			Err(_) if start.elapsed() < BOOT => sleep(Duration::from_millis(20)),
			Err(error) => panic!("{error}"),
		}
	}
}

struct Loopback(u32);

// SAFETY: `with_sockaddr` passes a valid `sockaddr_vm` with its length; it lives until `f` returns.
unsafe impl SocketAddrArg for Loopback {
	unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
		// SAFETY: all zeros are a value of this plain C structure.
		let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
		address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
		address.svm_cid = libc::VMADDR_CID_LOCAL;
		address.svm_port = self.0;
		f((&raw const address).cast(), size_of::<libc::sockaddr_vm>() as SocketAddrLen)
	}
}
