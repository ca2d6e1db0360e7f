//! Calls in flight when the program is stopped are made by clones as if nothing had been.

use crate::{
	place::{assert_says, both, good, kill, stderr, stdout, until},
	programs::Program,
};
use std::{fs, io::Read, process::Stdio};

/// Each waits until all is through, and has transferred a part.
#[test]
fn calls_that_had_transferred_a_part_go_on_with_the_rest() {
	Program::new(
		r#"
#include <sys/sendfile.h>
#define BIG 1000000
static int p[2], s[2], t2[2], v[2], m[2], sf[2], d[2];
static char data[BIG]; static volatile int tids[16]; static char line[16][200];
static unsigned sum(const char *b, size_t n) { unsigned h = 1; while (n--) h = h * 31 + (unsigned char)*b++; return h; }
static void *writes(void *x) { tids[0] = gettid(); errno = 0; ssize_t n = write(p[1], data, BIG); sprintf(line[0], "write %zd %d", n, errno); close(p[1]); return 0; }
static void *sends(void *x) { tids[1] = gettid(); errno = 0; ssize_t n = write(s[0], data, BIG); sprintf(line[1], "send %zd %d", n, errno); close(s[0]); return 0; }
static void *receives(void *x) { static char b[1000]; tids[2] = gettid(); errno = 0; ssize_t n = recv(t2[1], b, 1000, MSG_WAITALL); sprintf(line[2], "recv %zd %u %d", n, sum(b, 1000), errno); return 0; }
static void *vectors(void *x) { tids[3] = gettid(); struct iovec i[4] = {{data, 10}, {data + 10, 99990}, {data + 100000, 0}, {data + 100000, 900000}}; errno = 0; ssize_t n = writev(v[0], i, 4); sprintf(line[3], "writev %zd %d", n, errno); close(v[0]); return 0; }
static void *messages(void *x) { tids[4] = gettid(); struct iovec i[2] = {{data, 500000}, {data + 500000, 500000}}; struct msghdr h = {.msg_iov = i, .msg_iovlen = 2}; ssize_t n = sendmsg(m[0], &h, 0); sprintf(line[4], "sendmsg %zd", n); close(m[0]); return 0; }
static void *files(void *x) { tids[5] = gettid(); char name[] = "/tmp/ff-XXXXXX"; int f = mkstemp(name); unlink(name); write(f, data, BIG); off_t o = 1000; ssize_t n = sendfile(sf[1], f, &o, BIG); sprintf(line[5], "sendfile %zd %ld", n, (long)o); close(sf[1]); return 0; }
static void *receive_messages(void *x) { static char b[6]; tids[6] = gettid(); struct iovec i[3] = {{b, 1}, {b + 1, 1}, {b + 2, 1}}; struct mmsghdr h[3] = {{{.msg_iov = i, .msg_iovlen = 1}}, {{.msg_iov = i + 1, .msg_iovlen = 1}}, {{.msg_iov = i + 2, .msg_iovlen = 1}}}; int n = recvmmsg(d[1], h, 3, 0, 0); sprintf(line[6], "recvmmsg %d %s", n, b); return 0; }
static size_t drain(int fd, unsigned *h) { static char b[BIG * 2]; size_t all = 0; ssize_t n; while ((n = read(fd, b + all, sizeof b - all)) > 0) all += n; *h = sum(b, all); return all; }
int main(void) {
	for (int i = 0; i < BIG; i++) data[i] = i * 7 + i / 1000;
	pipe(p); socketpair(AF_UNIX, SOCK_STREAM, 0, sf); socketpair(AF_UNIX, SOCK_STREAM, 0, s); socketpair(AF_UNIX, SOCK_STREAM, 0, t2); socketpair(AF_UNIX, SOCK_STREAM, 0, v); socketpair(AF_UNIX, SOCK_STREAM, 0, m); socketpair(AF_UNIX, SOCK_DGRAM, 0, d);
	int small = 40000; setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &small, 4); setsockopt(v[0], SOL_SOCKET, SO_SNDBUF, &small, 4); setsockopt(m[0], SOL_SOCKET, SO_SNDBUF, &small, 4); setsockopt(sf[1], SOL_SOCKET, SO_SNDBUF, &small, 4);
	void *(*all[])(void *) = {writes, sends, receives, vectors, messages, files, receive_messages}; pthread_t t[7];
	for (int i = 0; i < 7; i++) pthread_create(t + i, 0, all[i], 0);
	for (int i = 0; i < 7; i++) { while (!tids[i]) usleep(1000); }
	write(t2[0], data, 400); send(d[0], "a", 1, 0);
	for (int left = 1, other = 1; left || other; usleep(1000)) { ioctl(t2[1], FIONREAD, &left); ioctl(d[1], FIONREAD, &other); }
	for (int i = 0; i < 7; i++) until_asleep(tids[i]);
	READY;
	write(t2[0], data + 400, 600); send(d[0], "b", 1, 0); send(d[0], "c", 1, 0);
	unsigned h; size_t n;
	int fds[] = {p[0], s[1], v[1], m[1], sf[0]};
	for (int i = 0; i < 5; i++) { n = drain(fds[i], &h); printf("%zu %u\n", n, h); }
	for (int i = 0; i < 7; i++) pthread_join(t[i], 0);
	for (int i = 0; i < 7; i++) puts(line[i]);
}
"#,
	)
	.is_the_same_in_clones(3);
}

