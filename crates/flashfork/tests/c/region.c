/* A region goes back to its state in the process that sealed it and in a clone, each for itself; seals of the process leave it
   alone; misuse is told. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *p;
static size_t len;

static int intact(void)
{
	for (size_t i = 0; i < len; i += 4096)
		if (p[i] != (unsigned char)(i >> 12))
			return 0;
	return 1;
}

static void wreck(size_t step)
{
	for (size_t i = 0; i < len; i += 4096 * step)
		p[i] ^= 0xff;
}

static void turns(struct flashfork_region *region)
{
	for (size_t step = 1; step < 40; step++) {
		wreck(step);
		CHECK(!intact());
		CHECK(flashfork_region_rollback(region) == 0);
		CHECK(intact());
	}
}

static void with_pages(unsigned pages)
{
	struct flashfork_region *region = flashfork_region_create(5 << 20, pages);
	struct flashfork_seal_report report;
	int status;
	pid_t pid;

	CHECK(region);
	p = flashfork_region_address(region);
	len = flashfork_region_length(region);
	CHECK(len == 6 << 20 && ((size_t)p & ((2 << 20) - 1)) == 0);
	for (size_t i = 0; i < len; i += 4096)
		p[i] = (unsigned char)(i >> 12);
	CHECK(flashfork_region_rollback(region) == -1 && errno == ENOENT);
	CHECK(flashfork_region_seal(region) == 0);
	CHECK(flashfork_region_seal(region) == -1 && errno == EALREADY);
	turns(region);
	wreck(3);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(!intact());
		CHECK(flashfork_region_rollback(region) == 0);
		CHECK(intact());
		turns(region);
		wreck(1);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(p[0] == 0xff && p[4096] == 1); /* the clone's turns are its own */
	CHECK(flashfork_seal(NULL, &report) == 0);
	CHECK(p[0] == 0xff && flashfork_region_rollback(region) == 0);
	CHECK(intact());
	turns(region);
	flashfork_region_free(region);
}

int main(void)
{
	int status;
	pid_t pid;
	struct flashfork_region *region;

	with_pages(FLASHFORK_PAGES_AUTO);
	with_pages(FLASHFORK_PAGES_SMALL);
	CHECK(!flashfork_region_create(0, FLASHFORK_PAGES_SMALL) && errno == EINVAL);
	CHECK(!flashfork_region_create(1, 7) && errno == EINVAL && strstr(flashfork_last_error(), "pages"));
	flashfork_region_free(NULL);
	/* Unsealed, it is nothing that a clone could write to. */
	region = flashfork_region_create(1, FLASHFORK_PAGES_SMALL);
	CHECK(region);
	p = flashfork_region_address(region);
	p[0] = 1;
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		p[0] = 2;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == 11);
	CHECK(p[0] == 1);
}
