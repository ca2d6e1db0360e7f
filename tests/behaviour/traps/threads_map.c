/* Threads that map and unmap memory while others seal and unseal: what the engine maps for itself never takes the place of what a
   thread has just mapped, nor does what a thread maps take the engine's.
   env: FLASHFORK_THREADS=stop */

#define THREADS 4
static volatile int over;

static void *map(void *arg)
{
	uint64_t seed = (size_t)arg + 1;
	for (uint64_t turn = seed; !over; turn += THREADS) {
		size_t len = (1 + turn * 7919 % 64) * 128 * 1024;
		uint64_t *at = mmap(NULL, len, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(at != MAP_FAILED);
		for (size_t i = 0; i < len / 8; i += 512)
			at[i] = pattern(i, turn);
		char *alone = turn % 4 ? NULL : map_alone(2 * MB, RW, MAP_PRIVATE);
		if (alone)
			memset(alone, (int)seed, 2 * MB);
		for (size_t i = 0; i < len / 8; i += 512)
			CHECK(at[i] == pattern(i, turn));
		if (alone)
			CHECK(alone[0] == (char)seed && memcmp(alone, alone + 1, 2 * MB - 1) == 0 && munmap(alone, 2 * MB) == 0);
		CHECK(munmap(at, len) == 0);
		if (turn % 16 == 0)
			usleep(500);
	}
	return arg;
}

int main(void)
{
	pthread_t thread[THREADS];
	char *quiet = memory(8 * MB, 5);
	for (size_t i = 0; i < THREADS; i++)
		START(&thread[i], map, (void *)i);
	for (int turn = 0; turn < 12; turn++) {
		call_seal(); /* refused where the machine is too busy to stop threads in time */
		CHECK(intact(quiet, 8 * MB, 5));
		flashfork_preload_unseal();
	}
	over = 1;
	for (int i = 0; i < THREADS; i++)
		JOIN(thread[i]);
	CHECK(intact(quiet, 8 * MB, 5));
}