/// A signal cuts them short, which the program has none of.
#[test]
fn random_bytes_zeros_and_copies_of_files_are_not_cut_short() {
	Program::new(
		r#"
#define BIG (64 << 20)
static volatile int stop, rounds[4], shorts[4];
static void *randoms(void *x) { char *b = malloc(BIG); while (!stop) { errno = 0; if (getrandom(b, BIG, 0) != BIG) shorts[0]++; rounds[0]++; } return 0; }
static void *zeros(void *x) { char *b = malloc(BIG); int fd = open("/dev/zero", O_RDONLY); while (!stop) { if (read(fd, b, BIG) != BIG) shorts[1]++; rounds[1]++; } return 0; }
static void *vectors(void *x) { char *b = malloc(BIG); int fd = open("/dev/urandom", O_RDONLY); while (!stop) { struct iovec i[2] = {{b, 100}, {b + 100, BIG - 100}}; if (readv(fd, i, 2) != BIG) shorts[2]++; rounds[2]++; } return 0; }
static void *copies(void *x) { char n[] = "/tmp/ff-XXXXXX"; int from = mkstemp(n); unlink(n); ftruncate(from, BIG); while (!stop) { char m[] = "/tmp/ff-XXXXXX"; int to = mkstemp(m); unlink(m); off_t a = 0, b = 0; if (copy_file_range(from, &a, to, &b, BIG, 0) != BIG || a != BIG) shorts[3]++; close(to); rounds[3]++; } return 0; }
int main(void) {
	void *(*all[])(void *) = {randoms, zeros, vectors, copies}; pthread_t t[4];
	for (int i = 0; i < 4; i++) pthread_create(t + i, 0, all[i], 0);
	for (int i = 0; i < 4; i++) while (rounds[i] < 1) usleep(1000);
	usleep(50000);
	READY;
	stop = 1; for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
	printf("%d %d %d %d\n", shorts[0], shorts[1], shorts[2], shorts[3]); return 0;
}
"#,
	)
	.is_the_same_in_clones(2);
}

/// What is through by then has gone to whoever has warmed it.
#[test]
fn the_rest_of_what_is_written_to_a_standard_stream_goes_to_the_callers() {
	let program = Program::new(
		r#"
static volatile int tid; static char b[300000];
static void *writes(void *x) { tid = gettid(); ssize_t n = write(2, b, sizeof b); printf("wrote %zd\n", n); return 0; }
int main(void) {
	for (int i = 0; i < (int)sizeof b; i++) b[i] = 'a' + i % 23;
	pthread_t t = thread_of(writes); until_tid_asleep(&tid);
	READY;
	pthread_join(t, 0); return 0;
}
"#,
	);
	let command = program.warms();
	let mut warm = program.place.flashfork(&command).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
	until("it is ready", || !program.place.list().is_empty());
	let mut first = Vec::new();
	warm.stderr.take().unwrap().read_to_end(&mut first).unwrap();
	assert!(warm.wait().unwrap().success());
	for _ in 0..2 {
		let clone = program.cloned();
		assert_eq!(stdout(&clone), "wrote 300000\n");
		let all = [&first, &clone.stderr[..]].concat();
		assert_eq!(all.len(), 300_000);
		assert!(all.iter().enumerate().all(|(i, byte)| *byte == b'a' + (i % 23) as u8));
	}
}

/// The program has a handler: its call returns with the part.
#[test]
fn a_signal_ends_the_rest_of_a_call_as_it_ends_the_call() {
	Program::new(
		r#"
static int p[2]; static volatile int tid, handled; static char data[300000]; static char line[64];
static void handler(int s) { handled++; }
static void *writes(void *x) { tid = gettid(); ssize_t n = write(p[1], data, sizeof data); sprintf(line, "%d %d", n > 0 && n < (ssize_t)sizeof data, handled); return 0; }
static void *cancelled(void *x) { int q[2]; pipe(q); *(volatile int *)x = gettid(); write(q[1], data, sizeof data); return 0; }
int main(void) {
	struct sigaction a = {.sa_handler = handler}; sigaction(SIGUSR1, &a, 0); pipe(p);
	static volatile int other; pthread_t t, c; pthread_create(&t, 0, writes, 0); pthread_create(&c, 0, cancelled, (void *)&other);
	while (!tid || !other) usleep(1000);
	until_asleep(tid); until_asleep(other);
	READY;
	until_asleep(tid); pthread_kill(t, SIGUSR1); pthread_join(t, 0); puts(line);
	void *r; pthread_cancel(c); pthread_join(c, &r); printf("%d\n", r == PTHREAD_CANCELED);
}
"#,
	)
	.is_the_same_in_clones(3);
}

