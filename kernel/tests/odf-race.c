// SPDX-License-Identifier: GPL-2.0-only
/*
 * Races between CPUs: threads that spin reading, and asking mincore(), while other threads of their process write,
 * discard, replace and move the same memory, while relatives that share its page tables do the same to theirs, and
 * while the kernel moves its pages and takes the swap space away. A reader must never see what a relative wrote after the fork between them.
 *
 *   odf-race [SECONDS]
 *
 * Every value says who wrote it, and in which round. A process may see zero, its own values, and those
 * that its ancestors had written when they forked it. Needs CPUs that really run at the same time.
 */
#include "odf_util.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/swap.h>
#include <time.h>

#define TABLES	3
#define SIZE	(TABLES * TABLE)
#define PAGES	(SIZE / PAGE)
#define DEPTH	2
#define READERS	1

static char *area;

#define CHILD_ROUNDS	15	/* at most; rounds of a child: 16 times its parent's round, and on from there */

/* What this process may see: of generation n, rounds after base[n], up to seen[n]. */
static int depth;
static uint64_t base[DEPTH + 1];
static _Atomic uint64_t seen[DEPTH + 1];
static atomic_bool foreign, stop;

static uint64_t rng = 88172645463325252ULL;
static unsigned long rnd(unsigned long below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (rng >> 11) % below;
}

static uint64_t value(uint64_t round)
{
	return (uint64_t)(depth + 1) << 56 | round;
}

static void *reader(void *arg)
{
	unsigned long page = (unsigned long)arg * 97;
	static unsigned char there[PAGES];

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint64_t v, who, round;

		page = (page + 1) % PAGES;
		/* Takes the locks of tables that relatives free. */
		if (!(page % 64) && mincore(area, SIZE, there))
			_exit(3);
		v = *(volatile uint64_t *)(area + page * PAGE);
		if (!v)
			continue;
		who = (v >> 56) - 1;
		round = v & (~0ULL >> 8);
		/* Read after the value: a round begins before its values are written. */
		if (who > (uint64_t)depth || round <= base[who] || round > atomic_load(&seen[who])) {
			printf("# generation %d sees page %lu as round %llu of generation %llu\n", depth, page,
			       (unsigned long long)round, (unsigned long long)who);
			fflush(stdout);
			foreign = true;
			return NULL;
		}
	}
	return NULL;
}

