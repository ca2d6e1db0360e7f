/* What other threads see of a seal that stops them: some calls end with EINTR, without a handler having run. They are those that
   SIGSTOP and SIGCONT end too, and docs/THREADS.md lists them. signal(7), "Interruption of system calls by stop signals".
   env: FLASHFORK_THREADS=stop */
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <linux/futex.h>
#ifdef BY_SIGNALS
#include "no_ptrace.h"
#endif

static volatile int over;
/* How long a call waits: longer than the stops take, at an emulator's speed too. */
static struct timespec long_time = {8, 500 * 1000 * 1000};
static int seconds = 8, long_ms = 8500;

/* A pipe that nobody writes to until the end. */
static int quiet[2];

static void until_the_end(void)
{
	char c;
	while (getppid() != 1 && read(quiet[0], &c, 1) < 0 && errno == EINTR)
		;
}

static int queue(void)
{
	static int id = -1;
	if (id < 0)
		id = msgget(IPC_PRIVATE, 0600);
	return id;
}

static int semaphores(void)
{
	static int id = -1;
	if (id < 0)
		id = semget(IPC_PRIVATE, 1, 0600);
	return id;
}

static int socket_with_timeout(int option)
{
	int pair[2], small = 1;
	struct timeval t = {seconds, 500 * 1000};
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, option, &t, sizeof t) == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
	return pair[0];
}

