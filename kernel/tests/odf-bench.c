// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a fork costs, plain and on-demand.  Prints one line per figure:
 *
 *   NAME MB n=N min=MICROSECONDS p50=MICROSECONDS
 *
 * With QEMU's -icount a microsecond is 1000 instructions, and cache misses cost nothing.
 * Without on-demand fork in the kernel the plain figures are still given.
 */
#define _GNU_SOURCE
#include <signal.h>
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
#define PR_GET_ODF 0x4f444602
#define MB (1024UL * 1024)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void report(const char *name, unsigned long mb, double *t, int n)
{
	qsort(t, n, sizeof(*t), by_value);
	printf("%-22s %5lu n=%d min=%.2f p50=%.2f\n", name, mb, n, t[0], t[n / 2]);
	fflush(stdout);
}

static char *fill(unsigned long mb)
{
	char *p = mmap(NULL, (mb + 4) * MB, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		exit(1);
	p = (char *)(((uintptr_t)p + 2 * MB - 1) & ~(2 * MB - 1));
	madvise(p, mb * MB, MADV_NOHUGEPAGE);
	for (unsigned long i = 0; i < mb * MB; i += 4096)
		p[i] = 1;
	return p;
}

/* @touch: the child writes one byte. The child tells how long that took through a shared page. */
static void forks(const char *engine, char *p, unsigned long mb, int n)
{
	double *in_child = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double fork_time[64], cycle[64], write_time[64], again[64];
	char name[64];

	for (int i = 0; i < n; i++) {
		double start = now(), forked;
		pid_t pid = fork();

		if (!pid) {
			double before = now(), after;

			if (mb)
				p[mb * MB / 2] = 2;
			after = now();
			in_child[0] = after - before;
			if (mb)
				p[mb * MB / 2 + 4096] = 2;
			in_child[1] = now() - after;
			_exit(0);
		}
		forked = now();
		fork_time[i] = forked - start;
		waitpid(pid, NULL, 0);
		cycle[i] = now() - start;
		write_time[i] = in_child[0];
		again[i] = in_child[1];
	}
	snprintf(name, sizeof(name), "%s-fork", engine);
	report(name, mb, fork_time, n);
	snprintf(name, sizeof(name), "%s-cycle", engine);
	report(name, mb, cycle, n);
	snprintf(name, sizeof(name), "%s-first-write", engine);
	report(name, mb, write_time, n);
	snprintf(name, sizeof(name), "%s-second-write", engine);
	report(name, mb, again, n);
}

/* Ordinary faults, with no on-demand fork anywhere. */
static void faults(void)
{
	double t[9], u[9];

	for (int i = 0; i < 9; i++) {
		double start = now();
		char *p = fill(16), *q = p;

		t[i] = (now() - start) / 4096;
		start = now();
		munmap(q, 16 * MB);
		u[i] = (now() - start) / 4096;
	}
	report("zero-page-fault", 16, t, 9);
	report("unmap-per-page", 16, u, 9);
}

int main(int argc, char **argv)
{
	static const unsigned long sizes[] = { 0, 64, 256, 512, 1024 };
	int have = prctl(PR_GET_ODF, 0, 0, 0, 0) >= 0;

	faults();
	for (int i = 0; i < 5; i++) {
		char *p = fill(sizes[i]);

		forks("plain", p, sizes[i], 7);
		if (have) {
			if (prctl(PR_SET_ODF, 1, 0, 0, 0))
				return 1;
			forks("odf", p, sizes[i], 7);
			prctl(PR_SET_ODF, 0, 0, 0, 0);
		}
		munmap(p, sizes[i] * MB);
	}
	return 0;
}
