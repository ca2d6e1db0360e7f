/* Takes its inputs from memory that AFL shares, and looks for what the rounds before have left: testcase LOG. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__AFL_FUZZ_INIT();

int main(int argc, char **argv)
{
	static int rounds;

	__AFL_INIT();
	unsigned char *input = __AFL_FUZZ_TESTCASE_BUF;
	while (__AFL_LOOP(400)) {
		int len = __AFL_FUZZ_TESTCASE_LEN;
		char line[64];
		int n = snprintf(line, sizeof line, "%d %d\n", (int)getpid(), len);
		int fd = open(argv[argc - 1], O_WRONLY | O_APPEND | O_CREAT, 0600);

		if (fd < 0 || write(fd, line, (size_t)n) != n || rounds++ != 0 || len < 1)
			abort();
		close(fd);
		if (input[0] == 'a')
			puts("a");
	}
	return 0;
}
