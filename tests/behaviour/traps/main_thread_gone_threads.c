/* The main thread has ended, two others go on, and threads may be stopped: memory is sealed and made anonymous again while the
   other one writes. pthread_exit(3).
   env: FLASHFORK_THREADS=stop */

#define LEN (8 * MB)
static char *p;
static uint64_t *counted;
static pthread_t main_thread;
static volatile int over;

static void *count(void *unused)
{
	for (uint64_t n = 1; !over; n++)
		for (size_t i = 0; i < LEN / 8; i += 512) {
			CHECK(counted[i] == (n == 1 ? pattern(i, 2) : n - 1));
			counted[i] = n;
		}
	return unused;
}

static void *rest_of_the_program(void *unused)
{
	pthread_t other;
	JOIN(main_thread);
	START(&other, count, NULL);
	int sealed = 0;
	for (int turn = 0; turn < 100 && sealed < 3; turn++) {
		/* Refused where the machine is too busy to stop threads in time. */
		if (call_seal() != 0)
			continue;
		CHECK(all_sealed(p, LEN) && intact(p, LEN, 1));
		sealed++;
		while (flashfork_preload_unseal() != 0)
			CHECK(turn++ < 100);
		CHECK(sealed_bytes(p, LEN) == 0 && intact(p, LEN, 1));
	}
	CHECK(sealed == 3);
	over = 1;
	JOIN(other);
	_exit(0);
	return unused;
}

int main(void)
{
	pthread_t other;
	p = memory(LEN, 1);
	counted = (uint64_t *)memory(LEN, 2);
	main_thread = pthread_self();
	START(&other, rest_of_the_program, NULL);
	pthread_exit(NULL);
}
