/* One MADV_DONTNEED over sealed memory, ordinary memory, a hole and a file: each part gets what it would have had,
   and the answer is ENOMEM because of the hole. madvise(2). */

int main(void)
{
	char *p = memory(12 * MB, 1);
	int fd = memfd_create("another", MFD_CLOEXEC);
	CHECK(munmap(p + 10 * MB, MB) == 0); /* a hole */
	CHECK(ftruncate(fd, MB) == 0 && pwrite(fd, "file", 4, 0) == 4);
	CHECK(mmap(p + 11 * MB, MB, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == p + 11 * MB);
	memcpy(p + 11 * MB, "mine", 4);
	CHECK(madvise(p + 4 * MB, 2 * MB, MADV_DONTFORK) == 0); /* stays anonymous */
	seal();
	CHECK(all_sealed(p, 4 * MB) && sealed_bytes(p + 4 * MB, 2 * MB) == 0);
	CHECK(madvise(p + 2 * MB, 10 * MB, MADV_DONTNEED) == -1 && errno == ENOMEM);
	CHECK(intact(p, 2 * MB, 1) && zeros(p + 2 * MB, 8 * MB));
	CHECK(memcmp(p + 11 * MB, "file", 4) == 0);
}
