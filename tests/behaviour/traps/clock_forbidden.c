/* A program that forbids itself to read the processor's clock (PR_SET_TSC): its forks are forks, and are not timed. prctl(2).
   env: FLASHFORK_ENGINE=seal */

int main(void)
{
	char *p = memory(8 * MB, 1);
	for (int allowed = 1; allowed >= 0; allowed--) {
		if (!allowed && prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0)
			SKIP("this processor's clock can't be forbidden");
		for (int turn = 0; turn < 3; turn++) {
			pid_t pid = forked();
			if (pid == 0)
				_exit(!intact(p, 8 * MB, 1));
			CHECK(wait_for(pid) == 0);
		}
		CHECK(all_sealed(p, 8 * MB));
	}
}
