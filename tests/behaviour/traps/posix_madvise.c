/* POSIX_MADV_DONTNEED discards nothing in glibc and musl: the bytes stay, sealed or not. posix_madvise(3). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(posix_madvise(p, 4 * MB, POSIX_MADV_DONTNEED) == 0);
	CHECK(intact(p, 4 * MB, 1));
}
