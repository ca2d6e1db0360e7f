/* Nothing of the engine's keeps memory from growing where it is: the stack on which it answers the call lay in the very gap, and the
   pages to which a C library's calls are led were left behind in the middle of one. A few pages straight below the next mapping may be
   taken. mremap(2). */

int main(void)
{
	enum { SIZES = 64 };
	static char *p[SIZES], *behind[SIZES];
	static size_t room[SIZES];
	/* Behind each piece of memory a gap, each larger than the one before: nothing of the program's fits into an earlier one. */
	for (size_t i = 0; i < SIZES; i++) {
		size_t gap = (i + 2) * 16 * PAGE;
		char *at = mmap(NULL, 2 * MB + gap + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		CHECK(at != MAP_FAILED);
		CHECK(munmap(at + 2 * MB, gap) == 0 && mprotect(at, 2 * MB, RW) == 0);
		fill(at, 2 * MB, i);
		p[i] = at;
		behind[i] = at + 2 * MB;
		room[i] = gap;
	}
	CHECK(call_seal() == 0);
	for (size_t i = 0; i < SIZES; i++)
		CHECK(mremap(p[i], 2 * MB, 2 * MB + room[i] - 8 * PAGE, 0) == p[i]);
	for (size_t i = 0; i < SIZES; i++)
		CHECK(intact(p[i], 2 * MB, i) && zeros(behind[i], room[i] - 8 * PAGE));
}
