/* System calls of the program's own that mean the same on sealed memory, and bytes that only look like one: the process is sealed. */

static long own_call(void)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(39L /* getpid */) : "rcx", "r11", "memory");
	return result;
}

/* Unmapping and mapping anew by one's own instructions gives anonymous memory, whatever was there. */
static long own_mmap_fixed(void *addr, size_t len)
{
	long result;
	register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, fd __asm__("r8") = -1, offset __asm__("r9") = 0;
	__asm__ volatile("syscall"
	                 : "=a"(result)
	                 : "a"(9L), "D"(addr), "S"(len), "d"((long)RW), "r"(flags), "r"(fd), "r"(offset)
	                 : "rcx", "r11", "memory");
	return result;
}

static int looks_like_one(void)
{
	int result;
	__asm__ volatile("mov $28, %%eax\n\tmov $0x050f, %%ecx\n\tadd %%ecx, %%eax" : "=a"(result) : : "rcx");
	return result;
}

int main(void)
{
	char *p = memory(4 * MB, 1);
	CHECK(own_call() == getpid() && looks_like_one() == 28 + 0x050f);
	seal();
	CHECK(all_sealed(p, 4 * MB) && own_call() == getpid());
	CHECK(own_mmap_fixed(p, 2 * MB) == (long)p && zeros(p, 2 * MB) && sealed_bytes(p, 4 * MB) == 2 * MB);
}
