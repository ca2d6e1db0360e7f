/* Timers: alarm, setitimer and timer_create are not inherited; a timerfd is, and is shared. fork(2).
   clone: missing
   do: set the timer in the clone */

int main(void)
{
	struct itimerval hour = {.it_value = {3600, 0}}, found;
	struct itimerspec left;
	timer_t timer;
	CHECK(setitimer(ITIMER_REAL, &hour, NULL) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_NONE}, &timer) == 0);
	CHECK(timer_settime(timer, 0, &(struct itimerspec){.it_value = {3600, 0}}, NULL) == 0);
	seal();
	IN_CLONE {
		CHECK(getitimer(ITIMER_REAL, &found) == 0 && found.it_value.tv_sec == 0 && found.it_value.tv_usec == 0);
		CHECK(timer_gettime(timer, &left) == -1 && errno == EINVAL);
	}
	CHECK(getitimer(ITIMER_REAL, &found) == 0 && found.it_value.tv_sec > 0);
	CHECK(timer_gettime(timer, &left) == 0 && left.it_value.tv_sec > 0);
}
