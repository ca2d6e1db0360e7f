/* Under READ_IMPLIES_EXEC (personality(2)), which a program may set itself, the engine's own memory is executable, too: what is
   looked through for code is the program's alone. With one thread and with two; bytes and discards are right.
   env: FLASHFORK_THREADS=stop */
#include "../behaviour.h"
#include <pthread.h>
#include <sys/personality.h>

static void sealed_well(void)
{
    char *p = memory(4 * MB, 1);
    at_last(call_seal);
    CHECK(sealed_bytes(p, 4 * MB) == 4 * MB && intact(p, 4 * MB, 1));
    if (in_clone()) {
        CHECK(intact(p, 4 * MB, 1));
        fill(p, 4 * MB, 2);
        _exit(0);
    }
    CHECK(intact(p, 4 * MB, 1));
    CHECK(madvise(p, MB, MADV_DONTNEED) == 0 && zeros(p, MB));
}

int main(void)
{
    int end[2];
    pthread_t other;
    CHECK(personality(READ_IMPLIES_EXEC) >= 0);
    seal();
    sealed_well();
    CHECK(pipe(end) == 0 && pthread_create(&other, NULL, until_told, end) == 0);
    sealed_well();
    unseal();
    CHECK(write(end[1], "", 1) == 1 && pthread_join(other, NULL) == 0);
    return 0;
}
