/* Discards and growth of sealed memory by every way through libc, without the shim: zeros, in the program and in a clone. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE ((size_t)16 << 20)

static int all(const unsigned char *p, size_t len, int value)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != value)
			return 0;
	return 1;
}

static unsigned char *mapped(int value)
{
	unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	memset(p, value, SIZE);
	return p;
}

/* jemalloc takes what it has purged for zeros. */
static void jemalloc(void)
{
	int (*mallctl)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
	unsigned char *blocks[64];

	CHECK(mallctl);
	for (int i = 0; i < 64; i++)
		CHECK((blocks[i] = malloc(1 << 20)) && memset(blocks[i], 7, 1 << 20));
	CHECK(flashfork_seal(NULL, NULL) == 0);
	for (int i = 0; i < 64; i++)
		free(blocks[i]);
	CHECK(mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0);
	for (int i = 0; i < 64; i++)
		CHECK((blocks[i] = calloc(1, 1 << 20)) && all(blocks[i], 1 << 20, 0));
	puts("purged");
}

int main(int argc, char **argv)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	int (*its_madvise)(void *, size_t, int) = dlsym(libc, "madvise");
	unsigned char *direct, *by_handle, *by_number, *by_posix, *grown, *block;
	int status;
	pid_t clone;

	if (argc > 1 && !strcmp(argv[1], "jemalloc"))
		return jemalloc(), 0;
	direct = mapped(1), by_handle = mapped(2), by_number = mapped(3), by_posix = mapped(4), grown = mapped(5);
	block = malloc(SIZE - 4096);
	CHECK(block && its_madvise);
	memset(block, 6, SIZE - 4096);
	CHECK(flashfork_seal(NULL, NULL) == 0);
	clone = fork();
	CHECK(clone >= 0);
	CHECK(madvise(direct, SIZE, MADV_DONTNEED) == 0 && all(direct, SIZE, 0));
	CHECK(its_madvise(by_handle, SIZE, MADV_DONTNEED) == 0 && all(by_handle, SIZE, 0));
	CHECK(syscall(SYS_madvise, by_number, SIZE, MADV_DONTNEED) == 0 && all(by_number, SIZE, 0));
	/* posix_madvise hands on any number: MADV_DONTNEED_LOCKED, Linux 5.18. */
	CHECK(posix_madvise(by_posix, SIZE, 24) != 0 || all(by_posix, SIZE, 0));
	grown = mremap(grown, SIZE, SIZE / 2, 0);
	grown = mremap(grown, SIZE / 2, SIZE, MREMAP_MAYMOVE);
	CHECK(grown != MAP_FAILED && all(grown, SIZE / 2, 5) && all(grown + SIZE / 2, SIZE / 2, 0));
	block = realloc(block, 2 * SIZE - 4096);
	CHECK(block && all(block, SIZE - 4096, 6) && all(block + SIZE, SIZE - 8192, 0));
	if (clone == 0)
		_exit(0);
	CHECK(waitpid(clone, &status, 0) == clone && status == 0);
}
