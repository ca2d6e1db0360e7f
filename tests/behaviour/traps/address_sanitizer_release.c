/* AddressSanitizer's allocator gives freed memory back to the kernel by system calls of its own: what it gave back reads zeros, as it
   does without the shim, and the process is sealed all the same.
   cflags: -fsanitize=address
   env: ASAN_OPTIONS=verify_asan_link_order=0:quarantine_size_mb=0:thread_local_quarantine_size_kb=0:max_free_fill_size=0 */

void __sanitizer_purge_allocator(void);

#define BLOCKS 512
#define LEN (64 * 1024ul)

/* The bytes of a freed block, which is what ASan would forbid. */
__attribute__((no_sanitize_address, noinline)) static size_t nonzero(const volatile char *p, size_t len)
{
	size_t n = 0;
	for (size_t i = 0; i < len; i++)
		n += p[i] != 0;
	return n;
}

int main(void)
{
	static char *blocks[BLOCKS];
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(LEN);
		memset(blocks[i], 1 + i % 100, LEN);
	}
	if (!getenv("PLAIN"))
		seal();
	CHECK(getenv("PLAIN") || sealed_bytes(blocks[0], LEN) > 0);
	for (int i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	__sanitizer_purge_allocator();
	size_t left = 0;
	for (int i = 8; i < BLOCKS - 8; i++)
		left += nonzero(blocks[i] + PAGE, LEN - 2 * PAGE) > 0;
	fprintf(stderr, "%zu of %d blocks still hold something\n", left, BLOCKS - 16);
	CHECK(left == 0);
}
