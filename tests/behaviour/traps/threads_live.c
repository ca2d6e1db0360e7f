/* A process sealed again and again while its threads write, allocate, discard, start other threads, sleep in epoll_wait and
   wait for signals: no write is lost, nothing is seen twice, and every clone has the memory of the moment of its fork.
   env: FLASHFORK_THREADS=stop */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#ifdef BY_SIGNALS
#include "no_ptrace.h"
#endif

#define WRITERS 3
#define TABLE (8 * MB)
#define SLOTS (TABLE / 8)
#define TURNS (slow ? 2 : 6)

/* The sleepers go on until nobody sends them anything any more. */
static volatile int over, all_sent;
/* In the lab, at an emulator's speed, threads that write all the time can't be stopped in time: there they rest. */
static int slow;
static uint64_t *one[WRITERS], *two[WRITERS];
static uint64_t written[WRITERS];

/* Every slot is counted up in both tables, first here, then there. */
static void *write_both(void *arg)
{
	size_t me = (size_t)arg;
	uint64_t at = me + 1, n = 0;
	for (; !over; n++) {
		if (slow && n % 64 == 0)
			usleep(2000);
		at = at * 6364136223846793005u + 1442695040888963407u;
		size_t slot = (at >> 20) % SLOTS;
		__atomic_fetch_add(&one[me][slot], 1, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&two[me][slot], 1, __ATOMIC_SEQ_CST);
	}
	written[me] = n;
	return NULL;
}

static void *allocate(void *arg)
{
	enum { N = 64 };
	unsigned char *p[N] = {0};
	size_t len[N] = {0};
	for (unsigned turn = 1; !over; turn++) {
		if (slow)
			usleep(1000);
		unsigned i = turn * 2654435761u >> 26;
		for (size_t b = 0; b < len[i]; b += 997)
			CHECK(p[i][b] == (unsigned char)i);
		free(p[i]);
		len[i] = 100 + (turn * 7919ul) % (300 * 1024);
		p[i] = turn % 3 ? malloc(len[i]) : calloc(1, len[i]);
		CHECK(p[i] != NULL && (turn % 3 || zeros(p[i], len[i])));
		memset(p[i], (int)i, len[i]);
		if (turn % 5 == 0) {
			p[i] = realloc(p[i], 2 * len[i]);
			CHECK(p[i] != NULL);
		}
	}
	return arg;
}

/* What is discarded is zero, whatever lies under it at that moment. */
static void *discard(void *arg)
{
	char *p = memory(8 * MB, 3);
	for (uint64_t turn = 1; !over; turn++) {
		if (slow)
			usleep(20 * 1000);
		size_t from = turn * PAGE * 37 % (6 * MB);
		CHECK(madvise(p + from, 2 * MB, MADV_DONTNEED) == 0);
		CHECK(zeros(p + from, 2 * MB));
		fill(p, 8 * MB, turn);
		CHECK(intact(p, 8 * MB, turn));
	}
	return arg;
}

static void *nothing(void *arg)
{
	volatile char here[1000];
	memset((char *)here, 1, sizeof here);
	return arg;
}

static void *start_threads(void *arg)
{
	while (!over) {
		pthread_t t[4];
		if (slow)
			usleep(1000);
		for (int i = 0; i < 4; i++)
			START(&t[i], nothing, t);
		for (int i = 0; i < 4; i++) {
			void *result;
			CHECK(pthread_join(t[i], &result) == 0 && result == t);
		}
	}
	return arg;
}

static int event;
static uint64_t events_sent, events_seen, signals_sent, signals_seen;

static void *sleep_in_epoll(void *arg)
{
	struct epoll_event e = {.events = EPOLLIN};
	int fd = epoll_create1(EPOLL_CLOEXEC);
	CHECK(fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, event, &e) == 0);
	while (!all_sent || events_seen < events_sent) {
		uint64_t n;
		int ready = epoll_wait(fd, &e, 1, 100);
		CHECK(ready >= 0 || errno == EINTR); /* as after SIGSTOP and SIGCONT */
		if (ready == 1) {
			CHECK(read(event, &n, sizeof n) == sizeof n);
			events_seen += n;
		}
	}
	return arg;
}

