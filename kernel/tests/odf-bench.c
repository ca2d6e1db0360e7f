// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a fork costs, plain and on-demand.  Prints one line for each figure:
 *
 *   NAME MB n=N min=MICROSECONDS p50=MICROSECONDS max=MICROSECONDS
 *
 * With QEMU's -icount a microsecond is 1000 instructions, and cache misses cost nothing.
 *
 * Plain and on-demand forks take turns in one run.  Before each of them the parent writes a byte in
 * every 2 MB, as a process does that lives on: tables shared by the fork before are its own again.
 * With the argument "plain" there are plain forks only; with a number, memory of that many MB only; with
 * "at-once" three processes fork at once, each on a CPU of its own.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PR_SET_ODF 0x4f444601
#define MB (1024UL * 1024)
#define ROUNDS 9
#define PROCESSES 3

enum { FORK, REWRITE, REWRITE_LATER, CYCLE, FIRST_WRITE, SECOND_WRITE, FIGURES };

static const char *const figure[FIGURES] = {
	"fork", "rewrite", "rewrite-later", "cycle", "first-write", "second-write"
};

/* Through this page a child tells what it measured. */
static double *in_child;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void *must(void *p)
{
	if (p == MAP_FAILED) {
		perror("odf-bench: mmap");
		exit(1);
	}
	return p;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void report(const char *engine, const char *name, unsigned long mb, double *t)
{
	qsort(t, ROUNDS, sizeof(*t), by_value);
	printf("%s%s%s %lu n=%d min=%.3f p50=%.3f max=%.3f\n", engine, *engine ? "-" : "", name, mb,
	       ROUNDS, t[0], t[ROUNDS / 2], t[ROUNDS - 1]);
	fflush(stdout);
}

/* Memory of 4 KB pages, whole page tables, every page written. */
static char *fill(unsigned long mb)
{
	char *p = must(mmap(NULL, (mb + 4) * MB, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));

	p = (char *)(((uintptr_t)p + 2 * MB - 1) & ~(2 * MB - 1));
	madvise(p, mb * MB, MADV_NOHUGEPAGE);
	for (unsigned long i = 0; i < mb * MB; i += 4096)
		p[i] = 1;
	return p;
}

/* Writes a byte in every 2 MB. */
static double touch_tables(char *p, unsigned long mb)
{
	double start = now();

	for (unsigned long i = 0; i < mb * MB; i += 2 * MB)
		p[i]++;
	return now() - start;
}

static pid_t checked(pid_t pid)
{
	if (pid < 0) {
		perror("odf-bench: fork");
		exit(1);
	}
	return pid;
}

/*
 * How long fork() takes the parent, and what it pays later: for a write in every 2 MB while the child lives.
 * The child waits: on one CPU, what it does could be counted too.
 */
static double fork_alone(char *p, unsigned long mb, double *rewrite)
{
	double start, end;
	int go[2];
	pid_t pid;
	char c;

	if (pipe(go))
		exit(1);
	start = now();
	pid = checked(fork());
	if (!pid)
		_exit(read(go[0], &c, 1) != 1);
	end = now();
	if (rewrite)
		*rewrite = touch_tables(p, mb);
	if (write(go[1], "x", 1) != 1)
		exit(1);
	waitpid(pid, NULL, 0);
	close(go[0]);
	close(go[1]);
	return end - start;
}

/* Fork, the child writes one page, ends, is reaped. The page after that one is written second. */
static double cycle(char *p, unsigned long mb)
{
	volatile char *page = p + mb * MB / 2;
	double start = now();
	pid_t pid = checked(fork());

	if (!pid) {
		double before = now(), after;

		if (mb)
			page[0] = 2;
		after = now();
		in_child[0] = after - before;
		before = now();
		if (mb)
			page[4096] = 2;
		in_child[1] = now() - before;
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	return now() - start;
}

static void forks(unsigned long mb, int engines)
{
	static const char *const name[] = { "plain", "odf" };
	double t[2][FIGURES][ROUNDS];
	char *p = fill(mb);

	for (int i = 0; i < ROUNDS; i++) {
		for (int e = 0; e < engines; e++) {
			if (e && prctl(PR_SET_ODF, 1, 0, 0, 0)) {
				perror("odf-bench: PR_SET_ODF");
				exit(1);
			}
			touch_tables(p, mb);
			t[e][FORK][i] = fork_alone(p, mb, NULL);
			/* When the child is gone. */
			t[e][REWRITE_LATER][i] = touch_tables(p, mb);
			fork_alone(p, mb, &t[e][REWRITE][i]);
			touch_tables(p, mb);
			t[e][CYCLE][i] = cycle(p, mb);
			t[e][FIRST_WRITE][i] = in_child[0];
			t[e][SECOND_WRITE][i] = in_child[1];
			if (e)
				prctl(PR_SET_ODF, 0, 0, 0, 0);
		}
	}
	for (int e = 0; e < engines; e++)
		for (int f = 0; f < FIGURES; f++)
			report(name[e], figure[f], mb, t[e][f]);
	munmap(p, mb * MB);
}

/* What the processes that fork at once share. */
struct meeting {
	/* Where they wait for each other; asleep, for whoever spins takes the others' turns in emulation. */
	pthread_barrier_t all;
	/* When each has come, and when it has forked. */
	double came[PROCESSES], end[PROCESSES];
};

/* From when the last of the processes may fork until all have. */
static void forks_at_once(unsigned long mb)
{
	struct meeting *m = must(mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	double t[2][ROUNDS];
	pthread_barrierattr_t shared;
	cpu_set_t cpu;
	int me = 0;
	char *p;

	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&m->all, &shared, PROCESSES);

	for (int i = 1; i < PROCESSES && !me; i++)
		if (!checked(fork()))
			me = i;
	CPU_ZERO(&cpu);
	CPU_SET(me, &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu)) {
		perror("odf-bench: three CPUs are needed");
		exit(1);
	}
	p = fill(mb);
	for (int i = 0; i < ROUNDS; i++) {
		for (int e = 0; e < 2; e++) {
			int go[2];
			pid_t pid;
			double start = 0, end = 0;
			char c;

			if (pipe(go) || (e && prctl(PR_SET_ODF, 1, 0, 0, 0)))
				exit(1);
			touch_tables(p, mb);
			m->came[me] = now();
			pthread_barrier_wait(&m->all);
			pid = checked(fork());
			if (!pid)
				_exit(read(go[0], &c, 1) != 1);
			m->end[me] = now();
			pthread_barrier_wait(&m->all);
			for (int j = 0; j < PROCESSES; j++) {
				start = m->came[j] > start ? m->came[j] : start;
				end = m->end[j] > end ? m->end[j] : end;
			}
			t[e][i] = end - start;
			if (write(go[1], "x", 1) != 1)
				exit(1);
			waitpid(pid, NULL, 0);
			close(go[0]);
			close(go[1]);
			if (e)
				prctl(PR_SET_ODF, 0, 0, 0, 0);
			pthread_barrier_wait(&m->all);
		}
	}
	if (me)
		_exit(0);
	report("plain", "at-once", mb, t[0]);
	report("odf", "at-once", mb, t[1]);
}

/* Ordinary faults and unmaps, with no on-demand fork anywhere; for one page each. */
static void faults(void)
{
	double fault[ROUNDS], unmap[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		double start = now();
		char *p = fill(16);

		fault[i] = (now() - start) / 4096;
		start = now();
		munmap(p, 16 * MB);
		unmap[i] = (now() - start) / 4096;
	}
	report("", "first-touch", 16, fault);
	report("", "unmap", 16, unmap);
}

int main(int argc, char **argv)
{
	static const unsigned long sizes[] = { 0, 64, 256, 512, 1024 };
	unsigned long only = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	int engines = argc > 1 && !only ? 1 : 2;

	in_child = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	if (argc > 1 && !strcmp(argv[1], "at-once")) {
		forks_at_once(1024);
		return 0;
	}
	if (only) {
		forks(only, engines);
		return 0;
	}
	faults();
	for (int i = 0; i < 5; i++)
		forks(sizes[i], engines);
	return 0;
}
