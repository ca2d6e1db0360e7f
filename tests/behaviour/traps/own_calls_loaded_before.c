/* A shared object with system calls of its own, loaded before the seal: the process is refused, forks are plain, and what the object
   discards reads zeros. dlopen(3). */
#include "../own_calls.h"

int main(void)
{
	write_object("./calls.so");
	char *p = memory_at_place();
	CHECK(dlopen("./calls.so", RTLD_NOW) && zeros(p, PLACE_LEN));
	fill(p, PLACE_LEN, 8);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0 && intact(p, PLACE_LEN, 8));
	if (in_clone())
		_exit(!intact(p, PLACE_LEN, 8));
}
