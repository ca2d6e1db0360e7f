/* A program that a sealed one starts without the shim has the filter of core dumps that it would have plainly, whoever
   starts it, and the sealed one keeps its own, also where the program isn't there. core(5), execve(2). */
#include <spawn.h>

#define FILTER "/proc/self/coredump_filter"
#define FILE_PRIVATE 4

static char *show[] = {"/bin/cat", FILTER, NULL}, *nothing[] = {NULL};
static int output[2];

/* What a program printed, and how it ended. */
static unsigned long said(pid_t pid)
{
	char text[64] = "";
	CHECK(pid > 0 && wait_for(pid) == 0 && read(output[0], text, sizeof text - 1) > 0);
	return strtoul(text, NULL, 16);
}

static unsigned long with_popen(void)
{
	char text[64] = "";
	FILE *file = popen("cat " FILTER, "r");
	CHECK(file != NULL && fgets(text, sizeof text, file) && pclose(file) == 0);
	return strtoul(text, NULL, 16);
}

static int in_vfork(void)
{
	dup2(output[1], 1);
	execve(show[0], show, nothing);
	_exit(1);
}

static int in_clone_task(void *ignored)
{
	(void)ignored;
	return in_vfork();
}

/* Every way of starting the program; `filters` gets what each has. */
static int start_all(unsigned long *filters)
{
	static char stack[256 << 10] __attribute__((aligned(16)));
	int count = 0, fd = open(show[0], O_RDONLY | O_CLOEXEC);
	pid_t pid;
	posix_spawn_file_actions_t actions;
	CHECK(fd >= 0 && posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, output[1], 1) == 0);
	for (int way = 0; way < 6; way++) {
		if ((pid = fork()) == 0) {
			dup2(output[1], 1);
			if (way == 0)
				execve(show[0], show, nothing);
			else if (way == 1)
				fexecve(fd, show, nothing);
			else if (way == 2)
				syscall(SYS_execveat, AT_FDCWD, show[0], show, nothing, 0);
			else if (way == 3)
				execle(show[0], show[0], FILTER, NULL, nothing);
			else if (way == 4) {
				/* No descriptor is free before the call. */
				struct rlimit few = {32, 32};
				CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
				while (fcntl(1, F_DUPFD_CLOEXEC, 3) >= 0)
					;
				execve(show[0], show, nothing);
			} else {
				/* The first one isn't there. */
				CHECK(execve("/nowhere", show, nothing) == -1 && errno == ENOENT);
				execve(show[0], show, nothing);
			}
			_exit(1);
		}
		filters[count++] = said(pid);
	}
	CHECK(posix_spawn(&pid, show[0], &actions, NULL, show, nothing) == 0);
	filters[count++] = said(pid);
	CHECK(posix_spawn(&pid, "/nowhere", &actions, NULL, show, nothing) == ENOENT);
	if ((pid = vfork()) == 0)
		in_vfork();
	filters[count++] = said(pid);
	filters[count++] = said(clone(in_clone_task, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
	filters[count++] = with_popen();
	CHECK(dup2(output[1], 1) == 1 && system("cat " FILTER) == 0);
	char text[64] = "";
	CHECK(read(output[0], text, sizeof text - 1) > 0);
	filters[count++] = strtoul(text, NULL, 16);
	CHECK(posix_spawn_file_actions_destroy(&actions) == 0 && close(fd) == 0);
	return count;
}

static void *start_many(void *expected)
{
	for (size_t i = 0; i < often(50); i++)
		if (with_popen() != *(unsigned long *)expected)
			return expected;
	return NULL;
}

int main(void)
{
	unsigned long plainly[16], sealed[16], before = coredump_filter();
	if (before & FILE_PRIVATE)
		SKIP("core dumps contain private file memory anyway: %lx", before);
	CHECK(unsetenv("LD_PRELOAD") == 0 && pipe2(output, O_CLOEXEC) == 0);
	int count = start_all(plainly);
	char *p = memory(4 * MB, 1);
	seal();
	unsigned long widened = coredump_filter();
	CHECK(widened & FILE_PRIVATE);
	CHECK(start_all(sealed) == count);
	for (int i = 0; i < count; i++)
		if (sealed[i] != plainly[i]) {
			fprintf(stderr, "way %d: plain %lx, sealed %lx\n", i, plainly[i], sealed[i]);
			return 1;
		}
	/* A core dump of this process contains what is sealed, still. */
	CHECK(coredump_filter() == widened && all_sealed(p, 4 * MB));
	IN_CLONE
		CHECK(coredump_filter() == widened && start_all(sealed) == count && coredump_filter() == widened);
	/* Several at once. */
	pthread_t threads[4];
	void *wrong;
	for (int i = 0; i < 4; i++)
		START(&threads[i], start_many, &before);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], &wrong) == 0);
	CHECK(coredump_filter() == widened && intact(p, 4 * MB, 1));
	CHECK(flashfork_preload_unseal() == 0 && coredump_filter() == before);
}
