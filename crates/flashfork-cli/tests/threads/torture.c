/* Threads that do a fixed number of things by chance: lock, wait for each other in several ways, allocate, map, send signals.
   What comes of it doesn't depend on when which of them runs, so it is the same in every clone, whenever the template was made.
   Arguments: a seed, and after how many microseconds it is ready. */
enum { PAIRS = 4, THREADS = 2 * PAIRS, LOCKS = 5 };
static int steps = 1500;
struct pair {
	int ping[2], pong[2], there, back, set;
	pthread_mutex_t m; pthread_cond_t c; uint64_t turn, value;
};
static struct pair pairs[PAIRS];
static pthread_mutex_t locks[LOCKS]; static uint64_t sums[LOCKS];
static uint64_t results[THREADS]; static __thread volatile uint64_t signals;
static void on_signal(int n) { signals++; }
static uint64_t next(uint64_t *s) { *s = *s * 6364136223846793005ull + 1442695040888963407ull; return *s >> 33; }
static void fail(const char *what) { printf("%s: %d\n", what, errno); exit(1); }
/* Both ends of a pair draw the same numbers, and so do the same thing at the same time. */
static uint64_t exchange(struct pair *p, int first, int how, uint64_t step) {
	uint64_t v = step * 3, got = 0;
	if (how == 0) {
		int *in = first ? p->pong : p->ping, *out = first ? p->ping : p->pong;
		if (first && write(out[1], &v, 8) != 8) fail("write");
		if (read(in[0], &got, 8) != 8) fail("read");
		if (!first && write(out[1], &v, 8) != 8) fail("write");
	} else if (how == 1) {
		uint64_t one = v + 1;
		if (first) { if (write(p->there, &one, 8) != 8) fail("event"); if (read(p->back, &got, 8) != 8) fail("event"); }
		else {
			struct epoll_event e; if (epoll_wait(p->set, &e, 1, -1) != 1 || e.data.u64 != 77) fail("epoll");
			if (read(p->there, &got, 8) != 8) fail("event"); if (write(p->back, &one, 8) != 8) fail("event");
		}
		got--;
	} else {
		pthread_mutex_lock(&p->m);
		if (first) { p->value = v; p->turn = step * 2 + 1; pthread_cond_broadcast(&p->c); while (p->turn != step * 2 + 2) pthread_cond_wait(&p->c, &p->m); }
		else {
			while (p->turn != step * 2 + 1) {
				struct timespec t; clock_gettime(CLOCK_REALTIME, &t); t.tv_sec += 1000;
				if (pthread_cond_timedwait(&p->c, &p->m, &t)) fail("wait");
			}
			p->turn = step * 2 + 2; pthread_cond_broadcast(&p->c);
		}
		got = p->value;
		pthread_mutex_unlock(&p->m);
	}
	if (got != v) fail("another value");
	return got;
}
static uint64_t alone(uint64_t *s, uint64_t seen) {
	uint64_t how = next(s) % 7, r = next(s);
	if (how == 0) { int i = r % LOCKS; pthread_mutex_lock(locks + i); sums[i] += r; pthread_mutex_unlock(locks + i); }
	else if (how == 1) { size_t n = r % 20000 + 1; unsigned char *p = malloc(n); memset(p, r, n); sched_yield(); for (size_t i = 0; i < n; i += 97) if (p[i] != (unsigned char)r) fail("heap"); free(p); }
	else if (how == 2) { size_t n = 4096 * (r % 16 + 1); unsigned char *p = mmap(0, n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); if (p == MAP_FAILED) fail("mmap"); p[n - 1] = r; madvise(p, n, MADV_DONTNEED); if (p[n - 1]) fail("pages"); munmap(p, n); }
	else if (how == 3) { uint64_t before = signals; pthread_kill(pthread_self(), SIGUSR1); if (signals != before + 1) fail("signal"); }
	else if (how == 4) { struct timespec t = {0, r % 50000}; if (nanosleep(&t, 0)) fail("nanosleep"); }
	else if (how == 5) { struct pollfd p = {-1, 0, 0}; if (poll(&p, 1, 1)) fail("poll"); }
	else { int fd = open("/dev/zero", O_RDONLY); char b[64]; if (read(fd, b, 64) != 64 || b[63]) fail("file"); close(fd); }
	return seen * 31 + how * 7 + r;
}
static void *work(void *x) {
	long i = (long)x; uint64_t both = i / 2 + 1 + (uintptr_t)results[i], own = i * 977 + both, hash = 0;
	for (int step = 0; step < steps; step++) {
		if (next(&both) % 3 == 0) hash = hash * 31 + exchange(pairs + i / 2, i % 2 == 0, next(&both) % 3, step);
		hash = alone(&own, hash);
	}
	results[i] = hash;
	return 0;
}
int main(int argc, char **argv) {
	uint64_t seed = atoi(argv[1]);
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART}; sigaction(SIGUSR1, &a, 0);
	for (int i = 0; i < LOCKS; i++) {
		pthread_mutexattr_t t; pthread_mutexattr_init(&t); pthread_mutexattr_settype(&t, i % 3);
		if (i == 3) pthread_mutexattr_setprotocol(&t, PTHREAD_PRIO_INHERIT);
		if (i == 4) pthread_mutexattr_setrobust(&t, PTHREAD_MUTEX_ROBUST);
		pthread_mutex_init(locks + i, &t);
	}
	pthread_t t[THREADS];
	for (int i = 0; i < PAIRS; i++) {
		struct pair *p = pairs + i; pipe(p->ping); pipe2(p->pong, O_CLOEXEC); p->there = eventfd(0, 0); p->back = eventfd(0, 0);
		p->set = epoll_create1(0); struct epoll_event e = {EPOLLIN, {.u64 = 77}}; epoll_ctl(p->set, EPOLL_CTL_ADD, p->there, &e);
		pthread_mutex_init(&p->m, 0); pthread_cond_init(&p->c, 0);
	}
	for (long i = 0; i < THREADS; i++) { results[i] = seed * 1000; pthread_create(t + i, 0, work, (void *)i); }
	usleep(atoi(argv[2]));
	READY;
	uint64_t all = 0;
	for (int i = 0; i < THREADS; i++) { pthread_join(t[i], 0); all = all * 31 + results[i]; }
	for (int i = 0; i < LOCKS; i++) all = all * 31 + sums[i];
	printf("%llx\n", (unsigned long long)all);
	return 0;
}
