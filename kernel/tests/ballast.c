// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loaded into a program before it starts (LD_PRELOAD): gives it 8 MB of memory in small pages, so that each
 * of its forks has page tables to share, and every child a part of them to copy. Who exits in order
 * checks what it holds, but for the pages it wrote.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <pthread.h>

#define PAGE	4096UL
#define TABLE	(512 * PAGE)
#define SIZE	(4 * TABLE)

static char *ballast;

static uint64_t value(unsigned long at)
{
	return (at + 1) * 0x9e3779b97f4a7c15ULL;
}

/* In a child: a table of its own for the second and the fourth. */
static void child(void)
{
	*(volatile uint64_t *)(ballast + TABLE + 8) = (uint64_t)getpid();
	*(volatile uint64_t *)(ballast + 3 * TABLE + 8) = (uint64_t)getpid();
}

__attribute__((constructor)) static void load(void)
{
	char *p = mmap(NULL, SIZE + 2 * TABLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return;
	madvise(p, SIZE + 2 * TABLE, MADV_NOHUGEPAGE);
	ballast = (char *)(((uintptr_t)p + TABLE) & ~(TABLE - 1));
	for (unsigned long at = 0; at < SIZE; at += PAGE)
		*(uint64_t *)(ballast + at) = value(at);
	pthread_atfork(NULL, NULL, child);
}

__attribute__((destructor)) static void check(void)
{
	for (unsigned long at = 0; ballast && at < SIZE; at += PAGE)
		if (*(volatile uint64_t *)(ballast + at) != value(at)) {
			fprintf(stderr, "ballast: page %lu is wrong\n", at / PAGE);
			abort();
		}
}
