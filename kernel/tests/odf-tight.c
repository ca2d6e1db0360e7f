// SPDX-License-Identifier: GPL-2.0-only
/*
 * Children that share page tables and run out of memory: each goes into a memory cgroup that is smaller
 * than what it writes. It is killed, or swaps; its parent, outside, must not lose anything.
 *
 *   odf-tight CGROUP ROUNDS
 *
 * CGROUP is a directory of cgroup v2 with the memory controller.
 */
#include "odf_util.h"

#define TABLES	8
#define SIZE	(TABLES * TABLE)
#define PAGES	(SIZE / PAGE)

static char *area;

static void fill(unsigned long from, unsigned long to, uint64_t seed)
{
	for (unsigned long i = from; i < to; i++)
		*(volatile uint64_t *)(area + i * PAGE) = i * 0x9e3779b97f4a7c15ULL + seed;
}

static bool holds(unsigned long from, unsigned long to, uint64_t seed)
{
	for (unsigned long i = from; i < to; i++)
		if (*(volatile uint64_t *)(area + i * PAGE) != i * 0x9e3779b97f4a7c15ULL + seed)
			return false;
	return true;
}

static bool set(const char *dir, const char *name, long number)
{
	char path[256], text[32];
	bool done;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(text, sizeof(text), "%ld", number);
	fd = open(path, O_WRONLY);
	done = fd >= 0 && write(fd, text, strlen(text)) > 0;
	if (fd >= 0)
		close(fd);
	return done;
}

/* Writes nearly all, with a child of its own that does too. */
static int greedy(const char *dir)
{
	pid_t pid;
	int status;

	if (!set(dir, "cgroup.procs", getpid()))
		return 4;
	fill(0, PAGES / 2, 1);
	pid = odf_fork();
	if (!pid) {
		bool good = holds(0, PAGES / 2, 1) && holds(PAGES / 2, PAGES, 0);

		fill(0, PAGES, 2);
		_exit(!good || !holds(0, PAGES, 2));
	}
	fill(PAGES / 2, PAGES - 700, 1);
	if (pid > 0 && (waitpid(pid, &status, 0) != pid || (WIFEXITED(status) && WEXITSTATUS(status))))
		return 1;
	return !holds(0, PAGES - 700, 1) || !holds(PAGES - 700, PAGES, 0);
}

int main(int argc, char **argv)
{
	long rounds = argc > 2 ? atol(argv[2]) : 50, killed = 0, through = 0, shared;
	const char *dir = argv[1];

	if (argc < 2 || !odf_write_sysctl(1) || !(area = odf_map(TABLES, PROT_READ | PROT_WRITE)))
		return 4;
	fill(0, PAGES, 0);
	shared = odf_vmstat("odf_share");
	for (long round = 0; round < rounds; round++) {
		int status;
		pid_t pid;

		/* From less than a page table to more than one process needs. */
		if (!set(dir, "memory.max", (round % 12) * (SIZE / 4) + 64 * 1024)) {
			printf("# can't set memory.max in %s\n", dir);
			return 4;
		}
		pid = odf_fork();
		if (!pid)
			_exit(greedy(dir));
		if (pid < 0 || waitpid(pid, &status, 0) != pid || !holds(0, PAGES, 0))
			goto bad;
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
			killed++;
		else if (!status)
			through++;
		else
			goto bad;
	}
	shared = odf_vmstat("odf_share") - shared;
	fill(0, PAGES, 3);
	if (!holds(0, PAGES, 3) || shared < rounds || !through)
		goto bad;
	printf("ok 1 %ld children killed, %ld not, %ld tables shared\n", killed, through, shared);
	return 0;
bad:
	printf("not ok 1 %ld children killed, %ld not\n", killed, through);
	return 1;
}
