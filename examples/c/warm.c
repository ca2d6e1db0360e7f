/*
 * Warm once, clone many times: a table that takes a while to build is built once; each query runs in a clone of its own, which may
 * change the table as it likes.
 *
 *   cc warm.c -o warm $(pkg-config --cflags --libs flashfork)
 */
#include <flashfork.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENTRIES (8u << 20) /* 64 MB */

/* Tells of large mappings that were left as they are. */
static void tell(const struct flashfork_vma_report *vma, void *data)
{
	size_t len = (const char *)vma->end - (const char *)vma->start;

	(void)data;
	if (vma->reason && vma->sealed_bytes == 0 && len >= 8 << 20)
		printf("  not sealed: %zu MB %s (%s)\n", len >> 20, vma->name, vma->explanation);
}

/* A query: changes the clone's table, and answers with a number. */
static int query(unsigned long *table, unsigned n)
{
	table[n] += 1;
	return (int)(table[n] % 251);
}

int main(void)
{
	struct flashfork_seal_options options = {0};
	struct flashfork_seal_report report;
	struct flashfork_stats stats;
	unsigned long *table = malloc(ENTRIES * sizeof *table);
	unsigned n;

	if (!table) {
		perror("malloc");
		return 1;
	}
	for (n = 0; n < ENTRIES; n++)
		table[n] = n * 2654435761ul;

	options.each_vma = tell;
	if (flashfork_seal(&options, &report) != 0) {
		/* Not fatal: clones are correct without it, and slower. Here it ends the program to show what is wrong. */
		fprintf(stderr, "%s\n", flashfork_last_error());
		return 1;
	}
	printf("sealed %llu MB in %llu ms\n", (unsigned long long)report.sealed_bytes >> 20,
	       (unsigned long long)report.elapsed_ns / 1000000);
	fflush(stdout);

	for (n = 1000; n < 1003; n++) {
		int status;
		pid_t pid = flashfork_fork();

		if (pid < 0) {
			fprintf(stderr, "%s\n", flashfork_last_error());
			return 1;
		}
		if (pid == 0)
			_exit(query(table, n));
		if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) {
			fprintf(stderr, "clone %d failed\n", (int)pid);
			return 1;
		}
		printf("clone answers %d; the table still holds %lu\n", WEXITSTATUS(status), table[n]);
	}

	flashfork_stats(&stats);
	printf("%llu clones, %llu us each\n", (unsigned long long)stats.sealed_forks,
	       (unsigned long long)(stats.sealed_fork_ns / stats.sealed_forks / 1000));
	return 0;
}
