/* Excluded memory stays out; the 65th range is refused. */
#include "check.h"

int main(void)
{
	struct flashfork_seal_report with, without;
	unsigned char *p = warm();
	int n;

	CHECK(flashfork_exclude(p + (4 << 20), 8 << 20) == 0);
	CHECK(flashfork_seal(NULL, &with) == 0);
	CHECK(with.sealed_bytes <= 8 << 20);
	for (n = 1; n < 64; n++)
		CHECK(flashfork_exclude(p, 1) == 0);
	CHECK(flashfork_exclude(p, 1) == -1 && errno == ENOSPC);
	CHECK(strstr(flashfork_last_error(), "64 ranges"));
	CHECK(flashfork_seal(NULL, &without) == 0);
	CHECK(p[5 << 20] == 7);
}
