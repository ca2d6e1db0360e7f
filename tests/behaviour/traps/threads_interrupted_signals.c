/* As threads_interrupted, where ptrace is refused and threads are stopped by signals: calls that no handler lets go on end with
   EINTR, and pause and sigsuspend return. docs/THREADS.md lists them. signal(7), "Interruption of system calls by signal handlers".
   env: FLASHFORK_THREADS=stop */
#define BY_SIGNALS
#include "threads_interrupted.c"
