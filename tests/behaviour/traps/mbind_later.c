/* A memory policy that is set after the seal outlasts a discard. mbind(2), get_mempolicy(2). */
#include "../policy.h"

int main(void)
{
	unsigned long node = 1;
	int mode;
	char *p = memory(4 * MB, 1);
	seal();
	if (syscall(SYS_get_mempolicy, &mode, NULL, 0, p, MPOL_F_ADDR) != 0)
		SKIP("this kernel has no memory policies");
	CHECK(syscall(SYS_mbind, p, 2 * MB, MPOL_BIND, &node, 64, 0) == 0);
	CHECK(policy_of(p) == MPOL_BIND && policy_of(p + 2 * MB) == MPOL_DEFAULT);
	CHECK(discard_zeros(p, 2 * MB));
	CHECK(policy_of(p) == MPOL_BIND);
	CHECK(madvise(p + MB, PAGE, MADV_DONTNEED) == 0 && policy_of(p + MB) == MPOL_BIND);
	for (size_t i = 2 * MB / 8; i < 4 * MB / 8; i++)
		CHECK(((uint64_t *)p)[i] == pattern(i, 1));
}
