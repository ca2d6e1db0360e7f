/* Clones that let a block grow, one after the other, in a memory cgroup of 300 MB, which has room for the process and one clone: what each
   has grown by is gone when it ends. Left in the parent's memfd, it had the process killed. cgroups(7). */
#include "../memory_group.h"

/* With malloc's header 64 MB. */
#define BLOCK (64 * MB - PAGE)
/* What each clone writes of what it grows by: each a part that no other writes. */
#define PART (80 * MB)
#define REQUESTS 6

static void serve(void)
{
#ifdef M_MMAP_THRESHOLD
	mallopt(M_MMAP_THRESHOLD, MB);
#endif
	char *block = malloc(BLOCK);
	fill(block, BLOCK, 1);
	CHECK(call_seal() == 0 && sealed_bytes(block, BLOCK) > BLOCK - 4 * MB);
	for (int request = 0; request < REQUESTS; request++)
		IN_CLONE {
			char *grown = realloc(block, BLOCK + (request + 1) * PART);
			CHECK(grown != NULL && intact(grown, MB, 1));
			fill(grown + BLOCK + request * PART, PART, 2);
		}
	CHECK(intact(block, BLOCK, 1));
}

int main(void)
{
	CHECK(in_group(300 * MB, serve) == 0);
}
