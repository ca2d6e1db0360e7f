/* Switched off in the middle (it changes the machine, thus in the lab only): forks of a process that was granted them go on,
   plain and right, and the kernel counts them. vm.on_demand_fork.
   env: FLASHFORK_ENGINE=odf */
#include "odf.h"

static void set(const char *value)
{
	int fd = open("/proc/sys/vm/on_demand_fork", O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0 && write(fd, value, 1) == 1 && close(fd) == 0);
}

int main(void)
{
	must_be_on_demand();
	if (!getenv("FLASHFORK_LAB"))
		SKIP("it changes a setting of the machine");
	char *p = tables(8 * MB, 1);
	set("0");
	long shared = counter("odf_share"), refused = counter("odf_refuse_off");
	IN_CLONE {
		CHECK(intact(p, 8 * MB, 1));
		fill(p, 8 * MB, 2);
	}
	CHECK(intact(p, 8 * MB, 1));
	CHECK(counter("odf_share") == shared && counter("odf_refuse_off") == refused + 1);
	CHECK(prctl(PR_SET_ODF, 1, 0, 0, 0) == -1 && errno == EPERM);
	set("1");
}
