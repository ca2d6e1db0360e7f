/* Read-only memory stays read-only when sealed, and after an unseal. mprotect(2). */

static void faults(char *p)
{
	pid_t pid = fork();
	if (pid == 0) {
		*(volatile char *)p = 1;
		_exit(0);
	}
	CHECK(wait_for(pid) == 128 + SIGSEGV);
}

int main(void)
{
	char *p = memory(4 * MB, 1);
	CHECK(mprotect(p, 4 * MB, PROT_READ) == 0);
	seal();
	CHECK(all_sealed(p, 4 * MB));
	faults(p);
	CHECK(mprotect(p, PAGE, RW) == 0);
	p[0] ^= 1;
	p[0] ^= 1;
	unseal();
	faults(p + PAGE);
	CHECK(intact(p, 4 * MB, 1));
}
