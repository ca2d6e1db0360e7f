/* Signals: handlers, mask and ignored signals are copied; pending signals stay with the template. signal(7).
   clone: own
   do: nothing */

int main(void)
{
	sigset_t set, pending, mask;
	CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR1) == 0 && sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	seal();
	CHECK(raise(SIGUSR1) == 0);
	IN_CLONE {
		CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR1));
		CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0 && sigismember(&mask, SIGUSR1));
	}
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
}
