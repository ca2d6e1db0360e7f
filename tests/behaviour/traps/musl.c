/* A program linked with musl: the shim, which is linked with glibc, is loaded and follows musl's calls, its realloc's own included. The
   loader of musl had refused to start the program. Other versions: scripts/other-libcs.
   compiler: musl-gcc */
#include "past.h"

int main(void)
{
	char *block = malloc(8 * MB), *other = malloc(8 * MB);
	fill(block, 8 * MB, 11);
	fill(other, 8 * MB, 12);
	past_the_symbols((struct calls){.madvise = madvise, .mremap = mremap, .mlock = mlock, .syscall = syscall});
	CHECK(sealed_bytes(block, 8 * MB) >= 7 * MB);
	block = realloc(block, 16 * MB);
	CHECK(block != NULL && intact(block, 8 * MB, 11));
	fill(block, 16 * MB, 13);
	free(other);
	other = calloc(1, 8 * MB);
	CHECK(other != NULL && zeros(other, 8 * MB));
	IN_CLONE
		CHECK(intact(block, 16 * MB, 13) && zeros(other, 8 * MB));
	unseal();
	CHECK(intact(block, 16 * MB, 13) && zeros(other, 8 * MB));
}
