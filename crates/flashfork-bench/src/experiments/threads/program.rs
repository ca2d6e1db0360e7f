//! The programs: how each is started anew, what its runtime offers against that, and how it is warmed.

use crate::prelude::*;
use clap::ValueEnum;

/// What a program is written for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Family {
	/// Java, with heaps of several sizes
	Java,
	/// Node, a server with 100 MB of objects
	Node,
	/// CPython with numpy and threads of its own, and with what --python has
	Python,
}

/// The interpreter that the packages belong to; what is first in PATH may be another, or a script that finds one.
pub const PYTHON: &str = "/usr/bin/python3";

/// Threads of the Java program's pool: with those of the virtual machine there are sixteen or seventeen.
const POOL: u32 = 7;

/// Where Debian's package has the server that runs Java programs.
const NAILGUN: &str = "/usr/share/java/nailgun-server.jar";

/// Classes with which the Java program starts in about 450 ms.
const CLASSES: u32 = 6500;

/// MB of objects of the Node program.
const OBJECTS: &str = "100";

/// How an answer is seen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answer {
	/// A line on standard output; the program ends with its input.
	Line,
	/// The answer of a server, which runs until it is killed: started anew at the first port, in clones at the second.
	Http([u16; 2]),
}

/// A program of the experiment.
#[derive(Clone)]
pub struct Program {
	/// The name in records and of templates.
	pub name: String,
	/// What it is, for people.
	pub title: String,
	pub answer: Answer,
	/// Started anew.
	pub anew: Vec<String>,
	/// The best that its runtime offers: what that is, what makes it once, and how it is started then.
	pub best: Option<Best>,
	/// What runs it in a process started before.
	pub server: Option<Server>,
	/// Where it is ready, for `--ready`, and the command that is warmed.
	pub ready: String,
	pub warmed: Vec<String>,
	/// Arguments of its clones.
	pub arguments: Vec<String>,
	/// Whether clones are made of memory that is not sealed, too.
	pub unsealed: bool,
	/// What to do where it can't be run.
	pub cure: &'static str,
}

/// What a runtime offers.
#[derive(Clone)]
pub struct Best {
	pub title: &'static str,
	/// Variables and command.
	pub prepare: (Vec<(&'static str, &'static str)>, Vec<String>),
	/// Of a template with one thread: what is warmed. Else how it is started.
	pub started: Started,
}

/// A process in which programs are run one after another, with all that earlier ones have left there.
#[derive(Clone)]
pub struct Server {
	/// Ends the first line that it prints with its port, and a full stop.
	pub start: Vec<String>,
	/// Has it run the program: what comes before the port, and after it.
	pub ask: [Vec<String>; 2],
	/// What to do where it can't be had.
	pub cure: &'static str,
}

#[derive(Clone)]
pub enum Started {
	Command(Vec<String>),
	/// A clone of this, warmed without its threads.
	Clone(Vec<String>),
}

fn words<const N: usize>(all: [&str; N]) -> Vec<String> {
	all.map(str::to_owned).into()
}

/// The Java program with so many MB of live heap, threads of its pool, and classes. It waits at `port`.
pub fn java(name: &str, title: &str, [heap, pool, classes]: [u32; 3], place: &Path, port: u16) -> Program {
	let jar = place.join("main.jar").display().to_string();
	let archive = place.join(format!("{name}.jsa")).display().to_string();
	let most = format!("-Xmx{}m", heap + heap / 4 + 64);
	let least = most.replace("mx", "ms");
	let numbers = [heap, pool, classes].map(|number| number.to_string());
	let command = |option: Option<String>| {
		let mut all = words(["java", "-XX:+UseSerialGC", &least, &most]);
		all.extend(option);
		all.extend(words(["-cp", &jar, "Main"]));
		all.extend(numbers.clone());
		all
	};
	let mut warmed = command(None);
	warmed.push(port.to_string());
	let with_server = format!("{jar}:{NAILGUN}");
	// Port 0: any.
	let server = ["com.martiansoftware.nailgun.NGServer", "127.0.0.1:0"];
	let server = [
		&["java", "-XX:+UseSerialGC", &least, &most, "-Djava.security.manager=allow", "-cp", &with_server],
		&server[..],
	];
	let mut main = words(["Main"]);
	main.extend(numbers.clone());
	Program {
		name: name.to_owned(),
		title: title.to_owned(),
		answer: Answer::Line,
		anew: command(None),
		best: Some(Best {
			title: "AppCDS",
			prepare: (Vec::new(), command(Some(format!("-XX:ArchiveClassesAtExit={archive}")))),
			started: Started::Command(command(Some(format!("-XX:SharedArchiveFile={archive}")))),
		}),
		server: Some(Server {
			start: server.concat().into_iter().map(str::to_owned).collect(),
			ask: [words(["ng-nailgun", "--nailgun-server", "127.0.0.1", "--nailgun-port"]), main],
			cure: "Debian has it in nailgun",
		}),
		// Its compilers have done what they had to do: else each clone would do it again.
		ready: "idle:0.5".into(),
		warmed,
		arguments: Vec::new(),
		unsealed: heap > 0,
		cure: "Debian has it in openjdk-17-jdk-headless",
	}
}

