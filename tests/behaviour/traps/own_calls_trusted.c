/* Code with system calls of its own in a file that somebody answers for: the process is sealed.
   env: FLASHFORK_TRUST=/proc/self/exe */
#include "../own_calls.h"

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(all_sealed(p, 4 * MB) && intact(p, 4 * MB, 1));
	/* What it was trusted not to do. */
	CHECK(own_madvise(NULL, 0, MADV_NORMAL) == 0);
}
