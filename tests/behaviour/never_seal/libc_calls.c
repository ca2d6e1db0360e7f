/* A debugger's breakpoint, or another tool's hook, where libc makes a system call that the engine must see: the process is refused, and
   a seal works once libc is as it was. */

int main(void)
{
	unsigned char *code = (unsigned char *)(uintptr_t)madvise, *page = (unsigned char *)((uintptr_t)code & ~(PAGE - 1));
	unsigned char saved = *code;
	if (mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
		SKIP("code can't be written here");
	*code = 0xcc;
	refused();
	*code = saved;
	CHECK(mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC) == 0);
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(discard_zeros(p, 4 * MB));
}
