//! Signals reach the clone as they would reach a program in the command's place.

use crate::place::{Place, Start, flashfork, ignoring, kill, next_line, pid, rest, signal, state, stdout, until};
use std::{
	io::{BufRead, BufReader, Read},
	os::unix::process::ExitStatusExt,
	process::Child,
};

/// A clone of the shell that says `ready` and its number, then what it gets.
fn trapping(place: &Place, script: &str) -> (Child, BufReader<std::process::ChildStdout>, i32) {
	let mut child = place.shell(script).start_talk();
	let mut output = BufReader::new(child.stdout.take().unwrap());
	let text = next_line(&mut output);
	(child, output, text.trim().parse().unwrap())
}

const TRAPS: &str = "for s in HUP INT QUIT TERM USR1 USR2 ALRM WINCH; do trap \"echo $s; exit 3\" $s; done; \
					 echo $$; while :; do sleep 0.01; done";

#[test]
fn signals_to_the_command_reach_the_clone() {
	let place = Place::with_shell();
	for (number, name) in [
		(libc::SIGHUP, "HUP"),
		(libc::SIGINT, "INT"),
		(libc::SIGQUIT, "QUIT"),
		(libc::SIGTERM, "TERM"),
		(libc::SIGUSR1, "USR1"),
		(libc::SIGUSR2, "USR2"),
		(libc::SIGALRM, "ALRM"),
		(libc::SIGWINCH, "WINCH"),
	] {
		let (mut command, output, _) = trapping(&place, TRAPS);
		signal(&command, number);
		let text = rest(output);
		assert_eq!((text.trim(), command.wait().unwrap().code()), (name, Some(3)));
	}
}

#[test]
fn a_signal_that_ends_the_clone_ends_the_command() {
	let place = Place::with_shell();
	for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
		let (mut command, _output, clone) = trapping(&place, "echo $$; exec sleep 1000");
		signal(&command, number);
		assert_eq!(command.wait().unwrap().signal(), Some(number));
		assert_eq!(state(clone), None);
	}
}

#[test]
fn stopping_and_continuing_is_for_both() {
	let place = Place::with_shell();
	let (mut command, output, clone) = trapping(&place, "echo $$; read x; echo on");
	let pid = pid(&command);
	for stop in [libc::SIGTSTP, libc::SIGTSTP] {
		signal(&command, stop);
		both_are(true, pid, clone);
		signal(&command, libc::SIGCONT);
		both_are(false, pid, clone);
	}
	// A clone that stops itself.
	kill(clone, libc::SIGSTOP);
	both_are(true, pid, clone);
	signal(&command, libc::SIGCONT);
	drop(command.stdin.take());
	let text = rest(output);
	assert_eq!((text.as_str(), command.wait().unwrap().code()), ("on\n", Some(0)));
}

fn both_are(stopped: bool, one: i32, other: i32) {
	until("both are stopped or go on", || [one, other].iter().all(|pid| (state(*pid) == Some('T')) == stopped));
}

/// Who stops and continues the clone itself, as debuggers do, finds its command to be one job with it.
#[test]
fn a_clone_that_others_stop_and_continue_takes_its_command_along() {
	let place = Place::with_shell();
	let (mut command, _output, clone) =
		trapping(&place, "trap 'echo continued' CONT; echo $$; while :; do sleep 0.01; done");
	let pid = pid(&command);
	for _ in 0..20 {
		kill(clone, libc::SIGSTOP);
		both_are(true, pid, clone);
		kill(clone, libc::SIGCONT);
		both_are(false, pid, clone);
	}
	// However fast that goes, they end up alike.
	for _ in 0..200 {
		kill(clone, libc::SIGSTOP);
		kill(clone, libc::SIGCONT);
	}
	kill(clone, libc::SIGSTOP);
	both_are(true, pid, clone);
	kill(clone, libc::SIGKILL);
	assert_eq!(command.wait().unwrap().signal(), Some(libc::SIGKILL), "a stopped command ends with its clone");
}

/// A clone continued from outside gets the signal once, not again from its command.
#[test]
fn a_clone_is_continued_once() {
	let place = Place::new();
	place.warm(&["/usr/bin/perl", "-e", "1"]);
	let code = "$| = 1; my $n = 0; $SIG{CONT} = sub { $n++ }; $SIG{TERM} = sub { print \"$n\\n\"; exit }; print \"$$\\n\"; sleep 1 while 1";
	let mut command = place.flashfork(&["clone", "t", "-e", code]).start();
	let mut output = BufReader::new(command.stdout.take().unwrap());
	let mut text = next_line(&mut output);
	let (pid, clone) = (pid(&command), text.trim().parse().unwrap());
	kill(clone, libc::SIGSTOP);
	both_are(true, pid, clone);
	kill(clone, libc::SIGCONT);
	both_are(false, pid, clone);
	// The command has read all its signals by the time the last has gone through it.
	signal(&command, libc::SIGTERM);
	text.clear();
	output.read_to_string(&mut text).unwrap();
	assert_eq!((text.as_str(), command.wait().unwrap().code()), ("1\n", Some(0)));
}

/// As with `nohup`, or for a job in the background of a script.
#[test]
fn an_ignored_signal_is_ignored_by_both() {
	let place = Place::with_shell();
	let clone = format!("trap '' INT; {} clone t -c 'kill -INT $PPID $$; echo lives'", flashfork());
	let script = clone.replace("$PPID ", "");
	let output = place.sh(&script).output().unwrap();
	assert_eq!((stdout(&output), output.status.code()), ("lives\n", Some(0)));
}

/// Of a program that handles it all the same, as servers do.
#[test]
fn an_ignored_signal_reaches_a_clone_that_handles_it() {
	let place = Place::new();
	place.warm(&["/usr/bin/python3", "-c", "import signal"]);
	// A signal that comes just before pause(2) would be handled after it.
	let code = "import os, signal, sys, time\nsignal.signal(2, lambda n, _: (print(n), sys.exit(3)))\n\
				print(os.getpid(), flush=True)\nwhile True: time.sleep(0.01)";
	let mut clone = ignoring(place.flashfork(&["clone", "t", "-c", code]), &[libc::SIGINT]);
	let mut clone = clone.start();
	let mut output = BufReader::new(clone.stdout.take().unwrap());
	output.read_line(&mut String::new()).unwrap();
	signal(&clone, libc::SIGINT);
	let text = rest(output);
	assert_eq!((text.as_str(), clone.wait().unwrap().code()), ("2\n", Some(3)));
}
