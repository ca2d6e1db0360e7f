//! Threads go on where they stood.

use crate::programs::Program;

#[test]
fn mutexes_are_held_by_whom_they_were_held() {
	Program::new(
		r#"
static volatile int held, go;
struct kind { const char *name; int type, robust, inherit; pthread_mutex_t m; pthread_t owner, waiter; };
static struct kind kinds[] = {
	{"plain", PTHREAD_MUTEX_NORMAL, 0, 0}, {"recursive", PTHREAD_MUTEX_RECURSIVE, 0, 0},
	{"checked", PTHREAD_MUTEX_ERRORCHECK, 0, 0}, {"robust", PTHREAD_MUTEX_NORMAL, 1, 0},
	{"inherit", PTHREAD_MUTEX_NORMAL, 0, 1},
};
#define COUNT (sizeof kinds / sizeof *kinds)
static int again[COUNT], unlocked[COUNT], got[COUNT];
static void *owner(void *x) {
	struct kind *k = x; int i = k - kinds;
	pthread_mutex_lock(&k->m);
	__atomic_add_fetch(&held, 1, __ATOMIC_SEQ_CST);
	while (!go) usleep(1000);
	if (k->type != PTHREAD_MUTEX_NORMAL) again[i] = pthread_mutex_lock(&k->m);
	if (k->type == PTHREAD_MUTEX_RECURSIVE) pthread_mutex_unlock(&k->m);
	if (k->robust) return 0;
	unlocked[i] = pthread_mutex_unlock(&k->m);
	return 0;
}
static volatile int waiters[COUNT];
static void *waiter(void *x) {
	struct kind *k = x; int i = k - kinds;
	waiters[i] = gettid();
	got[i] = pthread_mutex_lock(&k->m);
	if (got[i] == EOWNERDEAD) pthread_mutex_consistent(&k->m);
	pthread_mutex_unlock(&k->m);
	return 0;
}
int main(void) {
	for (unsigned i = 0; i < COUNT; i++) {
		struct kind *k = kinds + i;
		pthread_mutexattr_t a; pthread_mutexattr_init(&a); pthread_mutexattr_settype(&a, k->type);
		if (k->robust) pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
		if (k->inherit) pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
		pthread_mutex_init(&k->m, &a);
		pthread_create(&k->owner, 0, owner, k);
		while (held <= (int)i) usleep(1000);
		pthread_create(&k->waiter, 0, waiter, k);
		while (!waiters[i]) usleep(1000);
		until_asleep(waiters[i]);
	}
	READY;
	go = 1;
	for (unsigned i = 0; i < COUNT; i++) {
		pthread_join(kinds[i].owner, 0); pthread_join(kinds[i].waiter, 0);
		printf("%s: again %d, unlocked %d, waiter %d\n", kinds[i].name, again[i], unlocked[i], got[i]);
	}
}
"#,
	)
	.is_the_same_in_clones(4);
}

