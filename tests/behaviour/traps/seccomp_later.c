/* A seccomp filter that a sealed program sets, and that kills on a call by which the engine works: what the program discards and grows
   then is as in plain memory, and nothing ends it. Under a filter that lets the engine work memory stays sealed. seccomp(2). */
#include "../filter.h"

#define LEN (8 * MB)

/* What a plain program can do under any of the filters. */
static void use(char *p, int may_grow)
{
	CHECK(discard_zeros(p + PAGE, PAGE));
	CHECK(discard_zeros(p + MB, 4 * MB));
	CHECK(*(uint64_t *)p == pattern(0, 1) && *(uint64_t *)(p + 6 * MB) == pattern(6 * MB / 8, 1));
	CHECK(madvise(p + 6 * MB, PAGE, MADV_DONTFORK) == 0);
	if (!may_grow)
		return;
	p = mremap(p, 4 * MB, 12 * MB, MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED && *(uint64_t *)p == pattern(0, 1) && zeros(p + MB, 11 * MB));
}

static void under(char *p, int call, unsigned action)
{
	for (int by_number = 0; by_number < 2; by_number++) {
		pid_t pid = forked();
		if (pid == 0) {
			enter(call, action, by_number);
			use(p, call != SYS_mremap);
			pid_t clone = call == SYS_clone ? 0 : fork();
			CHECK(clone >= 0);
			if (clone == 0)
				_exit(0);
			_exit(wait_for(clone));
		}
		int status = wait_for(pid);
		if (status != 0)
			fprintf(stderr, "system call %d, action %#x, by number: %d: ends with %d\n", call, action, by_number, status);
		CHECK(status == 0);
	}
}

static void under_each(char *p, size_t step)
{
	static const int calls[] = {SYS_ioctl, SYS_openat, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_rt_sigprocmask,
								SYS_getrusage, SYS_read, SYS_pread64, SYS_close, SYS_unshare, SYS_process_vm_writev,
								SYS_gettid, SYS_fstat, SYS_clone, SYS_getdents64, SYS_readlink};
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i += step) {
		under(p, calls[i], SECCOMP_RET_KILL_PROCESS);
		under(p, calls[i], SECCOMP_RET_ERRNO | EPERM);
	}
	under(p, SYS_openat, SECCOMP_RET_TRAP);
	under(p, SYS_ioctl, SECCOMP_RET_ERRNO); /* said to have been done */
}

int main(void)
{
	char *p = memory(LEN, 1);
	under_each(p, 13 - often(12)); /* plain */
	seal();
	under_each(p, 1);
	IN_CLONE {
		enter(SYS_kexec_load, SECCOMP_RET_KILL_PROCESS, 0);
		CHECK(all_sealed(p, LEN));
		/* One more, under which the engine can't work. */
		enter(SYS_openat, SECCOMP_RET_KILL_PROCESS, 1);
		use(p, 1);
	}
}
