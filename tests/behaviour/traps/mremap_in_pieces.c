/* A mapping that is one to the program and several after the seal, because a part of it stayed anonymous: it still grows, moves and
   shrinks as one, where the kernel's own mremap says EFAULT. mremap(2). */

#define HOLES (4 * MB) /* in the middle: not dense enough to be sealed */

static void check(const char *p, size_t len)
{
	CHECK(intact(p, 4 * MB, 1) && intact(p + 8 * MB, 4 * MB, 2));
	for (size_t at = 4 * MB; at < 8 * MB; at += 8 * PAGE)
		CHECK(p[at] == 7 && zeros(p + at + PAGE, PAGE));
	CHECK(zeros(p + 12 * MB, len - 12 * MB));
}

int main(void)
{
	char *p = map_alone(12 * MB, RW, MAP_PRIVATE);
	CHECK(p != NULL && madvise(p, 12 * MB, MADV_NOHUGEPAGE) == 0);
	fill(p, 4 * MB, 1);
	fill(p + 8 * MB, 4 * MB, 2);
	for (size_t at = 4 * MB; at < 8 * MB; at += 8 * PAGE)
		p[at] = 7;
	seal();
	CHECK(sealed_bytes(p, 12 * MB) == 8 * MB);
	CHECK(mremap(p, 12 * MB, 13 * MB, 0) == p);
	check(p, 13 * MB);
	char *blocker = mmap(p + 13 * MB, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(blocker == p + 13 * MB);
	CHECK(mremap(p, 13 * MB, 16 * MB, 0) == MAP_FAILED && errno == ENOMEM);
	check(p, 13 * MB);
	char *moved = mremap(p, 13 * MB, 16 * MB, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && moved != p);
	check(moved, 16 * MB);
	CHECK(mremap(moved, 16 * MB, 12 * MB, MREMAP_MAYMOVE) == moved);
	check(moved, 12 * MB);
	CHECK(mremap(moved, 12 * MB, 12 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
	check(p, 12 * MB);
	CHECK(sealed_bytes(p, 12 * MB) == 8 * MB && sealed_bytes(moved, 12 * MB) == 0);
	CHECK(mremap(p, 12 * MB, 9 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved); /* moves and shrinks */
	CHECK(intact(moved, 4 * MB, 1) && *(uint64_t *)(moved + 9 * MB - 8) == pattern(MB / 8 - 1, 2));
	CHECK(mremap(moved, 9 * MB, 12 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p && zeros(p + 9 * MB, 3 * MB));
	fill(p + 8 * MB, 4 * MB, 2);
	IN_CLONE
		check(p, 12 * MB);
	unseal();
	CHECK(mremap(p, 12 * MB, 16 * MB, MREMAP_MAYMOVE) != MAP_FAILED);
}
