/* System calls that come from elsewhere than libc become signals (PR_SET_SYSCALL_USER_DISPATCH, as Wine has it): the program's own go
   on as in a program that was never sealed. prctl(2).
   cflags: -ldl */

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif

static char allowed;

/* The code of libc. */
static int code(size_t *start, size_t *end)
{
	char line[8192], permissions[8];
	FILE *maps = fopen("/proc/self/maps", "re");
	CHECK(maps != NULL);
	*start = *end = 0;
	while (fgets(line, sizeof line, maps)) {
		size_t from, to;
		if (strstr(line, "/libc.so.6") == NULL || sscanf(line, "%zx-%zx %7s", &from, &to, permissions) != 3)
			continue;
		if (permissions[2] != 'x')
			continue;
		*start = *start ? *start : from;
		*end = to;
	}
	fclose(maps);
	return *start != 0;
}

static void dispatched(char *p)
{
	size_t start, end;
	if (!code(&start, &end))
		SKIP("another libc");
	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, start, end - start, &allowed) != 0)
		SKIP("no user dispatch of system calls: %s", strerror(errno));
	allowed = 1; /* SYSCALL_DISPATCH_FILTER_BLOCK */
	int discarded = madvise(p + PAGE, PAGE, MADV_DONTNEED);
	char *grown = mremap(p, 4 * MB, 20 * MB, MREMAP_MAYMOVE);
	pid_t own = getpid();
	allowed = 0;
	CHECK(own > 0);
	CHECK(discarded == 0 && grown != MAP_FAILED && zeros(grown + PAGE, PAGE) && zeros(grown + 4 * MB, 16 * MB));
	CHECK(intact(grown, PAGE, 1));
}

int main(void)
{
	char *p = memory(4 * MB, 1);
	pid_t pid = forked();
	if (pid == 0) {
		dispatched(p); /* plain */
		_exit(0);
	}
	int status = wait_for(pid);
	if (status == 77)
		return 77;
	CHECK(status == 0);
	seal();
	IN_CLONE {
		dispatched(p);
		CHECK(sealed_bytes(ALL) == 0 && call_seal() == -1);
	}
}
