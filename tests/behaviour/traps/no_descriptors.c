/* No free descriptor (RLIMIT_NOFILE): the seal fails cleanly however few there are, and a discard of sealed memory gives
   zeros. getrlimit(2). */

static int taken[64];
static int count;

static void take_all(void)
{
	int fd;
	while (count < 64 && (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		taken[count++] = fd;
	CHECK(count < 64 && errno == EMFILE);
}

int main(void)
{
	struct rlimit limit = {32, 32};
	char *p = memory(4 * MB, 1), *gone = memory(4 * MB, 2);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	int sealed = 0;
	for (int free_ones = 0; free_ones < 8 && !sealed; free_ones++) {
		take_all();
		for (int i = 0; i < free_ones; i++)
			close(taken[--count]);
		sealed = call_seal() == 0;
		CHECK(sealed ? free_ones > 0 : 1);
		CHECK(intact(p, 4 * MB, 1));
		IN_CLONE
			CHECK(intact(p, 4 * MB, 1));
		close(taken[--count]);
		CHECK(sealed_bytes(p, 4 * MB) == (sealed ? 4 * MB : 0));
	}
	CHECK(sealed);
	take_all();
	CHECK(discard_zeros(gone, 4 * MB));
	CHECK(intact(p, 4 * MB, 1));
}
