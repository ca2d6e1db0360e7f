/* No descriptor left: the table full up to the limit, the soft limit 0, the hard limit 0, and that for a user who can't lift it. What is
   discarded is zero all the same, page by page and at large, and private mappings of files give the file's bytes. getrlimit(2). */

#define LEN (4 * MB)

static char *p[4], *mapped;
static long number;

static void discards(char *q)
{
	CHECK(dup(2) == -1 && errno == EMFILE);
	CHECK(discard_zeros(q + PAGE, PAGE));
	CHECK(*(uint64_t *)q == pattern(0, 1) && *(uint64_t *)(q + 2 * PAGE) == pattern(2 * PAGE / 8, 1));
	CHECK(madvise(q, PAGE, MADV_FREE) == 0 || errno == EINVAL);
	CHECK(mprotect(q + MB, MB, PROT_READ) == 0);
	/* With a hard limit of 0 nobody can ask what memory was made read-only for: an error says that nothing was done. */
	if (madvise(q + MB, PAGE, MADV_DONTNEED) == 0)
		CHECK(zeros(q + MB, PAGE));
	else
		CHECK(number >= 2 && *(uint64_t *)(q + MB) == pattern(MB / 8, 1));
	CHECK(mprotect(q + MB, MB, PROT_READ | PROT_WRITE) == 0);
	CHECK(discard_zeros(q, LEN));
	fill(q, LEN, 5);
	CHECK(discard_zeros(q + PAGE, 3 * MB) && *(uint64_t *)q == pattern(0, 5));
	/* A file's own bytes come back, as ever. */
	CHECK(mapped[0] == 'f');
	mapped[0] = 'x';
	CHECK(madvise(mapped, PAGE, MADV_DONTNEED) == 0 && mapped[0] == 'f');
}

int main(void)
{
	char name[] = "file-XXXXXX";
	struct rlimit full = {32, 32}, soft = {0, 32}, hard = {0, 0};
	for (int i = 0; i < 4; i++)
		p[i] = memory(LEN, 1);
	seal();
	int fd = mkstemp(name);
	CHECK(fd >= 0 && write(fd, "file", 4) == 4);
	mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(mapped != MAP_FAILED && close(fd) == 0 && unlink(name) == 0);
	for (number = 0; number < 4; number++) {
		if (!in_clone())
			continue;
		CHECK(setrlimit(RLIMIT_NOFILE, number == 0 ? &full : number == 1 ? &soft : &hard) == 0);
		while (number == 0 && dup(2) >= 0)
			;
		if (number == 3)
			CHECK(geteuid() != 0 || setuid(65534) == 0);
		discards(p[number]);
		_exit(0);
	}
}
