//! Shells as processes, seen from the daemon's end of their channels.

mod common;
#[path = "common/shell.rs"]
mod shell_client;

use common::{DONE, FORK, NONCE, SHOWS, WRITES, guest_code, kvm, renewal, shape};
use flashfork_proto::{
	shell::{Ended, FromShell, Go, Run, ToShell},
	signal::Done,
};
use shell_client::{Shell, Template, template};
use std::os::fd::OwnedFd;

/// What a clone of [`guest`] ends with.
fn result(index: u32) -> Ended {
	let result = [&NONCE.to_le_bytes()[..], &index.to_le_bytes()].concat();
	Ended::Done(Done { status: 0, result })
}

/// Signals FORK, then does nothing that the monitor sees.
fn idler() -> Vec<u8> {
	[FORK, &[0xeb, 0xfe]].concat() // jmp $
}

#[test]
fn a_ram_nonce_proves_that_a_claimed_shell_is_no_reboot_and_siblings_do_not_see_each_other() {
	let Some(_) = kvm() else { return };
	let template = template(shape(16, 1), &guest_code());
	for (index, mut shell) in (1..).zip(Shell::prepare_many(shape(16, 1), 3)) {
		let times = shell.claim(&template, index);
		assert!(
			[times.check, times.map, times.devices, times.machine, times.vcpus, times.first_exit]
				.iter()
				.all(|t| *t > 0),
			"{times:?}"
		);
		let (ended, status) = shell.ended();
		assert_eq!(ended, result(index as u32));
		assert!(status.success());
	}
}

#[test]
fn a_primed_shell_becomes_that_clone_when_it_is_told_to() {
	let Some(_) = kvm() else { return };
	let template = template(shape(16, 1), &guest_code());
	let mut shells = Shell::prepare_many(shape(16, 1), 3);
	shells.iter_mut().for_each(|shell| shell.prime(&template));
	for (index, shell) in (1..).zip(&mut shells).skip(1) {
		let times = shell.go(index);
		assert_eq!(times.map, 0, "memory was there");
		let (ended, status) = shell.ended();
		assert_eq!(ended, result(index as u32));
		assert!(status.success());
	}
	shells[0].stops();
}

/// It writes 64 KB at 0x10000 once it is a clone.
#[test]
fn a_shell_tells_what_its_guest_has_written_and_the_next_one_has_it_there_before() {
	let Some(_) = kvm() else { return };
	let writer = [FORK, WRITES, SHOWS, &[0xeb, 0xfe]]; // jmp $
	let template = template(shape(16, 1), &writer.concat());
	let has_all = |runs: &[Run]| runs.iter().any(|run| run.first <= 16 && run.first + run.pages >= 32);
	let told = |shell: &mut Shell| {
		while shell.console.is_empty() {
			let Ok((FromShell::Console(bytes), _)) = shell.channel.receive() else { panic!("no console") };
			shell.console = bytes;
		}
		shell.send(ToShell::Tell);
		let FromShell::Written(runs) = shell.next() else { panic!("it doesn't tell") };
		runs
	};
	let [mut one, mut other, mut wrong] = Shell::prepare_many(shape(16, 1), 3).try_into().unwrap_or_else(|_| panic!());
	one.claim(&template, 1);
	let runs = told(&mut one);
	if runs.is_empty() {
		return eprintln!("skipped: this kernel can't tell quickly which pages are a process's own");
	}
	assert!(has_all(&runs), "{runs:?}");
	other.prime(&template);
	other.send(ToShell::Populate(runs));
	assert_eq!(other.next(), FromShell::Primed);
	other.go(2);
	assert!(has_all(&told(&mut other)));
	wrong.prime(&template);
	wrong.send(ToShell::Populate(vec![Run { first: 4095, pages: 2 }]));
	assert!(matches!(wrong.next(), FromShell::Failed(why) if why.contains("none of a template's memory")));
}

#[test]
fn a_primed_shell_is_good_for_nothing_else_and_one_that_was_not_primed_does_not_go() {
	let Some(_) = kvm() else { return };
	let template = template(shape(16, 1), &guest_code());
	let mut shells = Shell::prepare_many(shape(16, 1), 4);
	let go = ToShell::Go(Box::new(Go { renewal: renewal(1), cid: 3 }));
	shells[0].send(go);
	shells[0].refuses("was due");
	for shell in &mut shells[1..] {
		shell.prime(&template);
	}
	shells[1].send_claim(&template, 1);
	shells[1].refuses("was due");
	shells[2].send_prime(&template);
	shells[2].refuses("was due");
	// And a clone is not primed.
	shells[3].go(1);
	assert_eq!(shells[3].ended().0, result(1));
	let mut running = Shell::claimed(shape(16, 1), &self::template(shape(16, 1), &idler()), 1);
	running.send_prime(&template);
	running.refuses("");
}

