/* Memory that loses its protection after the seal (PROT_NONE) can be turned back, bytes and protection as they were. mprotect(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(mprotect(p + MB, MB, PROT_NONE) == 0);
	unseal();
	pid_t pid = fork();
	if (pid == 0)
		_exit(*(volatile char *)(p + MB));
	CHECK(wait_for(pid) == 128 + SIGSEGV);
	CHECK(mprotect(p + MB, MB, RW) == 0 && intact(p, 4 * MB, 1));
}
