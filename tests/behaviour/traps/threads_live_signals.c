/* As threads_live, where ptrace is refused and threads are stopped by signals: no write is lost either. What they see besides is in
   threads_interrupted_signals.
   env: FLASHFORK_THREADS=stop */
#define BY_SIGNALS
#include "threads_live.c"
