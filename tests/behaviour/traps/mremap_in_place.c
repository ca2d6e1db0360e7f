/* Growing sealed memory where it is: without care the new part would lie behind the end of the file (SIGBUS), or show another
   range's bytes. Zeros, no memfd. mremap(2). */

int main(void)
{
	char *p = memory(4 * MB, 1), *other = memory(4 * MB, 2);
	seal();
	CHECK(mremap(p, 4 * MB, 5 * MB, 0) == p && mremap(other, 4 * MB, 5 * MB, 0) == other);
	CHECK(zeros(p + 4 * MB, MB) && zeros(other + 4 * MB, MB));
	CHECK(sealed_bytes(p + 4 * MB, MB) == 0 && sealed_bytes(other + 4 * MB, MB) == 0);
	IN_CLONE {
		CHECK(zeros(p + 4 * MB, MB));
		fill(p, 5 * MB, 3);
		CHECK(intact(other, 4 * MB, 2));
	}
	CHECK(intact(p, 4 * MB, 1) && zeros(p + 4 * MB, MB));
}
