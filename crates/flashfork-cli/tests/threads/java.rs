//! Java: what is renewed in clones, the launcher, and many clones of one.

use crate::place::{Place, assert_says, both, good, line, often, pids, rest, signal, stderr, stdout, target, until};
use std::{
	collections::{BTreeMap, BTreeSet, VecDeque},
	fs,
	io::{Read, Write},
	net::{TcpListener, TcpStream},
	path::{Path, PathBuf},
	process::{Child, Command, Output, Stdio},
	sync::Once,
	time::Duration,
};

const JAVA: &str = "/usr/bin/java";
/// A small machine of which many can be alive, with all kinds of threads.
const SMALL: [&str; 2] = ["-Xmx64m", "-XX:+UseSerialGC"];

/// A place with a program of these classes, which know flashfork.jar.
fn place(sources: &[&str]) -> Place {
	static BUILT: Once = Once::new();
	let place = Place::new();
	let jar = jar();
	BUILT.call_once(|| {
		let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-jar");
		assert!(Command::new(script).arg(jar.parent().unwrap()).status().unwrap().success());
	});
	for source in sources {
		let class = source.lines().find_map(|line| line.trim_start_matches("public ").strip_prefix("class "));
		let name = class.unwrap().split(' ').next().unwrap();
		let file = place.file(format!("{name}.java"), source);
		let mut javac = Command::new("javac");
		javac.arg("-cp").arg(&jar).arg("-d").arg(place.path()).arg(&file);
		assert!(javac.status().unwrap().success());
	}
	place
}

fn jar() -> PathBuf {
	target().join("debug/flashfork.jar")
}

fn class_path(place: &Place) -> String {
	format!("{}:{}", place.path().display(), jar().display())
}

/// A template `t`, ready there, of `java` with these arguments. What came of it.
fn try_warm(place: &Place, ready: &[&str], arguments: &[&str]) -> Output {
	let path = class_path(place);
	let command = [&["warm", "--threads"], ready, &["t", "--", JAVA, "-cp", &path], arguments].concat();
	place.flashfork(&command).env("OF_TEMPLATE", "").output().unwrap()
}

fn warm(place: &Place, ready: &[&str], arguments: &[&str]) -> Output {
	good(try_warm(place, ready, arguments))
}

/// As those of Maven and Gradle do.
#[test]
fn a_script_that_becomes_java_is_followed() {
	let place = place(&[include_str!("java/Draws.java")]);
	let script = place.at("run");
	let text = format!("#!/bin/sh\nset -- -cp {} \"$@\"\nexec {JAVA} \"$@\"\n", class_path(&place));
	fs::write(&script, text).unwrap();
	let command = ["warm", "--threads", "--ready", "call", "t", "--", "sh", script.to_str().unwrap(), "Draws"];
	good(place.run(&command));
	let clones = [(); 2].map(|()| place.cloned());
	assert!(clones.iter().all(|clone| clone.status.success()), "{}", stderr(&clones[0]));
	let [first, second] = clones.each_ref().map(|clone| stdout(clone).lines().collect::<BTreeSet<_>>());
	assert!(first.len() > 10 && first.len() == second.len() && first != second, "{first:?}");
}

/// Early and late, in main and in other threads, of the template's and new: no two clones draw alike, nor is anything
/// drawn twice, or what was drawn in the template. A `new Random(42)` is the program's own.
#[test]
fn no_generator_of_java_draws_alike_in_two_clones() {
	let place = place(&[include_str!("java/Draws.java")]);
	let template = warm(&place, &["--ready", "call"], &["Draws"]);
	let clones = [(); 3].map(|()| place.cloned());
	let lines = |output: &Output| stdout(output).lines().map(str::to_owned).collect::<Vec<_>>();
	let mut drawn = BTreeMap::new();
	let mut count = 0;
	for line in [&template].into_iter().chain(&clones).flat_map(lines) {
		// The first words say where, and of what.
		let Some((what, value)) = line.rsplit_once(' ').filter(|_| !line.contains(" is ready ")) else { continue };
		count += 1;
		if let Some(other) = drawn.insert(value.to_owned(), what.to_owned()) {
			panic!("{other} and {what} are both {value}");
		}
	}
	// 19 generators: two times in the template, five in each clone.
	assert_eq!(count, 19 * (2 + 3 * 5), "{}", stdout(&clones[0]));
	for clone in &clones {
		// And `ProcessHandle` tells its own process.
		assert_eq!((stderr(clone), clone.status.code()), ("true\ntrue\n", Some(0)));
	}
}

