/* Shrinking sealed memory and growing it again gives zeros, not the bytes that were cut off and are still in the memfd. mremap(2). */

int main(void)
{
	char *p = memory(8 * MB, 1);
	seal();
	CHECK(mremap(p, 8 * MB, 4 * MB, 0) == p);
	CHECK(mremap(p, 4 * MB, 8 * MB, 0) == p);
	CHECK(intact(p, 4 * MB, 1) && zeros(p + 4 * MB, 4 * MB));
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1) && zeros(p + 4 * MB, 4 * MB));
}
