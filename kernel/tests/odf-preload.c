// SPDX-License-Identifier: GPL-2.0-only
/* Loaded into a program before it starts (LD_PRELOAD): all its forks are on-demand. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

__attribute__((constructor)) static void ask(void)
{
	if (prctl(0x4f444601 /* PR_SET_ODF */, 1, 0, 0, 0)) {
		perror("odf-preload: prctl(PR_SET_ODF)");
		exit(9);
	}
}
