/* Growing sealed memory that must move, by mremap and by its number; then shrinking it. mremap(2). */

static void check(char *p, size_t len)
{
	CHECK(intact(p, 4 * MB, 1) && zeros(p + 4 * MB, len - 4 * MB));
	CHECK(sealed_bytes(p + 4 * MB, len - 4 * MB) == 0);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1) && zeros(p + 4 * MB, len - 4 * MB));
}

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	for (int turn = 0; turn < 4; turn++) {
		size_t len = turn ? 8 * MB : 4 * MB, longer = turn ? 8 * MB + turn * MB : 8 * MB;
		char *to = map_alone(longer, PROT_NONE, MAP_PRIVATE);
		int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
		char *at = turn & 1 ? (char *)syscall(SYS_mremap, p, len, longer, flags, to) : mremap(p, len, longer, flags, to);
		CHECK(at == to);
		p = at;
		check(p, longer);
		CHECK(mremap(p, longer, 8 * MB, 0) == p);
	}
	CHECK(sealed_bytes(p, 8 * MB) == 4 * MB);
}
