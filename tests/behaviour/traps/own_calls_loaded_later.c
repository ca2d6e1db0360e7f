/* The same object loaded after the seal: before its constructor runs all memory is anonymous again, so that what it discards reads
   zeros, in a clone too; and there is no seal afterwards. */
#include "../own_calls.h"

int main(void)
{
	write_object("./calls.so");
	char *p = memory_at_place();
	seal();
	CHECK(all_sealed(p, PLACE_LEN) && intact(p, PLACE_LEN, 7));
	IN_CLONE
		CHECK(dlopen("./calls.so", RTLD_NOW) && zeros(p, PLACE_LEN) && sealed_bytes(ALL) == 0);
	CHECK(all_sealed(p, PLACE_LEN));
	void *object = dlopen("./calls.so", RTLD_NOW);
	CHECK(object && zeros(p, PLACE_LEN) && sealed_bytes(ALL) == 0);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
	CHECK(dlclose(object) == 0);
	fill(p, PLACE_LEN, 8);
	seal();
	CHECK(all_sealed(p, PLACE_LEN));
}
