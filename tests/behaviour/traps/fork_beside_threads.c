/* A thread closes a descriptor and puts another file at its number while another thread forks: nothing that comes before or after a
   fork opens anything where it could get that number. dup2(2), fork(2).
   env: FLASHFORK_ENGINE=auto */

static volatile int over;
static int ends[2], number;

static void *replace(void *unused)
{
	char bytes[8];
	while (!over) {
		CHECK(close(number) == 0);
		CHECK(dup2(ends[0], number) == number);
		CHECK(write(ends[1], "abcdefgh", 8) == 8);
		CHECK(read(number, bytes, 8) == 8 && memcmp(bytes, "abcdefgh", 8) == 0);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	char *p = memory(4 * MB, 1);
	CHECK(pipe(ends) == 0);
	number = open("/dev/null", O_RDONLY);
	CHECK(number >= 0);
	START(&thread, replace, NULL);
	for (size_t turn = 0; turn < often(3000); turn++)
		if (in_clone())
			_exit(0);
	over = 1;
	CHECK(pthread_join(thread, NULL) == 0 && intact(p, 4 * MB, 1));
}
