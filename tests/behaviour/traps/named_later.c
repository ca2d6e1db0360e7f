/* A name that a program gives its memory after a seal (PR_SET_VMA_ANON_NAME) takes the place of the sealed file's in maps: what is
   discarded reads zeros all the same, and what grows too. prctl(2), kernels with CONFIG_ANON_VMA_NAME. */

#define NAME(p, len) prctl(0x53564d41 /* PR_SET_VMA */, 0 /* PR_SET_VMA_ANON_NAME */, p, len, "heap")

int main(void)
{
	char *plain = map_alone(PAGE, RW, MAP_PRIVATE), *p = memory(8 * MB, 1);
	int named = NAME(plain, PAGE), error = errno;
	seal();
	errno = 0;
	CHECK(NAME(p, 4 * MB) == named && (named == 0 || errno == error));
	CHECK(intact(p, 8 * MB, 1));
	CHECK(discard_zeros(p, MB));
	CHECK(discard_zeros(p + 4 * MB, MB));
	char *grown = mremap(p, 4 * MB, 8 * MB, 0);
	CHECK(grown == MAP_FAILED);
	grown = mremap(p + 6 * MB, 2 * MB, 4 * MB, MREMAP_MAYMOVE);
	CHECK(grown != MAP_FAILED && zeros(grown + 2 * MB, 2 * MB));
	if (named != 0)
		SKIP("this kernel has no names for memory (CONFIG_ANON_VMA_NAME)");
}
