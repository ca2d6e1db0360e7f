// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whatever makes a page table private may need memory. Here it is refused: for each operation, each of its
 * first page allocations fails in turn, and some of those after (fault injection, /proc/thread-self/fail-nth), in
 * a child that shares all its tables. Then the operation has either worked or failed whole, and no value
 * of the child or of the parent may be wrong. Needs CONFIG_FAIL_PAGE_ALLOC and debugfs.
 */
#include "odf_util.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#define TABLES	3
#define SIZE	(TABLES * TABLE)
#define PAGES	(SIZE / PAGE)
/* The part that operations work on: it begins and ends inside a table. */
#define FROM	500
#define TO	1040

/* What a child returns when no allocation was left to fail. */
#define THROUGH	77

static char *area;

static uint64_t value(unsigned long page)
{
	return (page + 1) * 0x9e3779b97f4a7c15ULL;
}

/* Do pages @from to @to hold what the parent wrote, @plus more? */
static bool holds(char *p, unsigned long from, unsigned long to, uint64_t plus)
{
	for (unsigned long i = from; i < to; i++)
		if (*(volatile uint64_t *)(p + i * PAGE) != value(i) + plus) {
			printf("# page %lu is wrong\n", i);
			return false;
		}
	return true;
}

static bool zero(char *p, unsigned long from, unsigned long to)
{
	for (unsigned long i = from; i < to; i++)
		if (*(volatile uint64_t *)(p + i * PAGE)) {
			printf("# page %lu is not zero\n", i);
			return false;
		}
	return true;
}

static char *part(void)
{
	return area + FROM * PAGE;
}

#define LENGTH	((TO - FROM) * PAGE)

/*
 * Each operation returns 0 when it worked and -1 when it failed; its check gets that and says whether
 * pages FROM to TO are right.
 */
static char *moved;

static int do_write(void)
{
	for (unsigned long i = FROM; i < TO; i += 60)
		*(volatile uint64_t *)(area + i * PAGE) = value(i);
	return 0;
}

static int do_read(void)
{
	for (unsigned long i = FROM; i < TO; i += 60)
		(void)*(volatile uint64_t *)(area + i * PAGE);
	return 0;
}

static bool unchanged(int result)
{
	(void)result;
	return holds(area, FROM, TO, 0);
}

static int do_syscall_write(void)
{
	static int zeros = -1;

	if (zeros < 0)
		zeros = open("/dev/zero", O_RDONLY);
	return read(zeros, part(), LENGTH) == LENGTH ? 0 : -1;
}

/* A short read() leaves the rest as it was, so a page is zero or untouched. */
static bool zero_or_not(int result)
{
	for (unsigned long i = FROM; i < TO; i++) {
		uint64_t v = *(volatile uint64_t *)(area + i * PAGE);

		if (v && (!result || v != value(i)))
			return false;
	}
	return true;
}

static int do_protect(void)
{
	return mprotect(part(), LENGTH, PROT_READ);
}

static int do_lock(void)
{
	return mlock(part(), LENGTH);
}

static int do_lock_all(void)
{
	return mlockall(MCL_CURRENT);
}

/* Locked memory can't be discarded. */
static bool locked_if_done(int result)
{
	if (!result && (!madvise(part(), LENGTH, MADV_DONTNEED) || errno != EINVAL)) {
		printf("# mlockall() has left memory unlocked\n");
		return false;
	}
	return holds(area, FROM, TO, 0);
}

static int do_dontneed(void)
{
	return madvise(part(), LENGTH, MADV_DONTNEED);
}

static bool zero_if_done(int result)
{
	return result ? holds(area, FROM, TO, 0) : zero(area, FROM, TO);
}

static int do_free(void)
{
	return madvise(part(), LENGTH, MADV_FREE);
}

static int do_replace(void)
{
	return mmap(part(), LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		MAP_FAILED ? -1 : 0;
}

static int do_unmap(void)
{
	return munmap(part(), LENGTH);
}

static bool gone_if_done(int result)
{
	unsigned char there;

	if (result)
		return holds(area, FROM, TO, 0);
	return mincore(part(), PAGE, &there) && mincore(area + (TO - 1) * PAGE, PAGE, &there);
}

static int do_move(void)
{
	moved = mremap(part(), LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, moved);
	return moved == MAP_FAILED ? -1 : 0;
}

static bool moved_if_done(int result)
{
	return holds(result ? area : moved - FROM * PAGE, FROM, TO, 0);
}

static int do_collapse(void)
{
	if (madvise(area, SIZE, MADV_HUGEPAGE))
		return -1;
	return madvise(area, SIZE, 25 /* MADV_COLLAPSE */);
}

static int faults = -1;

static int do_register(void)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)part(), LENGTH },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	return ioctl(faults, UFFDIO_REGISTER, &reg);
}

static int do_fork(pid_t (*make)(void))
{
	pid_t pid = make();
	int status;

	if (!pid)
		_exit(!holds(area, 0, PAGES, 0));
	if (pid < 0)
		return -1;
	if (waitpid(pid, &status, 0) != pid || status) {
		printf("# a grandchild saw wrong values\n");
		_exit(1);
	}
	return 0;
}

