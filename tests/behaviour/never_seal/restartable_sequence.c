/* A thread that has registered an area for restartable sequences by a call that nobody sees: the kernel writes there at any moment.
   rseq(2).
   env: GLIBC_TUNABLES=glibc.pthread.rseq=0 */

static long own_rseq(void *area, long flags)
{
	register long signature __asm__("r10") = 0x53053053;
	long result;
	__asm__ volatile("syscall"
	                 : "=a"(result)
	                 : "a"(334L), "D"(area), "S"(32L), "d"(flags), "r"(signature)
	                 : "rcx", "r11", "memory");
	return result;
}

int main(void)
{
	char *p = memory(4 * MB, 1);
	char *area = p + MB;
	memset(area, 0, 32);
	long result = own_rseq(area, 0);
	if (result == -EBUSY || result == -EINVAL || result == -ENOSYS)
		SKIP("the C library has registered one, or the kernel knows of none");
	CHECK(result == 0);
	memset(area + 32, 5, 32);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
	refused();
	CHECK(own_rseq(area, 1) == 0);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) > 0);
}