/// None of these returns for a reason that the program doesn't know.
#[test]
fn calls_that_wait_go_on_waiting() {
	Program::new(
		r#"
enum { COUNT = 17 };
static volatile int tids[COUNT], done[COUNT]; static long result[COUNT]; static int error[COUNT];
static int full[2], pair[2], event, set, word; static sem_t sem;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static void later(clockid_t clock, struct timespec *t) { clock_gettime(clock, t); t->tv_sec += 1; }
static void *call(void *x) {
	long i = (long)x, r = -9; char b[8]; struct timespec one = {1, 0}, t; sigset_t s; uint64_t v; struct epoll_event e;
	sigemptyset(&s); sigaddset(&s, SIGUSR2); tids[i] = gettid(); errno = 0;
	struct pollfd p = {full[0], POLLIN, 0}; fd_set f; FD_ZERO(&f); FD_SET(full[0], &f); struct timeval tv = {1, 0};
	switch (i) {
	case 0: r = poll(&p, 1, 1000); break;
	case 1: r = ppoll(&p, 1, &one, 0); break;
	case 2: r = select(full[0] + 1, &f, 0, 0, &tv); break;
	case 3: r = epoll_wait(set, &e, 1, 1000); break;
	case 4: r = nanosleep(&one, 0); break;
	case 5: later(CLOCK_MONOTONIC, &t); r = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0); break;
	case 6: r = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &one, 0, 0); break;
	case 7: later(CLOCK_REALTIME, &t); r = sem_timedwait(&sem, &t); break;
	case 8: later(CLOCK_REALTIME, &t); pthread_mutex_lock(&m); r = pthread_cond_timedwait(&c, &m, &t);
			pthread_mutex_unlock(&m); break;
	case 9: r = sigtimedwait(&s, 0, &one); break;
	case 10: r = recv(pair[0], b, 1, 0); break;
	case 11: { int fd = timerfd_create(CLOCK_MONOTONIC, 0); struct itimerspec it = {{0, 0}, {1, 0}};
			   timerfd_settime(fd, 0, &it, 0); r = read(fd, &v, 8); break; }
	case 12: r = read(event, &v, 8); break;
	case 13: r = read(full[0], b, 1); break;
	case 14: r = usleep(900000); break;
	case 15: r = pselect(full[0] + 1, &f, 0, 0, &one, 0); break;
	case 16: r = sem_wait(&sem); break;
	}
	error[i] = r == -1 ? errno : 0; result[i] = r; done[i] = 1;
	return 0;
}
int main(void) {
	pipe(full); socketpair(AF_UNIX, SOCK_STREAM, 0, pair); event = eventfd(0, 0); set = epoll_create1(0); sem_init(&sem, 0, 0);
	struct timeval tv = {1, 0}; setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	struct epoll_event e = {EPOLLIN, {0}}; epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &e);
	sigset_t s = blocked(SIGUSR2, 0);
	pthread_t t; for (long i = 0; i < COUNT; i++) pthread_create(&t, 0, call, (void *)i);
	for (int i = 0; i < COUNT; i++) { until_tid_asleep(tids + i); }
	READY;
	for (int i = 0; i < COUNT; i++) {
		if (i == 12 || i == 13 || i == 16) continue;
		while (!done[i]) usleep(1000);
	}
	int waits = !done[12] + !done[13] + !done[16];
	uint64_t one = 1; write(event, &one, 8); write(full[1], "x", 1); sem_post(&sem);
	while (!done[12] || !done[13] || !done[16]) usleep(1000);
	for (int i = 0; i < COUNT; i++) printf("%d: %ld %d\n", i, result[i], error[i]);
	printf("%d wait on\n", waits);
}
"#,
	)
	.is_the_same_in_clones(3);
}

/// A program that a shell or a debugger stops and lets go on is in another call then, by which the kernel goes on with
/// these.
#[test]
fn calls_that_wait_go_on_although_the_program_was_stopped_before() {
	const STOPPED: &str = r#"
static volatile int tid, done; static long result; static int error;
/* Until it has been stopped and goes on, and the thread sleeps again. */
static void stopped(void) {
	char path[64], text[64]; pid_t me = getpid(), child = fork();
	if (!child) {
		kill(me, SIGSTOP);
		do { usleep(1000); snprintf(path, sizeof path, "/proc/%d/stat", me); int f = open(path, O_RDONLY), n = read(f, text, 63);
			 close(f); text[n] = 0; } while (strrchr(text, ')')[2] != 'T');
		kill(me, SIGCONT); _exit(0);
	}
	waitpid(child, 0, 0); until_asleep(tid);
}
int main(void) {
	pthread_t t = thread_of(call); until_tid_asleep(&tid);
	stopped(); READY; pthread_join(t, 0); printf("%ld %d\n", result, error); return 0;
}
"#;
	let calls = [
		("poll(0, 0, 1000)", true),
		("nanosleep(&one, 0)", true),
		("usleep(900000)", true),
		("clock_nanosleep(CLOCK_MONOTONIC, 0, &one, 0)", true),
		("sem_timedwait(&sem, &late)", true),
		("pthread_cond_timedwait(&c, &m, &late)", true),
		// The number comes from elsewhere.
		("syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &one, 0, 0)", false),
	];
	for (call, known) in calls {
		let program = Program::new(&format!(
			r#"
static void *call(void *x);
{STOPPED}
static int word; static sem_t sem; static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static void *call(void *x) {{
	struct timespec one = {{1, 0}}, late; clock_gettime(CLOCK_REALTIME, &late); late.tv_sec++; sem_init(&sem, 0, 0);
	pthread_mutex_lock(&m); tid = gettid(); errno = 0; (void)one;
	result = {call}; error = errno; return 0;
}}
"#
		));
		if known {
			program.is_the_same_in_clones(1);
		} else {
			program.is_refused("a call that its clones could not go on with");
		}
	}
}

