/* A seal from a signal handler, on an alternate stack that lies in the memory being sealed. sigaltstack(2). */

static char *p;
static volatile int result = 1;

static void handler(int sig)
{
	char local[4096];
	(void)sig;
	fill(local, sizeof local, 3);
	result = call_seal();
	CHECK(intact(local, sizeof local, 3));
}

int main(void)
{
	p = memory(8 * MB, 1);
	stack_t stack = {.ss_sp = p + 4 * MB, .ss_size = MB};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	raise(SIGUSR1);
	CHECK(result == 0);
	CHECK(all_sealed(p, 4 * MB) && sealed_bytes(p + 4 * MB, MB) == 0);
	CHECK(intact(p, 4 * MB, 1));
	IN_CLONE {
		raise(SIGUSR1);
		CHECK(result == 0 && intact(p, 4 * MB, 1));
	}
}
