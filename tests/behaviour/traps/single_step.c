/* A program that has the processor trap after each of its instructions (the flag TF), and handles SIGTRAP, lives through forks, seals and
   calls on sealed memory, in which signals are blocked: a trap would end it there. It goes on stepping afterwards.
   env: FLASHFORK_ENGINE=seal */

static volatile sig_atomic_t steps;

static void trap(int signal)
{
	(void)signal;
	steps++;
}

static inline void step(void)
{
	__asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
}

static inline void no_more_steps(void)
{
	__asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

/* Whether it still steps; ends that. */
static int stepped(void)
{
	int before = steps;
	__asm__ volatile("nop; nop; nop");
	no_more_steps();
	return steps > before;
}

int main(void)
{
	char *p = memory(8 * MB, 1);
	struct sigaction action = {.sa_handler = trap};
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	for (int turn = 0; turn < 2; turn++) {
		step();
		pid_t pid = fork();
		int goes_on = stepped();
		CHECK(pid >= 0 && goes_on);
		if (pid == 0)
			_exit(!intact(p, 8 * MB, 1));
		CHECK(wait_for(pid) == 0);
		CHECK(all_sealed(p, 8 * MB));
	}
	step();
	int discarded = madvise(p, MB, MADV_DONTNEED);
	int goes_on = stepped();
	CHECK(discarded == 0 && goes_on);
	CHECK(zeros(p, MB));

	step();
	char *grown = mremap(p, 8 * MB, 16 * MB, MREMAP_MAYMOVE);
	goes_on = stepped();
	CHECK(grown != MAP_FAILED && goes_on);
	CHECK(zeros(grown, MB) && zeros(grown + 8 * MB, 8 * MB));

	step();
	int unsealed = flashfork_preload_unseal();
	goes_on = stepped();
	CHECK(unsealed == 0 && goes_on);
	CHECK(sealed_bytes(ALL) == 0 && zeros(grown, MB));
}