/// The Java programs.
pub fn all_java(heaps: impl IntoIterator<Item = u32>, place: &Path, port: u16) -> Vec<Program> {
	let mut all = vec![
		java("java-line", "Java, one line", [0, 0, 0], place, port),
		java("java-classes", "Java, 6,500 classes", [0, 0, CLASSES], place, port),
	];
	all.extend(heaps.into_iter().map(|heap| {
		java(&format!("java-{heap}m"), &format!("Java, {heap} MB live, 16 threads"), [heap, POOL, 0], place, port)
	}));
	all
}

/// The Node program, which listens on the first of these ports, and as a template on the second.
pub fn node(place: &Path, ports: [u16; 2]) -> Program {
	let script = place.join("server.js").display().to_string();
	let blob = place.join("server.blob").display().to_string();
	let [port, other] = ports.map(|port| port.to_string());
	Program {
		name: "node".into(),
		title: "Node, server, 100 MB of objects".into(),
		answer: Answer::Http(ports),
		anew: words(["node", &script, &port, OBJECTS]),
		best: Some(Best {
			title: "V8's startup snapshot",
			prepare: (
				vec![("MEGABYTES", OBJECTS)],
				words(["node", "--snapshot-blob", &blob, "--build-snapshot", &script]),
			),
			started: Started::Command(words(["node", "--snapshot-blob", &blob, &script, &port])),
		}),
		server: None,
		ready: format!("listen:{other}"),
		warmed: words(["node", &script, &other, OBJECTS]),
		arguments: Vec::new(),
		unsealed: false,
		cure: "Debian has it in nodejs",
	}
}

/// The Python program with numpy.
pub fn python(place: &Path) -> Program {
	Program {
		name: "python".into(),
		title: "CPython, numpy with OpenBLAS, 8 threads".into(),
		cure: "Debian has it in python3-numpy",
		..importing(PYTHON, place, "warm.py", "numpy, concurrent.futures.thread")
	}
}

/// The same of more libraries, as this interpreter has them.
pub fn libraries(interpreter: &str, place: &Path) -> Program {
	Program {
		name: "python-libraries".into(),
		title: "CPython, numpy, gRPC and pyarrow, and their threads".into(),
		cure: "`scripts/python-libraries` makes a Python that has what it needs",
		..importing(interpreter, place, "libraries.py", "numpy, grpc, pyarrow.compute, concurrent.futures.thread")
	}
}

/// A program that imports and uses something; one warmed without threads has imported it.
fn importing(interpreter: &str, place: &Path, warm: &str, imports: &str) -> Program {
	let [warm, script] = [warm, "line.py"].map(|name| place.join(name).display().to_string());
	Program {
		name: String::new(),
		title: String::new(),
		answer: Answer::Line,
		anew: words([interpreter, &script, &warm]),
		best: Some(Best {
			title: "a template with one thread",
			prepare: (Vec::new(), words(["true"])),
			started: Started::Clone(words([interpreter, "-c", &format!("import {imports}")])),
		}),
		server: None,
		ready: "auto".into(),
		warmed: words([interpreter, &warm]),
		arguments: vec![script, warm],
		unsealed: false,
		cure: "",
	}
}

/// A Python program with so many threads that wait.
pub fn threads(count: u32) -> Program {
	let code = format!(
		"import threading\nwaits = threading.Event()\nfor _ in range({count}): threading.Thread(target=waits.wait, daemon=True).start()"
	);
	Program {
		name: format!("threads-{count}"),
		title: format!("CPython, {count} threads that wait"),
		answer: Answer::Line,
		anew: Vec::new(),
		best: None,
		server: None,
		ready: "auto".into(),
		warmed: words([PYTHON, "-c", &code]),
		arguments: words(["-c", "print(1)"]),
		unsealed: false,
		cure: "Debian has it in python3",
	}
}

/// Sources, by the names of their files.
pub const SOURCES: [(&str, &str); 5] = [
	("Main.java", include_str!("Main.java")),
	("server.js", include_str!("server.js")),
	("warm.py", include_str!("warm.py")),
	("libraries.py", include_str!("libraries.py")),
	(
		"line.py",
		"import sys\nif not hasattr(sys, 'pool'): exec(open(sys.argv[1]).read())\nprint(sys.pool.submit(lambda: 1).result())\n",
	),
];
