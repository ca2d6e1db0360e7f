/* calloc after purges, glibc's malloc: malloc_trim gives pages back with MADV_DONTNEED. malloc_trim(3).
   Blocks below the mmap threshold, so that they come from the heap. */
#include "../calloc.h"

__attribute__((constructor)) static void from_the_heap(void)
{
	mallopt(M_MMAP_THRESHOLD, 4 * MB);
	mallopt(M_TRIM_THRESHOLD, 1024 * MB);
}

static int purge(void)
{
	malloc_trim(0);
	return 1;
}
