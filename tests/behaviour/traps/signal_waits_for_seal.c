/* A signal that comes during a seal is handled when the seal is over, the engine given back: the handler's own calls that need it
   work, and so do later ones when it jumps away. signal(7). */
#include <setjmp.h>

static char *p;
static sigjmp_buf back;
static volatile int jumps, handled, wiped, turn;
static volatile pid_t parent, other;

static void handle(int signal)
{
	(void)signal;
	handled = 1;
	wiped = madvise(p, PAGE, MADV_WIPEONFORK) == 0;
	if (jumps)
		siglongjmp(back, 1);
}

int main(void)
{
	signal(SIGUSR1, handle);
	for (jumps = 0; jumps < 2; jumps++) {
		p = memory(32 * MB, 1);
		for (turn = 0; turn < 20; turn++) {
			handled = 0;
			parent = getpid();
			other = fork();
			CHECK(other >= 0);
			if (other == 0) {
				kill(parent, SIGUSR1);
				_exit(0);
			}
			if (sigsetjmp(back, 1) == 0)
				call_seal();
			while (!handled)
				if (sigsetjmp(back, 1) == 0)
					usleep(100);
			CHECK(wiped);
			while (waitpid(-1, NULL, 0) < 0)
				CHECK(errno == EINTR);
			CHECK(madvise(p, PAGE, MADV_KEEPONFORK) == 0);
		}
		CHECK(madvise(p, 4 * MB, MADV_WIPEONFORK) == 0);
		CHECK(call_seal() == 0 && intact(p, 32 * MB, 1));
	}
}
