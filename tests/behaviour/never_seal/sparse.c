/* Blocks less than three quarters populated: filling their holes would cost more than their page table, and clones that
   write the holes of a sealed block would leave pages in the memfd for good. */

int main(void)
{
	char *p = map_alone(8 * MB, RW, MAP_PRIVATE);
	CHECK(p != NULL && madvise(p, 8 * MB, MADV_NOHUGEPAGE) == 0);
	for (size_t at = 0; at < 8 * MB; at += 4 * PAGE)
		fill(p + at, PAGE, at + 1);
	seal();
	CHECK(sealed_bytes(p, 8 * MB) == 0);
	IN_CLONE {
		for (size_t at = 0; at < 8 * MB; at += 4 * PAGE)
			CHECK(intact(p + at, PAGE, at + 1) && zeros(p + at + PAGE, PAGE));
		memset(p, 1, 8 * MB);
	}
	CHECK(zeros(p + PAGE, PAGE));
}
