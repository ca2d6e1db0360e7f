/* A memfd of the program's own that is called like the engine's: a discard of its private mapping gives the file's bytes, and nothing
   of it is sealed. memfd_create(2). */

int main(void)
{
	static const char *const names[] = {"flashfork:", "flashfork:1", "flashfork:00000000001", "flashfork:000000000x"};
	char *mine[4];
	for (int i = 0; i < 4; i++) {
		int fd = memfd_create(names[i], MFD_CLOEXEC);
		char *shared;
		CHECK(fd >= 0 && ftruncate(fd, 2 * MB) == 0);
		shared = mmap(NULL, 2 * MB, RW, MAP_SHARED, fd, 0);
		mine[i] = mmap(NULL, 2 * MB, RW, MAP_PRIVATE, fd, 0);
		CHECK(shared != MAP_FAILED && mine[i] != MAP_FAILED);
		fill(shared, 2 * MB, 7);
		fill(mine[i], MB, 8);
	}
	seal();
	for (int i = 0; i < 4; i++) {
		CHECK(intact(mine[i], MB, 8));
		CHECK(madvise(mine[i], 2 * MB, MADV_DONTNEED) == 0 && intact(mine[i], 2 * MB, 7));
	}
	CHECK(flashfork_preload_unseal() == 0);
	for (int i = 0; i < 4; i++)
		CHECK(intact(mine[i], 2 * MB, 7));
}
