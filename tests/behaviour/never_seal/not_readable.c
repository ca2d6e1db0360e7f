/* Memory without PROT_READ: it could be copied only by making it readable for a moment. mprotect(2). */

int main(void)
{
	char *p = memory(4 * MB, 1);
	CHECK(mprotect(p, 4 * MB, PROT_NONE) == 0);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(((volatile char *)p)[5]);
	CHECK(wait_for(pid) == 128 + SIGSEGV);
	CHECK(mprotect(p, 4 * MB, RW) == 0 && intact(p, 4 * MB, 1));
}
