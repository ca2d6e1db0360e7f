//! Connections to others: their ends, what had come of them, and those that wait to be accepted.

use crate::{
	place::{both, rest, stdout},
	programs::Program,
};
use std::{
	io::{Read, Write},
	net::{TcpListener, TcpStream},
	process::Stdio,
};

/// Connects to a port, says hello, and has something to read.
const CLIENT: &str = r#"
int main(int argc, char **argv) {
	signal(SIGPIPE, SIG_IGN);
	int fd = socket(AF_INET, SOCK_STREAM, 0); struct sockaddr_in a = {AF_INET, htons(atoi(argv[1])), {htonl(INADDR_LOOPBACK)}};
	if (connect(fd, (void *)&a, sizeof a)) return 1;
	struct linger slow = {1, 60}; setsockopt(fd, SOL_SOCKET, SO_LINGER, &slow, sizeof slow);
	write(fd, "hello", 5); int copy = dup(fd);
	int want = atoi(argv[2]); for (int left = 0; left < want; usleep(1000)) ioctl(fd, FIONREAD, &left);
	another();
	READY;
	static char b[400000]; int n, all = 0; unsigned h = 1;
	while ((n = read(all % 2 ? fd : copy, b, sizeof b)) > 0) { all += n; for (int i = 0; i < n; i++) h = h * 31 + (unsigned char)b[i]; }
	printf("%d %u %d ", all, h, n); n = write(fd, "x", 1); printf("%d %d\n", n, errno == EPIPE);
}
"#;

/// The reference is the program whose peer closes the connection behind what it has sent.
#[test]
fn what_had_come_of_a_connection_is_read_before_its_end() {
	for len in [11, 40_000] {
		let server = TcpListener::bind("127.0.0.1:0").unwrap();
		let port = server.local_addr().unwrap().port().to_string();
		let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
		let program = Program::new(CLIENT);
		let sent = bytes.clone();
		let accepted = std::thread::spawn(move || {
			let (mut connection, _) = server.accept().unwrap();
			connection.write_all(&sent).unwrap();
			connection
		});
		program.warm(&[&port, &len.to_string()]);
		// Who is at the other end has all that the program has sent, and is told that it was all.
		let mut hello = String::new();
		accepted.join().unwrap().read_to_string(&mut hello).unwrap();
		assert_eq!(hello, "hello");
		let sum = bytes.iter().fold(1u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
		for _ in 0..3 {
			let clone = program.cloned();
			assert_eq!(both(&clone), (&*format!("{len} {sum} 0 -1 1\n"), ""));
		}
	}
}

#[test]
fn a_template_ends_connections_of_its_own_and_of_unix_sockets() {
	Program::new(
		r#"
int main(void) {
	signal(SIGPIPE, SIG_IGN);
	struct sockaddr_in a; int l = listener(&a), fd = connected(&a), in = accept(l, 0, 0);
	write(fd, "unread", 6);
	another();
	int clone = READY;
	/* The program itself ends them here. */
	if (!clone) { shutdown(fd, SHUT_RDWR); shutdown(in, SHUT_WR); }
	char b[64]; int k = read(in, b, 64); printf("%.*s ", k, b); printf("%zd ", read(in, b, 64)); printf("%zd\n", read(fd, b, 64));
}
"#,
	)
	.is_the_same_in_clones(2);
}

/// As while the program is stopped: whoever has come first is answered first.
#[test]
fn connections_that_came_while_no_clone_ran_are_the_next_ones() {
	let program = Program::new(
		r#"
static int fd;
static void *serve(void *x) { for (;;) { int c = accept(fd, 0, 0); char b[64]; int n = read(c, b, 64); dprintf(c, "answer to %.*s", n, b); close(c); } }
int main(void) {
	printf("%d\n", listens(&fd)); fflush(stdout);
	pthread_t t = thread_of(serve);
	READY;
	char b[8]; while (read(0, b, 8) > 0);
}
"#,
	);
	let warm = program.try_warm(&[]);
	let port: u16 = stdout(&warm).lines().next().unwrap().parse().unwrap();
	for _ in 0..2 {
		let mut early: Vec<_> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
		for (i, connection) in early.iter_mut().enumerate() {
			connection.write_all(format!("{i}").as_bytes()).unwrap();
		}
		let mut command = program.place.flashfork(&["clone", "t"]);
		let mut clone = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
		for (i, connection) in early.iter_mut().enumerate() {
			let answer = rest(connection);
			assert_eq!(answer, format!("answer to {i}"));
		}
		drop(clone.stdin.take());
		assert!(clone.wait().unwrap().success());
	}
}

/// It would be the end for the template and all other clones.
#[test]
fn a_clone_does_not_end_a_socket_at_which_others_listen() {
	let program = Program::new(
		r#"
int main(void) {
	struct sockaddr_in a; int fd = listener(&a), s[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	another();
	READY;
	int own = connected(&a), in = accept(fd, 0, 0); printf("%d ", in >= 0);
	printf("%d %d ", shutdown(fd, SHUT_RDWR), errno == ENOTCONN);
	printf("%d ", shutdown(in, SHUT_RDWR)); printf("%d ", shutdown(s[0], SHUT_WR)); printf("%d\n", shutdown(own, SHUT_RDWR));
}
"#,
	);
	program.warm(&[]);
	for _ in 0..3 {
		let clone = program.cloned();
		let [first, rest] = [0, 2].map(|from| stdout(&clone).get(from..).unwrap_or(""));
		assert!(first.starts_with("1 ") && rest.ends_with("0 0 0\n") && rest.contains("-1"), "{}", stdout(&clone));
	}
}

/// The template has it still: the kernel alone would go on to tell of it.
#[test]
fn a_clone_hears_no_more_of_a_socket_that_it_has_closed() {
	Program::new(
		r#"
int main(void) {
	struct sockaddr_in a; int fd = listener(&a), set = epoll_create1(0);
	struct epoll_event e = {EPOLLIN, {.u64 = 7}}; epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
	another();
	READY;
	int late = epoll_create1(0), copy = dup(fd), out; epoll_ctl(late, EPOLL_CTL_ADD, fd, &e);
	out = connected(&a); struct pollfd p = {fd, POLLIN, 0}; poll(&p, 1, -1);
	printf("%d %d ", epoll_wait(set, &e, 1, 0), epoll_wait(late, &e, 1, 0));
	close(copy); printf("%d ", epoll_wait(set, &e, 1, 0));
	int in = accept(fd, 0, 0); close(out); out = connected(&a); poll(&p, 1, -1);
	pid_t child = fork(); if (!child) { close(fd); _exit(0); } waitpid(child, 0, 0); printf("%d ", epoll_wait(set, &e, 1, 0));
	close(accept(fd, 0, 0)); connected(&a); poll(&p, 1, -1);
	close(fd); printf("%d %d\n", epoll_wait(set, &e, 1, 0), epoll_wait(late, &e, 1, 0));
	return in < 0;
}
"#,
	)
	.is_the_same_in_clones(1);
}
