/* MREMAP_DONTUNMAP (Linux 5.7) leaves an empty mapping behind: zeros, where a sealed one would show the sealed bytes.
   mremap(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	/* Older C libraries pass on whatever stands in the place of a fifth argument, and kernels before 6.17 refuse most of it. */
	char *moved = mremap(p, 4 * MB, 4 * MB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(moved != MAP_FAILED && moved != p);
	CHECK(intact(moved, 4 * MB, 1) && zeros(p, 4 * MB));
	fill(p, 4 * MB, 2);
	IN_CLONE
		CHECK(intact(moved, 4 * MB, 1) && intact(p, 4 * MB, 2));
}
