/* System calls by instructions of its own, as Go's runtime, wasmtime and static allocators make them. */
#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>

static long call(long number, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long result = number;
	__asm__ volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return result;
}

static long answer(long result)
{
	if (result >= 0 || result < -4095)
		return result;
	errno = (int)-result;
	return -1;
}

int past_madvise(void *at, size_t len, int advice)
{
	return (int)answer(call(SYS_madvise, (long)at, (long)len, advice, 0, 0));
}

void *past_mremap(void *from, size_t old, size_t new, int flags, void *to)
{
	return (void *)answer(call(SYS_mremap, (long)from, (long)old, (long)new, flags, (long)to));
}

int past_mlock(const void *at, size_t len)
{
	return (int)answer(call(SYS_mlock, (long)at, (long)len, 0, 0, 0));
}

int past_mlock2(const void *at, size_t len, unsigned flags)
{
	return (int)answer(call(SYS_mlock2, (long)at, (long)len, (long)flags, 0, 0));
}
