//! What the guest's driver takes for system calls: eight bytes each (guest.c).

/// How many inputs there are, and the calls of each.
const INPUTS: usize = 16;
const CALLS: usize = 8;

/// Calls that neither wait nor end the driver, whatever their arguments are: read, write, open, stat, poll, mprotect,
/// brk, rt_sigaction, pread64, access, pipe, sched_yield, madvise, dup, getpid, socket, uname, fcntl, getcwd, mkdir,
/// readlink, gettimeofday, sysinfo, times, getuid, getppid, epoll_create1, pipe2, timerfd_create, memfd_create.
const NUMBERS: [u16; 30] = [
	1, 2, 4, 10, 12, 13, 17, 21, 22, 24, 28, 32, 39, 41, 63, 72, 79, 83, 89, 96, 99, 100, 102, 104, 110, 186, 283, 291,
	293, 319,
];
/// In an argument from here on: the place of a string, 256 bytes of the input for each.
const STRING: u8 = 0xc0;

/// The inputs of every fork server.
pub fn all() -> Vec<Vec<u8>> {
	let mut random = fastrand::Rng::with_seed(10);
	let mut call = || {
		let number = NUMBERS[random.usize(..NUMBERS.len())];
		let mut bytes = [0; 6];
		random.fill(&mut bytes);
		[&number.to_le_bytes()[..], &bytes].concat()
	};
	(0..INPUTS).map(|_| (0..CALLS).flat_map(|_| call()).collect()).collect()
}

/// Mounts proc, and has the kernel panic by its trigger.
pub fn crash() -> Vec<u8> {
	let [mount, open, write] = [165, 2, 1].map(u16::to_le_bytes);
	let string = |place: u8| STRING + place;
	let calls = [
		(mount, [string(1), string(2), string(1), 0, 0, 0]),
		(open, [string(3), 1, 0, 0, 0, 0]),
		(write, [3, string(4), 1, 0, 0, 0]),
	];
	let mut input: Vec<u8> = calls.iter().flat_map(|(number, arguments)| [&number[..], arguments].concat()).collect();
	for (place, text) in (1..).zip(["proc", "/dev", "/dev/sysrq-trigger", "c"]) {
		input.resize(place * 256, 0);
		input.extend(text.bytes());
	}
	input
}
