/* A harness by AFL++'s names: memory goes back, excluded memory doesn't, exit() restores. */
#include "check.h"
#include <flashfork_afl.h>
#include <sys/mman.h>

#define MAP(flags) mmap(NULL, 0x10000, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0)

static int data;

int main(void)
{
	int *shared = MAP(MAP_SHARED), *private = MAP(MAP_PRIVATE), *excluded = MAP(MAP_PRIVATE);
	int first, next = dup(1);

	close(next); /* the caller may have passed others on */
	CHECK(afl_snapshot_init() >= 0);
	CHECK(afl_snapshot_take(AFL_SNAPSHOT_MMAP) == -1 && errno == EINVAL);
	CHECK(afl_snapshot_take(AFL_SNAPSHOT_REGS | AFL_SNAPSHOT_BLOCK) == -1 && errno == EINVAL);
	afl_snapshot_exclude_vmrange(excluded, (char *)excluded + 0x10000);
	afl_snapshot_include_vmrange(private, (char *)private + 0x10000);
	first = afl_snapshot_do();
	CHECK(first == (*shared == 0));
	CHECK(afl_snapshot_take(AFL_SNAPSHOT_REGS) == 0); /* there is one */
	CHECK(*private == 0 && data == 0 && *excluded == *shared);
	*private = data = 7;
	++*excluded;
	++*shared;
	CHECK(dup(1) == next || *shared == 1); /* the number is free again */
	if (*shared < 300)
		exit(1);
	if (*shared < 600)
		afl_snapshot_restore();
	CHECK(*shared == 600 && *excluded == 600);
	afl_snapshot_clean();
	CHECK(flashfork_restore(1) == -1 && errno == ENOENT);
}