#[test]
fn timers_go_on_by_their_numbers() {
	Program::new(
		r#"
static volatile long signals, threads, alarms;
static void on_signal(int n, siginfo_t *i, void *u) { signals += i->si_value.sival_int == 42 && i->si_code == SI_TIMER; }
static void on_alarm(int n) { alarms++; }
static void on_thread(union sigval v) { __atomic_add_fetch(&threads, v.sival_int == 43, __ATOMIC_SEQ_CST); }
int main(void) {
	struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART}; sigaction(SIGUSR2, &a, 0);
	struct sigaction b = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}; sigaction(SIGALRM, &b, 0);
	timer_t gone, one, two, busy; struct sigevent e = {0}, f = {0};
	e.sigev_notify = SIGEV_SIGNAL; e.sigev_signo = SIGUSR2; e.sigev_value.sival_int = 42;
	f.sigev_notify = SIGEV_THREAD; f.sigev_notify_function = on_thread; f.sigev_value.sival_int = 43;
	timer_create(CLOCK_MONOTONIC, &e, &gone); timer_create(CLOCK_MONOTONIC, &e, &one); timer_delete(gone);
	timer_create(CLOCK_MONOTONIC, &f, &two);
	struct sigevent none_of = {.sigev_notify = SIGEV_NONE}; timer_create(CLOCK_PROCESS_CPUTIME_ID, &none_of, &busy);
	struct itimerspec far = {{0, 0}, {1000, 0}}; timer_settime(busy, 0, &far, 0);
	struct itimerspec it = {{0, 10000000}, {0, 10000000}}; timer_settime(one, 0, &it, 0); timer_settime(two, 0, &it, 0);
	struct itimerval iv = {{0, 10000}, {0, 10000}}; setitimer(ITIMER_REAL, &iv, 0);
	while (signals < 2 || threads < 2 || alarms < 2) usleep(1000);
	READY;
	long s = signals, t = threads, l = alarms;
	while (signals < s + 3 || threads < t + 3 || alarms < l + 3) usleep(1000);
	struct itimerspec none = {0}; printf("%d ", timer_settime(one, 0, &none, &it));
	printf("%ld %d ", it.it_interval.tv_nsec, timer_delete(two));
	timer_gettime(busy, &it); printf("%d\n", it.it_value.tv_sec > 900 && it.it_value.tv_sec < 1000);
}
"#,
	)
	.is_the_same_in_clones(3);
}

/// By ptrace no room is needed.
#[test]
fn a_thread_whose_stack_is_nearly_full_goes_on() {
	Program::new(
		r#"
static volatile int tid, go;
static void *deep(void *x) {
	void *low; size_t len; pthread_attr_t a;
	pthread_getattr_np(pthread_self(), &a); pthread_attr_getstack(&a, &low, &len); pthread_attr_destroy(&a);
	size_t left = (char *)__builtin_frame_address(0) - (char *)low;
	volatile char *p = __builtin_alloca(left - 5000); p[0] = 1;
	tid = gettid();
	while (!go) { struct timespec t = {0, 1000000}; syscall(SYS_nanosleep, &t, 0); }
	return (void *)(long)(p[0] + 8);
}
int main(void) {
	pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setstacksize(&a, 65536);
	pthread_t t; void *r; pthread_create(&t, &a, deep, 0); while (!tid) usleep(1000);
	READY;
	go = 1; pthread_join(t, &r); printf("joined %ld\n", (long)r);
}
"#,
	)
	.is_the_same_in_clones(3);
}

#[test]
fn signals_that_are_blocked_or_wait_are_as_they_were() {
	Program::new(
		r#"
static volatile int stands, go, taken[2], value;
static void on(int n, siginfo_t *i, void *u) { taken[n == SIGUSR2]++; if (n == SIGUSR2) value = i->si_value.sival_int; }
static void *deaf(void *x) {
	uint64_t all = ~0ull; syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, 0, 8);
	stands = gettid(); while (!go) usleep(1000);
	return (void *)5;
}
int main(void) {
	struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO}; sigaction(SIGUSR1, &a, 0); sigaction(SIGUSR2, &a, 0);
	pthread_t t = thread_of(deaf); while (!stands) usleep(1000);
	sigset_t s = blocked(SIGUSR1, SIGUSR2);
	pthread_kill(pthread_self(), SIGUSR1);
	union sigval v = {.sival_int = 77}; sigqueue(getpid(), SIGUSR2, v);
	READY;
	int before = taken[0] + taken[1];
	pthread_sigmask(SIG_UNBLOCK, &s, 0);
	void *r; go = 1; pthread_join(t, &r);
	printf("%d then %d %d with %d, deaf %ld\n", before, taken[0], taken[1], value, (long)r);
}
"#,
	)
	.is_the_same_in_clones(3);
}

