/* calloc after purges of sealed memory: an allocator that discards pages takes them for zeros afterwards. What it must not
   meet is the bytes from before the seal. Each program brings its allocator's way to purge (`purge`), or SKIPs.
   jemalloc src/extent.c; research found 98 % of such bytes wrong without the shim. */

static int purge(void); /* false: the allocator isn't there */

#define BLOCKS 96
static void *blocks[BLOCKS];

static size_t size_of_block(int i)
{
	return (i % 6 + 1) * 96 * 1024; /* from 96 KB to 576 KB */
}

static void allocate_and_fill(void)
{
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(size_of_block(i));
		memset(blocks[i], 0x5a, size_of_block(i));
	}
}

static void free_purge_calloc(void)
{
	for (int i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	CHECK(purge());
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = calloc(1, size_of_block(BLOCKS - i));
		CHECK(zeros(blocks[i], size_of_block(BLOCKS - i)));
		memset(blocks[i], 0x5b, size_of_block(BLOCKS - i));
	}
}

int main(void)
{
	size_t sealed = 0;
	allocate_and_fill();
	if (!purge())
		SKIP("the allocator is not loaded: see the first lines of this program");
	seal();
	for (int i = 0; i < BLOCKS; i++)
		sealed += sealed_bytes(blocks[i], size_of_block(i));
	CHECK(sealed > 16 * MB);
	IN_CLONE {
		for (int turn = 0; turn < 3; turn++)
			free_purge_calloc();
	}
	for (int turn = 0; turn < 3; turn++) {
		free_purge_calloc();
		CHECK(call_seal() == 0);
	}
}
