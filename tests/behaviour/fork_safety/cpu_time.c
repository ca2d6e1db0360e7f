/* CPU time and statistics: a clone's begin at zero. times(2), getrusage(2).
   clone: own
   do: nothing */
#include "../behaviour.h"
#include <time.h>

static double used(void)
{
    struct timespec t;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
    seal();
    while (used() < 0.2)
        ;
    if (in_clone()) {
        CHECK(used() < 0.2);
        _exit(0);
    }
    return 0;
}