/// From its first instruction on, each thread of a clone draws what no other clone does. They are stopped in the middle
/// of it.
#[test]
fn threads_that_draw_all_the_time_draw_nothing_alike_once_they_are_cloned() {
	let place = place(&[include_str!("java/Hammer.java")]);
	for _ in 0..3 {
		warm(&place, &["--ready", "call"], &["Hammer"]);
		let clones = [(); 2].map(|()| place.cloned());
		let [one, other] = clones.each_ref().map(|clone| {
			assert_eq!((stderr(clone), clone.status.code()), ("", Some(0)));
			stdout(clone).split("thread ").skip(1).map(|own| own.split_whitespace().skip(1).collect::<Vec<_>>())
		});
		let (mut left, mut right) = (BTreeSet::<&str>::new(), BTreeSet::<&str>::new());
		for (one, other) in one.zip(other) {
			// Up to where they were stopped.
			let alike = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
			assert!(alike + 600 < one.len().min(other.len()), "both draw on");
			left.extend(&one[alike..]);
			right.extend(&other[alike..]);
		}
		let common: Vec<_> = left.intersection(&right).collect();
		assert!(left.len() > 4 * 600 && common.is_empty(), "{common:?}");
		place.remove();
	}
}

/// What a thread draws long after it was stopped has nothing in common in two clones.
#[test]
fn a_generator_whose_state_is_in_a_register_draws_nothing_alike_in_clones() {
	let place = place(&[include_str!("java/Registers.java")]);
	for _ in 0..4 {
		warm(&place, &["--ready", "call"], &[&SMALL[..], &["Registers"]].concat());
		let clones = [(); 2].map(|()| place.cloned());
		let [one, other] = clones.each_ref().map(|clone| {
			assert_eq!((stderr(clone), clone.status.code()), ("", Some(0)));
			stdout(clone).lines().collect::<BTreeSet<_>>()
		});
		assert_eq!((one.len(), other.len()), (4 * 1024, 4 * 1024));
		let common = one.intersection(&other).count();
		assert_eq!(common, 0, "of 4096");
		place.remove();
	}
}

#[test]
fn a_generator_that_nobody_knows_is_refused() {
	let place = place(&[include_str!("java/Strange.java")]);
	let refused = try_warm(&place, &["--ready", "call"], &["Strange"]);
	assert_says(line(&refused), "random numbers would be the same in all clones (Strange$Service)");
}

/// Nobody is there who could renew it.
#[test]
fn a_virtual_machine_in_another_program_is_refused() {
	let place = place(&[]);
	let program = place.program_with(
		"program",
		r#"
int main(int argc, char **argv) { if (!dlopen(argv[1], RTLD_NOW)) return 1; flashfork_ready(0, 0); return 0; }
"#,
		&["-ldl"],
	);
	let machine = fs::canonicalize(JAVA).unwrap().with_file_name("../lib/server/libjvm.so");
	let path = [&program, machine.to_str().unwrap()];
	let refused = place.run(&[&["warm", "--threads", "--ready", "call", "t", "--"], &path[..]].concat());
	assert_says(line(&refused), "otherwise than by the program `java`");
}

/// Arguments, environment, working directory, exit status, what is thrown, and the end by `System.exit`.
#[test]
fn the_launcher_runs_a_program_in_each_clone_as_java_does() {
	let place = place(&[include_str!("java/Program.java")]);
	let path = class_path(&place);
	let elsewhere = place.at("ü else where");
	fs::create_dir(&elsewhere).unwrap();
	fs::write(elsewhere.join("x"), "").unwrap();
	let runs = |runs: &str, arguments: &[&str]| {
		// As `java` has it that is started anew.
		let mut plain = Command::new(JAVA);
		plain.args(["-cp", &path, "Program"]).args(arguments);
		let mut clone = place.flashfork(&[&["clone", "t"], arguments].concat());
		let output = |command: &mut Command| command.env("OF_CALLER", "ü y").current_dir(&elsewhere).output().unwrap();
		let (plain, clone) = (output(&mut plain), output(&mut clone));
		assert_eq!(stdout(&clone), stdout(&plain).replacen('1', runs, 1), "{}", stderr(&clone));
		assert_eq!(clone.status.code(), plain.status.code());
		// Of the launcher there is a line behind those of the program.
		let trace: Vec<_> = stderr(&clone).lines().filter(|line| !line.contains("flashfork.Launch")).collect();
		assert_eq!(trace, stderr(&plain).lines().collect::<Vec<_>>());
		clone.status.code()
	};
	// Its class alone; and one run of it, whose traces it keeps.
	for (warm_up, count) in [(&["flashfork.Launch", "Program"][..], "1"), (&["flashfork.Launch", "Program", "a"], "2")]
	{
		let warmed = warm(&place, &[], warm_up);
		assert_eq!(stdout(&warmed).contains("1 [a] null true null\n"), count == "2", "{}", stdout(&warmed));
		assert_eq!(runs(count, &[]), Some(0));
		assert_eq!(runs(count, &["x", "y ü", ""]), Some(0));
		assert_eq!(runs(count, &["where"]), Some(0));
		assert_eq!(runs(count, &["exit"]), Some(7));
		assert_eq!(runs(count, &["throw", "it"]), Some(1));
		place.remove();
	}
}

