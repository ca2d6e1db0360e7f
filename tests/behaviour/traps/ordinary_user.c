/* An ordinary user can seal: nothing of it needs root. */
#include <grp.h>

int main(void)
{
	if (geteuid() == 0) {
		CHECK(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
		CHECK(prctl(PR_SET_DUMPABLE, 1) == 0); /* as after an exec */
	}
	char *p = memory(8 * MB, 1);
	seal();
	CHECK(all_sealed(p, 8 * MB));
	CHECK(discard_zeros(p, MB));
	unseal();
}
