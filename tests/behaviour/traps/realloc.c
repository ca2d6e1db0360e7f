/* realloc of a large block after a seal: glibc calls its own mremap. The bytes stay, the new part can be written, and other sealed
   blocks are not touched. malloc.c, mremap_chunk. */

int main(void)
{
#ifdef M_MMAP_THRESHOLD
	mallopt(M_MMAP_THRESHOLD, MB); /* or it would rise with what is freed */
#endif
	char *block = malloc(8 * MB), *other = malloc(8 * MB);
	fill(block, 8 * MB, 1);
	fill(other, 8 * MB, 2);
	seal();
	CHECK(sealed_bytes(block, 8 * MB) >= 7 * MB);
	for (size_t len = 8 * MB; len < 32 * MB; len += 4 * MB) {
		block = realloc(block, len + 4 * MB);
		CHECK(block != NULL && intact(block, len, 1));
		fill(block, len + 4 * MB, 1);
		IN_CLONE {
			CHECK(intact(block, len + 4 * MB, 1) && intact(other, 8 * MB, 2));
			fill(block, len + 4 * MB, 3);
		}
		CHECK(intact(block, len + 4 * MB, 1));
	}
	block = realloc(block, 2 * MB);
	CHECK(intact(block, 2 * MB, 1) && intact(other, 8 * MB, 2));
	free(block);
	block = calloc(1, 16 * MB);
	CHECK(zeros(block, 16 * MB));
	free(block);
	/* Half of it was never touched and stays anonymous: one block in two mappings. */
	block = malloc(16 * MB);
	fill(block, 8 * MB, 4);
	CHECK(call_seal() == 0 && sealed_bytes(block, 16 * MB) < 9 * MB && sealed_bytes(block, 8 * MB) > 5 * MB);
	block = realloc(block, 24 * MB);
	CHECK(block != NULL && intact(block, 8 * MB, 4) && zeros(block + 8 * MB, 7 * MB));
}
