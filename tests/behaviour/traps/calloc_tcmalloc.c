/* calloc after purges, gperftools' tcmalloc: ReleaseFreeMemory discards spans.
   preload: libtcmalloc_minimal.so.4 */
#include "../calloc.h"

void MallocExtension_ReleaseFreeMemory(void) __attribute__((weak));

static int purge(void)
{
	if (MallocExtension_ReleaseFreeMemory)
		MallocExtension_ReleaseFreeMemory();
	return MallocExtension_ReleaseFreeMemory != NULL;
}