#[test]
fn a_signal_that_the_program_has_sent_itself_comes_from_its_clone() {
	Program::new(
		r#"
int main(void) {
	sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigaddset(&s, SIGUSR2); sigaddset(&s, SIGRTMIN); pthread_sigmask(SIG_BLOCK, &s, 0);
	another();
	kill(getpid(), SIGUSR1); pthread_kill(pthread_self(), SIGUSR2); sigqueue(getpid(), SIGRTMIN, (union sigval){7});
	READY;
	for (int i = 0; i < 3; i++) { siginfo_t info; int n = sigwaitinfo(&s, &info); printf("%d %d %d\n", n, info.si_code, info.si_pid == getpid()); }
}
"#,
	)
	.is_the_same_in_clones(2);
}

#[test]
fn signals_that_wait_beyond_a_limit_that_was_lowered_since_are_not_lost() {
	Program::new(
		r#"
int main(void) {
	sigset_t s = blocked(SIGRTMIN, 0);
	union sigval v = {7}; for (int i = 0; i < 3; i++) { sigqueue(getpid(), SIGRTMIN, v); pthread_sigqueue(pthread_self(), SIGRTMIN, v); }
	struct rlimit l; getrlimit(RLIMIT_SIGPENDING, &l); l.rlim_cur = 0; setrlimit(RLIMIT_SIGPENDING, &l);
	READY;
	int n = 0; siginfo_t info; struct timespec none = {0}; while (sigtimedwait(&s, &info, &none) > 0) n++;
	printf("%d\n", n);
}
"#,
	)
	.is_the_same_in_clones(2);
}

/// Not even root may queue it for another thread as what it was.
#[test]
fn a_signal_that_waits_for_one_thread_is_that_threads() {
	Program::new(
		r#"
static volatile int stands, go;
static void *waits(void *x) {
	sigset_t s; sigfillset(&s); pthread_sigmask(SIG_BLOCK, &s, 0);
	stands = 1; while (!go) usleep(1000);
	sigemptyset(&s); sigaddset(&s, SIGUSR1); siginfo_t i; int n = sigwaitinfo(&s, &i);
	printf("%d by tgkill %d\n", n, i.si_code == SI_TKILL);
	return 0;
}
int main(void) {
	pthread_t t = thread_of(waits); while (!stands) usleep(1000);
	pthread_kill(t, SIGUSR1);
	READY;
	sigset_t s; sigpending(&s); printf("%d of main's\n", sigismember(&s, SIGUSR1));
	go = 1; pthread_join(t, 0);
}
"#,
	)
	.is_the_same_in_clones(3);
}

#[test]
fn threads_that_come_and_go_do_so_in_clones() {
	let program = Program::new(
		r#"
static volatile int go; static volatile long count[4];
static void *nothing(void *x) { return x; }
static void *churn(void *x) {
	long i = (long)x;
	while (!go) { pthread_t t; if (!pthread_create(&t, 0, nothing, 0)) pthread_join(t, 0); count[i]++; }
	return 0;
}
int main(void) {
	pthread_t t[4]; for (long i = 0; i < 4; i++) pthread_create(t + i, 0, churn, (void *)i);
	for (int i = 0; i < 4; i++) while (count[i] < 20) usleep(1000);
	READY;
	for (int i = 0; i < 4; i++) { long before = count[i]; while (count[i] < before + 20) usleep(1000); }
	go = 1; for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
	puts("all moved"); return 0;
}
"#,
	);
	program.clones_say(4, 5, "all moved\n");
}

