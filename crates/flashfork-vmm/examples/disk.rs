//! Boots a Linux guest with a disk, has its agent mount and write it, freezes it from outside, and shows that clones
//! write each for itself and that a rollback undoes it: `disk KERNEL INITRD EXT4_IMAGE [MEMORY_MIB] [VCPUS]`. Every
//! step's output goes to standard output; the guests' consoles to standard error.

use flashfork_image::guest::CMDLINE;
use flashfork_proto::{
	agent::{Client, CloneIdentity, Exec, PORT},
	shape::{Pages, Shape},
	shell::Renewal,
};
use flashfork_vmm::{
	boot::Source,
	devices::virtio::blk::{DEFAULT_LIMIT, Image},
	machine::{Frozen, Machine},
	memory::Watch,
};
use kvm_ioctls::Kvm;
use std::{
	error::Error,
	fs::File,
	io::{Read, stderr},
	os::unix::net::UnixStream,
	time::{Duration, Instant},
};

/// For one answer of a guest that may be booting under emulation.
const PATIENCE: Duration = Duration::from_secs(120);
/// What is on the disk, past the page cache.
const LOOK: &str = "echo 3 >/proc/sys/vm/drop_caches; cat /mnt/file";

type Agent = Client<UnixStream, UnixStream>;

fn main() -> Result<(), Box<dyn Error>> {
	let args: Vec<String> = std::env::args().collect();
	let [_, kernel, initrd, image, rest @ ..] = &args[..] else {
		return Err("usage: disk KERNEL INITRD EXT4_IMAGE [MEMORY_MIB] [VCPUS]".into());
	};
	let number = |at: usize, default: u32| rest.get(at).map_or(Ok(default), |text| text.parse());
	let shape = Shape {
		memory_mib: number(0, 256)?,
		vcpus: number(1, 1)?.try_into()?,
		pages: Pages::Small,
		disk: true,
		disk_slots: 0,
	};
	let source = Source::Linux {
		kernel: File::open(kernel)?,
		initrd: Some(File::open(initrd)?),
		cmdline: format!("{CMDLINE} nokaslr nowatchdog"),
	};
	let disk = Image { file: File::open(image)?, read_only: false, serial: "example".into(), limit: DEFAULT_LIMIT };
	let kvm = Kvm::new()?;
	let (mut parent, vcpu0) = Machine::prepare(&kvm, shape, Box::new(stderr()))?;
	parent.spawn(vcpu0)?;
	parent.boot(&source, Some(disk))?;
	parent.resume();
	let mut agent = connect(&parent)?;
	run("template", &mut agent, "cat /sys/block/vda/serial; grep -c processor /proc/cpuinfo")?;
	run(
		"template",
		&mut agent,
		"mount -t ext4 /dev/vda /mnt && echo of the template >/mnt/file && sync; dmesg | grep -i 'error' | grep vda",
	)?;
	parent.pause()?;
	let frozen = parent.freeze(false)?;
	parent.resume();
	run("template", &mut agent, "echo later >>/mnt/file; sync; cat /mnt/file")?;

	let mut clones = Vec::new();
	for index in 0..2 {
		let (start, clone) = (Instant::now(), clone(&kvm, shape, &frozen, index)?);
		let mut agent = connect(&clone)?;
		run("clone", &mut agent, LOOK)?;
		eprintln!("[{:?} from claim to the first command's end]", start.elapsed());
		run(
			"clone",
			&mut agent,
			&format!(
				"echo of clone {index} >>/mnt/file; dd if=/dev/zero of=/mnt/big bs=64k count=64 2>&1 | tail -1; sync; {LOOK}"
			),
		)?;
		clones.push((clone, agent));
	}
	for (_, agent) in &mut clones {
		run("again", agent, LOOK)?;
	}
	let (clone, agent) = &mut clones[0];
	clone.pause()?;
	println!("written: {}", clone.devices().disk_written() > 4 << 20);
	clone.rollback(&renewal(2)?)?;
	clone.resume();
	// The stream of before the rollback is dead.
	println!(
		"old stream: {}",
		if agent.call(&flashfork_proto::agent::Request::Ping).is_err() { "dead" } else { "alive" }
	);
	let mut agent = connect(clone)?;
	run("rolled back", &mut agent, &format!("{LOOK}; ls /mnt; mount | grep -c vda; dmesg | grep -ci 'ext4.*error'"))?;
	// The first time all its memory was dropped; from then on what it has written is copied back.
	for index in 3..7 {
		run("again and again", &mut agent, "sort /proc/kallsyms | tail -1 | wc -l; echo more >>/mnt/file; sync")?;
		clone.pause()?;
		clone.rollback(&renewal(index)?)?;
		clone.resume();
		agent = connect(clone)?;
	}
	run("rolled back", &mut agent, &format!("{LOOK}; dmesg | grep -cE 'EXT4-fs error|Bad page|Oops|segfault'"))?;
	println!("done");
	Ok(())
}

fn clone(kvm: &Kvm, shape: Shape, frozen: &Frozen, index: u64) -> Result<Machine, Box<dyn Error>> {
	let (mut clone, mut vcpu0) = Machine::prepare(kvm, shape, Box::new(stderr()))?;
	clone.watch_with(Watch::find()?);
	clone.copy_back();
	clone.become_clone(vcpu0.vcpu(), frozen, &renewal(index)?, 10 + index as u32)?;
	clone.spawn(vcpu0)?;
	clone.resume();
	Ok(clone)
}

fn connect(machine: &Machine) -> Result<Agent, Box<dyn Error>> {
	let start = Instant::now();
	loop {
		let (host, device) = UnixStream::pair()?;
		host.set_read_timeout(Some(PATIENCE))?;
		machine.devices().vsock().connect(device.into(), PORT);
		match Client::connect(host.try_clone()?, host) {
			Ok(agent) => return Ok(agent),
			Err(e) if start.elapsed() > PATIENCE => return Err(e.into()),
			Err(_) => std::thread::sleep(Duration::from_millis(50)),
		}
	}
}

fn run(who: &str, agent: &mut Agent, script: &str) -> Result<(), Box<dyn Error>> {
	let argv = ["sh", "-c", script].map(|word| word.as_bytes().to_vec().into()).to_vec();
	let output = agent.run(&Exec { argv, ..Exec::default() }, &[], 1 << 20)?;
	for line in String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).lines() {
		println!("{who}: {line}");
	}
	Ok(())
}

fn renewal(index: u64) -> Result<Renewal, Box<dyn Error>> {
	let identity = CloneIdentity { name: format!("clone{index}"), index, generation: rand()?, job: Vec::new() };
	Ok(Renewal { identity, entropy: rand()?, disks: Vec::new() })
}

fn rand<const N: usize>() -> Result<[u8; N], Box<dyn Error>> {
	let mut bytes = [0; N];
	File::open("/dev/urandom")?.read_exact(&mut bytes)?;
	Ok(bytes)
}
