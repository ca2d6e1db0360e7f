/* Memory with a NUMA policy: a new mapping doesn't have it. mbind(2). */
#include "../policy.h"

int main(void)
{
	unsigned long node0 = 1;
	char *p = memory(4 * MB, 1);
	if (syscall(SYS_mbind, p, 4 * MB, MPOL_BIND, &node0, 8, 0) != 0)
		SKIP("this kernel has no NUMA policies");
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0 && policy_of(p) == MPOL_BIND);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1) && policy_of(p) == MPOL_BIND);
}
