/* NUMA policies of memory. mbind(2), get_mempolicy(2). */
#include <linux/mempolicy.h>

static inline int policy_of(void *p)
{
	int mode = -1;
	CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0, p, MPOL_F_ADDR) == 0);
	return mode;
}
