/* Discards of memory that is known to be anonymous by earlier ones, when sealed memory has come there. madvise(2), mremap(2). */

static void discard(char *p)
{
	for (char *at = p; at < p + 4 * MB; at += 64 * PAGE)
		CHECK(discard_zeros(at, PAGE));
}

int main(void)
{
	char *p = memory(4 * MB, 1), *to = memory(4 * MB, 2);
	seal();
	CHECK(madvise(to, 4 * MB, MADV_DONTNEED) == 0);
	discard(to);
	CHECK(mremap(p, 4 * MB, 4 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(all_sealed(to, 4 * MB));
	discard(to);
	fill(to, 4 * MB, 3);
	seal();
	CHECK(all_sealed(to, 4 * MB));
	discard(to);
}
