/* A system call of the program's own whose number a branch chooses that the compiler moves to a part of the unwind table of its own:
   the process is refused, and what is discarded reads zeros. */

static volatile long rare_count;

__attribute__((cold, noinline)) static void rare(void)
{
	rare_count++;
}

__attribute__((noinline, optimize("O2"))) static long call_one(void *addr, size_t len, int discard)
{
	long number = SYS_msync, flags = MS_ASYNC, result;
	if (__builtin_expect(discard, 0)) {
		rare();
		number = SYS_madvise;
		flags = MADV_DONTNEED;
	}
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(addr), "S"(len), "d"(flags) : "rcx", "r11", "memory");
	return result;
}

int main(int argc, char **argv)
{
	(void)argv;
	char *p = memory(4 * MB, 1);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
	CHECK(call_one(p, 4 * MB, argc < 1) == 0 && intact(p, 4 * MB, 1));
	CHECK(call_one(p, 4 * MB, argc > 0) == 0 && zeros(p, 4 * MB));
}
