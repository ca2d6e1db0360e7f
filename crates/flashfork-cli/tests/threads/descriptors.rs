//! What clones have open is their own.

use crate::{
	listen::warm,
	place::{Start, both, rest, stderr, stdout},
	programs::Program,
};
use std::{
	fs,
	io::{Read, Write},
	net::{TcpListener, TcpStream},
	process::Stdio,
};

/// Several clones alive at a time would take each other's events.
#[test]
fn events_wake_only_their_own_clone() {
	Program::new(
		r#"
static int set, here, there; static volatile int rounds;
static void *echo(void *x) {
	struct epoll_event e;
	for (;;) {
		if (epoll_wait(set, &e, 1, -1) != 1) { puts("woken for nothing"); exit(1); }
		uint64_t v; if (read(here, &v, 8) != 8) { puts("nothing to read"); exit(1); }
		rounds++;
		if (write(there, &v, 8) != 8) exit(1);
		if (v == 9) return (void *)(long)e.data.u32;
	}
}
int main(void) {
	set = epoll_create1(EPOLL_CLOEXEC); here = eventfd(0, EFD_NONBLOCK); there = eventfd(0, 0);
	int counts = eventfd(3, EFD_SEMAPHORE), sums = eventfd(5, 0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	struct itimerspec it = {{0, 0}, {1000, 0}}; timerfd_settime(timer, 0, &it, 0);
	sigset_t s = blocked(SIGUSR1, 0); int signals = signalfd(-1, &s, SFD_NONBLOCK);
	struct epoll_event e = {EPOLLIN | EPOLLET, {.u32 = 4711}}; epoll_ctl(set, EPOLL_CTL_ADD, here, &e);
	int copy = dup(there);
	pthread_t t = thread_of(echo);
	uint64_t v = 1; write(here, &v, 8); read(there, &v, 8);
	READY;
	for (int i = 0; i < 2000; i++) { v = 2; write(here, &v, 8); read(copy, &v, 8); if (v != 2) { printf("%lu\n", (unsigned long)v); return 1; } }
	v = 9; write(here, &v, 8); read(there, &v, 8);
	void *r; pthread_join(t, &r); printf("%ld after %d rounds\n", (long)r, rounds);
	read(counts, &v, 8); printf("%lu ", (unsigned long)v); read(sums, &v, 8); printf("%lu\n", (unsigned long)v);
	timerfd_gettime(timer, &it); printf("%d\n", it.it_value.tv_sec > 900);
	kill(getpid(), SIGUSR1); struct signalfd_siginfo i; printf("%zd %u\n", read(signals, &i, sizeof i), i.ssi_signo);
	printf("%d %d %d\n", fcntl(set, F_GETFD), fcntl(here, F_GETFL) & O_NONBLOCK, fcntl(timer, F_GETFD));
}
"#,
	)
	.is_the_same_in_clones(6);
}

/// Not even that by which the engine talks to the program.
#[test]
fn clones_have_no_descriptor_that_the_program_has_not() {
	let program = Program::new(
		r#"int main(void) { READY; for (int i = 0; i < 1024; i++) if (fcntl(i, F_GETFD) >= 0) printf("%d ", i); return 0; }"#,
	);
	program.warm(&[]);
	let clone = || program.cloned();
	assert_eq!((stdout(&clone()), stderr(&clone())), ("0 1 2 ", ""));
	program.place.remove();
	// Where output and errors are one pipe they are parted.
	let (read, write) = std::io::pipe().unwrap();
	let mut warm = program.place.flashfork(&program.warms());
	assert!(warm.stdout(write.try_clone().unwrap()).stderr(write).status().unwrap().success());
	drop((warm, read));
	assert_eq!((stdout(&clone()), stderr(&clone())), ("0 1 2 ", ""));
}

/// A program that closes all that it has not opened may have files of its own under the engine's numbers.
#[test]
fn a_file_under_a_number_of_the_engines_is_the_programs() {
	let program = Program::new(
		r#"int main(int argc, char **argv) {
	(void)argc; for (int i = 3; i < 1024; i++) close(i);
	int files[200]; for (int i = 0; i < 200; i++) files[i] = open(argv[0], O_RDONLY);
	printf("up\n"); fflush(stdout); usleep(500000);
	int good = 0; for (int i = 0; i < 200; i++) { char b[4]; good += pread(files[i], b, 4, 0) == 4 && !memcmp(b, "\177ELF", 4); }
	printf("%d %d\n", good, files[199]); return 0;
}"#,
	);
	let go = program.place.at("go");
	warm(&program.place, "line:^up$", &[program.path(), go.to_str().unwrap()]);
	fs::write(&go, "").unwrap();
	let clone = program.cloned();
	assert_eq!(both(&clone), ("200 202\n", ""));
}

