/* Loaded with RTLD_DEEPBIND: its calls are bound to libc, whatever was loaded before. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

int past_madvise(void *at, size_t len, int advice)
{
	return madvise(at, len, advice);
}

void *past_mremap(void *from, size_t old, size_t new, int flags, void *to)
{
	return mremap(from, old, new, flags, to);
}

int past_mlock(const void *at, size_t len)
{
	return mlock(at, len);
}

int past_mlock2(const void *at, size_t len, unsigned flags)
{
	return mlock2(at, len, flags);
}

void *past_realloc(void *block, size_t len)
{
	return realloc(block, len);
}
