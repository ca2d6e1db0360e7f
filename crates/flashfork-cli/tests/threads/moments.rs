//! Programs that know nothing of clones are ready at a moment that is said.

use crate::{
	place::{Place, Start, assert_says, both, first_line, good, line, rest, stderr, stdout},
	programs::Program,
};
use std::{
	fs,
	io::{BufRead, BufReader, Read, Write},
	net::TcpStream,
};

const SERVER: &str = r#"
static int fd;
static volatile long work;
static void *serve(void *x) {
	for (;;) { int c = accept(fd, 0, 0); char b[64]; int n = read(c, b, 64); dprintf(c, "%ld:%.*s", work, n, b); close(c); }
}
int main(int argc, char **argv) {
	for (int i = 0; i < 50000000; i++) work++;
	int port = listens(&fd);
	pthread_t t = thread_of(serve);
	printf("port %d\n", port); fflush(stdout);
	for (;;) pause();
}
"#;

fn answer(port: u16) -> String {
	let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
	connection.write_all(b"word").unwrap();
	rest(connection)
}

#[test]
fn a_server_is_ready_when_it_is_idle_or_listens_or_says_so() {
	let program = Program::new(SERVER);
	for (moment, told) in [("idle:0.3", "idle"), ("line:port [0-9]+", "line"), ("listen", "listen")] {
		let command = ["warm", "--threads", "--ready", moment, "t", "--", program.path()];
		let warm = program.place.run(&command);
		assert!(warm.status.success(), "{moment}: {}", stderr(&warm));
		assert_eq!(program.place.list()[0]["ready"], told);
		let mut clone = program.place.flashfork(&["clone", "t"]).start();
		// What it prints after the moment its clones print; before that it was printed once.
		let mut said = stdout(&warm).lines().next().unwrap_or_default().to_owned();
		if !said.starts_with("port ") {
			said.clear();
			BufReader::new(clone.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
		}
		let port = said.trim().strip_prefix("port ").unwrap().parse().unwrap();
		assert_eq!(answer(port), "50000000:word");
		clone.kill().unwrap();
		clone.wait().unwrap();
		program.place.remove();
	}
}

#[test]
fn a_port_is_waited_for() {
	let program = Program::new(SERVER);
	let mut warm =
		program.place.flashfork(&["warm", "--threads", "--ready", "listen:1", "t", "--", program.path()]).start_both();
	let said = first_line(&mut warm.stdout);
	// It listens on another, which is told after a while.
	let port = said.trim().strip_prefix("port ").unwrap();
	let told = first_line(&mut warm.stderr);
	assert_says(&told, &format!("until it listens on port 1 (it listens on {port})"));
	assert!(warm.try_wait().unwrap().is_none() && program.place.list().is_empty());
	warm.kill().unwrap();
	warm.wait().unwrap();
	program.place.until_empty();
}

#[test]
fn a_program_that_was_ready_by_itself_takes_no_arguments() {
	let program = Program::new(SERVER);
	good(program.place.run(&["warm", "--threads", "--ready", "listen", "t", "--", program.path()]));
	program.place.refuses(&["clone", "t", "word"], "t takes no arguments");
}

#[test]
fn what_is_missing_or_makes_no_sense_is_said() {
	let place = Place::new();
	let refused = place.run(&["warm", "--threads", "t", "--", "/bin/sleep", "10"]);
	assert_says(line(&refused), "does not say by itself when it is ready");
	place.refuses(&["warm", "--ready", "listen", "t", "--", "/bin/sleep", "10"], "add --threads");
	for wrong in ["listen:x", "idle:-1", "line:(", "line:", "sometime"] {
		let refused = place.run(&["warm", "--threads", "--ready", wrong, "t", "--", "/bin/sleep", "10"]);
		assert_eq!(refused.status.code(), Some(2), "{wrong}");
	}
	let ended = place.run(&["warm", "--threads", "--ready", "idle:100", "t", "--", "/bin/sh", "-c", "exit 9"]);
	assert_says(line(&ended), "ended with exit status 9 before it was ready");
	assert_says(line(&ended), "wait for less");
	place.refuses(
		&["warm", "--threads", "--ready", "idle:100", "t", "--", "/bin/sh", "-c", "kill -USR1 $$"],
		"ended by signal 10",
	);
	place.refuses(&["warm", "--threads", "--ready", "idle:1", "t", "--", "/nonexistent"], "No such file");
	assert!(place.list().is_empty());
	place.until_empty();
}

const PRINTER: &str = r#"
static void *print(void *x) { for (long i = 0;; i++) { printf("%ld\n", i); fflush(stdout); if (i == 1000) puts("now"); } }
int main(int argc, char **argv) { pthread_t t = thread_of(print); for (;;) pause(); }
"#;

#[test]
fn no_line_is_lost_between_template_and_clone() {
	let program = Program::new(PRINTER);
	let warm = good(program.place.run(&["warm", "--threads", "--ready", "line:^now$", "t", "--", program.path()]));
	let mut clone = program.place.flashfork(&["clone", "t"]).start();
	let mut more = String::new();
	clone.stdout.as_mut().unwrap().take(20_000).read_to_string(&mut more).unwrap();
	clone.kill().unwrap();
	clone.wait().unwrap();
	let all = stdout(&warm).to_owned() + &more;
	// The command says a line, too.
	let numbers: Vec<i64> = all.lines().filter_map(|line| line.parse().ok()).collect();
	// The last may be cut in two.
	let numbers = &numbers[..numbers.len() - 1];
	assert!(numbers.iter().enumerate().all(|(i, number)| i as i64 == *number), "{all}");
	assert!(numbers.len() > 1001);
}

/// It has set them in `main`, which its clones don't run.
#[test]
fn a_program_that_was_ready_by_itself_keeps_what_it_has_set() {
	let program = Program::new(
		r#"
int main(void) {
	another();
	umask(027); chdir("/usr"); setpriority(PRIO_PROCESS, 0, 5);
	struct rlimit files = {77, 99}; setrlimit(RLIMIT_NOFILE, &files);
	usleep(4000000);
	char *directory = getcwd(0, 0); getrlimit(RLIMIT_NOFILE, &files);
	printf("%o %s %d %d %d\n", umask(0), directory, getpriority(PRIO_PROCESS, 0), (int)files.rlim_cur, (int)files.rlim_max);
}
"#,
	);
	good(program.place.run(&["warm", "--threads", "--ready", "idle:0.2", "t", "--", program.path()]));
	let clone = program.cloned();
	assert_eq!(both(&clone), ("27 /usr 5 77 99\n", ""));
}

/// The main thread waits in each of them when the program is stopped, first for its maker to be made and then for good.
const MAIN_WAITS: &str = r#"
static int p[2], s[2]; static sem_t sem; static pthread_t first; static const char *go;
static void *other(void *x) {
	while (access(go, F_OK)) usleep(20000);
	write(p[1], "x", 1); write(s[1], "x", 1); sem_post(&sem); pthread_kill(first, SIGUSR1); return 0;
}
int main(int argc, char **argv) {
	go = argv[1]; first = pthread_self(); pipe(p); socketpair(AF_UNIX, SOCK_STREAM, 0, s); sem_init(&sem, 0, 0);
	sigset_t usr1 = blocked(SIGUSR1, 0);
	struct timespec late = {time(0) + 1000, 0}, span = {1000, 0}; struct timeval wait = {1000, 0};
	setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	int set = epoll_create1(0); struct epoll_event e = {EPOLLIN, {0}}; epoll_ctl(set, EPOLL_CTL_ADD, p[0], &e);
	struct pollfd fd = {p[0], POLLIN, 0}; fd_set all; FD_ZERO(&all); FD_SET(p[0], &all); char byte;
	pthread_t t = thread_of(other);
	int done = -2; errno = 0;
	switch (atoi(argv[2])) {
		case 0: done = poll(&fd, 1, 1000000); break;
		case 1: done = epoll_wait(set, &e, 1, 1000000); break;
		case 2: done = select(p[0] + 1, &all, 0, 0, &wait); break;
		case 3: done = sem_timedwait(&sem, &late) + 1; break;
		case 4: done = sigtimedwait(&usr1, 0, &span) == SIGUSR1; break;
		case 5: done = recv(s[0], &byte, 1, 0); break;
		case 6: done = read(p[0], &byte, 1); break;
	}
	printf("%d %s\n", done, strerror(errno)); pthread_join(t, 0); return 0;
}
"#;

#[test]
fn a_call_in_which_the_main_thread_waits_is_made_again() {
	let program = Program::new(MAIN_WAITS);
	let go = program.place.at("go");
	for call in 0..7 {
		let _ = fs::remove_file(&go);
		let mut warm = program.place.flashfork(&["warm", "--threads", "--ready", "idle:0.1", "t", "--"]);
		let warm = warm.arg(program.path()).arg(&go).arg(call.to_string()).output().unwrap();
		assert!(warm.status.success(), "{call}: {}", stderr(&warm));
		fs::write(&go, "").unwrap();
		let clone = program.cloned();
		assert_eq!(both(&clone), ("1 Success\n", ""), "{call}");
		program.place.remove();
	}
}

#[test]
fn a_thread_that_sends_itself_a_signal_gets_it_though_its_process_has_another_number() {
	let program = Program::new(
		r#"
static volatile int over;
static __thread volatile long got;
static void count(int n) { got++; }
static void *sends(void *x) {
	for (long i = 1; !over; i++) { raise(SIGUSR1); if (got != i) { printf("%ld of %ld\n", got, i); exit(1); } }
	return 0;
}
static void *tells(void *x) {
	int failed = 0;
	while (!over && !failed) failed = pthread_kill((pthread_t)x, SIGUSR2);
	if (failed) { printf("told nobody: %d\n", failed); exit(1); }
	return 0;
}
static void *misses(void *x) {
	while (!over) if (tgkill(1999998, 1999999, 0) != -1) { puts("another function"); exit(1); }
	return 0;
}
static void *ends(void *x) { int here = getpid(); puts("begin"); fflush(stdout); while (getpid() == here) usleep(1000); over = 1; return 0; }
int main() {
	signal(SIGUSR1, count); signal(SIGUSR2, SIG_IGN);
	pthread_t t[4] = {thread_of(sends), thread_of(misses), thread_of(ends)};
	pthread_create(t + 3, 0, tells, (void *)pthread_self());
	sends(0);
	for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
	puts("all");
}
"#,
	);
	for _ in 0..25 {
		good(program.place.run(&["warm", "--threads", "--ready", "line:begin", "t", "--", program.path()]));
		assert_eq!(both(&program.cloned()), ("all\n", ""));
		program.place.remove();
	}
}