static int call_epoll(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int fd = epoll_create1(0);
	CHECK(epoll_ctl(fd, EPOLL_CTL_ADD, quiet[0], &e) == 0);
	return epoll_wait(fd, &e, 1, long_ms);
}
static int call_poll(void)
{
	struct pollfd p = {quiet[0], POLLIN, 0};
	return poll(&p, 1, long_ms);
}
static int call_ppoll(void)
{
	struct pollfd p = {quiet[0], POLLIN, 0};
	return ppoll(&p, 1, &long_time, NULL);
}
static int call_select(void)
{
	struct timeval t = {seconds, 500 * 1000};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(quiet[0], &set);
	return select(quiet[0] + 1, &set, NULL, NULL, &t);
}
static int call_nanosleep(void) { return nanosleep(&long_time, NULL); }
static int call_usleep(void) { return usleep((unsigned)long_ms * 1000); }
static int call_clock_nanosleep(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += seconds;
	return (errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) ? -1 : 0;
}
static int call_sem_timedwait(void)
{
	static sem_t sem;
	struct timespec t;
	sem_init(&sem, 0, 0);
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += seconds;
	int result = sem_timedwait(&sem, &t);
	return result < 0 && errno == ETIMEDOUT ? 0 : result;
}
static int call_cond_timedwait(void)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += seconds;
	pthread_mutex_lock(&m);
	int result = pthread_cond_timedwait(&c, &m, &t);
	pthread_mutex_unlock(&m);
	errno = result;
	return result == ETIMEDOUT ? 0 : -1;
}
static int call_futex(void)
{
	static int word;
	int result = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &long_time);
	return result < 0 && errno == ETIMEDOUT ? 0 : result;
}
static int call_sigtimedwait(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	int result = sigtimedwait(&set, NULL, &long_time);
	return result < 0 && errno == EAGAIN ? 0 : result;
}
static int call_sigwaitinfo(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 4);
	return sigwaitinfo(&set, NULL);
}
static int call_sigwait(void)
{
	/* glibc calls again after EINTR. */
	sigset_t set;
	int sig;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 5);
	return (errno = sigwait(&set, &sig)) ? -1 : 0;
}
static int call_semtimedop(void)
{
	struct sembuf op = {0, -1, 0};
	int result = semtimedop(semaphores(), &op, 1, &long_time);
	return result < 0 && errno == EAGAIN ? 0 : result;
}
static int call_semop(void)
{
	struct sembuf op = {0, -1, 0};
	int result = semop(semaphores(), &op, 1);
	return result < 0 && errno == EIDRM ? 0 : result;
}
static int call_msgrcv(void)
{
	char m[64];
	int result = msgrcv(queue(), m, 8, 0, 0);
	return result < 0 && errno == EIDRM ? 0 : result;
}
static int call_mq(void)
{
	char m[64];
	struct mq_attr attr = {.mq_maxmsg = 1, .mq_msgsize = 8};
	struct timespec t;
	char name[64];
	snprintf(name, sizeof name, "/flashfork-%d", getpid());
	mqd_t q = mq_open(name, O_RDWR | O_CREAT, 0600, &attr);
	if (q < 0)
		return 0;
	mq_unlink(name);
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += seconds;
	int result = mq_timedreceive(q, m, 8, NULL, &t);
	return result < 0 && errno == ETIMEDOUT ? 0 : result;
}
static int call_read_pipe(void)
{
	char c;
	return read(quiet[0], &c, 1);
}
static int call_recv(void)
{
	char c;
	int pair[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	struct pollfd both[2] = {{quiet[0], POLLIN, 0}, {pair[0], POLLIN, 0}};
	(void)both;
	if (fork() == 0) { /* a peer that says something at the end */
		until_the_end();
		_exit(write(pair[1], "", 1) != 1);
	}
	return recv(pair[0], &c, 1, 0);
}
static int call_recv_timeout(void)
{
	char c;
	int result = recv(socket_with_timeout(SO_RCVTIMEO), &c, 1, 0);
	return result < 0 && errno == EAGAIN ? 0 : result;
}
static int call_send_timeout(void)
{
	static char much[1 << 20];
	int fd = socket_with_timeout(SO_SNDTIMEO), result;
	while ((result = send(fd, much, sizeof much, 0)) == (int)sizeof much)
		;
	if (result < 0)
		return errno == EAGAIN ? 0 : result;
	/* A part was sent when the time, or the interruption, came. The next call waits for nothing but room. */
	result = send(fd, much, sizeof much, 0);
	return result < 0 && errno == EAGAIN ? 0 : result;
}
static int call_accept_timeout(void)
{
	struct timeval t = {seconds, 500 * 1000};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	sa_family_t any = AF_UNIX;
	CHECK(bind(fd, (struct sockaddr *)&any, sizeof any) == 0 && listen(fd, 1) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0);
	int result = accept(fd, NULL, NULL);
	return result < 0 && errno == EAGAIN ? 0 : result;
}
static int call_read_inotify(void)
{
	/* Ends when the thread's file is touched at the end. */
	char m[512], name[] = "/tmp/flashfork-XXXXXX";
	int fd = inotify_init(), file = mkstemp(name);
	CHECK(fd >= 0 && file >= 0 && inotify_add_watch(fd, name, IN_MODIFY) >= 0);
	unlink(name);
	if (fork() == 0) {
		until_the_end();
		_exit(write(file, "", 1) != 1);
	}
	return read(fd, m, sizeof m);
}
static int call_read_timerfd(void)
{
	uint64_t n;
	struct itimerspec t = {{0, 0}, long_time};
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	CHECK(fd >= 0 && timerfd_settime(fd, 0, &t, NULL) == 0);
	return read(fd, &n, sizeof n);
}
static int call_waitpid(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		until_the_end();
		_exit(0);
	}
	return waitpid(pid, NULL, 0);
}
static int call_flock(void)
{
	char name[] = "/tmp/flashfork-XXXXXX", path[64];
	int file = mkstemp(name);
	CHECK(file >= 0 && flock(file, LOCK_EX) == 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	int again = open(path, O_RDWR);
	CHECK(again >= 0);
	unlink(name);
	if (fork() == 0) { /* the lock is the child's too, and ends with both */
		close(again);
		until_the_end();
		_exit(0);
	}
	close(file);
	return flock(again, LOCK_EX);
}

static __thread volatile int handled;

static void handler(int sig)
{
	(void)sig;
	handled = 1;
}

/* They always end with EINTR: the question is whether one of the program's own signals did it. */
static int call_pause(void)
{
	pause();
	return handled ? 0 : -1;
}
static int call_sigsuspend(void)
{
	sigset_t none;
	sigemptyset(&none);
	sigsuspend(&none);
	return handled ? 0 : -1;
}
static int call_sleep(void)
{
	errno = EINTR;
	return sleep((unsigned)seconds + 1) ? -1 : 0;
}

static const struct {
	const char *name;
	int (*call)(void);
	/* What docs/THREADS.md says: ended by a stop, and by a stop where ptrace is refused. */
	int by_ptrace, by_signals;
} calls[] = {
	{"epoll_wait", call_epoll, 1, 1},
	{"sigtimedwait", call_sigtimedwait, 1, 1},
	{"sigwaitinfo", call_sigwaitinfo, 1, 1},
	{"semop", call_semop, 1, 1},
	{"semtimedop", call_semtimedop, 1, 1},
	{"recv with SO_RCVTIMEO", call_recv_timeout, 1, 1},
	{"accept with SO_RCVTIMEO", call_accept_timeout, 1, 1},
	{"send with SO_SNDTIMEO", call_send_timeout, 1, 1},
	{"poll", call_poll, 0, 1},
	{"ppoll", call_ppoll, 0, 1},
	{"select", call_select, 0, 1},
	{"nanosleep", call_nanosleep, 0, 1},
	{"usleep", call_usleep, 0, 1},
	{"sleep", call_sleep, 0, 1},
	{"clock_nanosleep", call_clock_nanosleep, 0, 1},
	{"pause", call_pause, 0, 1},
	{"sigsuspend", call_sigsuspend, 0, 1},
	{"sem_timedwait", call_sem_timedwait, 0, 1},
	{"futex with a timeout", call_futex, 0, 1},
	{"msgrcv", call_msgrcv, 0, 1},
	{"pthread_cond_timedwait", call_cond_timedwait, 0, 0},
	{"sigwait", call_sigwait, 0, 0},
	{"mq_timedreceive", call_mq, 0, 0},
	{"read from a pipe", call_read_pipe, 0, 0},
	{"recv", call_recv, 0, 0},
	{"read from inotify", call_read_inotify, 0, 0},
	{"read from a timerfd", call_read_timerfd, 0, 0},
	{"waitpid", call_waitpid, 0, 0},
	{"flock", call_flock, 0, 0},
};
#define CALLS (sizeof calls / sizeof calls[0])

/* The thread of each call as soon as it is about to make it. */
static volatile pid_t callers[CALLS];

static void *make_call(void *arg)
{
	size_t i = (size_t)arg;
	callers[i] = (pid_t)syscall(SYS_gettid);
	int result = calls[i].call();
	return (void *)(size_t)(result >= 0 ? 0 : errno);
}

/* Whether it sleeps, or is at its end. */
static int rests(pid_t process, pid_t thread)
{
	char name[64], state = 0;
	snprintf(name, sizeof name, "/proc/%d/task/%d/stat", process, thread);
	FILE *stat = fopen(name, "r");
	int read = stat != NULL && fscanf(stat, "%*d %*s %c", &state) == 1;
	if (stat != NULL)
		fclose(stat);
	return !read || state == 'S';
}

/* Until each waits in its call: what it does before that blocks for a moment at most. */
static void all_wait(pid_t process)
{
	for (int looks = 0; looks < 5; usleep(20 * 1000)) {
		size_t i = 0;
		while (i < CALLS && callers[i] != 0 && rests(process, callers[i]))
			i++;
		looks = i == CALLS ? looks + 1 : 0;
	}
}

static void by_signals(void)
{
	/* From outside: whoever stops itself can't go on by itself. */
	pid_t parent = getpid();
	IN_CLONE {
		for (int turn = 0; turn < 3; turn++) {
			CHECK(kill(parent, SIGSTOP) == 0);
			usleep(20 * 1000);
			CHECK(kill(parent, SIGCONT) == 0);
			/* Or one that goes on with what is left to send has no stop any more. */
			all_wait(parent);
		}
	}
}

static void by_seals(void)
{
	for (int turn = 0; turn < 3; turn++) {
		at_last(call_seal);
		at_last(flashfork_preload_unseal);
	}
}

/* What each call says when its thread is stopped. */
static void try(void (*stop)(void), int said[CALLS])
{
	pthread_t thread[CALLS];
	CHECK(pipe(quiet) == 0);
	memset((void *)callers, 0, sizeof callers);
	for (size_t i = 0; i < CALLS; i++)
		START(&thread[i], make_call, (void *)i);
	all_wait(getpid());
	stop();
	usleep(100 * 1000);
	/* Whatever waits for something but time gets it. */
	char much[CALLS * 2] = {0};
	CHECK(write(quiet[1], much, sizeof much) == sizeof much);
	for (size_t i = 0; i < CALLS; i++) {
		if (calls[i].call == call_sigwait)
			pthread_kill(thread[i], SIGRTMIN + 5);
		if (calls[i].call == call_sigwaitinfo)
			pthread_kill(thread[i], SIGRTMIN + 4);
		if (calls[i].call == call_pause || calls[i].call == call_sigsuspend)
			pthread_kill(thread[i], SIGUSR1);
		if (calls[i].call == call_semop)
			semctl(semaphores(), 0, SETVAL, 5);
		if (calls[i].call == call_msgrcv) {
			long message[2] = {1, 1};
			CHECK(msgsnd(queue(), message, 8, 0) == 0);
		}
	}
	for (size_t i = 0; i < CALLS; i++) {
		void *result;
		CHECK(pthread_join(thread[i], &result) == 0);
		said[i] = (int)(size_t)result;
	}
	semctl(semaphores(), 0, SETVAL, 0);
	while (waitpid(-1, NULL, 0) > 0)
		;
	close(quiet[0]);
	close(quiet[1]);
}

#ifdef BY_SIGNALS
#define LISTED(i) calls[i].by_signals
#else
#define LISTED(i) calls[i].by_ptrace
#endif

/* What plain stops by signals do, in a process of its own: each call waits for its whole time, and both can wait at once. */
struct reference {
	int ended;
	int stopped[CALLS];
};

static void make_queues(void)
{
	CHECK(queue() >= 0 && semaphores() >= 0);
}

static void remove_queues(void)
{
	msgctl(queue(), IPC_RMID, NULL);
	semctl(semaphores(), 0, IPC_RMID);
}

int main(void)
{
	int sealed[CALLS], wrong = 0;
	struct reference *plain = mmap(NULL, sizeof *plain, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(plain != MAP_FAILED);
	sigset_t rt;
	sigemptyset(&rt);
	for (int sig = SIGRTMIN + 3; sig <= SIGRTMIN + 5; sig++)
		sigaddset(&rt, sig);
	CHECK(sigprocmask(SIG_BLOCK, &rt, NULL) == 0);
	CHECK(signal(SIGUSR1, handler) != SIG_ERR);
	pid_t pid = forked();
	if (pid == 0) {
		make_queues();
		try(by_signals, plain->stopped);
		remove_queues();
		plain->ended = 1;
		_exit(0);
	}
	make_queues();
	char *some = memory(8 * MB, 7);
#ifdef BY_SIGNALS
	forbid_ptrace();
#endif
	try(by_seals, sealed);
	CHECK(intact(some, 8 * MB, 7));
	remove_queues();
	CHECK(plain->ended); /* try() has waited for it */
	const int *stopped = plain->stopped;
	for (size_t i = 0; i < CALLS; i++) {
		int seen = sealed[i] == EINTR;
		if (seen != LISTED(i) || (calls[i].by_ptrace && stopped[i] != EINTR) || (sealed[i] && !seen)) {
			fprintf(stderr, "%s: after SIGSTOP and SIGCONT %s, after seals %s, listed as %s\n", calls[i].name,
			        stopped[i] ? strerror(stopped[i]) : "nothing", sealed[i] ? strerror(sealed[i]) : "nothing",
			        LISTED(i) ? "interrupted" : "not interrupted");
			wrong = 1;
		}
	}
	return wrong;
}
