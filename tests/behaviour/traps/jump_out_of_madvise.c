/* Handlers that jump out of whatever a timer finds them in, madvise of sealed memory most of all: seals beside threads go on
   afterwards, and so do calls that need anonymous memory. sigsetjmp(3), setitimer(2).
   env: FLASHFORK_THREADS=stop */
#include <setjmp.h>

static sigjmp_buf back;
static volatile sig_atomic_t jumps;

static void jump(int signal)
{
	(void)signal;
	jumps++;
	siglongjmp(back, 1);
}

int main(void)
{
	int end[2];
	pthread_t other;
	char *p = memory(16 * MB, 1), *later = memory(4 * MB, 2);
	seal();
	/* The other thread must not jump to this one's stack. */
	sigset_t alarm;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	CHECK(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
	make_other(&other, end);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) == 0);
	struct itimerval often_enough = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
	signal(SIGALRM, jump);
	volatile int wanted = (int)often(300);
	sigsetjmp(back, 1);
	if (jumps < wanted) {
		CHECK(setitimer(ITIMER_REAL, &often_enough, NULL) == 0);
		for (size_t i = 0;; i++) {
			madvise(p + i % 3000 * PAGE, PAGE, MADV_DONTNEED);
			mlock(p + i % 3000 * PAGE, PAGE);
			munlock(p + i % 3000 * PAGE, PAGE);
		}
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	fill(p, 16 * MB, 3);
	fill(later, 4 * MB, 4);
	at_last(call_seal);
	CHECK(all_sealed(later, 4 * MB) && intact(p, 16 * MB, 3) && intact(later, 4 * MB, 4));
	CHECK(madvise(later, PAGE, MADV_WIPEONFORK) == 0);
	end_other(other, end);
}
