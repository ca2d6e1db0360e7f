/* A program that runs before all others, and may do so for 50 ms without a sleep, lives through a seal of any length. sched(7),
   getrlimit(2), RLIMIT_RTTIME. */

int main(void)
{
	struct sched_param first = {.sched_priority = 1}, last = {.sched_priority = 0};
	struct rlimit limit = {50000, 50000}, none;
	char *p = memory(400 * MB, 1);
	CHECK(p != NULL && getrlimit(RLIMIT_RTTIME, &none) == 0);
	if (sched_setscheduler(0, SCHED_RR, &first) != 0)
		SKIP("no right to run before others: %s", strerror(errno));
	CHECK(setrlimit(RLIMIT_RTTIME, &limit) == 0);
	seal();
	CHECK(sched_getscheduler(0) == SCHED_RR && sched_setscheduler(0, SCHED_OTHER, &last) == 0);
	CHECK(all_sealed(p, 400 * MB));
	CHECK(intact(p, 400 * MB, 1));
}
