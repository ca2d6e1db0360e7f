/* A program that has a function of its own by the name of libc's clock_gettime, by which forks are timed: nobody else calls it.
   env: FLASHFORK_ENGINE=seal */
#define clock_gettime libc_clock_gettime
#include "../behaviour.h"
#undef clock_gettime

/* What behaviour.h would call is not used here. */
int libc_clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    (void)now;
    return -1;
}

static int calls;

long clock_gettime(long ours)
{
    calls++;
    return ours;
}

int main(void)
{
    char *p = memory(8 * MB, 1);
    for (int i = 0; i < 3; i++)
        if (in_clone())
            _exit(!intact(p, 8 * MB, 1));
    CHECK(sealed_bytes(p, 8 * MB) == 8 * MB);
    CHECK(calls == 0 && clock_gettime(7) == 7 && calls == 1);
    return 0;
}
