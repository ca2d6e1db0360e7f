/* A memory cgroup kills the process that goes over its limit instead of failing its copy, so a seal stops in time.
   Documentation/admin-guide/cgroup-v2.rst; research on Linux 6.1: a 200 MB process in a 230 MB cgroup was killed. */
#include "../memory_group.h"

static void seal_most(void)
{
	char *p = memory(90 * MB, 1);
	CHECK(call_seal() == 0);
	CHECK(intact(p, 90 * MB, 1));
	CHECK(sealed_bytes(p, 90 * MB) < 90 * MB);
	IN_CLONE
		CHECK(intact(p, 90 * MB, 1));
}

int main(void)
{
	CHECK(in_group(96 * MB, seal_most) == 0);
}