#[test]
fn pipes_and_pairs_have_what_was_in_them() {
	Program::new(
		r#"
static int p[2], s[2], half[2];
int main(void) {
	pipe2(p, O_NONBLOCK); socketpair(AF_UNIX, SOCK_STREAM, 0, s); socketpair(AF_UNIX, SOCK_STREAM, 0, half);
	another();
	write(p[1], "in the pipe", 11); write(s[0], "to one", 6); write(s[1], "to the other", 12); write(half[0], "last", 4); shutdown(half[0], SHUT_WR);
	READY;
	char b[64]; int n;
	n = read(p[0], b, 64); printf("%.*s, ", n, b); n = read(p[0], b, 64); printf("%d %d\n", n, errno == EAGAIN);
	n = read(s[1], b, 64); printf("%.*s, ", n, b); n = read(s[0], b, 64); printf("%.*s\n", n, b);
	n = read(half[1], b, 64); printf("%.*s, ", n, b); printf("%zd\n", read(half[1], b, 64));
	write(p[1], "more", 4); n = read(p[0], b, 64); printf("%.*s\n", n, b);
	close(p[1]); printf("%zd\n", read(p[0], b, 64));
}
"#,
	)
	.is_the_same_in_clones(4);
}

#[test]
fn bytes_outlive_the_end_that_wrote_them() {
	Program::new(
		r#"
static int p[2], s[2];
int main(void) {
	pipe(p); socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	another();
	write(p[1], "hello", 5); close(p[1]); write(s[1], "bye", 3); close(s[1]);
	READY;
	char b[64];
	for (int i = 0; i < 2; i++) { int n = read(p[0], b, 64); printf("%d %.*s ", n, n, b); n = read(s[0], b, 64); printf("%d %.*s\n", n, n, b); }
}
"#,
	)
	.is_the_same_in_clones(2);
}

