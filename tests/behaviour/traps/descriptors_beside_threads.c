/* Calls on sealed memory ask the kernel what is mapped. No descriptor that this takes is inherited by what another thread forks, nor
   has it a number that another thread is about to get. open(2), fork(2). */

#define LEN (64 * MB)
static volatile int over;
static char *p;

static void *discard(void *unused)
{
	for (size_t at = 0; !over; at = (at + 2 * PAGE) % LEN) {
		CHECK(madvise(p + at, PAGE, MADV_DONTNEED) == 0);
		CHECK(mremap(p + at, PAGE, 2 * PAGE, 0) == MAP_FAILED);
	}
	return unused;
}

int main(void)
{
	pthread_t other;
	p = memory(LEN, 1);
	int before = descriptors();
	seal();
	START(&other, discard, NULL);
	for (size_t turn = 0; turn < often(300); turn++) {
		IN_CLONE
			CHECK(descriptors() == before);
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0 && close(fd) == 0);
		CHECK(open("/dev/null", O_RDONLY | O_CLOEXEC) == fd && close(fd) == 0);
	}
	over = 1;
	JOIN(other);
}
