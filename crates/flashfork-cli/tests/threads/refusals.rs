//! What clones could not have is refused, with the reason in words.

use crate::{
	place::{assert_says, first_line, line, pids, stderr, until},
	programs::Program,
};
use std::{
	fs,
	process::{Command, Stdio},
};

const CREDENTIALS: &str = "credentials or capabilities that its clones would not have";
const FULL: &str = "a socket pair or pipe with more in it";

/// Programs with one thing, and what is said of it.
const REFUSED: [(&str, &str); 28] = [
	("if (!fork()) { for (;;) pause(); }", "a child process, which its clones would not have"),
	(r#"int fd = open("/tmp", O_RDONLY); flock(fd, LOCK_EX);"#, "a lock on a file"),
	(
		r#"int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600); struct flock l = {F_WRLCK, SEEK_SET, 0, 1, 0}; fcntl(fd, F_OFD_SETLK, &l);"#,
		"a lock on a file",
	),
	(
		r#"int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600); struct flock l = {F_WRLCK, SEEK_SET, 0, 1, 0}; fcntl(fd, F_SETLK, &l);"#,
		"a lock on a file",
	),
	(
		"clockid_t clock; pthread_getcpuclockid(t, &clock); timer_t timer; timer_create(clock, 0, &timer);",
		"a timer on a thread's clock, or on another process's",
	),
	(
		"sigset_t s = blocked(SIGRTMIN, 0); for (int i = 0; i < 257; i++) pthread_sigqueue(pthread_self(), SIGRTMIN, (union sigval){0});",
		"more than 256 pending signals",
	),
	("OF_THREAD(syscall(SYS_unshare, CLONE_FILES));", "a thread with files or a directory of its own"),
	("OF_THREAD(if (!vfork()) for (;;) pause());", "a thread that doesn't stop"),
	(r#"int fd = inotify_init(); inotify_add_watch(fd, "/tmp", IN_CREATE);"#, "watches of inotify"),
	(
		r#"int fd = inotify_init(); inotify_rm_watch(fd, inotify_add_watch(fd, "/tmp", IN_CREATE));"#,
		"watches of inotify, or unread events",
	),
	(
		"int fd = memfd_create(\"heap\", 0); ftruncate(fd, 4096); mmap(0, 4096, 3, MAP_SHARED, fd, 0);",
		"or from a file of memory",
	),
	(
		"int fd = socket(AF_INET, SOCK_DGRAM, 0); struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}; bind(fd, (void *)&a, sizeof a);",
		"a socket that clones can't have",
	),
	("syscall(SYS_pidfd_open, getpid(), 0);", "a descriptor that clones can't have"),
	(
		"int set = epoll_create1(0); pipe(p); struct epoll_event e = {EPOLLIN, {0}}; epoll_ctl(set, EPOLL_CTL_ADD, p[0], &e); int copy = dup(p[0]); close(p[0]); (void)copy;",
		"or a file whose descriptor is closed",
	),
	("unshare(CLONE_FS);", "a thread with files or a directory of its own"),
	("if (unshare(CLONE_NEWUTS)) exit(77);", "a namespace or root directory of its own"),
	(
		"clone((int (*)(void *))idle, (char *)malloc(65536) + 65536, CLONE_VM | SIGCHLD, 0);",
		"another process in its memory",
	),
	("char b[65536] = {0}; socketpair(AF_UNIX, SOCK_DGRAM, 0, s); write(s[0], b, 10);", FULL),
	("long context = 0; syscall(SYS_io_setup, 8, &context);", "a process with an AIO context"),
	("prctl(PR_SET_TIMERSLACK, 1000);", "an attribute that its clones would not have (timer slack"),
	("prctl(PR_SET_CHILD_SUBREAPER, 1);", "an attribute that its clones would not have (PR_SET_CHILD_SUBREAPER"),
	("syscall(SYS_ioprio_set, 1, 0, 3 << 13);", "an attribute that its clones would not have (ioprio"),
	("personality(ADDR_NO_RANDOMIZE);", "an attribute that its clones would not have (personality"),
	("lock_recursive(malloc(sizeof(pthread_mutex_t)));", "a rwlock that it has locked to write ([heap])"),
	(
		"static pthread_mutex_t m = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP; pthread_mutex_lock(&m);",
		"a mutex that its main thread holds",
	),
	("lock_recursive(mmap(0, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0));", "a mutex that its main thread holds"),
	(
		"static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER; pthread_rwlock_wrlock(&l);",
		"or a rwlock that it has locked to write",
	),
	("prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);", CREDENTIALS),
];

/// Descriptors and memory of which clones would have one together, or another than the program.
const DESCRIPTORS: [(&str, &str); 29] = [
	(
		"struct rlimit low = {64, 64}; dup2(1, 300); setrlimit(RLIMIT_NOFILE, &low);",
		"above which the limit of open files leaves no number",
	),
	(
		"int set = epoll_create1(0), first = eventfd(0, 0); struct epoll_event e = {EPOLLIN, {0}}; epoll_ctl(set, EPOLL_CTL_ADD, first, &e); dup(first); close(first); eventfd(0, 0);",
		"or a file whose descriptor is closed",
	),
	(
		"char n[40]; pipe(p); sprintf(n, \"/proc/self/fd/%d\", p[0]); open(n, O_RDWR);",
		"a descriptor that clones can't have (pipe:",
	),
	(
		"char n[40]; pipe(p); sprintf(n, \"/proc/self/fd/%d\", p[0]); open(n, O_RDONLY | O_NONBLOCK);",
		"a descriptor that clones can't have (one more open file of a pipe",
	),
	(
		"int on = 1; socketpair(AF_UNIX, SOCK_STREAM, 0, s); setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, 4); send_file(s[0], 0);",
		FULL,
	),
	("socketpair(AF_UNIX, SOCK_STREAM, 0, s); write(s[0], \"before\", 6); send_file(s[0], 0);", FULL),
	("socketpair(AF_UNIX, SOCK_STREAM, 0, s); send_file(s[0], 0); close(s[0]);", FULL),
	("socketpair(AF_UNIX, SOCK_DGRAM, 0, s); send(s[0], \"\", 0, 0);", FULL),
	("socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s); send(s[0], \"\", 0, 0);", FULL),
	("socketpair(AF_UNIX, SOCK_STREAM, 0, s); fcntl(s[0], F_SETOWN, getpid());", "a descriptor that sends it signals"),
	("pipe(p); fcntl(p[0], F_SETSIG, SIGUSR1);", "a descriptor that sends it signals"),
	("int fd = socket(AF_NETLINK, SOCK_RAW, 0); (void)fd;", "a socket that clones can't have"),
	("posix_openpt(O_RDWR | O_NOCTTY);", "a terminal opened by its name (/dev/ptmx"),
	(
		"int m = posix_openpt(O_RDWR | O_NOCTTY); unlockpt(m); open(ptsname(m), O_RDWR | O_NOCTTY); close(m);",
		"a terminal opened by its name",
	),
	(
		"int fd = socket(AF_INET, SOCK_DGRAM, 0); struct ip_mreq m = {{htonl(0xe0010203)}, {htonl(INADDR_LOOPBACK)}}; if (setsockopt(fd, 0, IP_ADD_MEMBERSHIP, &m, sizeof m)) return 1;",
		"a socket with options that clones can't be given",
	),
	(
		"int fd = socket(AF_INET, SOCK_DGRAM, 0); if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter)) return 1;",
		"a socket with options that clones can't be given",
	),
	(
		"socketpair(AF_UNIX, SOCK_STREAM, 0, s); if (setsockopt(s[1], SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter)) return 1;",
		"a socket with options that clones can't be given",
	),
	("int fd = memfd_create(\"heap\", 0); (void)fd;", "from a file of memory (/memfd:heap"),
	(
		"syscall(SYS_mq_open, \"flashfork\", O_RDWR | O_CREAT, 0600, 0); syscall(SYS_mq_unlink, \"flashfork\");",
		"a descriptor that clones can't have (/flashfork",
	),
	("int fd = open(\"/proc/self/stat\", O_RDONLY); (void)fd;", "a file of /proc that tells of its process"),
	("int fd = open(\"/proc\", O_RDONLY); (void)fd;", "a file of /proc that tells of its process"),
	(
		"char n[] = \"/tmp/flashfork-with-a-long-name-XXXXXX\"; int fd = mkstemp(n); unlink(n); ftruncate(fd, 4096); mmap(0, 4096, 3, MAP_SHARED, fd, 0); close(fd);",
		"or from a file of memory",
	),
	("sem_t *s = sem_open(\"/flashfork-test\", O_CREAT, 0600, 1); (void)s;", "or from a file of memory"),
	("close(0); eventfd(0, 0);", "something else in the place of a standard stream"),
	(
		"int fd = open(\"/tmp\", O_TMPFILE | O_RDWR, 0600); dup2(fd, 1);",
		"something else in the place of a standard stream",
	),
	("int fd = open(\"/dev/stdout\", O_WRONLY); (void)fd;", "or a standard stream opened again"),
	(
		"int set = epoll_create1(0); struct epoll_event e = {EPOLLOUT, {0}}; epoll_ctl(set, EPOLL_CTL_ADD, 1, &e);",
		"an epoll set with a standard stream",
	),
	(
		"int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0); struct sockaddr_un a = {AF_UNIX, \"\"}; socklen_t n = sizeof a; bind(l, (void *)&a, 2); getsockname(l, (void *)&a, &n); listen(l, 1); connect(c, (void *)&a, n);",
		"a socket that clones can't have (of which nobody has accepted",
	),
	(
		"socketpair(AF_UNIX, SOCK_DGRAM, 0, s); struct sockaddr a = {AF_UNSPEC, {0}}; connect(s[1], &a, sizeof a);",
		"a socket that clones can't have",
	),
];

/// What some kernels don't know or allow; then the program ends with 77.
const NEWER: [(&str, &str); 8] = [
	(
		"OF_THREAD(unsigned long node = 1; if (syscall(SYS_set_mempolicy, 2, &node, 65ul)) exit(77));",
		"an attribute that its clones would not have (set_mempolicy",
	),
	(
		"unsigned parameters[30] = {0}; if (syscall(SYS_io_uring_setup, 8, parameters) < 0) exit(77);",
		"an object through which the kernel writes its memory",
	),
	("if (syscall(SYS_userfaultfd, 0) < 0) exit(77);", "an object through which the kernel writes its memory"),
	("if (syscall(SYS_fanotify_init, 0, 0) < 0) exit(77);", "a descriptor that clones can't have"),
	(
		"struct rlimit_ { uint64_t now, most; } l = {5000, 5000}; if (syscall(SYS_prlimit64, 0, 7, &l, 0)) exit(77); for (int i = 0; i < 4097; i++) eventfd(0, 0);",
		"more than 4096 descriptors",
	),
	(
		"static char let; if (prctl(59, 1, 0, 0, &let) || syscall(SYS_ptrace, 0x4211, 0, 32, 0) == -1 && errno == EIO) exit(77);",
		"an attribute that its clones would not have (PR_SET_SYSCALL_USER_DISPATCH",
	),
	(
		"char *p = mmap(0, 8192, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); if (syscall(462, p, 4096, 0)) exit(77);",
		"shared memory that is sealed",
	),
	(
		"char *p = mmap(0, 16384, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); *p = 1; if (madvise(p + 4096, 4096, 102)) exit(77);",
		"shared memory that is sealed",
	),
];

/// With rights that the test may not have.
const RESTRICTED: [(&str, &str); 10] = [
	("syscall(SYS_keyctl, 1, 0);", CREDENTIALS),
	("prctl(PR_CAPBSET_DROP, 13);", CREDENTIALS),
	(
		"for (int i = 0; i < 64; i++) prctl(PR_CAPBSET_DROP, i); unsigned h[2] = {0x20080522}, none[6] = {0}; syscall(SYS_capset, h, none);",
		CREDENTIALS,
	),
	("prctl(PR_SET_SECUREBITS, 1);", CREDENTIALS),
	(
		"unsigned long files = 4; syscall(SYS_landlock_restrict_self, syscall(SYS_landlock_create_ruleset, &files, 8, 0), 0);",
		"a Landlock sandbox",
	),
	("OF_THREAD(syscall(SYS_setresuid, 65534, 65534, 65534));", CREDENTIALS),
	("OF_THREAD(syscall(SYS_unshare, CLONE_NEWUTS));", "a namespace or root directory of its own"),
	("OF_THREAD(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));", "a system call filter (seccomp)"),
	("OF_THREAD(int none = 1; syscall(SYS_sched_setscheduler, 0, 1, &none));", "a thread with a real-time policy"),
	("if (socket(AF_PACKET, SOCK_RAW, 0) < 0) exit(77);", "a socket that clones can't have"),
];

#[test]
fn what_clones_could_not_have_is_said() {
	all_are_refused(&REFUSED);
}

#[test]
fn what_clones_would_share_is_said() {
	all_are_refused(&DESCRIPTORS);
	// The semaphore's.
	let _ = fs::remove_file("/dev/shm/sem.flashfork-test");
}

#[test]
fn what_newer_kernels_have_is_said() {
	all_are_refused(&NEWER);
}

/// Each beside a thread.
fn all_are_refused(all: &[(&str, &str)]) {
	const UNKNOWN: Option<i32> = Some(77);
	const WITH: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
static volatile int done;
static int s[2], p[2];
static struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
static struct sock_fprog filter = {1, &allow};
/* Has a thread do it. */
#define OF_THREAD(...) void *own(void *x) { __VA_ARGS__; done = 1; for (;;) pause(); } pthread_t u; \
	pthread_create(&u, 0, own, 0); for (int i = 0; !done && i < 1000; i++) usleep(1000)
static void lock_recursive(pthread_mutex_t *m) {
	pthread_mutexattr_t how; pthread_mutexattr_init(&how); pthread_mutexattr_settype(&how, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(m, &how); pthread_mutex_lock(m);
}
static void send_file(int to, int fd) {
	char byte = 'x', control[CMSG_SPACE(sizeof fd)]; struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m); *c = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(c), &fd, sizeof fd); sendmsg(to, &m, 0);
}
"#;
	for (statement, reason) in all {
		let program = Program::new(&format!(
			"{WITH}int main(void) {{ pthread_t t = another();\n{statement}\nREADY; return 0; }}"
		));
		let refused = program.try_warm(&[]);
		let said = line(&refused);
		if said.contains("status 77") && program.plain(&[]).status.code() == UNKNOWN {
			continue;
		}
		assert!(said.contains("can't be a template with threads: it has") && said.contains(reason), "{said}");
		assert!(program.place.list().is_empty());
		program.place.until_empty();
	}
}

/// What the kernel keeps a program from doing its clones would be free to do.
#[test]
fn a_program_that_has_restricted_itself_is_refused() {
	// SAFETY: asks for a number.
	if unsafe { libc::geteuid() } != 0 {
		return;
	}
	all_are_refused(&RESTRICTED);
}

#[test]
fn a_main_thread_that_has_ended_is_refused() {
	let program = Program::new(
		"static pthread_t first; static void *other(void *x) { pthread_join(first, 0); READY; return 0; }
int main(void) { first = pthread_self(); pthread_t t = thread_of(other); pthread_exit(0); }",
	);
	program.is_refused("it has no main thread any more");
}

#[test]
fn a_program_that_becomes_another_is_refused() {
	let program = Program::new(r#"int main(void) { execl("/bin/sleep", "sleep", "100", NULL); return 1; }"#);
	program.is_refused("another program (exec)");
	// Where it isn't waited for a call it is found when it is stopped.
	let command = ["warm", "--threads", "--ready", "idle:0.2", "t", "--", program.path()];
	let refused = program.place.run(&command);
	assert_says(line(&refused), "become another program (exec)");
	program.place.until_empty();
}

/// Others wait for a condition with it: it has three users, of which memory that looks like one by chance says nothing.
#[test]
fn a_mutex_that_the_main_thread_holds_is_known_from_what_looks_like_one_by_chance() {
	let source = |held: bool| {
		format!(
			r#"
static pthread_mutex_t m; static pthread_cond_t c = PTHREAD_COND_INITIALIZER; static volatile int waiting, words[12];
static void *waiter(void *x) {{
	pthread_mutex_lock(&m); waiting++; pthread_cond_wait(&c, &m); pthread_mutex_unlock(&m); return 0;
}}
int main(void) {{
	pthread_mutexattr_t how; pthread_mutexattr_init(&how); pthread_mutexattr_settype(&how, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&m, &how); pthread_t t[2];
	for (int i = 0; i < 2; i++) pthread_create(t + i, 0, waiter, 0);
	for (int all = 0; all < 2;) {{ pthread_mutex_lock(&m); all = waiting; if (all < 2) {{ pthread_mutex_unlock(&m); usleep(1000); }} }}
	volatile int *like = (int *)(((uintptr_t)words + 7) & ~7ul);
	like[0] = 1, like[1] = 4, like[2] = gettid(), like[3] = 18, like[4] = 1;
	if (!{held}) pthread_mutex_unlock(&m);
	READY;
	if ({held}) pthread_mutex_unlock(&m);
	pthread_mutex_lock(&m); pthread_cond_broadcast(&c); pthread_mutex_unlock(&m);
	for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
	puts("all came"); return 0;
}}
"#,
			held = i32::from(held)
		)
	};
	let refused = Program::new(&source(true)).try_warm(&[]);
	assert_says(line(&refused), "a mutex that its main thread holds");
	Program::new(&source(false)).is_the_same_in_clones(2);
}

/// glibc has read the number of the main thread by then, and would write that down as the owner's.
#[test]
fn a_main_thread_that_waits_for_a_lock_that_notes_its_number_is_refused() {
	let robust = "pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);";
	let inherits = "pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);";
	let kind = |kind: &str| format!("pthread_mutexattr_settype(&how, PTHREAD_MUTEX_{kind});");
	let for_ever = "pthread_mutex_lock(&m);";
	let not_for_ever =
		"struct timespec t; clock_gettime(CLOCK_REALTIME, &t); t.tv_sec += 1000; pthread_mutex_timedlock(&m, &t);";
	for (how, wait) in [
		(robust.to_owned(), for_ever),
		(inherits.to_owned() + &kind("RECURSIVE"), for_ever),
		(kind("RECURSIVE"), not_for_ever),
		(kind("ERRORCHECK"), not_for_ever),
	] {
		let program = Program::new(&format!(
			r#"
static pthread_mutex_t m; static volatile int held;
static void *owner(void *x) {{ pthread_mutex_lock(&m); held = 1; for (;;) pause(); }}
static void *ready(void *x) {{ until_asleep(getpid()); READY; return 0; }}
int main(void) {{
	pthread_mutexattr_t how; pthread_mutexattr_init(&how); pthread_t t;
	{how}
	pthread_mutex_init(&m, &how); pthread_create(&t, 0, owner, 0); while (!held) usleep(1000);
	pthread_create(&t, 0, ready, 0); {{ {wait} }} return 0;
}}
"#
		));
		let refused = program.try_warm(&[]);
		let said = line(&refused);
		assert_says(said, "a mutex that its main thread holds or waits for");
		assert!(said.ends_with("or try again"), "to its end: {said}");
	}
}

/// Nothing but the lock word has its number by then.
#[test]
fn a_main_thread_that_has_the_robust_mutex_of_one_that_has_died_is_refused() {
	let program = Program::new(
		r#"
static pthread_mutex_t m;
static void *dies(void *x) { pthread_mutex_lock(&m); return 0; }
int main(void) {
	pthread_mutexattr_t how; pthread_mutexattr_init(&how); pthread_t t;
	pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST); pthread_mutex_init(&m, &how);
	pthread_create(&t, 0, dies, 0); pthread_join(t, 0); another();
	if (pthread_mutex_lock(&m) != EOWNERDEAD) return 1;
	READY;
}
"#,
	);
	program.is_refused("a mutex that its main thread holds");
}

/// In each clone this thread has the number that the lock has noted.
#[test]
fn a_lock_in_a_shared_file_that_a_thread_holds_is_refused() {
	let program = Program::new(
		r#"
static void *lock; static int kind; static volatile int held;
static void *holder(void *x) { if (kind == 3) pthread_rwlock_wrlock(lock); else pthread_mutex_lock(lock); held = 1; for (;;) pause(); }
int main(int argc, char **argv) {
	kind = atoi(argv[2]); int fd = open(argv[1], O_CREAT | O_RDWR | O_TRUNC, 0600); ftruncate(fd, 4096); lock = mmap(0, 4096, 3, MAP_SHARED, fd, 0);
	pthread_mutexattr_t m; pthread_mutexattr_init(&m); pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED);
	if (kind == 1) pthread_mutexattr_settype(&m, PTHREAD_MUTEX_RECURSIVE);
	if (kind == 2) pthread_mutexattr_setrobust(&m, PTHREAD_MUTEX_ROBUST);
	pthread_rwlockattr_t r; pthread_rwlockattr_init(&r); pthread_rwlockattr_setpshared(&r, PTHREAD_PROCESS_SHARED);
	if (kind == 3) pthread_rwlock_init(lock, &r); else pthread_mutex_init(lock, &m);
	pthread_t t = thread_of(holder); while (!held) usleep(1000);
	READY; return 0;
}
"#,
	);
	let file = program.place.at("file");
	for kind in ["0", "1", "2", "3"] {
		let refused = program.try_warm(&[file.to_str().unwrap(), kind]);
		assert!(line(&refused).contains("so would all clones together (file)"), "{kind}: {}", line(&refused));
	}
}

