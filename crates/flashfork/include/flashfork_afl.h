/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * AFL++'s snapshot functions, by the names of its kernel module, on flashfork_snapshot: no module, no device, any stock kernel.
 * A harness that included AFL++'s snapshot-inl.h includes this instead and links libflashfork. docs/FUZZING.md says what differs.
 */

#ifndef FLASHFORK_AFL_H
#define FLASHFORK_AFL_H

#include <errno.h>
#include <stdlib.h>
#include "flashfork.h"

#define AFL_SNAPSHOT_MMAP 1     /* new mappings are unmapped: always so */
#define AFL_SNAPSHOT_BLOCK 2    /* not supported: EINVAL */
#define AFL_SNAPSHOT_FDS 4      /* new descriptors are closed */
#define AFL_SNAPSHOT_REGS 8     /* the registers go back: must be asked for */
#define AFL_SNAPSHOT_EXIT 16    /* exit() restores instead; _exit() and signals end the process */
#define AFL_SNAPSHOT_NOCOW 32   /* small memory is compared, large memory sealed: no effect */
#define AFL_SNAPSHOT_NOSTACK 64 /* not supported: EINVAL */

static struct flashfork_range afl_snapshot_kept[60];
static size_t afl_snapshot_kept_count;
static int afl_snapshot_taken;

/* Nothing to open. Not negative, as a descriptor would be. */
static inline int afl_snapshot_init(void)
{
	return 0;
}

/* The pages from start to end keep what is written to them. */
static inline void afl_snapshot_exclude_vmrange(void *start, void *end)
{
	if (afl_snapshot_kept_count < sizeof afl_snapshot_kept / sizeof *afl_snapshot_kept) {
		afl_snapshot_kept[afl_snapshot_kept_count].start = start;
		afl_snapshot_kept[afl_snapshot_kept_count].end = end;
	}
	afl_snapshot_kept_count++; /* one too many, and take fails */
}

/* All private memory goes back without being asked for. */
static inline void afl_snapshot_include_vmrange(void *start, void *end)
{
	(void)start;
	(void)end;
}

/* Goes back to afl_snapshot_take; returns only when that is refused (flashfork_last_error says why). */
static inline void afl_snapshot_restore(void)
{
	flashfork_restore(1);
}

/* Takes the snapshot: 1; returns again with 0 after each restore; 0 too, and nothing is done, when there is one already. -1: errno. */
static inline int afl_snapshot_take(int config)
{
	struct flashfork_snapshot_options options = {0};
	int value;

	if (afl_snapshot_taken)
		return 0;
	if (!(config & AFL_SNAPSHOT_REGS) || config & (AFL_SNAPSHOT_BLOCK | AFL_SNAPSHOT_NOSTACK)) {
		errno = EINVAL;
		return -1;
	}
	if (config & AFL_SNAPSHOT_EXIT && atexit(afl_snapshot_restore) != 0)
		return -1;
	options.keep = afl_snapshot_kept;
	options.keep_count = afl_snapshot_kept_count;
	options.close_new = (config & AFL_SNAPSHOT_FDS) != 0;
	afl_snapshot_taken = 1;
	value = flashfork_snapshot(&options);
	if (value < 0)
		afl_snapshot_taken = 0;
	return value < 0 ? -1 : value == 0;
}

/* The snapshot of a fork server's child. */
static inline int afl_snapshot_do(void)
{
	return afl_snapshot_take(AFL_SNAPSHOT_MMAP | AFL_SNAPSHOT_FDS | AFL_SNAPSHOT_REGS | AFL_SNAPSHOT_EXIT);
}

/* Forgets the snapshot. */
static inline void afl_snapshot_clean(void)
{
	if (flashfork_snapshot_discard() == 0)
		afl_snapshot_taken = 0;
}

#endif