#[test]
fn locks_of_the_c_library_that_a_thread_holds_are_let_go_by_it() {
	let program = Program::new(
		r#"
static volatile int go; static volatile long count[4]; static FILE *null;
static void *hammer(void *x) {
	unsigned long i = (long)x, s = i + 1;
	while (!go) {
		void *p[16]; for (int k = 0; k < 16; k++) { s = s * 6364136223846793005ul + 1; p[k] = malloc(s >> 52); }
		fprintf(null, "%lu %f\n", s, 1.5);
		for (int k = 0; k < 16; k++) free(p[k]);
		count[i]++;
	}
	return 0;
}
int main(void) {
	null = fopen("/dev/null", "w");
	pthread_t t[4]; for (long i = 0; i < 4; i++) pthread_create(t + i, 0, hammer, (void *)i);
	for (int i = 0; i < 4; i++) while (count[i] < 100) usleep(1000);
	READY;
	for (int i = 0; i < 200; i++) free(malloc(i * 100 + 1));
	for (int i = 0; i < 4; i++) { long before = count[i]; while (count[i] < before + 100) usleep(1000); }
	go = 1; for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
	puts("all moved"); return 0;
}
"#,
	);
	program.clones_say(3, 10, "all moved\n");
}

/// Vector registers and rounding, of threads that are in no call.
#[test]
fn all_registers_are_as_they_were() {
	Program::new(
		r#"
#include <fenv.h>
static volatile int go; static volatile int runs[3];
static void *spin(void *x) {
	long i = (long)x; unsigned char in[64], out[64]; for (int k = 0; k < 64; k++) in[k] = k * 7 + i;
	fesetround(i == 1 ? FE_UPWARD : FE_TONEAREST);
	runs[i] = 1;
	asm volatile("movdqu (%0),%%xmm0; movdqu 16(%0),%%xmm7; movdqu 32(%0),%%xmm12; movdqu 48(%0),%%xmm15;"
		"1: pause; cmpl $0,(%2); je 1b;"
		"movdqu %%xmm0,(%1); movdqu %%xmm7,16(%1); movdqu %%xmm12,32(%1); movdqu %%xmm15,48(%1)"
		:: "r"(in), "r"(out), "r"(&go) : "memory", "xmm0", "xmm7", "xmm12", "xmm15");
	return (void *)(long)(memcmp(in, out, 64) != 0 || fegetround() != (i == 1 ? FE_UPWARD : FE_TONEAREST));
}
int main(void) {
	pthread_t t[3]; void *r; long wrong = 0;
	for (long i = 0; i < 3; i++) { pthread_create(t + i, 0, spin, (void *)i); while (!runs[i]) usleep(1000); }
	READY;
	usleep(1000); go = 1;
	for (int i = 0; i < 3; i++) { pthread_join(t[i], &r); wrong += (long)r; }
	printf("%ld wrong\n", wrong); return 0;
}
"#,
	)
	.is_the_same_in_clones(3);
}

/// A restartable sequence that was left is given up, and begun again.
#[test]
fn restartable_sequences_count_right() {
	Program::new(
		r#"
#include <sys/rseq.h>
static volatile int go; static volatile long runs[2];
static void *count(void *x) {
	long i = (long)x; volatile long value = 0, tries = 0;
	struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
	while (!go) {
		tries++;
		asm volatile goto(
			".pushsection __rseq_cs, \"aw\"; .balign 32; 3: .long 0, 0; .quad 1f, 2f - 1f, 4f; .popsection;"
			"leaq 3b(%%rip), %%rax; movq %%rax, %0; 1: movq %1, %%rcx; pause; pause; pause; incq %%rcx; movq %%rcx, %1; 2:"
			".pushsection __rseq_abort, \"ax\"; .long 0x53053053; 4: jmp %l[given_up]; .popsection;"
			: : "m"(area->rseq_cs), "m"(value) : "memory", "rax", "rcx" : given_up);
		runs[i]++;
		continue;
	given_up:
		tries--;
	}
	return (void *)(value - tries);
}
int main(void) {
	pthread_t t[2]; void *r; long wrong = 0;
	for (long i = 0; i < 2; i++) { pthread_create(t + i, 0, count, (void *)i); while (runs[i] < 1000) usleep(1000); }
	READY;
	for (int i = 0; i < 2; i++) { long before = runs[i]; while (runs[i] < before + 1000) usleep(1000); }
	go = 1; for (int i = 0; i < 2; i++) { pthread_join(t[i], &r); wrong += (long)r; }
	printf("%s: %ld wrong\n", __rseq_size ? "registered" : "none", wrong); return 0;
}
"#,
	)
	.is_the_same_in_clones(4);
}