/// Also where the class path is in `CLASSPATH`, and without flashfork.jar on it.
#[test]
fn the_launcher_is_found_by_itself() {
	let place = place(&[include_str!("java/Program.java")]);
	let command = ["warm", "--threads", "t", "--", JAVA, "flashfork.Launch", "Program"];
	good(place.flashfork(&command).env("CLASSPATH", place.path()).output().unwrap());
	assert_eq!(stdout(&place.run(&["clone", "t", "a"])), "1 [a] null false null\n");
	place.remove();
	let none = try_warm(&place, &[], &["flashfork.Launch", "Missing"]);
	assert_says(stderr(&none), "there is no class Missing on the class path");
	let ended = try_warm(&place, &[], &["flashfork.Launch", "Program", "exit"]);
	assert_says(stderr(&ended), "System.exit");
}

/// Java writes to nearly all that file's memory when it starts, which forks would copy the page tables of.
#[test]
fn javas_archive_of_classes_is_sealed() {
	let place = place(&[r#"
public class Archive {
	public static void main(String[] arguments) throws Exception {
		java.util.regex.Pattern.compile("x+").matcher("xx").matches();
		long mapped = java.nio.file.Files.readAllLines(java.nio.file.Path.of("/proc/self/maps")).stream().filter(line -> line.endsWith(".jsa")).count();
		System.out.println(mapped + " " + String.format("%tY", new java.util.Date(0)));
	}
}"#]);
	let plain = Command::new(JAVA).args(["-cp", &class_path(&place), "Archive"]).output().unwrap();
	let mapped: usize = stdout(&plain).split(' ').next().unwrap().parse().unwrap();
	assert!(mapped > 0, "{}", stdout(&plain));
	for engine in ["seal", "fork"] {
		let command =
			["warm", "--threads", "t", "--", JAVA, "-cp", &class_path(&place), "flashfork.Launch", "Archive", "warm"];
		good(place.flashfork(&command).env("FLASHFORK_ENGINE", engine).output().unwrap());
		let left = if engine == "seal" { 0 } else { mapped };
		for _ in 0..2 {
			let clone = place.cloned();
			assert_eq!(both(&clone), (format!("{left} 1970\n").as_str(), ""), "{engine}");
		}
		place.remove();
	}
}

/// Without its threads there is no launcher in clones: they began before `main`, and found no such class.
#[test]
fn the_launcher_makes_templates_with_threads_alone() {
	let place = Place::new();
	let refused = place.run(&["warm", "t", "--", "java", "flashfork.Launch", "Main"]);
	assert_says(line(&refused), "warm it with `--threads`");
	place.refuses(&["warm", "--threads", "t", "--", "java", "Main"], "put flashfork.Launch in front");
}

/// Started without a template it runs the program once.
#[test]
fn the_launcher_runs_a_program_plainly_too() {
	let place = place(&[include_str!("java/Program.java")]);
	for arguments in [&[][..], &["a"]] {
		let mut java = Command::new(JAVA);
		java.args(["-cp", &class_path(&place), "flashfork.Launch", "Program"]).args(arguments);
		assert_eq!(stdout(&java.output().unwrap()), format!("1 {arguments:?} null false null\n").replace('"', ""));
	}
}

fn get(port: u16, path: &str) -> String {
	let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
	write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
	let answer = rest(stream);
	assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
	answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// With its threads and its compiler at work; clones that live together share the socket.
#[test]
fn a_web_server_in_java_answers_in_clones() {
	let place = place(&[include_str!("java/Server.java")]);
	let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
	let (number, listen) = (port.to_string(), format!("listen:{port}"));
	warm(&place, &["--ready", &listen], &["Server", &number]);
	let mut drawn = BTreeSet::new();
	for count in [1, 3] {
		let clones: Vec<_> =
			(0..count).map(|_| place.flashfork(&["clone", "t"]).stdout(Stdio::null()).spawn().unwrap()).collect();
		for n in (0..2000).step_by(17) {
			let answer = get(port, &format!("/{n}"));
			let [cached, worked, uuid, pid] = answer.split(' ').collect::<Vec<_>>().try_into().unwrap();
			assert_eq!(cached, worked, "{answer}");
			assert!(drawn.insert(uuid.to_owned()), "{answer}");
			assert!(pid.parse::<i32>().unwrap() > 1);
		}
		for mut clone in clones {
			signal(&clone, libc::SIGTERM);
			// 128 and the signal: how a virtual machine ends by it.
			assert_eq!(clone.wait().unwrap().code(), Some(143));
		}
	}
}

/// One after the other comes as another one ends, a thousand in `make test-all`.
#[test]
fn sixty_four_clones_in_java_are_alive_together() {
	const TOGETHER: usize = 64;
	let count = often(TOGETHER, 1000);
	let place = place(&[include_str!("java/Program.java")]);
	warm(&place, &[], &[&SMALL[..], &["flashfork.Launch", "Program"]].concat());
	assert!(place.cloned().status.success());
	let before = at_rest(&place);
	let says = |clone: &mut Child, number: usize| {
		let want = format!("1 [waits, {number}] null false null\n");
		let mut got = vec![0; want.len()];
		clone.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
		assert_eq!(String::from_utf8(got).unwrap(), want);
	};
	let end = |(number, mut clone): (usize, Child)| {
		says(&mut clone, number);
		// Its standard input ends with that.
		let ended = clone.wait_with_output().unwrap();
		assert_eq!((stdout(&ended), stderr(&ended), ended.status.code()), ("", "", Some(0)));
	};
	let mut alive = VecDeque::new();
	for number in 0..count {
		if alive.len() == TOGETHER {
			alive.pop_front().into_iter().for_each(end);
		}
		let mut command = place.flashfork(&["clone", "t", "waits", &number.to_string()]);
		let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
		alive.push_back((number, command.spawn().unwrap()));
	}
	until("all are alive", || place.list()[0]["clones_running"].as_u64() == Some(TOGETHER as u64));
	alive.into_iter().for_each(end);
	let after = at_rest(&place);
	assert_eq!((after.0, after.1), (before.0, before.1));
}

/// Processes of a place, descriptors of those that stay, and how much memory these have.
fn what_is_there(place: &Place) -> (usize, usize, u64) {
	let all = pids(place, "");
	let open = |pid: &i32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
	let memory = |pid: &i32| {
		let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
		let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
		line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0)
	};
	(all.len(), all.iter().map(open).sum(), all.iter().map(memory).sum())
}

/// The same when no clone runs, two namespaces have been made ahead, and nothing changes any more.
fn at_rest(place: &Place) -> (usize, usize, u64) {
	let (mut last, mut alike) = ((0, 0, 0), 0);
	let rests = || {
		let idle = pids(place, "java").is_empty() && pids(place, "flashfork-init").len() == 3;
		let now = what_is_there(place);
		alike = if idle && now == last { alike + 1 } else { 0 };
		last = now;
		std::thread::sleep(Duration::from_millis(20));
		alike == 20
	};
	until("it is at rest", rests);
	last
}

#[test]
fn many_clones_in_java_leave_nothing() {
	let count = often(30, 1000);
	let place = place(&[include_str!("java/Program.java")]);
	warm(&place, &[], &[&SMALL[..], &["flashfork.Launch", "Program"]].concat());
	let run = |number: usize| {
		let clone = place.run(&["clone", "t", &number.to_string()]);
		assert_eq!(stdout(&clone), format!("1 [{number}] null false null\n"), "{}", stderr(&clone));
		assert_eq!(clone.status.code(), Some(0));
	};
	(0..5).for_each(run);
	let (processes, open, memory) = at_rest(&place);
	(0..count).for_each(run);
	let (own_processes, own_open, after) = at_rest(&place);
	assert_eq!((own_processes, own_open), (processes, open));
	assert!(after < memory + 4096, "{memory} KB before, {after} KB after {count} clones");
}
