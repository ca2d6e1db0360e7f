/* As threads_helper, where ptrace is refused: threads that wait in the engine's handler go on when the helper is killed.
   env: FLASHFORK_THREADS=stop */
#define BY_SIGNALS
#include "threads_helper.c"
