/* A seccomp filter from before the program was started, which lasts over exec, and ends the process for a call that a seal makes:
   forks are plain then. One that ends it for other calls, or refuses calls, does no harm. seccomp(2).
   env: FLASHFORK_ENGINE=seal */
#include "../filter.h"

static int sandboxed(int kills)
{
	char *p = memory(8 * MB, 1);
	CHECK(prctl(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER);
	for (int i = 0; i < 3; i++)
		if (in_clone())
			_exit(!intact(p, 8 * MB, 1));
	CHECK(all_sealed(p, 8 * MB) == !kills);
	CHECK(call_seal() == (kills ? -1 : 0));
	CHECK(intact(p, 8 * MB, 1));
	return 0;
}

/* Runs this program anew under a filter that answers a call with `action`. */
static void under(int call, unsigned action, const char *kills)
{
	pid_t pid = forked();
	if (pid == 0) {
		enter(call, action, 0);
		execl("/proc/self/exe", "seccomp_filter", kills, NULL);
		_exit(3);
	}
	int status = wait_for(pid);
	if (status != 0)
		fprintf(stderr, "system call %d, action %#x: ends with %d\n", call, action, status);
	CHECK(status == 0);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return sandboxed(atoi(argv[1]));
	const int needed[] = {SYS_unshare, SYS_memfd_create, SYS_mremap, SYS_madvise, SYS_ftruncate, SYS_pwrite64, SYS_ioctl, SYS_getrusage,
	                      SYS_close_range, SYS_sched_yield, SYS_tgkill};
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		under(needed[i], SECCOMP_RET_KILL_PROCESS, "1");
	under(SYS_memfd_create, SECCOMP_RET_TRAP, "1");
	under(SYS_kexec_load, SECCOMP_RET_KILL_PROCESS, "0");
	under(SYS_unshare, SECCOMP_RET_ERRNO | EPERM, "0");
}