static void change(uint64_t round)
{
	unsigned long from = rnd(PAGES), len = 1 + rnd(PAGES - from), i;
	char *p = area + from * PAGE;

	switch (rnd(8)) {
	case 0: /* discard */
		madvise(p, len * PAGE, MADV_DONTNEED);
		break;
	case 1: /* unmap and map anew, part or all */
		if (rnd(2)) {
			p = area;
			len = PAGES;
		}
		if (mmap(p, len * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != p)
			_exit(3);
		madvise(area, SIZE, MADV_NOHUGEPAGE);
		break;
	case 2:
		if (mprotect(p, len * PAGE, PROT_READ) || mprotect(p, len * PAGE, PROT_READ | PROT_WRITE))
			_exit(3);
		break;
	case 3: /* one page each in a few tables */
		for (i = 0; i < TABLES; i++)
			*(volatile uint64_t *)(area + i * TABLE + rnd(512) * PAGE) = value(round);
		break;
	default:
		for (i = 0; i < len; i++)
			*(volatile uint64_t *)(p + i * PAGE) = value(round);
	}
}

static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* One process: changes its memory for @rounds rounds or until @until, with readers beside it. */
static int generation(int rounds, time_t until, uint64_t round)
{
	pthread_t thread[READERS];
	pid_t child = 0;
	int status;

	foreign = stop = false;
	for (unsigned long i = 0; i < READERS; i++)
		if (pthread_create(&thread[i], NULL, reader, (void *)i))
			_exit(3);
	for (int n = 0; n < rounds && !foreign && now() < until; n++) {
		atomic_store(&seen[depth], ++round);
		change(round);
		if (child && waitpid(child, &status, rnd(4) ? WNOHANG : 0) == child) {
			child = 0;
			if (!WIFEXITED(status) || WEXITSTATUS(status))
				foreign = true;
		}
		if (!child && depth < DEPTH) {
			child = odf_fork();
			if (!child) {
				depth++;
				rng += round * 0x9e3779b97f4a7c15ULL;
				base[depth] = round * (CHILD_ROUNDS + 1);
				seen[depth] = base[depth];
				_exit(generation(3 + rnd(CHILD_ROUNDS - 2), until, base[depth]));
			}
			if (child < 0)
				child = 0;
		}
	}
	stop = true;
	for (int i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	if (child && (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)))
		foreign = true;
	return foreign;
}

/*
 * Beside them: moves pages of the first generation from node to node, or has all of memory compacted. Its rmap walks
 * take over tables while forks share them.
 */
static void mover(pid_t of, time_t until)
{
	static void *pages[PAGES];
	static int nodes[PAGES], status[PAGES];
	int compact = open("/proc/sys/vm/compact_memory", O_WRONLY);

	for (int node = 0; now() < until; node = !node) {
		for (unsigned long i = 0; i < PAGES; i++) {
			pages[i] = area + i * PAGE;
			nodes[i] = node;
		}
		if (syscall(SYS_move_pages, of, PAGES, pages, nodes, status, 2 /* MPOL_MF_MOVE */) < 0 &&
		    write(compact, "1", 1) != 1)
			_exit(3);
	}
	_exit(0);
}

static void too_long(int signal)
{
	(void)signal;
}

/*
 * Beside them, where there is swap space: takes it away again and again, with pages there. Were a child that may have
 * such pages on no list that swapoff walks, swapoff would not end: it is interrupted then, after minutes.
 */
static void swapper(pid_t of, time_t until)
{
	struct sigaction once = { .sa_handler = too_long };
	struct iovec all = { area, SIZE };
	int pidfd = syscall(SYS_pidfd_open, of, 0);
	char space[256];
	FILE *swaps = fopen("/proc/swaps", "r");

	if (!swaps || fscanf(swaps, "%*[^\n] %255s", space) != 1)
		_exit(0);
	if (pidfd < 0 || sigaction(SIGALRM, &once, NULL))
		_exit(3);
	while (now() < until) {
		/* Fails where the process has ended, or is about to. */
		syscall(SYS_process_madvise, pidfd, &all, 1, MADV_PAGEOUT, 0);
		alarm(600);
		if (swapoff(space)) {
			printf("# swapoff of %s: %s\n", space, strerror(errno));
			fflush(stdout);
			_exit(3);
		}
		alarm(0);
		if (swapon(space, 0))
			_exit(3);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	time_t until = now() + (argc > 1 ? atol(argv[1]) : 10);
	long shared, copied, dropped;
	pid_t beside[2];
	int bad, status;

	if (!odf_write_sysctl(1)) {
		printf("not ok 1 vm.on_demand_fork can't be set\n");
		return 1;
	}
	shared = odf_vmstat("odf_share");
	copied = odf_vmstat("odf_copy");
	dropped = odf_vmstat("odf_drop");
	area = odf_map(TABLES, PROT_READ | PROT_WRITE);
	if (!area)
		return 3;
	for (int i = 0; i < 2; i++) {
		beside[i] = fork();
		if (!beside[i])
			(i ? swapper : mover)(getppid(), until);
	}
	bad = generation(1 << 30, until, 0);
	for (int i = 0; i < 2; i++)
		bad |= waitpid(beside[i], &status, 0) != beside[i] || status;
	shared = odf_vmstat("odf_share") - shared;
	copied = odf_vmstat("odf_copy") - copied;
	dropped = odf_vmstat("odf_drop") - dropped;
	printf("# tables shared %ld, copied %ld, dropped %ld\n", shared, copied, dropped);
	if (shared < 10 || !copied || !dropped) {
		printf("# too few to have raced\n");
		bad = 1;
	}
	printf("%sok 1 race\n", bad ? "not " : "");
	return bad;
}
