/* Engine auto takes forks on demand where the kernel grants them: nothing is sealed, however long forks take.
   env: FLASHFORK_ENGINE=auto */
#include "odf.h"

int main(void)
{
	must_be_on_demand();
	char *p = tables(64 * MB, 1);
	for (int turn = 0; turn < 40; turn++)
		IN_CLONE
			CHECK(intact(p, MB, 1));
	CHECK(sealed_bytes(ALL) == 0);
}
