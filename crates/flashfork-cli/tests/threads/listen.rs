//! Clones that listen on ports of their callers' in place of their template's.

use crate::{
	place::{Place, assert_says, good, line, rest, until},
	programs::Program,
};
use std::{
	io::Write,
	net::{TcpListener, TcpStream},
	process::{Child, Stdio},
};

pub fn free() -> u16 {
	TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn ask(port: u16, text: &str) -> String {
	let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
	connection.write_all(text.as_bytes()).unwrap();
	rest(connection)
}

/// A template `t` of a program that is ready there.
pub fn warm(place: &Place, ready: &str, command: &[&str]) {
	good(place.run(&[&["warm", "--threads", "--ready", ready, "t", "--"], command].concat()));
}

pub fn listening(place: &Place, listen: &[String]) -> Child {
	let options = listen.iter().flat_map(|listen| ["--listen", listen]);
	let words: Vec<_> = ["clone"].into_iter().chain(options).chain(["t"]).collect();
	place.flashfork(&words).spawn().unwrap()
}

pub fn end(mut clone: Child) {
	clone.kill().unwrap();
	clone.wait().unwrap();
}

/// Listens on as many ports as its arguments say, not blocking, in an epoll set, by descriptors that are copies, too.
/// It answers with what it is asked, its number, what it has counted, and what its socket is.
const SERVER: &str = r#"
int main(int argc, char **argv) {
	int set = epoll_create1(EPOLL_CLOEXEC), copies[8], on = 1;
	for (int i = 0; i < atoi(argv[1]); i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | (i ? 0 : SOCK_CLOEXEC), 0);
		struct sockaddr_in a = {AF_INET, htons(atoi(argv[2 + i])), {htonl(INADDR_LOOPBACK)}};
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
		if (bind(fd, (void *)&a, sizeof a) || listen(fd, 5)) return 9;
		copies[i] = dup(fd);
		struct epoll_event e = {EPOLLIN, {.fd = copies[i]}};
		epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
	}
	for (int count = 0;; count++) {
		struct epoll_event e; if (epoll_wait(set, &e, 1, -1) != 1) continue;
		int fd = e.data.fd, c = accept(fd, 0, 0); if (c < 0) continue;
		struct sockaddr_in a; socklen_t n = sizeof a; getsockname(fd, (void *)&a, &n);
		int reuse, alive; n = sizeof reuse; getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, &n); getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &alive, &n);
		char b[64]; int got = read(c, b, 64);
		dprintf(c, "%.*s %d %d port %d %d%d%d%d", got, b, getpid(), count, ntohs(a.sin_port), reuse, alive,
			(fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, fcntl(fd - 1, F_GETFD));
		close(c);
	}
}
"#;

#[test]
fn clones_listen_on_ports_of_their_callers_at_the_same_time() {
	let program = Program::new(SERVER);
	let old = free();
	warm(&program.place, "listen", &[program.path(), "1", &old.to_string()]);
	let ports = [free(), free(), free()];
	let clones = ports.map(|port| listening(&program.place, &[port.to_string()]));
	let mut numbers = std::collections::BTreeSet::new();
	for round in 0..2 {
		for port in ports {
			until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
			let answer = ask(port, "word");
			let words: Vec<_> = answer.split(' ').collect();
			assert!(words[0] == "word" && words[2].parse::<u32>().unwrap() > round, "{answer}");
			assert_eq!(words[3..], ["port", &*port.to_string(), "1111"], "{answer}");
			numbers.insert(words[1].to_owned());
		}
	}
	assert_eq!(numbers.len(), 3, "each clone answers at its own port");
	// One without its own port has the template's.
	let another = listening(&program.place, &[]);
	assert!(ask(old, "old").ends_with(&format!("port {old} 1111")));
	clones.into_iter().for_each(end);
	end(another);
}

#[test]
fn of_several_ports_the_one_is_named_in_whose_place_another_comes() {
	let program = Program::new(SERVER);
	let [one, two, new, newer] = [free(), free(), free(), free()];
	warm(&program.place, &format!("listen:{two}"), &[program.path(), "2", &one.to_string(), &two.to_string()]);
	let clone = |listen: &str| program.place.run(&["clone", "--listen", listen, "t"]);
	let several = clone(&new.to_string());
	assert_says(line(&several), "listens on several ports");
	let elsewhere = clone(&format!("1:{new}"));
	assert_says(line(&elsewhere), "t doesn't listen on port 1; it listens on ");
	let clone = listening(&program.place, &[format!("{two}:{new}"), format!("{one}:{newer}")]);
	for port in [new, newer] {
		until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
		assert!(ask(port, "x").contains(&format!("port {port} 111")));
	}
	end(clone);
}

#[test]
fn why_a_clone_can_not_listen_there_is_told_before_it_runs() {
	let program = Program::new(SERVER);
	warm(&program.place, "listen", &[program.path(), "1", &free().to_string()]);
	let taken = TcpListener::bind("127.0.0.1:0").unwrap();
	let port = taken.local_addr().unwrap().port().to_string();
	let refused = program.place.run(&["clone", "--listen", &port, "t"]);
	let want =
		format!("can't listen on port {port}: Address already in use; choose another, or end what listens there");
	assert_says(line(&refused), &want);
	assert_eq!(program.place.list()[0]["clones_made"], 0);
	for wrong in ["x", "0", "70000", "1:0", ":7"] {
		assert_eq!(program.place.run(&["clone", "--listen", wrong, "t"]).status.code(), Some(2), "{wrong}");
	}
	program
		.place
		.refuses(&["clone", "t", "--listen", &port], "options of `flashfork clone` itself come before the name");
}

#[test]
fn a_template_that_listens_nowhere_is_told() {
	let place = Place::with_shell();
	place.refuses(&["clone", "--listen", "8080", "t", "-c", "true"], "t listens on no port of TCP");
	place.remove();
	warm(&place, "idle:0.1", &["/bin/sleep", "1000"]);
	place.refuses(&["clone", "--listen", "8080", "t"], "t listens on no port of TCP");
}

/// Node listens on IPv6 for both, its loop is in epoll, and its clones answer at once.
#[test]
fn servers_of_node_answer_on_ports_of_their_callers() {
	let place = Place::new();
	let script = place.at("main.js");
	let text = "
        const http = require('http');
        const pages = Array.from({ length: 50000 }, (_, i) => ({ i, text: `page ${i}` }));
        const server = http.createServer((request, answer) => {
            answer.setHeader('Connection', 'close');
            answer.end(`${pages[+request.url.slice(1)].text} at ${server.address().port} of ${process.pid}`);
        });
        server.listen(+process.argv[2]);";
	std::fs::write(&script, text).unwrap();
	let old = free();
	warm(&place, "listen", &["node", script.to_str().unwrap(), &old.to_string()]);
	let ports = [free(), free(), free()];
	let clones = ports.map(|port| listening(&place, &[port.to_string()]));
	let plain = place.flashfork(&["clone", "t"]).stdout(Stdio::null()).spawn().unwrap();
	let mut numbers = std::collections::BTreeSet::new();
	for port in ports.into_iter().chain([old]) {
		until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
		for page in [0, 49_999] {
			let answer = ask(port, &format!("GET /{page} HTTP/1.1\r\nHost: here\r\n\r\n"));
			let (_, body) = answer.split_once("\r\n\r\n").unwrap();
			let number = body.strip_prefix(&format!("page {page} at {port} of ")).unwrap();
			numbers.insert(number.to_owned());
		}
	}
	assert_eq!(numbers.len(), 4);
	clones.into_iter().chain([plain]).for_each(end);
}
