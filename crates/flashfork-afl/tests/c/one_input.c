/* A harness as libFuzzer's, for AFL's own driver: each input must find what the first did. The log's name is in LOG. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int inputs;
	char line[64];
	int n = snprintf(line, sizeof line, "%d %zu\n", (int)getpid(), size);
	int fd = open(getenv("LOG"), O_WRONLY | O_APPEND | O_CREAT, 0600);

	if (fd < 0 || write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
	/* The driver itself calls this once before its loop. */
	if (inputs++ > 1)
		abort();
	if (size > 0 && data[0] == 'a')
		puts("a");
	return 0;
}