#[test]
fn a_guest_that_never_exits_is_claimed_paused_rolled_back_and_stopped() {
	let Some(_) = kvm() else { return };
	let template = template(shape(16, 2), &idler());
	let mut shell = Shell::claimed(shape(16, 2), &template, 1);
	for request in [ToShell::Pause, ToShell::Resume, ToShell::Pause] {
		shell.does(request);
	}
	for index in 2..5 {
		shell.send(ToShell::Rollback(Box::new(renewal(index))));
		assert!(matches!(shell.next(), FromShell::Claimed(_)));
	}
	shell.send(ToShell::Stop);
	let (ended, status) = shell.ended();
	assert_eq!(ended, Ended::Stopped);
	assert!(status.success());
}

/// A line of /proc/PID/limits: the hard limit.
fn limit(pid: u32, name: &str) -> u64 {
	let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
	let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
	line.split_whitespace().nth(1).unwrap().parse().unwrap_or(u64::MAX)
}

#[test]
fn a_shell_is_limited_before_its_guest_runs_and_is_the_first_to_go_when_memory_runs_out() {
	let Some(_) = kvm() else { return };
	let template = template(shape(16, 1), &idler());
	let mut shell = Shell::prepare(shape(16, 1));
	let pid = shell.child.id();
	let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
	let its = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
	assert!(its.trim().parse::<i32>().unwrap() >= 500, "{its} beside {own}");
	assert_eq!((limit(pid, "Max file size"), limit(pid, "Max processes")), (0, 0));
	assert!(limit(pid, "Max data size") > 1 << 40, "nothing was promised yet");
	shell.claim(&template, 1);
	let is_limited = |pid| {
		assert!((16 << 20..256 << 20).contains(&limit(pid, "Max data size")));
		assert!((16 << 20..8 << 30).contains(&limit(pid, "Max address space")));
	};
	is_limited(pid);
	// One that is primed has a guest's data.
	let mut shell = Shell::prepare(shape(16, 1));
	shell.prime(&template);
	is_limited(shell.child.id());
}

#[test]
fn a_template_can_be_made_from_outside() {
	let Some(_) = kvm() else { return };
	let mut booted = Shell::prepare(shape(16, 1));
	// mov dx, 0x3f8; mov al, 'x'; l: out dx, al; jmp l
	booted.boot(&[0xba, 0xf8, 0x03, 0xb0, b'x', 0xee, 0xeb, 0xfd]);
	let template = booted.freeze();
	booted.stops();
	let mut shell = Shell::claimed(shape(16, 1), &template, 1);
	shell.stops();
	assert!(!shell.console.is_empty() && shell.console.iter().all(|byte| *byte == b'x'), "{:?}", shell.console);
}

#[test]
fn a_clone_is_alive_only_when_the_guest_echoes_the_generation_it_was_given() {
	let Some(_) = kvm() else { return };
	let alive = |generation: [u8; 6]| {
		[
			FORK,
			&[0xba, 0x3c, 0x12, 0xbf, 0x00, 0x30, 0xb9, 0x20, 0x00, 0xfc, 0xf3, 0x6c], // mov di, 0x3000; mov cx, 32; cld; rep insb
			&[0xbe, 0x10, 0x30],                                                       // mov si, 0x3010: the generation id
			&generation,
			&[0xb9, 0x10, 0x00, 0xf3, 0x6e],       // mov cx, 16; rep outsb
			&[0xba, 0x34, 0x12, 0xb0, 0x40, 0xee], // ALIVE
			&[0xec, 0xba, 0x3c, 0x12, 0xee],       // in al, dx: status; mov dx, 0x123c; out dx, al
			&[0x66, 0x31, 0xc0, 0xee, 0xee, 0xee], // three zeros: a whole status
			DONE,
		]
		.concat()
	};
	let good = template(shape(16, 1), &alive([0x90; 6]));
	let mut shell = Shell::claimed(shape(16, 1), &good, 6);
	assert_eq!(shell.next(), FromShell::Alive([7; 16]));
	assert_eq!(shell.ended().0, Ended::Done(Done { status: 0, result: Vec::new() }));
	// inc byte [si], and nothing
	let bad = template(shape(16, 1), &alive([0xfe, 0x04, 0x90, 0x90, 0x90, 0x90]));
	let mut shell = Shell::claimed(shape(16, 1), &bad, 6);
	// Refused, and the daemon hears nothing of it.
	assert_eq!(shell.ended().0, Ended::Done(Done { status: 3, result: Vec::new() }));
}

