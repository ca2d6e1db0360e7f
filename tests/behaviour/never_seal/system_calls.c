/* Code that discards memory by a system call instruction of its own, as Go, wasmtime and users of rustix do: the engine would not see
   it, and old bytes would come back. */
#include "../own_calls.h"

int main(void)
{
	char *p = memory(4 * MB, 1);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
	CHECK(own_madvise(p, 2 * MB, MADV_DONTNEED) == 0);
	CHECK(zeros(p, 2 * MB));
}
