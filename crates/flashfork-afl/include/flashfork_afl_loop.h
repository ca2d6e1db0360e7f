/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * AFL++'s persistent loop, each round of which starts from the same state: what a round does to memory and descriptors is
 * undone before the next. Compiled into a harness by afl-cc's option -include, and linked with -lflashfork_afl; the harness
 * itself stays as it is. docs/FUZZING.md says more.
 */

#ifndef FLASHFORK_AFL_LOOP_H
#define FLASHFORK_AFL_LOOP_H

#ifdef __cplusplus
extern "C" {
#endif

/* Returns 1 before each round, always from the first call, and 0 once there were so many. */
int flashfork_afl_loop(unsigned int rounds);

#ifdef __cplusplus
}
#endif

/* AFL looks for this text in the program to know that it has such a loop. */
#undef __AFL_LOOP
#define __AFL_LOOP(rounds) \
	(__extension__({ \
		static volatile const char *flashfork_afl_mark __attribute__((used, unused)); \
		flashfork_afl_mark = "##SIG_AFL_PERSISTENT##"; \
		flashfork_afl_loop(rounds); \
	}))

#endif
