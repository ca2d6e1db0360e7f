/* Address layout: all clones of a template have its addresses, its stack protector's secret and its allocator's secrets, so that what one of them
   gives away helps against the others. proc(5).
   clone: shares
   do: make templates anew now and then (`--max-clones`), and give each tenant its own */

/* The stack protector's secret: fs:0x28 on x86-64 (System V ABI, glibc's tcbhead_t). */
static uint64_t canary(void)
{
	uint64_t value;
	__asm__("mov %%fs:0x28, %0" : "=r"(value));
	return value;
}

int main(void)
{
	uint64_t here = canary();
	char *heap = sbrk(0);
	seal();
	CHECK(here != 0);
	IN_CLONE
		CHECK(canary() == here && heap <= (char *)sbrk(0) && access("/proc/self/exe", F_OK) == 0);
}
