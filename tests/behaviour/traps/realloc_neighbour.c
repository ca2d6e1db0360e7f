/* A block that grows into the place of a neighbour which was wiped and freed: the new part must not show the neighbour's bytes, which
   the memfd still holds behind it. glibc's realloc makes its own mremap; malloc.c, mremap_chunk. */

#define BLOCK (16 * MB)

/* Two blocks, one right behind the other: `*low` and `*high`. */
static int neighbours(char **low, char **high)
{
	for (int attempt = 0; attempt < 16; attempt++) {
		char *a = malloc(BLOCK), *b = malloc(BLOCK);
		CHECK(a != NULL && b != NULL);
		*low = a < b ? a : b;
		*high = a < b ? b : a;
		size_t between = (size_t)(*high - *low);
		if (between >= BLOCK && between <= BLOCK + 2 * PAGE)
			return 1;
	}
	return 0;
}

int main(void)
{
#ifdef M_MMAP_THRESHOLD
	mallopt(M_MMAP_THRESHOLD, MB);
#endif
	char *low, *high;
	if (!neighbours(&low, &high))
		SKIP("the kernel places no two mappings side by side");
	fill(low, BLOCK, 1);
	memset(high, 0x5e, BLOCK); /* the secret */
	seal();
	CHECK(sealed_bytes(low, BLOCK) > BLOCK - 4 * MB && sealed_bytes(high, BLOCK) > BLOCK - 4 * MB);
	memset(high, 0, BLOCK);
	free(high);
	char *grown = realloc(low, 2 * BLOCK);
	CHECK(grown != NULL && intact(grown, BLOCK, 1));
	for (size_t i = BLOCK; i < 2 * BLOCK; i++)
		CHECK(grown[i] == 0);
	IN_CLONE {
		for (size_t i = BLOCK; i < 2 * BLOCK; i++)
			CHECK(grown[i] == 0);
	}
}
