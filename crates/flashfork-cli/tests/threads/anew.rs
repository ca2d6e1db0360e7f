//! Servers on their own port that are warmed anew: their template lets go of the port for the new one.

use crate::{
	listen::{ask, end, free, listening},
	place::{Place, assert_says, good, line, state, stderr, until},
};
use std::{
	fs,
	io::{Read, Write},
	net::TcpStream,
	path::PathBuf,
	process::{Child, Output},
};

/// Answers with its word on the port of its argument.
const SERVER: &str = r#"
int main(int argc, char **argv) {
#ifndef WORD
	return 3;
#else
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	struct sockaddr_in a = {AF_INET, htons(atoi(argv[1])), {htonl(INADDR_LOOPBACK)}};
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (void *)&a, sizeof a) || listen(fd, 5)) { perror("bind"); return 9; }
	for (;;) {
		int c = accept(fd, 0, 0); char b[64]; if (c < 0) continue;
		read(c, b, sizeof b); dprintf(c, WORD); close(c);
	}
#endif
}
"#;

struct Server {
	place: Place,
	program: PathBuf,
	port: u16,
}

impl Server {
	/// A template `t` of one that answers with `one`.
	fn warm(options: &[&str]) -> Server {
		let place = Place::new();
		let server = Server { program: place.at("server"), port: free(), place };
		server.make(Some("one"));
		let (port, ready) = (server.port.to_string(), format!("listen:{}", server.port));
		let command = ["warm", "--threads", "--ready", &ready];
		let program = ["t", "--", server.program.to_str().unwrap(), &port];
		good(server.place.run(&[&command[..], options, &program].concat()));
		server
	}

	/// Another program in its place: one with that word, or one that ends at once.
	fn make(&self, word: Option<&str>) {
		let flags: Vec<_> = word.iter().map(|word| format!("-DWORD=\"{word}\"")).collect();
		let flags: Vec<_> = flags.iter().map(String::as_str).collect();
		let new = self.place.program_with("new", SERVER, &flags);
		fs::rename(new, &self.program).unwrap();
	}

	/// The same with the program in its place meanwhile, which is the very same file afterwards.
	fn while_replaced<T>(&self, word: Option<&str>, then: impl FnOnce() -> T) -> T {
		let kept = self.place.at("kept");
		fs::rename(&self.program, &kept).unwrap();
		self.make(word);
		let came = then();
		fs::rename(&kept, &self.program).unwrap();
		came
	}

	/// A clone that runs. The program itself answers, too, while it is warmed.
	fn clone(&self, options: &[&str]) -> Child {
		let made = || {
			let listed = self.listed();
			(listed["pid"].clone(), listed["clones_made"].clone())
		};
		let before = made();
		let clone = self.place.flashfork(&[&["clone"], options, &["t"]].concat()).spawn().unwrap();
		until("it runs", || made() != before && self.listed()["clones_running"] != 0);
		clone
	}

	/// What comes of a clone that does not come to be.
	fn refused(&self, options: &[&str]) -> Output {
		self.place.run(&[&["clone"], options, &["t"]].concat())
	}

	fn end(&self, clone: Child) {
		end(clone);
		until("it has ended", || self.listed()["clones_running"] == 0);
	}

	/// What is listed of the template, also where another one comes in its place at that moment.
	fn listed(&self) -> serde_json::Value {
		std::iter::repeat_with(|| self.place.list().pop()).flatten().next().unwrap()
	}
}

/// What is answered there; nothing where nobody listens, or no longer.
fn said(port: u16) -> Option<String> {
	let mut connection = TcpStream::connect(("127.0.0.1", port)).ok()?;
	connection.write_all(b"?").ok()?;
	let mut answer = String::new();
	connection.read_to_string(&mut answer).ok()?;
	Some(answer)
}

/// Who listens there has that word.
fn answers(port: u16, word: &str) {
	assert_eq!(ask(port, "?"), word);
}

fn until_answered(port: u16, word: &str) {
	until("it answers", || said(port).as_deref() == Some(word));
}

#[test]
fn a_server_on_a_port_of_its_own_is_warmed_anew_there() {
	let server = Server::warm(&[]);
	let clone = server.clone(&[]);
	answers(server.port, "one");
	server.end(clone);
	let first = server.place.template_pid();
	// It waits for a clone of the old one, which nobody makes.
	let mut waiting = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
	server.make(Some("two"));
	let output = server.refused(&[]);
	assert_says(line(&output), "/server changed since t was warmed");
	let clone = server.clone(&["--fresh"]);
	answers(server.port, "two");
	assert!(waiting.read(&mut [0; 9]).is_err(), "it was reset");
	assert_ne!(server.place.template_pid(), first);
	until("the old one has ended", || state(first).is_none());
	server.end(clone);
}

#[test]
fn callers_find_a_watched_server_made_anew_on_its_port() {
	let server = Server::warm(&["--watch"]);
	for word in ["one", "two", "three"] {
		if word != "one" {
			server.make(Some(word));
		}
		let clone = server.clone(&[]);
		answers(server.port, word);
		server.end(clone);
	}
	server.make(Some("four"));
	let ports = [free(), free(), free()];
	let clones = ports.map(|port| listening(&server.place, &[port.to_string()]));
	for (port, clone) in ports.into_iter().zip(clones) {
		until_answered(port, "four");
		end(clone);
	}
}

