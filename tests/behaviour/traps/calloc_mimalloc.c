/* calloc after purges, mimalloc: mi_collect resets and decommits free pages.
   preload: libmimalloc.so.2 */
#include "../calloc.h"
#include <stdbool.h>

void mi_collect(bool force) __attribute__((weak));

static int purge(void)
{
	if (mi_collect)
		mi_collect(true);
	return mi_collect != NULL;
}
