/* Handlers that run in the middle of a fork: the files they open have the numbers they would have, and one that jumps out of the
   fork leaves no file open. signal-safety(7).
   env: FLASHFORK_ENGINE=auto */
#include <setjmp.h>

static volatile sig_atomic_t lowest, wrong, runs, jumps, forking;
static sigjmp_buf back;

static void handler(int signal)
{
	(void)signal;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd != lowest)
		wrong++;
	close(fd);
	if (++runs % 4 == 0 && forking) {
		jumps++;
		siglongjmp(back, 1);
	}
}

static int open_files(void)
{
	DIR *all = opendir("/proc/self/fd");
	int count = 0;
	CHECK(all != NULL);
	while (readdir(all))
		count++;
	CHECK(closedir(all) == 0);
	return count;
}

int main(void)
{
	char *p = memory(64 * MB, 1);
	CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
	lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(lowest);
	int files = open_files();
	struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART};
	CHECK(sigaction(SIGALRM, &act, NULL) == 0);
	struct itimerval often = {{0, 397}, {0, 397}}, never = {{0, 0}, {0, 0}};
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (volatile int turn = 0; turn < 300 || jumps == 0; turn++) {
		if (sigsetjmp(back, 1) == 0) {
			forking = 1;
			/* libc's own fork holds locks: nobody may jump out of that. */
			pid_t pid = (pid_t)syscall(SYS_fork);
			if (pid == 0)
				_exit(0);
		}
		forking = 0;
		p[(turn * PAGE * 7) % (64 * MB)]++;
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(wrong == 0);
	CHECK(open_files() == files);
}
