/* A page for code, of the program's own, that is a guard (MADV_GUARD_INSTALL, Linux 6.13): the maps say that it can be read, and an
   access is SIGSEGV. A seal that looks through code must not be what meets it. madvise(2). */

int main(void)
{
	char *p = memory(6 * MB, 1);
	char *code = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(code != MAP_FAILED && mprotect(code + PAGE, PAGE, PROT_READ | PROT_EXEC) == 0);
	if (madvise(code + PAGE, PAGE, MADV_GUARD_INSTALL) != 0)
		SKIP("this kernel has no MADV_GUARD_INSTALL (Linux 6.13)");
	seal();
	CHECK(sealed_bytes(p, 6 * MB) > 0 && intact(p, 6 * MB, 1));
}
