// SPDX-License-Identifier: GPL-2.0-only
/*
 * Linked into the kernel's selftests with --wrap=mmap: small private anonymous mappings become the
 * middle of a large one, so that the page table behind them can be shared. Most of these tests map a
 * page or two, and on-demand fork shares whole tables only.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>

#define TABLE (2UL << 20)

void *__real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset);

void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	int kind = MAP_PRIVATE | MAP_ANONYMOUS;
	char *wide, *middle;

	if (addr || (flags & ~MAP_NORESERVE) != kind || prot != (PROT_READ | PROT_WRITE) || !len || len >= TABLE)
		return __real_mmap(addr, len, prot, flags, fd, offset);
	wide = __real_mmap(0, 4 * TABLE, prot, flags, fd, offset);
	if (wide == MAP_FAILED)
		return wide;
	madvise(wide, 4 * TABLE, MADV_NOHUGEPAGE);
	middle = (char *)(((uintptr_t)wide + 2 * TABLE - 1) & ~(TABLE - 1));
	/* A page on each side, so that the table is there and not empty. */
	*(volatile char *)middle = 0;
	*(volatile char *)(middle + TABLE - 1) = 0;
	return middle + TABLE / 4;
}
