/* A range left out by address, here the alternate signal stack: the kernel writes there whenever a signal comes.
   The rest of the mapping is sealed. sigaltstack(2). */

static volatile uintptr_t handled_at;

static void handler(int sig)
{
	char here;
	(void)sig;
	handled_at = (uintptr_t)&here;
}

int main(void)
{
	char *p = memory(8 * MB, 1), *middle = p + 4 * MB;
	stack_t stack = {.ss_sp = middle, .ss_size = 16 * PAGE};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	seal();
	CHECK(sealed_bytes(middle, 16 * PAGE) == 0);
	CHECK(sealed_bytes(p, 8 * MB) == 8 * MB - 16 * PAGE);
	IN_CLONE {
		raise(SIGUSR1);
		CHECK(handled_at - (uintptr_t)middle < 16 * PAGE);
		CHECK(intact(p, 4 * MB, 1));
	}
	CHECK(intact(p, 8 * MB, 1));
}
