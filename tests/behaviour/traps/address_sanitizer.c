/* AddressSanitizer in a clone of a sealed process still finds a heap overflow: its shadow memory says what it said before.
   cflags: -fsanitize=address
   env: ASAN_OPTIONS=verify_asan_link_order=0 */

int main(void)
{
	char report[4096], *block = malloc(8 * MB);
	int channel[2];
	fill(block, 8 * MB, 1);
	seal();
	CHECK(sealed_bytes(block, 8 * MB) > 4 * MB && intact(block, 8 * MB, 1));
	CHECK(pipe(channel) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(channel[1], 2);
		*(volatile char *)(block + 8 * MB) = 1;
		_exit(0);
	}
	close(channel[1]);
	size_t n = fread(report, 1, sizeof report - 1, fdopen(channel[0], "r"));
	report[n] = 0;
	CHECK(wait_for(pid) == 1);
	CHECK(strstr(report, "AddressSanitizer: heap-buffer-overflow"));
	free(block);
}
