/* Ends a test program with a message when a condition doesn't hold; not by exit(), which goes back to a snapshot. */
#include <errno.h>
#include <flashfork.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno, \
			        flashfork_last_error()); \
			_exit(1); \
		} \
	} while (0)

/* Memory that a seal takes: 16 MB, written. */
static inline unsigned char *warm(void)
{
	unsigned char *p = (unsigned char *)malloc(16 << 20);

	CHECK(p);
	memset(p, 7, 16 << 20);
	return p;
}