static int do_odf_fork(void)
{
	return do_fork(odf_fork);
}

static int do_plain_fork(void)
{
	return do_fork(fork);
}

/* A write from outside, into the parent: by way of get_user_pages(). */
static int do_remote(void)
{
	uint64_t v = value(FROM);
	struct iovec local = { &v, 8 }, remote = { part(), 8 };

	return process_vm_writev(getppid(), &local, 1, &remote, 1, 0) == 8 ? 0 : -1;
}

static const struct {
	const char *name;
	int (*run)(void);
	bool (*right)(int result);
} operations[] = {
	{ "write", do_write, unchanged },
	{ "read", do_read, unchanged },
	{ "read() into it", do_syscall_write, zero_or_not },
	{ "mprotect", do_protect, unchanged },
	{ "mlock", do_lock, unchanged },
	{ "mlockall", do_lock_all, locked_if_done },
	{ "MADV_DONTNEED", do_dontneed, zero_if_done },
	{ "MADV_FREE", do_free, unchanged },
	{ "mmap over it", do_replace, zero_if_done },
	{ "munmap", do_unmap, gone_if_done },
	{ "mremap", do_move, moved_if_done },
	{ "MADV_COLLAPSE", do_collapse, unchanged },
	{ "UFFDIO_REGISTER", do_register, unchanged },
	{ "on-demand fork", do_odf_fork, unchanged },
	{ "plain fork", do_plain_fork, unchanged },
	{ "process_vm_writev", do_remote, unchanged },
};

#define OPERATIONS ((int)(sizeof(operations) / sizeof(*operations)))

static void set(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
		printf("# can't write %s\n", path);
		exit(4);
	}
	close(fd);
}

/* In a child: operation @op with its @nth allocation failing. */
static int attempt(int op, int nth)
{
	struct uffdio_api api = { .api = UFFD_API };
	char text[16] = {};
	int fd, result, left;

	moved = odf_map(TABLES, PROT_READ | PROT_WRITE);
	faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (!moved || faults < 0 || ioctl(faults, UFFDIO_API, &api))
		return 2;
	fd = open("/proc/thread-self/fail-nth", O_RDWR);
	snprintf(text, sizeof(text), "%d", nth);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return 4;
	result = operations[op].run();
	memset(text, 0, sizeof(text));
	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return 2;
	left = atoi(text);
	if (pwrite(fd, "0", 1, 0) != 1)
		return 2;
	if (result && left) {
		printf("# it failed by itself, errno %d\n", errno);
		/* Huge pages can be had or not; that is no mistake. */
		if (operations[op].run != do_collapse)
			return 3;
	}
	if (!operations[op].right(result) || !holds(area, 0, FROM, 0) || !holds(area, TO, PAGES, 0))
		return 1;
	return left ? THROUGH : 0;
}

int main(void)
{
	static const char *const knobs[] = {
		"/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait",
		"/sys/kernel/debug/fail_page_alloc/ignore-gfp-highmem",
	};
	int bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < (int)(sizeof(knobs) / sizeof(*knobs)); i++)
		set(knobs[i], "N");
	set("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	set("/sys/kernel/debug/fail_page_alloc/verbose", "0");
	if (!odf_write_sysctl(1))
		return 4;
	area = odf_map(TABLES, PROT_READ | PROT_WRITE);
	if (!area)
		return 2;
	printf("TAP version 13\n1..%d\n", OPERATIONS + 1);
	for (unsigned long i = 0; i < PAGES; i++)
		*(volatile uint64_t *)(area + i * PAGE) = value(i);
	long failed = odf_vmstat("odf_copy_fail"), before = odf_vmstat("odf_share");

	for (int op = 0; op < OPERATIONS; op++) {
		int nth, status = 0;

		/* After the first 30 come the pages, one allocation each. */
		for (nth = 1; nth < 5000 && !status; nth += nth < 30 ? 1 : 89) {
			pid_t pid = odf_fork();

			if (!pid)
				_exit(attempt(op, nth));
			if (pid < 0 || waitpid(pid, &status, 0) != pid || !holds(area, 0, PAGES, 0)) {
				status = -1;
				break;
			}
		}
		if (WIFEXITED(status) && WEXITSTATUS(status) == THROUGH) {
			printf("ok %d %s\n", op + 1, operations[op].name);
		} else {
			printf("not ok %d %s, before allocation %d: status %x\n", op + 1, operations[op].name, nth, status);
			bad = 1;
		}
	}
	failed = odf_vmstat("odf_copy_fail") - failed;
	before = odf_vmstat("odf_share") - before;
	if (failed <= 0 || before <= 0)
		bad = 1;
	printf("%sok %d %ld copies of a table failed, %ld tables were shared\n", failed > 0 && before > 0 ? "" : "not ",
	       OPERATIONS + 1, failed, before);
	printf("# Totals: %s\n", bad ? "failed" : "passed");
	return bad;
}