#[test]
fn what_could_not_go_on_is_refused() {
	let program = Program::new(
		r#"
static int s[2]; static volatile int tid;
static void *reads(void *x) { int least = 100; setsockopt(s[0], SOL_SOCKET, SO_RCVLOWAT, &least, 4); char b[200]; tid = gettid(); recv(s[0], b, 200, 0); return 0; }
int main(void) {
	socketpair(AF_UNIX, SOCK_STREAM, 0, s); pthread_t t = thread_of(reads); until_tid_asleep(&tid); write(s[1], "some", 4);
	for (int left = 1; left; usleep(1000)) ioctl(s[0], FIONREAD, &left);
	until_asleep(tid);
	READY; return 0;
}
"#,
	);
	let refused = program.try_warm(&[]);
	assert!(
		stderr(&refused).contains("a thread in the middle of a call that its clones could not go on with (program"),
		"{}",
		stderr(&refused)
	);
}

/// The queue of who listens is full: nobody answers.
#[test]
fn a_thread_that_waits_to_be_connected_is_refused() {
	let program = Program::new(
		r#"
static volatile int tid; static int waits; static struct sockaddr_in a;
static void *connects(void *x) { tid = gettid(); connect(waits, (void *)&a, sizeof a); return 0; }
int main(void) {
	int l = listener(&a); listen(l, 0); connected(&a); waits = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t t = thread_of(connects); until_tid_asleep(&tid);
	READY; return 0;
}
"#,
	);
	let refused = program.try_warm(&[]);
	assert_says(stderr(&refused), "a call that its clones could not go on with");
}

/// The program is stopped by the test, so that the signal comes when it can't be taken before its template is made.
#[test]
fn a_signal_ends_the_call_in_which_its_template_was_stopped() {
	let program = Program::new(
		r#"
static volatile int handled; static int p[2]; static const char *name;
static void on_signal(int n) { handled++; }
static void *other(void *x) {
	until_asleep(getpid()); FILE *f = fopen(name, "w"); fprintf(f, "%d\n", getpid()); fclose(f);
	while (!handled) usleep(10000);
	usleep(10000); write(p[1], "x", 1); return 0;
}
int main(int count, char **all) {
	int restart = !strcmp(all[2], "restart"); name = all[1]; pipe(p);
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0}; sigaction(SIGUSR1, &a, 0);
	sigset_t s = blocked(SIGUSR1, 0);
	pthread_t t = thread_of(other); pthread_sigmask(SIG_UNBLOCK, &s, 0);
	char b; int r = !strcmp(all[2], "poll") ? poll(0, 0, -1) : read(p[0], &b, 1);
	printf("%d %d %d\n", r, r == -1 ? errno == EINTR : 0, handled); return 0;
}
"#,
	);
	for (call, said) in [("poll", "-1 1 1\n"), ("read", "-1 1 1\n"), ("restart", "1 0 1\n")] {
		let place = &program.place;
		let file = place.at(call);
		let name = file.to_str().unwrap();
		let command = ["warm", "--threads", "--ready", "idle:2", call, "--", program.path(), name, call];
		let warm = place.flashfork(&command).stderr(Stdio::piped()).spawn().unwrap();
		let written = || fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'));
		until("it waits", || written().is_some());
		let pid: i32 = written().unwrap().trim().parse().unwrap();
		kill(pid, libc::SIGSTOP);
		let stopped = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
		until("it is stopped", stopped);
		kill(pid, libc::SIGUSR1);
		good(warm.wait_with_output().unwrap());
		for _ in 0..3 {
			let clone = place.run(&["clone", call]);
			assert_eq!(both(&clone), (said, ""), "{call}");
		}
	}
}

/// Its objects end, as those of any cancelled thread do.
#[test]
fn a_thread_that_is_cancelled_in_the_rest_of_a_call_is_unwound() {
	Program::new(
		r#"
static int p[2], ended; static volatile int tid; static char big[1 << 20];
static void end(int *x) { ended += *x; }
static void *other(void *x) { int one __attribute__((cleanup(end))) = 1; tid = gettid(); write(p[1], big, sizeof big); return 0; }
int main(void) {
	pthread_t t; void *r; pipe(p); pthread_create(&t, 0, other, 0); until_tid_asleep(&tid);
	READY; until_asleep(tid);
	printf("%d ", pthread_cancel(t)); printf("%d ", pthread_join(t, &r)); printf("%d %d\n", r == PTHREAD_CANCELED, ended);
}
"#,
	)
	.is_the_same_in_clones(2);
}
