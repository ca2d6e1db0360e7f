/* Restartable sequences whose area lies in a program's own memory: the kernel writes there whenever it lets the thread run, in the
   middle of a seal too, and ends the program where nothing is mapped. rseq(2).
   env: GLIBC_TUNABLES=glibc.pthread.rseq=0 */

int main(void)
{
	char *p = memory(8 * MB, 1);
	seal();
	CHECK(all_sealed(p, 8 * MB));
	volatile struct {
		unsigned start, cpu;
		unsigned long rest[3];
	} *area = (void *)(p + 4 * MB);
	memset((void *)area, 0, 32);
	if (syscall(SYS_rseq, area, 32, 0, 0x53053053) != 0)
		SKIP("the C library has registered one, or the kernel knows of none");
	CHECK(sealed_bytes((char *)area, PAGE) == 0);
	fill(p + 6 * MB, MB, 2);
	/* Somebody who has the kernel move this thread again and again, in the middle of seals. */
	pid_t parent = getpid(), mover = fork();
	CHECK(mover >= 0);
	if (mover == 0)
		for (unsigned turn = 0; getppid() == parent; turn++) {
			cpu_set_t one;
			CPU_ZERO(&one);
			CPU_SET(turn % 2, &one);
			sched_setaffinity(parent, sizeof one, &one);
			usleep(200 + turn % 300);
		}
	for (size_t turn = 0; turn < often(40); turn++) {
		fill(p, MB, turn);
		seal();
		CHECK(intact(p, MB, turn) && sealed_bytes((char *)area, PAGE) == 0);
		unsigned before, after, cpu;
		do {
			CHECK(syscall(SYS_getcpu, &before, NULL, NULL) == 0);
			cpu = area->cpu;
			CHECK(syscall(SYS_getcpu, &after, NULL, NULL) == 0);
		} while (before != after);
		CHECK(cpu == before);
	}
	kill(mover, SIGKILL);
	CHECK(waitpid(mover, NULL, 0) == mover);
}
