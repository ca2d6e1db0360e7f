/* MADV_DONTNEED on a part, not aligned to 2 MB, of a sealed range: what lies beside it stays, written or not. madvise(2). */

int main(void)
{
	char *p = memory(8 * MB, 1), *from = p + 3 * MB, *to = p + 5 * MB + PAGE;
	seal();
	from[-1] ^= 1; /* a page written since the seal */
	CHECK(madvise(from, to - from, MADV_DONTNEED) == 0);
	from[-1] ^= 1;
	for (int clone = in_clone();; clone = 0) {
		CHECK(zeros(from, to - from));
		for (char *at = p; at < p + 8 * MB; at += 8)
			CHECK((at >= from && at < to) || *(uint64_t *)at == pattern((at - p) / 8, 1));
		if (!clone)
			return 0;
		_exit(0);
	}
}
