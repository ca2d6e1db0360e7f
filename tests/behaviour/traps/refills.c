/* A parent that has written some of its sealed memory and read all of it forks: what was only read goes out of its page tables when
   forks have lost enough, and every byte stays what it was, here and in clones. Found with forks of 30 ms for 1 GB, for ever.
   env: FLASHFORK_ENGINE=seal */
#include <sys/utsname.h>

#define LEN (64 * MB)

/* Pages in the page tables: the memfd's, or this process's own. */
static size_t pages(const char *p, int of_memfd)
{
	static uint64_t entries[LEN / PAGE];
	int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	CHECK(map >= 0);
	CHECK(pread(map, entries, sizeof entries, (off_t)((size_t)p / PAGE * 8)) == sizeof entries);
	close(map);
	size_t found = 0;
	for (size_t i = 0; i < LEN / PAGE; i++)
		found += (entries[i] >> 63 & 1) && (entries[i] >> 61 & 1) == (uint64_t)of_memfd;
	return found;
}

static int right(const char *p)
{
	for (size_t i = 0; i < LEN / 8; i++)
		if (((const uint64_t *)p)[i] != pattern(i, i % (50 * PAGE / 8) ? 1 : 2))
			return 0;
	return 1;
}

int main(void)
{
	struct utsname kernel;
	int major = 0, minor = 0;
	CHECK(uname(&kernel) == 0 && sscanf(kernel.release, "%d.%d", &major, &minor) == 2);
	if (major < 6 || (major == 6 && minor < 7))
		SKIP("Linux %d.%d doesn't tell small pages from large ones", major, minor);
	char *p = memory(LEN, 1);
	if (in_clone())
		_exit(0);
	CHECK(all_sealed(p, LEN));
	for (size_t i = 0; i < LEN / 8; i += 50 * PAGE / 8)
		((uint64_t *)p)[i] = pattern(i, 2);
	CHECK(right(p));
	size_t read = pages(p, 1), own = pages(p, 0);
	CHECK(read > LEN / PAGE / 2);
	while (pages(p, 1) > read / 2)
		if (in_clone())
			_exit(0);
	CHECK(pages(p, 0) == own); /* nothing was sealed anew */
	if (in_clone())
		_exit(!right(p));
	CHECK(right(p));
}
