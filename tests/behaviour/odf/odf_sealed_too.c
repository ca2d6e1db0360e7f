/* A process that forks on demand may seal as well: sealed memory and memory written since are right in every clone.
   env: FLASHFORK_ENGINE=odf */
#include "odf.h"

int main(void)
{
	must_be_on_demand();
	char *p = tables(16 * MB, 1);
	seal();
	CHECK(sealed_bytes(p, 16 * MB) > 0);
	fill(p + 4 * MB, 2 * MB, 2);
	char *later = tables(8 * MB, 3);
	for (int turn = 0; turn < 3; turn++) {
		IN_CLONE {
			CHECK(intact(p, 4 * MB, 1) && intact(p + 4 * MB, 2 * MB, 2) && part_intact(p, 6 * MB, 10 * MB, 1));
			CHECK(intact(later, 8 * MB, 3));
			fill(p, 16 * MB, 4);
			fill(later, 8 * MB, 4);
		}
	}
	unseal();
	CHECK(intact(p, 4 * MB, 1) && intact(p + 4 * MB, 2 * MB, 2) && intact(later, 8 * MB, 3));
}
