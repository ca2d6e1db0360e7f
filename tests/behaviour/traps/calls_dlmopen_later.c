/* A second libc, in a namespace of its own, that is loaded after a seal: what it discards, before the next seal, is zero. dlmopen(3).
   cflags: -ldl */

int main(void)
{
	char *p = memory(4 * MB, 1), *grown = memory(4 * MB, 2);
	seal();
	void *second = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
	if (second == NULL)
		SKIP("no second libc: %s", dlerror());
	int (*discard)(void *, size_t, int) = dlsym(second, "madvise");
	void *(*grow)(void *, size_t, size_t, int, ...) = dlsym(second, "mremap");
	CHECK(discard && grow && (void *)discard != (void *)madvise);
	CHECK(discard(p + MB, MB, MADV_DONTNEED) == 0 && zeros(p + MB, MB));
	CHECK(discard(p + MB, PAGE, MADV_DONTNEED) == 0 && zeros(p + MB, MB) && intact(p, MB, 1));
	IN_CLONE
		CHECK(discard(p + 2 * MB, 2 * MB, MADV_DONTNEED) == 0 && zeros(p + MB, 3 * MB));
	grown = grow(grown, 4 * MB, 6 * MB, MREMAP_MAYMOVE);
	CHECK(grown != MAP_FAILED && intact(grown, 4 * MB, 2) && zeros(grown + 4 * MB, 2 * MB));
	/* From the next seal on it is followed. */
	CHECK(call_seal() == 0 && all_sealed(grown, 4 * MB));
	CHECK(discard(grown, 4 * MB, MADV_DONTNEED) == 0 && zeros(grown, 4 * MB));
}
