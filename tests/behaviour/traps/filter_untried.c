/* Where it can't be tried in a child whether a seccomp filter from before the program's start would end it for a seal, nothing is sealed
   and forks are plain: no child is made in another namespace of processes or time, it doesn't come to its end for lack of addresses,
   or nobody can tell that there is a filter, for lack of descriptors.
   env: FLASHFORK_ENGINE=seal */
#include "../filter.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static int forks(char *p)
{
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		/* When the first of a namespace has ended no other is made. */
		if (pid < 0)
			return errno == ENOMEM && i > 0 ? 0 : 1;
		if (pid == 0)
			_exit(!intact(p, 8 * MB, 1));
		if (wait_for(pid) != 0)
			return 1;
	}
	return sealed_bytes(ALL) != 0 || call_seal() != -1 || !intact(p, 8 * MB, 1);
}

static int in_namespace(int which)
{
	char *p = memory(8 * MB, 1);
	if (unshare(which) != 0)
		SKIP("no other namespace may be made: %s", strerror(errno));
	return forks(p);
}

/* As many more bytes as `room` megabytes. */
static int with_little_room(int limit, const char *field, rlim_t room)
{
	char *p = memory(8 * MB, 1);
	struct rlimit little = {(rlim_t)status_kb(field) * 1024 + room * MB, RLIM_INFINITY};
	CHECK(setrlimit(limit, &little) == 0);
	return forks(p);
}

static int without_descriptors(void)
{
	char *p = memory(8 * MB, 1);
	struct rlimit none = {0, 0};
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	for (int i = 0; i < 3; i++)
		if (in_clone())
			_exit(!intact(p, 8 * MB, 1));
	return call_seal() != -1;
}

/* The clocks of a time namespace can be set until somebody is in it. */
static int sets_its_clocks(void)
{
	if (unshare(CLONE_NEWTIME) != 0)
		SKIP("no other time namespace may be made: %s", strerror(errno));
	memory(8 * MB, 1);
	CHECK(call_seal() == -1);
	int fd = open("/proc/self/timens_offsets", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "monotonic 1000 0\n", 17) == 17);
	close(fd);
	return 0;
}

static int under_filter(int which, int room)
{
	switch (which) {
	case 'p':
		return in_namespace(CLONE_NEWPID);
	case 't':
		return in_namespace(CLONE_NEWTIME);
	case 'a':
		return with_little_room(RLIMIT_AS, "VmSize", room);
	case 'd':
		return with_little_room(RLIMIT_DATA, "VmData", room);
	case 'f':
		return without_descriptors();
	default:
		return sets_its_clocks();
	}
}

/* Runs this program anew under the filter, and returns whether the case can be shown. */
static int shown(const char *which, int room)
{
	char number[16];
	snprintf(number, sizeof number, "%d", room);
	pid_t pid = forked();
	if (pid == 0) {
		enter(SYS_memfd_create, SECCOMP_RET_KILL_PROCESS, 0);
		execl("/proc/self/exe", "filter_untried", which, number, NULL);
		_exit(3);
	}
	int status = wait_for(pid);
	if (status != 0 && status != 77)
		fprintf(stderr, "case %s, %d MB: ends with %d\n", which, room, status);
	CHECK(status == 0 || status == 77);
	return status == 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return under_filter(*argv[1], atoi(argv[2]));
	for (int room = 0; room <= 16; room += 17 / (int)often(17))
		CHECK(shown("a", room) && shown("d", room));
	CHECK(shown("f", 0));
	return shown("p", 0) && shown("t", 0) && shown("clocks", 0) ? 0 : 77;
}
