/* A timer's handler that writes to the memory being sealed, every 100 microseconds: none of its writes is lost, because
   signals wait while a seal runs. sigprocmask(2). */

static volatile uint64_t *sealed_log, *outside;
static size_t places;

static void handler(int sig)
{
	(void)sig;
	sealed_log[*outside % places]++;
	*outside += 4099; /* another page each time */
}

int main(void)
{
	struct itimerval fast = {{0, 100}, {0, 100}}, off = {{0, 0}, {0, 0}};
	sigset_t before, after; /* of which the kernel has 8 bytes */
	places = 16 * MB / 8;
	sealed_log = (uint64_t *)memory(16 * MB, 1);
	memset((void *)sealed_log, 1, 16 * MB);
	outside = (uint64_t *)map_alone(PAGE, RW, MAP_SHARED);
	signal(SIGALRM, handler);
	CHECK(sigprocmask(SIG_SETMASK, NULL, &before) == 0);
	CHECK(setitimer(ITIMER_REAL, &fast, NULL) == 0);
	for (int turn = 0; turn < 10; turn++) {
		CHECK(call_seal() == 0 && flashfork_preload_unseal() == 0);
		CHECK(call_seal() == 0);
	}
	CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
	CHECK(sigprocmask(SIG_SETMASK, NULL, &after) == 0 && memcmp(&before, &after, 8) == 0);
	uint64_t sum = 0;
	for (size_t i = 0; i < places; i++)
		sum += sealed_log[i] - 0x0101010101010101u;
	CHECK(*outside / 4099 > 10 && sum == *outside / 4099);
}
