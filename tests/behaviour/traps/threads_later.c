/* Threads that start after the seal and write sealed memory while others fork and discard: every byte is the writer's.
   In a process with threads a range that can't be made anonymous first (MADV_WIPEONFORK) says EINVAL. pthreads(7). */

#define THREADS 4
static char *p[THREADS];

static void *work(void *arg)
{
	char *own = p[(size_t)arg];
	for (uint64_t turn = 2; turn < 2 + often(10); turn++) {
		fill(own, 2 * MB, turn);
		CHECK(discard_zeros(own + 2 * MB, 2 * MB));
		fill(own + 2 * MB, 2 * MB, turn);
		CHECK(intact(own, 2 * MB, turn) && intact(own + 2 * MB, 2 * MB, turn));
	}
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];
	char *quiet = memory(4 * MB, 9);
	for (size_t i = 0; i < THREADS; i++)
		p[i] = memory(4 * MB, 1);
	seal();
	for (size_t i = 0; i < THREADS; i++)
		START(&thread[i], work, (void *)i);
	for (size_t turn = 0; turn < often(20); turn++)
		IN_CLONE
			CHECK(intact(quiet, 4 * MB, 9));
	int wiped = madvise(quiet, PAGE, MADV_WIPEONFORK);
	CHECK(wiped == 0 || errno == EINVAL);
	for (size_t i = 0; i < THREADS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0 && intact(p[i], 2 * MB, 1 + often(10)));
	CHECK(intact(quiet, 4 * MB, 9));
}
