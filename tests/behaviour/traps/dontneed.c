/* MADV_DONTNEED on sealed memory would give the sealed bytes back; programs count on zeros, jemalloc's calloc among them.
   madvise(2); in the process itself and in a clone. */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	IN_CLONE {
		CHECK(discard_zeros(p, 4 * MB));
		fill(p, 4 * MB, 2);
		CHECK(intact(p, 4 * MB, 2));
	}
	CHECK(intact(p, 4 * MB, 1));
	CHECK(discard_zeros(p, 4 * MB));
	IN_CLONE
		CHECK(zeros(p, 4 * MB));
}
