/* Parent-death signal: PR_SET_PDEATHSIG is cleared; a clone lives on when its template ends, with its sealed memory. PR_SET_PDEATHSIG(2const).
   clone: missing
   do: set it in the clone, if it should end with its template */

int main(void)
{
	int signal = -1, told[2];
	char verdict;
	char *p = memory(4 * MB, 1);
	CHECK(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && pipe(told) == 0);
	IN_CLONE {
		CHECK(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
		seal();
		pid_t me = getpid(), clone = fork();
		CHECK(clone >= 0);
		if (clone == 0) {
			CHECK(prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == 0);
			while (getppid() == me)
				usleep(1000);
			CHECK(intact(p, 4 * MB, 1));
			CHECK(write(told[1], "y", 1) == 1);
		}
	}
	close(told[1]);
	CHECK(read(told[0], &verdict, 1) == 1 && verdict == 'y');
}