/// The host's pool may have no page for a clone that writes to one.
#[test]
fn private_huge_pages_are_refused_in_both_kinds_of_template() {
	struct Pool(String);
	const FILE: &str = "/proc/sys/vm/nr_hugepages";
	impl Drop for Pool {
		fn drop(&mut self) {
			let _ = fs::write(FILE, &self.0);
		}
	}
	let pool = Pool(fs::read_to_string(FILE).unwrap());
	let more = (pool.0.trim().parse::<u64>().unwrap() + 1).to_string();
	let program = Program::new(
		r#"
int main(int argc, char **argv) {
	if (argc < 2) another();
	char *page = mmap(0, 2 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0); if (page == MAP_FAILED) return 77;
	*page = 5; READY; *page = 6; return 0;
}
"#,
	);
	if fs::write(FILE, more).is_err() || !program.plain(&[]).status.success() {
		return eprintln!("skipped: no huge page can be reserved here (not root, or memory is too scattered)");
	}
	let alone = ["warm", "--ready", "call", "t", "--", program.path(), "alone"];
	for refused in [program.try_warm(&[]), program.place.run(&alone)] {
		assert_says(line(&refused), "MAP_HUGETLB");
	}
}

/// From outside, as root does.
#[test]
fn a_program_in_the_hands_of_a_debugger_is_refused() {
	let program = Program::new(
		"int main(int argc, char **argv) { another(); while (access(argv[1], F_OK)) usleep(1000); READY; return 0; }",
	);
	let (place, go) = (&program.place, program.place.at("go"));
	let debugger = place.program(
		"debugger",
		"int main(int argc, char **argv) { if (ptrace(PTRACE_SEIZE, atoi(argv[1]), 0, 0)) return 1; puts(\"has it\"); fflush(stdout); read(0, argv[1], 1); return 0; }",
	);
	let mut warm = place.flashfork(&program.warms());
	let warm = warm.arg(&go).stderr(Stdio::piped()).spawn().unwrap();
	until("it runs", || pids(place, "program").len() == 1);
	let mut debugger = Command::new(debugger);
	debugger.arg(pids(place, "program")[0].to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
	let mut debugger = debugger.spawn().unwrap();
	let said = first_line(&mut debugger.stdout);
	assert_eq!(said, "has it\n");
	fs::write(&go, "").unwrap();
	let refused = warm.wait_with_output().unwrap();
	assert_says(stderr(&refused), "it has a thread in the hands of a debugger");
	drop(debugger.stdin.take());
	debugger.wait().unwrap();
	place.until_empty();
}