#[test]
fn a_template_whose_ports_are_gone_makes_no_clones_until_it_is_made_anew() {
	let server = Server::warm(&[]);
	let first = server.place.template_pid();
	let failed = server.while_replaced(None, || server.refused(&["--fresh"]));
	let want = "can't warm t anew, and it makes no clones until that is done";
	assert!(line(&failed).contains(want) && line(&failed).contains("exit status 3"), "{}", line(&failed));
	assert!(!line(&failed).contains("still listen"), "{}", line(&failed));
	// The program is what it was; but who was asked for it has no socket any more.
	for options in [&[][..], &["--listen", "1"]] {
		let output = server.refused(options);
		let said = line(&output);
		assert!(said.contains("t has let go of its ports to be warmed anew") && said.contains("--fresh t"), "{said}");
	}
	let listed = server.listed();
	assert_eq!((listed["pid"].as_i64(), listed["clones_made"].as_u64()), (Some(first.into()), Some(0)));
	assert!(TcpStream::connect(("127.0.0.1", server.port)).is_err());
	// Again, and why it is stale besides is told.
	server.while_replaced(None, || {
		assert!(line(&server.refused(&["--fresh"])).contains(want));
		let output = server.refused(&[]);
		assert_says(line(&output), "/server changed since t was warmed");
	});
	let clone = server.clone(&["--fresh"]);
	answers(server.port, "one");
	server.end(clone);
	assert_ne!(server.place.template_pid(), first);
}

#[test]
fn a_watched_server_that_could_not_be_warmed_is_by_its_next_caller() {
	let server = Server::warm(&["--watch"]);
	let failed = server.while_replaced(None, || server.refused(&[]));
	assert_says(line(&failed), "it makes no clones until that is done");
	let elsewhere = free();
	let clone = server.clone(&["--listen", &elsewhere.to_string()]);
	until_answered(elsewhere, "one");
	server.end(clone);
	server.make(None);
	assert!(line(&server.refused(&[])).contains("exit status 3"));
	server.make(Some("two"));
	let clone = server.clone(&[]);
	answers(server.port, "two");
	server.end(clone);
}

#[test]
fn clones_that_keep_the_port_are_told_and_run_on() {
	let server = Server::warm(&[]);
	let clone = server.clone(&[]);
	answers(server.port, "one");
	server.make(Some("two"));
	for _ in 0..2 {
		let failed = server.refused(&["--fresh"]);
		let (said, last) = (stderr(&failed), stderr(&failed).lines().last().unwrap());
		assert!(said.starts_with("bind: Address already in use\n") && said.lines().count() == 2, "{said}");
		let want = format!("clones of the old one still listen on port {}: if the new one needs that", server.port);
		assert!(last.contains(&want) && last.contains("end them, or have clones listen elsewhere"), "{last}");
		assert_eq!(ask(server.port, "?"), "one");
	}
	server.end(clone);
	let clone = server.clone(&["--fresh"]);
	answers(server.port, "two");
	server.end(clone);
}

#[test]
fn clones_on_other_ports_are_not_in_the_way_of_the_new_server() {
	let server = Server::warm(&[]);
	let elsewhere = free();
	let old = listening(&server.place, &[elsewhere.to_string()]);
	until_answered(elsewhere, "one");
	server.make(Some("two"));
	let new = server.clone(&["--fresh"]);
	answers(server.port, "two");
	assert_eq!(ask(elsewhere, "?"), "one");
	[old, new].into_iter().for_each(end);
}

/// Whose script would not be noticed, but a library of it is.
#[test]
fn a_server_of_python_is_warmed_anew_on_its_port() {
	let place = Place::new();
	let (port, library) = (free(), place.at("part.so"));
	let make = |word: &str| {
		let text = format!("const char *word(void) {{ return \"{word}\"; }}");
		let new = place.program_with("new", &text, &["-shared", "-fPIC"]);
		fs::rename(new, &library).unwrap();
	};
	let script = place.at("main.py");
	let write = |text: &str| {
		let serve = format!(
			"
import ctypes, socket, threading
part = ctypes.CDLL({library:?})
part.word.restype = ctypes.c_char_p
server = socket.create_server(('127.0.0.1', {port}))
def serve():
    while True:
        connection, _ = server.accept()
        with connection: connection.recv(9), connection.sendall(part.word())
thread = threading.Thread(target=serve); thread.start(); thread.join()"
		);
		fs::write(&script, format!("{text}{serve}")).unwrap();
	};
	make("one");
	write("");
	let command = ["warm", "--threads", "--ready", "listen", "t", "--", "/usr/bin/python3", script.to_str().unwrap()];
	good(place.run(&command));
	make("two");
	write("raise SystemExit('not yet')\n");
	let failed = place.run(&["clone", "--fresh", "t"]);
	let said = stderr(&failed);
	assert!(said.starts_with("not yet\n") && said.contains("it makes no clones until that is done"), "{said}");
	write("");
	let clone = place.flashfork(&["clone", "--fresh", "t"]).spawn().unwrap();
	until("it runs", || place.list().iter().any(|listed| listed["clones_running"] == 1));
	assert_eq!(ask(port, "?"), "two");
	end(clone);
}
