/* Under engine odf a fork shares page tables, seals nothing, and parent and clone write apart. prctl PR_SET_ODF.
   env: FLASHFORK_ENGINE=odf */
#include "odf.h"

int main(void)
{
	must_be_on_demand();
	char *p = tables(16 * MB, 1);
	for (int turn = 0; turn < 3; turn++) {
		long before = counter("odf_share");
		IN_CLONE {
			CHECK(counter("odf_share") - before >= 8);
			CHECK(intact(p, 16 * MB, 1));
			fill(p, 4 * MB, 2);
			CHECK(intact(p, 4 * MB, 2) && part_intact(p, 4 * MB, 12 * MB, 1));
		}
		CHECK(intact(p, 16 * MB, 1) && sealed_bytes(ALL) == 0);
		/* As most parents do between two forks. */
		fill(p, 2 * MB, 1);
	}
}