#[test]
fn a_fork_signal_of_a_clone_is_refused_and_it_goes_on() {
	let Some(_) = kvm() else { return };
	let code = [
		FORK,
		&[0xb0, 0x10, 0xee, 0xec],                               // FORK; in al, dx: status
		&[0xba, 0x3c, 0x12, 0xee, 0x30, 0xc0, 0xee, 0xee, 0xee], // status as payload
		DONE,
	];
	let template = template(shape(16, 1), &code.concat());
	let mut shell = Shell::claimed(shape(16, 1), &template, 1);
	assert_eq!(shell.next(), FromShell::Forked);
	shell.send(ToShell::Refuse);
	assert_eq!(shell.ended().0, Ended::Done(Done { status: 3, result: Vec::new() }));
}

/// The shell says in one line why it won't, and ends.
fn refused(template: &Template, why: &str) {
	for (claimed, mut shell) in [true, false].into_iter().zip(Shell::prepare_many(shape(16, 1), 2)) {
		if claimed {
			shell.send_claim(template, 1)
		} else {
			shell.send_prime(template)
		}
		shell.refuses(why);
	}
}

#[test]
fn what_is_no_template_is_refused() {
	let Some(_) = kvm() else { return };
	let good = template(shape(16, 1), &guest_code());
	let with_ram = |ram: OwnedFd| Template { ram, state: good.state.clone() };
	let unsealed = flashfork_vmm::memory::create("flashfork:test", 16 << 20, shape(16, 1).pages).unwrap();
	refused(&with_ram(unsealed), "not sealed");
	let short = flashfork_vmm::memory::create("flashfork:test", 8 << 20, shape(16, 1).pages).unwrap();
	flashfork_vmm::memory::seal(&short).unwrap();
	refused(&with_ram(short), "were expected");
	refused(&with_ram(std::fs::File::open("/dev/zero").unwrap().into()), "not a memory file");
	let damaged = |change: fn(&mut Vec<u8>)| {
		let mut state = good.state.clone();
		change(&mut state);
		Template { ram: good.ram.try_clone().unwrap(), state }
	};
	refused(&damaged(|state| state[100] ^= 1), "checksum");
	refused(&damaged(|state| state.truncate(1000)), "damaged");
	refused(&template(shape(17, 1), &guest_code()), "the template is for");
	let mut shell = Shell::claimed(shape(16, 1), &good, 3);
	assert_eq!(shell.ended().0, result(3));
}

#[test]
fn a_killed_shell_harms_no_other() {
	let Some(_) = kvm() else { return };
	let template = template(shape(16, 1), &guest_code());
	let idle = self::template(shape(16, 1), &idler());
	let mut shells = Shell::prepare_many(shape(16, 1), 4);
	shells[0].claim(&idle, 1);
	shells[2].claim(&idle, 2);
	shells[0].child.kill().unwrap();
	shells[1].child.kill().unwrap();
	shells[0].child.wait().unwrap();
	shells[2].does(ToShell::Pause);
	shells[3].claim(&template, 4);
	assert_eq!(shells[3].ended().0, result(4));
}

#[test]
fn a_shell_without_a_daemon_ends() {
	let Some(_) = kvm() else { return };
	let template = template(shape(16, 1), &idler());
	let mut shells = Shell::prepare_many(shape(16, 1), 2);
	shells[1].claim(&template, 1);
	for shell in &mut shells {
		let (_, unused) = flashfork_proto::shell::Channel::pair().unwrap();
		drop(std::mem::replace(&mut shell.channel, unused));
		shell.child.wait().unwrap();
	}
}

#[test]
fn a_message_at_the_wrong_time_ends_the_shell() {
	let Some(_) = kvm() else { return };
	for wrong in [ToShell::Pause, ToShell::Freeze, ToShell::Input(vec![1]), ToShell::Prepare(shape(16, 1))] {
		let mut shell = Shell::prepare(shape(16, 1));
		shell.send(wrong);
		shell.refuses("was due");
	}
}

#[test]
fn input_reaches_the_guest_however_much_it_is() {
	let Some(_) = kvm() else { return };
	let code = [
		FORK,
		&[0xba, 0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xfb], // l: mov dx, 0x3fd; w: in al, dx; test al, 1; jz w
		&[0xba, 0xf8, 0x03, 0xec, 0xee],                   // mov dx, 0x3f8; in al, dx; out dx, al
		&[0xeb, 0xf1],                                     // jmp l
	];
	let template = template(shape(16, 1), &code.concat());
	let mut shell = Shell::claimed(shape(16, 1), &template, 1);
	let text: Vec<u8> = (0..1000u32).map(|n| b'a' + (n % 26) as u8).collect();
	shell.send(ToShell::Input(text.clone()));
	while shell.console.len() < text.len() {
		match shell.channel.receive().unwrap().0 {
			FromShell::Console(bytes) => shell.console.extend(bytes),
			other => panic!("{other:?}"),
		}
	}
	assert_eq!(shell.console, text);
}
