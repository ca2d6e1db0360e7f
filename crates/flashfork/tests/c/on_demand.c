/* On-demand fork is granted, or refused in words with forks that are plain and correct; switching off needs the kernel too. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	struct flashfork_stats stats;
	unsigned char *p = warm();
	int granted = flashfork_on_demand(1) == 0;

	if (!granted) {
		CHECK(errno == ENOSYS || errno == EPERM);
		CHECK(strstr(flashfork_last_error(), errno == EPERM ? "vm.on_demand_fork=1" : "kernel/README.md"));
	}
	for (int i = 0; i < 3; i++) {
		int status;
		pid_t pid = flashfork_fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			p[1 << 20] = 9;
			_exit(p[1 << 21] == 7 ? 0 : 1);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		CHECK(p[1 << 20] == 7);
	}
	CHECK(flashfork_stats(&stats) == 0);
	CHECK(stats.on_demand_forks == (granted ? 3 : 0) && stats.plain_forks == (granted ? 0 : 3));
	/* A kernel without it has nothing to switch off either. */
	CHECK(flashfork_on_demand(0) == 0 || errno == ENOSYS);
	CHECK(!granted || flashfork_on_demand(0) == 0);
}