#[test]
fn sockets_keep_their_options() {
	Program::new(
		r#"
#include <netinet/tcp.h>
static void set(int fd, int level, int which, int value) { if (setsockopt(fd, level, which, &value, 4)) perror("set"); }
static void all(int fd) {
	static const int levels[] = {SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6};
	static const int whiches[][16] = {{SO_REUSEADDR, SO_REUSEPORT, SO_BROADCAST, SO_KEEPALIVE, SO_RCVTIMEO, SO_SNDTIMEO, SO_SNDBUF, SO_RCVBUF, SO_PASSCRED, SO_LINGER, SO_PRIORITY},
		{IP_TTL, IP_TOS}, {TCP_NODELAY, TCP_KEEPIDLE, TCP_MAXSEG}, {IPV6_V6ONLY, IPV6_UNICAST_HOPS}};
	for (int l = 0; l < 4; l++) for (int i = 0; whiches[l][i]; i++) {
		unsigned char b[16] = {0}; socklen_t n = 16; if (getsockopt(fd, levels[l], whiches[l][i], b, &n)) { printf("- "); continue; }
		for (unsigned j = 0; j < n; j++) printf("%02x", b[j]);
		printf(" ");
	}
	puts("");
}
int main(void) {
	int u = socket(AF_INET, SOCK_DGRAM, 0), t = socket(AF_INET, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_STREAM, 0), s[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	struct timeval wait = {3, 0}; setsockopt(u, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait); setsockopt(s[1], SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
	set(u, SOL_SOCKET, SO_BROADCAST, 1); set(u, IPPROTO_IP, IP_TTL, 5); set(u, IPPROTO_IP, IP_TOS, 16);
	set(t, SOL_SOCKET, SO_REUSEADDR, 1); set(t, SOL_SOCKET, SO_REUSEPORT, 1); set(t, IPPROTO_TCP, TCP_NODELAY, 1); set(t, SOL_SOCKET, SO_KEEPALIVE, 1); set(t, IPPROTO_TCP, TCP_KEEPIDLE, 77); set(t, IPPROTO_IP, IP_TOS, 16); set(t, SOL_SOCKET, SO_PRIORITY, 5);
	struct linger slow = {1, 9}; setsockopt(t, SOL_SOCKET, SO_LINGER, &slow, sizeof slow);
	set(six, IPPROTO_IPV6, IPV6_V6ONLY, 1); set(s[0], SOL_SOCKET, SO_SNDBUF, 65536); set(s[1], SOL_SOCKET, SO_RCVBUF, 32768); set(s[1], SOL_SOCKET, SO_PASSCRED, 1);
	another();
	READY;
	all(u); all(t); all(six); all(s[0]); all(s[1]);
}
"#,
	)
	.is_the_same_in_clones(2);
}

#[test]
fn a_timer_for_a_moment_is_still_for_that_moment() {
	let program = Program::new(
		r#"
int main(void) {
	int timer = timerfd_create(CLOCK_REALTIME, 0); struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
	struct itimerspec it = {{0, 0}, {now.tv_sec + 1, now.tv_nsec}}; timerfd_settime(timer, TFD_TIMER_ABSTIME, &it, 0);
	struct itimerspec far = {{0, 0}, {now.tv_sec + 5000, 0}}, left; int later = timerfd_create(CLOCK_REALTIME, 0); timerfd_settime(later, TFD_TIMER_ABSTIME, &far, 0);
	another();
	READY;
	timerfd_gettime(later, &left); clock_gettime(CLOCK_REALTIME, &now);
	long moment = now.tv_sec * 1000 + now.tv_nsec / 1000000 + left.it_value.tv_sec * 1000 + left.it_value.tv_nsec / 1000000;
	printf("%d\n", labs(moment - far.it_value.tv_sec * 1000) < 900);
}
"#,
	);
	program.warm(&[]);
	// Time that must not be added to it.
	std::thread::sleep(std::time::Duration::from_secs(1));
	assert_eq!(stdout(&program.cloned()), "1\n");
}

/// The kernel has such a timer stand still until somebody asks for it, and tells that it has no time left.
#[test]
fn a_periodic_timer_that_has_gone_off_unread_goes_on() {
	Program::new(
		r#"
int main(void) {
	int timer = timerfd_create(CLOCK_MONOTONIC, 0); struct itimerspec it = {{0, 200000000}, {0, 200000000}}; timerfd_settime(timer, 0, &it, 0);
	struct pollfd p = {timer, POLLIN, 0}; poll(&p, 1, -1);
	another();
	READY;
	for (int i = 0; i < 3; i++) { uint64_t n = 0; int ready = poll(&p, 1, 20000); if (ready) read(timer, &n, 8); printf("%d %d\n", ready, n > 0); }
	timerfd_gettime(timer, &it); printf("%ld\n", it.it_interval.tv_nsec); return 0;
}
"#,
	)
	.is_the_same_in_clones(2);
}

#[test]
fn files_are_read_on_from_where_they_were_by_each_clone_for_itself() {
	Program::new(
		r#"
int main(void) {
	char name[] = "/tmp/flashfork-XXXXXX", b[64]; int fd = mkstemp(name); unlink(name);
	write(fd, "one two three", 13); lseek(fd, 4, SEEK_SET); int copy = dup(fd);
	int nameless = open("/tmp", O_TMPFILE | O_RDWR, 0600); write(nameless, "nameless", 8); lseek(nameless, 2, SEEK_SET);
	another();
	READY;
	read(fd, b, 3); b[3] = 0; printf("%s ", b); usleep(1000); int n = read(copy, b, 64); printf("%.*s\n", n, b);
	n = read(nameless, b, 64); printf("%.*s\n", n, b);
}
"#,
	)
	.is_the_same_in_clones(4);
}

/// Nobody at the other end gets a byte of theirs.
#[test]
fn connections_to_outside_are_at_their_end() {
	let server = TcpListener::bind("127.0.0.1:0").unwrap();
	let port = server.local_addr().unwrap().port().to_string();
	let program = Program::new(
		r#"
int main(int argc, char **argv) {
	signal(SIGPIPE, SIG_IGN);
	int fd = socket(AF_INET, SOCK_STREAM, 0); struct sockaddr_in a = {AF_INET, htons(atoi(argv[1])), {htonl(INADDR_LOOPBACK)}};
	if (connect(fd, (void *)&a, sizeof a)) return 1;
	write(fd, "hello", 5);
	another();
	READY;
	char b[8]; printf("%zd ", read(fd, b, 8)); int n = write(fd, "x", 1); printf("%d %d\n", n, errno == EPIPE);
	int again = socket(AF_INET, SOCK_STREAM, 0); printf("%d\n", connect(again, (void *)&a, sizeof a));
}
"#,
	);
	let accepted = std::thread::spawn(move || (server.accept().unwrap().0, server));
	program.warm(&[&port]);
	let (mut connection, server) = accepted.join().unwrap();
	let mut hello = [0; 5];
	connection.read_exact(&mut hello).unwrap();
	for _ in 0..2 {
		let clone = program.cloned();
		assert_eq!(both(&clone), ("0 -1 1\n0\n", ""));
		drop(server.accept().unwrap());
	}
	// Its end was told when the template was made.
	assert_eq!(connection.read(&mut hello).unwrap(), 0);
}

/// Its peer was gone already when the template was made.
#[test]
fn a_connection_that_was_reset_is_at_its_end() {
	let program = Program::new(
		r#"
int main(void) {
	signal(SIGPIPE, SIG_IGN);
	struct sockaddr_in a; int l = listener(&a), fd = connected(&a); close(l);
	struct pollfd p = {fd, POLLIN, 0}; poll(&p, 1, -1);
	another();
	READY;
	char b[8]; printf("%zd\n", read(fd, b, 8)); return 0;
}
"#,
	);
	program.clones_say(1, 1, "0\n");
}

#[test]
fn clones_share_a_socket_that_listens() {
	let program = Program::new(
		r#"
static int fd;
static void *serve(void *x) {
	for (;;) { int c = accept(fd, 0, 0); char b[64]; int n = read(c, b, 64); dprintf(c, "%d:%.*s", getpid(), n, b); close(c); }
}
int main(void) {
	int port = listens(&fd);
	pthread_t t = thread_of(serve);
	READY;
	printf("%d\n", port); fflush(stdout);
	char b[8]; while (read(0, b, 8) > 0);
}
"#,
	);
	program.warm(&[]);
	let mut clones = [(); 2].map(|()| {
		let mut command = program.place.flashfork(&["clone", "t"]);
		command.start_talk()
	});
	let ports = clones.each_mut().map(|clone| {
		let mut line = String::new();
		std::io::BufRead::read_line(&mut std::io::BufReader::new(clone.stdout.as_mut().unwrap()), &mut line).unwrap();
		line.trim().parse::<u16>().unwrap()
	});
	assert_eq!(ports[0], ports[1]);
	for i in 0..20 {
		let mut connection = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
		connection.write_all(format!("word {i}").as_bytes()).unwrap();
		let answer = rest(connection);
		assert!(answer.ends_with(&format!(":word {i}")), "{answer}");
	}
	for mut clone in clones {
		drop(clone.stdin.take());
		assert!(clone.wait().unwrap().success());
	}
}

#[test]
fn copies_of_standard_streams_are_the_callers() {
	let program = Program::new(
		r#"
int main(void) {
	int out = dup(1), err = fcntl(2, F_DUPFD_CLOEXEC, 40);
	another();
	dprintf(out, "warming\n");
	READY;
	dprintf(out, "out "); dprintf(1, "1 "); dprintf(err, "err "); dprintf(2, "2 ");
	char b[64]; int n = read(0, b, 64); dprintf(out, "%.*s", n, b);
}
"#,
	);
	program.warm(&[]);
	let mut clone = program.place.flashfork(&["clone", "t"]);
	let mut clone = clone.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
	clone.stdin.take().unwrap().write_all(b"in").unwrap();
	let clone = clone.wait_with_output().unwrap();
	assert_eq!(both(&clone), ("out 1 in", "err 2 "));
}

/// On a terminal, or with `2>&1`, output and errors are one open file while it is warmed.
#[test]
fn copies_of_output_and_errors_that_were_one_file_are_told_apart() {
	let program = Program::new(COPIES);
	let (read, write) = std::io::pipe().unwrap();
	let command = program.warms();
	let mut command = program.place.flashfork(&command);
	let mut warm = command.stdout(write.try_clone().unwrap()).stderr(write).spawn().unwrap();
	// Its ends of the pipe.
	drop(command);
	let said = rest(read);
	assert!(warm.wait().unwrap().success() && said.starts_with("out err 1 2 "), "{said}");
	let clone = program.cloned();
	assert_eq!(both(&clone), ("out 1 ", "err 2 "));
}

/// One position in it is both's.
#[test]
fn copies_of_output_and_errors_that_are_one_file_are_refused() {
	let program = Program::new(COPIES);
	let path = program.place.at("log");
	let file = fs::File::create(&path).unwrap();
	let command = program.warms();
	let mut warm = program.place.flashfork(&command);
	assert!(!warm.stdout(file.try_clone().unwrap()).stderr(file).status().unwrap().success());
	let said = fs::read_to_string(&path).unwrap();
	assert!(said.starts_with("out err 1 2 ") && said.contains("which are one file or socket"), "{said}");
}

const COPIES: &str = r#"
int main(void) {
	int out = dup(1), err = fcntl(2, F_DUPFD_CLOEXEC, 40);
	another();
	for (int i = 0; i < 2; i++) { dprintf(out, "out "); dprintf(err, "err "); dprintf(1, "1 "); dprintf(2, "2 "); if (!i) READY; }
}
"#;

/// It has made its errors go where its output goes (`2>&1` of a shell that it was).
#[test]
fn a_standard_stream_that_is_a_copy_of_the_other_is_one_in_clones() {
	let program = Program::new(
		r#"
int main(void) {
	dup2(1, 2); another();
	READY;
	dprintf(1, "out "); dprintf(2, "err "); return 0;
}
"#,
	);
	program.clones_say(1, 1, "out err ");
}

#[test]
fn an_eventfd_without_room_for_more_counts_down_as_it_did() {
	Program::new(
		r#"
int main(void) {
	uint64_t n = UINT64_MAX - 1; int fd = eventfd(0, EFD_SEMAPHORE); write(fd, &n, 8);
	READY;
	read(fd, &n, 8); printf("%d\n", n == 1);
}
"#,
	)
	.is_the_same_in_clones(1);
}

/// The pipe takes as much as the program's.
#[test]
fn a_pipe_has_as_much_room_as_it_had() {
	Program::new(
		r#"
int main(void) {
	int p[2], q[2], k[2]; pipe2(p, O_NONBLOCK); pipe2(q, O_NONBLOCK); pipe2(k, O_NONBLOCK | O_DIRECT); static char b[1 << 20];
	fcntl(q[1], F_SETPIPE_SZ, 1 << 18); write(p[1], b, 100); write(q[1], b, 5000); read(q[0], b, 4500); write(k[1], "one", 3); write(k[1], "three", 5);
	another();
	READY;
	printf("%zd %zd %d ", write(p[1], b, 1 << 20), write(q[1], b, 1 << 20), fcntl(q[0], F_GETPIPE_SZ));
	printf("%zd %zd\n", read(k[0], b, 64), read(k[0], b, 64));
}
"#,
	)
	.is_the_same_in_clones(2);
}

#[test]
fn shared_memory_in_clones_is_as_long_as_it_was_and_keeps_what_was_advised() {
	Program::new(
		r#"
static void flags(char *m) {
	FILE *f = fopen("/proc/self/smaps", "r"); char l[300]; unsigned long a, b; int in = 0;
	while (fgets(l, 300, f)) {
		if (sscanf(l, "%lx-%lx ", &a, &b) == 2) in = a <= (unsigned long)m && (unsigned long)m < b;
		if (in && !strncmp(l, "VmFlags", 7)) printf("dd %d dc %d rr %d\n", !!strstr(l, " dd"), !!strstr(l, " dc"), !!strstr(l, " rr"));
	}
	fclose(f);
}
int main(void) {
	char *m = mmap(0, 65536, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *cut = mmap(0, 8 << 20, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	madvise(m, 65536, MADV_DONTFORK); madvise(m, 65536, MADV_DONTDUMP); madvise(m, 65536, MADV_RANDOM);
	memset(cut, 3, 8 << 20); munmap(cut + (5 << 20), 3 << 20); munmap(cut, 1 << 20);
	char *twice = mremap(m, 0, 4096, MREMAP_MAYMOVE), *end = mremap(cut + (4 << 20), 0, 4 << 20, MREMAP_MAYMOVE); mprotect(end, 1 << 20, PROT_NONE);
	another();
	READY;
	flags(m);
	int pid = fork(), status; if (!pid) { unsigned char x; _exit(!mincore(m, 4096, &x)); } waitpid(pid, &status, 0);
	char *whole = mremap(cut + (1 << 20), 4 << 20, 7 << 20, MREMAP_MAYMOVE);
	m[1] = 1; twice[2] = 2; whole[4 << 20] = 4;
	printf("%d %d %d %d %d\n", status, whole[0], whole[(7 << 20) - 1], twice[1] + m[2], end[1 << 20]); return 0;
}
"#,
	)
	.is_the_same_in_clones(2);
}

#[test]
fn shared_memory_of_a_program_alone_is_each_clones_own() {
	Program::new(
		r#"
int main(void) {
	volatile int *m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); m[0] = 7;
	mprotect((char *)m + 4096, 4096, PROT_NONE);
	char *hidden = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); strcpy(hidden, "there"); madvise(hidden, 4096, MADV_DONTFORK);
	another();
	READY;
	for (int i = 0; i < 1000; i++) { int v = ++m[0]; sched_yield(); if (m[0] != v) { puts("another's"); return 1; } }
	int pid = fork(), status; if (!pid) { m[0] = 99; _exit(access(hidden, F_OK) && errno == EFAULT); } waitpid(pid, &status, 0);
	mprotect((char *)m + 4096, 4096, PROT_READ);
	printf("%d %d %s %d\n", m[0], m[1024], hidden, WEXITSTATUS(status)); return 0;
}
"#,
	)
	.is_the_same_in_clones(4);
}
