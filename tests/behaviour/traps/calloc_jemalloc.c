/* calloc after purges, jemalloc: it marks purged extents as zeroed. Redis and Rust programs use it; without the shim a sealed
   Redis crashed.
   preload: libjemalloc.so.2 */
#include "../calloc.h"

int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static int purge(void)
{
	/* 4096: all arenas (MALLCTL_ARENAS_ALL) */
	return mallctl && mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0;
}
