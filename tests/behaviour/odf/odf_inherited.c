/* Clones inherit forks on demand, and share page tables with their own clones.
   env: FLASHFORK_ENGINE=odf */
#include "odf.h"

int main(void)
{
	must_be_on_demand();
	char *p = tables(8 * MB, 1);
	IN_CLONE {
		CHECK(is_on_demand() == 1);
		fill(p, 2 * MB, 2);
		long before = counter("odf_share");
		IN_CLONE {
			CHECK(counter("odf_share") - before >= 4);
			CHECK(intact(p, 2 * MB, 2) && part_intact(p, 2 * MB, 6 * MB, 1));
			fill(p, 8 * MB, 3);
		}
		CHECK(intact(p, 2 * MB, 2) && part_intact(p, 2 * MB, 6 * MB, 1));
	}
	CHECK(intact(p, 8 * MB, 1));
}
