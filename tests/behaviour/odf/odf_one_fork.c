/* One fork may be on demand by itself: clone3(2) with CLONE_ODF, which goes with no CLONE_VM.
   env: FLASHFORK_ENGINE=fork */
#include "odf.h"
#include <linux/sched.h>

static long clone3(uint64_t flags)
{
	struct clone_args args = {.flags = flags, .exit_signal = SIGCHLD};
	return syscall(SYS_clone3, &args, sizeof args);
}

int main(void)
{
	if (is_on_demand() == -1)
		SKIP("this kernel has no on-demand fork");
	char *p = tables(8 * MB, 1);
	long before = counter("odf_share");
	CHECK(clone3(CLONE_ODF | CLONE_VM) == -1 && errno == EINVAL);
	long pid = clone3(CLONE_ODF);
	if (pid == -1 && errno == EPERM)
		SKIP("on-demand fork is switched off (vm.on_demand_fork)");
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(intact(p, 8 * MB, 1) && is_on_demand() == 0);
		fill(p, 8 * MB, 2);
		_exit(0);
	}
	CHECK(wait_for((pid_t)pid) == 0);
	CHECK(intact(p, 8 * MB, 1) && counter("odf_share") - before >= 4);
}