static void *wait_for_signals(void *arg)
{
	sigset_t set;
	struct timespec short_time = {0, 100 * 1000 * 1000};
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	while (!all_sent || signals_seen < signals_sent) {
		siginfo_t info;
		int sig = sigtimedwait(&set, &info, &short_time);
		CHECK(sig == SIGRTMIN || errno == EINTR || errno == EAGAIN);
		if (sig == SIGRTMIN)
			CHECK(info.si_value.sival_int == (int)signals_seen++);
	}
	return arg;
}

static volatile uint64_t handled;

static void handler(int sig)
{
	(void)sig;
	handled++;
}

static void *wake(void *arg)
{
	pthread_t *t = arg;
	for (; !over; usleep(slow ? 20 * 1000 : 300)) {
		uint64_t n = 1;
		CHECK(write(event, &n, sizeof n) == sizeof n);
		events_sent++;
		union sigval value = {.sival_int = (int)signals_sent};
		if (pthread_sigqueue(t[1], SIGRTMIN, value) == 0)
			signals_sent++;
		CHECK(pthread_kill(t[0], SIGUSR2) == 0);
	}
	return arg;
}

static size_t differing(void)
{
	size_t n = 0;
	for (size_t w = 0; w < WRITERS; w++)
		for (size_t i = 0; i < SLOTS; i++)
			n += one[w][i] != two[w][i];
	return n;
}

int main(void)
{
	sigset_t rt;
	pthread_t writers[WRITERS], sleepers[2], others[4];
	sigemptyset(&rt);
	sigaddset(&rt, SIGRTMIN);
	signal(SIGUSR2, handler);
	slow = getenv("FLASHFORK_LAB") != NULL;
#ifdef BY_SIGNALS
	forbid_ptrace();
#endif
	CHECK(sigprocmask(SIG_BLOCK, &rt, NULL) == 0);
	for (size_t i = 0; i < WRITERS; i++) {
		one[i] = (uint64_t *)map_alone(TABLE, RW, MAP_PRIVATE);
		two[i] = (uint64_t *)map_alone(TABLE, RW, MAP_PRIVATE);
		memset(one[i], 0, TABLE);
		memset(two[i], 0, TABLE);
	}
	event = eventfd(0, EFD_CLOEXEC);
	CHECK(event >= 0);
	for (size_t i = 0; i < WRITERS; i++)
		START(&writers[i], write_both, (void *)i);
	START(&sleepers[0], sleep_in_epoll, NULL);
	START(&sleepers[1], wait_for_signals, NULL);
	void *(*rest[4])(void *) = {allocate, discard, start_threads, wake};
	for (int i = 0; i < 4; i++)
		START(&others[i], rest[i], sleepers);
	usleep(50 * 1000);
	size_t most = 0;
	int seals = 0;
	for (int turn = 0; turn < TURNS || (seals == turn && most <= TABLE); turn++) {
		/* On a busy machine threads that wait for a processor can't be stopped in time: then nothing happens to them, or to a part
		   of the memory only. */
		seals += call_seal() == 0;
		size_t sealed = sealed_bytes(one[0], TABLE) + sealed_bytes(two[1], TABLE);
		most = sealed > most ? sealed : most;
		IN_CLONE
			CHECK(differing() <= WRITERS);
		if (turn % 3 == 2)
			flashfork_preload_unseal();
	}
	over = 1;
	for (int i = 0; i < 4; i++)
		JOIN(others[i]);
	for (int i = 0; i < WRITERS; i++)
		JOIN(writers[i]);
	all_sent = 1;
	for (int i = 0; i < 2; i++)
		JOIN(sleepers[i]);
	CHECK(differing() == 0);
	for (size_t w = 0; w < WRITERS; w++) {
		uint64_t sum = 0;
		for (size_t i = 0; i < SLOTS; i++)
			sum += one[w][i];
		CHECK(sum == written[w] && sum > 100);
	}
	CHECK(events_seen == events_sent && signals_seen == signals_sent && handled > 10);
	if (seals == 0)
		SKIP("this machine is too busy to stop the threads of a process in time");
}
