/* What lies where a library's sealed data was, once that has been unloaded, is memory like any other, with /proc and
   without: what is discarded there is zero.
   cflags: -ldl */
#include "../libraries.h"

static void use(char *p)
{
	CHECK(mmap(p, DATA_LEN, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p);
	fill(p, DATA_LEN, 1);
	CHECK(discard_zeros(p, DATA_LEN));
}

int main(void)
{
	struct library *all = load_libraries();
	seal();
	CHECK(is_sealed(&all[1]) && is_sealed(&all[2]) && is_sealed(&all[3]));
	CHECK(dlclose(all[1].handle) == 0);
	use(data(&all[1]));
	IN_CLONE {
		CHECK(dlclose(all[2].handle) == 0);
		if (leave_proc())
			use(data(&all[2]));
	}
	CHECK(as_written(&all[2], 2) && dlclose(all[3].handle) == 0);
	seal();
	use(data(&all[3]));
	CHECK(is_sealed(&all[2]) && as_written(&all[2], 2));
}
