/* A collector that finds written pages by faults: it takes PROT_WRITE away and gives it back in a SIGSEGV handler. The same on
   sealed memory. mprotect(2), sigaction(2). */

static char *p;
static volatile int faults;

static void handler(int sig, siginfo_t *info, void *context)
{
	char *page = (char *)((uintptr_t)info->si_addr & ~(PAGE - 1));
	(void)sig;
	(void)context;
	if (page < p || page >= p + 4 * MB || mprotect(page, PAGE, RW) != 0)
		_exit(1);
	faults++;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	p = memory(4 * MB, 1);
	seal();
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && mprotect(p, 4 * MB, PROT_READ) == 0);
	for (int i = 0; i < 64; i++)
		p[i * 16 * PAGE] ^= 1;
	CHECK(faults == 64);
	IN_CLONE {
		p[PAGE] ^= 1;
		CHECK(faults == 65);
	}
	for (int i = 0; i < 64; i++)
		p[i * 16 * PAGE] ^= 1;
	CHECK(faults == 64 && intact(p, 4 * MB, 1));
}
