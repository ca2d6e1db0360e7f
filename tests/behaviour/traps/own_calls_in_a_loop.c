/* A system call of the program's own whose advice is harmless at first and another when the loop comes back: the process is refused, and
   what is discarded reads zeros. */

__attribute__((noinline, optimize("O2"))) static long advise(void *addr, size_t len, int times)
{
	long advice = MADV_HUGEPAGE, result;
	do {
		__asm__ volatile("syscall"
		                 : "=a"(result)
		                 : "a"((long)SYS_madvise), "D"(addr), "S"(len), "d"(advice)
		                 : "rcx", "r11", "memory");
		advice = MADV_DONTNEED;
	} while (result == 0 && --times > 0);
	return result;
}

int main(int argc, char **argv)
{
	(void)argv;
	char *p = memory(4 * MB, 1);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
	CHECK(advise(p, 4 * MB, argc + 1) == 0 && zeros(p, 4 * MB));
}
